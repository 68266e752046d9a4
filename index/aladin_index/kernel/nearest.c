/* Rows that may be among the nearest to a query; see nearest.h. */
#include "nearest.h"

#if defined(__x86_64__)
#include "x86_features.h"
#endif

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = NEAREST_LANES, STEP = NEAREST_STEP };

int32_t nearest_interface(void) { return NEAREST_INTERFACE; }

static void products_portable(const uint8_t *block, const nearest_query *query, uint32_t *products)
{
    memset(products, 0, LANES * sizeof *products);
    for (int32_t d = 0; d < query->width; d += STEP, block += LANES * STEP)
        for (int lane = 0; lane < LANES; ++lane)
            for (int i = 0; i < STEP; ++i)
                products[lane] += (uint32_t)(block[lane * STEP + i] * query->integers[d + i]);
}

/* Fastest first. */
static nearest_products find_path(int32_t wanted)
{
#if defined(__x86_64__)
    if (x86_has_avx512_vnni() && wanted-- == 0)
        return nearest_products_avx512;
    if (x86_has_avx2() && wanted-- == 0)
        return nearest_products_avx2;
#endif
    return wanted == 0 ? products_portable : NULL;
}

/* Rows that may be wanted, with the bounds of their scores. */
typedef struct {
    int64_t *rows;
    float *lowest, *highest, *sorted;
    int64_t count, room;
} candidates;

static int make_room(candidates *found, int64_t room)
{
    int64_t *rows = realloc(found->rows, (size_t)room * sizeof *rows);
    if (rows)
        found->rows = rows;
    float *lowest = realloc(found->lowest, (size_t)room * sizeof *lowest);
    if (lowest)
        found->lowest = lowest;
    float *highest = realloc(found->highest, (size_t)room * sizeof *highest);
    if (highest)
        found->highest = highest;
    float *sorted = realloc(found->sorted, (size_t)room * sizeof *sorted);
    if (sorted)
        found->sorted = sorted;
    if (!rows || !lowest || !highest || !sorted)
        return 0;
    found->room = room;
    return 1;
}

/* The `place`-th largest of some values, counted from 0; they are put in another order. */
static float largest_but(float *values, int64_t count, int64_t place)
{
    int64_t first = 0, last = count - 1;
    while (first < last) {
        const float pivot = values[first + (last - first) / 2];
        int64_t i = first, j = last;
        while (i <= j) {
            while (values[i] > pivot)
                ++i;
            while (values[j] < pivot)
                --j;
            if (i <= j) {
                const float other = values[i];
                values[i++] = values[j];
                values[j--] = other;
            }
        }
        if (place <= j)
            last = j;
        else if (place >= i)
            first = i;
        else
            break;
    }
    return values[place];
}

/* Keep the candidates that may be among the `wanted` nearest; returns the score below which no
 * other row is. */
static float keep_best(candidates *found, int64_t wanted)
{
    if (found->count < wanted)
        return -INFINITY;
    memcpy(found->sorted, found->lowest, (size_t)found->count * sizeof(float));
    const float least = largest_but(found->sorted, found->count, wanted - 1);
    int64_t kept = 0;
    for (int64_t i = 0; i < found->count; ++i)
        if (found->highest[i] >= least) {
            found->rows[kept] = found->rows[i];
            found->lowest[kept] = found->lowest[i];
            found->highest[kept++] = found->highest[i];
        }
    found->count = kept;
    return least;
}

/* One bit for each lane of a block that is a row, and allowed. */
static uint32_t lanes_of(const nearest_items *items, const uint8_t *allowed, int64_t first)
{
    const int64_t left = items->count - first;
    uint32_t lanes = left < LANES ? (1u << left) - 1 : (1u << LANES) - 1;
    if (allowed) {
        const int64_t byte = first / 8;
        uint32_t bits = allowed[byte];
        if (left > 8)
            bits |= (uint32_t)allowed[byte + 1] << 8;
        lanes &= bits;
    }
    return lanes;
}

static int scan(const nearest_items *items, const nearest_query *query, int64_t wanted,
                const uint8_t *allowed, nearest_products multiply, candidates *found)
{
    const int64_t block_bytes = (int64_t)items->width * LANES;
    float least = -INFINITY;
    int64_t full = 2 * wanted + LANES; /* when what was found is sorted out */
    for (int64_t first = 0; first < items->count; first += LANES) {
        uint32_t lanes = lanes_of(items, allowed, first);
        if (!lanes)
            continue;
        uint32_t products[LANES];
        multiply(items->codes + first / LANES * block_bytes, query, products);
        float score[LANES], wrong[LANES];
        int32_t any = 0;
        for (int i = 0; i < LANES; ++i) {
            const float factor = items->scales[first + i] * query->scale;
            score[i] = (float)(int32_t)(products[i] - query->total) * factor;
            wrong[i] = items->errors[first + i] * query->norm + query->slack;
            any |= score[i] + wrong[i] >= least;
        }
        if (!any)
            continue;
        for (int i = 0; i < LANES; ++i)
            if (!(score[i] + wrong[i] >= least))
                lanes &= ~(1u << i);
        for (; lanes; lanes &= lanes - 1) {
            const int lane = __builtin_ctz(lanes);
            found->rows[found->count] = first + lane;
            found->lowest[found->count] = score[lane] - wrong[lane];
            found->highest[found->count++] = score[lane] + wrong[lane];
        }
        if (found->count >= full) {
            least = keep_best(found, wanted);
            full = 2 * found->count + LANES;
            if (full + LANES > found->room && !make_room(found, 2 * (full + LANES)))
                return 0;
        }
    }
    keep_best(found, wanted);
    return 1;
}

/* Turn a query into whole numbers, in room for 4 * width bytes. */
static nearest_query prepare(const nearest_items *items, const float *query, void *room)
{
    const int32_t dim = items->dim, width = items->width;
    float largest = 0;
    for (int32_t d = 0; d < dim; ++d)
        largest = fabsf(query[d]) > largest ? fabsf(query[d]) : largest;
    /* No sum of products leaves int32, a code being at most 127. */
    const int32_t bound = INT32_MAX / (128 * width), two_bytes = 127 * 256 + 127;
    const float most = (float)(bound < two_bytes ? bound : two_bytes);
    nearest_query made = {.integers = room, .width = width, .scale = largest / most};
    made.low = (int32_t *)(made.integers + width);
    made.high = made.low + width / STEP;
    const float factor = largest > 0 ? most / largest : 0;
    double square = 0, rest = 0;
    for (int32_t d = 0; d < width; ++d) {
        const float value = d < dim ? query[d] : 0, times = value * factor;
        const int32_t integer = (int32_t)(times + (times < 0 ? -0.5f : 0.5f));
        const int8_t low = (int8_t)(integer & 0xff);
        const double left = value - (double)made.scale * integer;
        square += (double)value * value;
        rest += left * left;
        made.integers[d] = (int16_t)integer;
        ((int8_t *)made.low)[d] = low;
        ((int8_t *)made.high)[d] = (int8_t)((integer - low) / 256);
        made.total += 128u * (uint32_t)integer;
    }
    /* A sum of n products in float32 is wrong by at most n * 2^-24 of the norms' product. */
    const double norm = sqrt(square), rounding = (dim + 16) * 0x1p-23;
    made.norm = (float)(norm * 1.000001);
    made.slack = (float)(sqrt(rest) * 1.000001 * items->code_norm +
                         rounding * norm * (items->norm + items->code_norm));
    return made;
}

int64_t nearest_rows(const nearest_items *items, const float *query, int64_t wanted,
                     const uint8_t *allowed, int64_t *rows, int32_t path)
{
    const nearest_products multiply = find_path(path);
    if (!multiply)
        return -2;
    candidates found = {0};
    int64_t count = -1;
    void *room = malloc((size_t)items->width * 4);
    if (room && make_room(&found, 4 * (wanted + LANES))) {
        const nearest_query prepared = prepare(items, query, room);
        if (scan(items, &prepared, wanted, allowed, multiply, &found)) {
            memcpy(rows, found.rows, (size_t)found.count * sizeof *rows);
            count = found.count;
        }
    }
    free(room);
    free(found.rows);
    free(found.lowest);
    free(found.highest);
    free(found.sorted);
    return count;
}

void nearest_encode(const float *vectors, const float *mean, int64_t count, int32_t dim,
                    int32_t width, int64_t first, uint8_t *codes, float *scales, float *errors)
{
    for (int64_t v = 0; v < count; ++v, vectors += dim) {
        float largest = 0;
        for (int32_t d = 0; d < dim; ++d) {
            const float size = fabsf(vectors[d] - mean[d]);
            largest = size > largest ? size : largest;
        }
        const float scale = largest / 127, factor = largest > 0 ? 127 / largest : 0;
        const int64_t row = first + v;
        uint8_t *code = codes + row / LANES * LANES * width + row % LANES * STEP;
        double error = 0;
        for (int32_t d = 0; d < dim; ++d) {
            const float value = (vectors[d] - mean[d]) * factor;
            const int32_t level = (int32_t)(value + (value < 0 ? -0.5f : 0.5f));
            const double rest = (double)vectors[d] - mean[d] - (double)scale * level;
            error += rest * rest;
            code[d / STEP * LANES * STEP + d % STEP] = (uint8_t)(level + 128);
        }
        scales[row] = scale;
        errors[row] = (float)(sqrt(error) * 1.000001);
    }
}
