/* Late interaction on tokens in their stored form: entry points, and how a query is prepared. */
#include "maxsim.h"
#include "paths.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fastest first. */
static const maxsim_path_table *const PATHS[] = {
#if defined(__x86_64__)
    &maxsim_avx512_path,
    &maxsim_avx2_path,
#endif
    &maxsim_portable_path,
};
enum { PATH_COUNT = sizeof PATHS / sizeof PATHS[0] };

static const maxsim_path_table *find_path(int32_t wanted)
{
    for (int i = 0; i < PATH_COUNT; ++i)
        if (PATHS[i]->is_supported() && wanted-- == 0)
            return PATHS[i];
    return NULL;
}

/* The path for a query of so many tokens: the wide one if they fill more than half of one of its
 * blocks, and no more than one, so that both add the words up in the same order. */
static const maxsim_path_table *path_for(const maxsim_path_table *path, int64_t count)
{
    const int is_wide = path->wide && count > path->lanes && count <= path->wide->lanes;
    return is_wide ? path->wide : path;
}

int32_t maxsim_interface(void) { return MAXSIM_INTERFACE; }

const char *maxsim_path(int32_t path)
{
    const maxsim_path_table *found = path < 0 ? NULL : find_path(path);
    return found ? found->name : NULL;
}

int32_t maxsim_short_largest(int32_t path)
{
    const maxsim_path_table *found = path < 0 ? NULL : find_path(path);
    return found ? found->short_largest : 0;
}

/* The largest integer a query's value may become: two signed bytes hold it, and no product leaves
 * int32, item values being at most 127. Up to 518 dimensions these are 16 bits, for 768 15. */
static float largest_integer(int64_t dim)
{
    const int64_t two_bytes = 127 * 256 + 127, bound = INT32_MAX / (127 * dim);
    return (float)(bound < two_bytes ? bound : two_bytes);
}

static void *aligned_zeros(int64_t bytes)
{
    void *memory = NULL;
    const size_t size = ((size_t)bytes + 63) / 64 * 64;
#if defined(_WIN32)
    memory = _aligned_malloc(size ? size : 64, 64);
#else
    memory = aligned_alloc(64, size ? size : 64);
#endif
    if (memory)
        memset(memory, 0, size);
    return memory;
}

static void release(void *memory)
{
#if defined(_WIN32)
    _aligned_free(memory);
#else
    free(memory);
#endif
}

static void release_query(prepared_query *query)
{
    release(query->integers);
    release(query->totals);
    release(query->floats);
    release(query->scales);
    release(query->weights);
    release(query->with_centroids);
    memset(query, 0, sizeof *query);
}

/* Turn a query's token into integers; returns what they are to be multiplied by. `integers` has
 * room for `width`, and is 0 where a decoded token has no dimension. */
static float to_integers(const maxsim_tokens *tokens, const float *token, int64_t width,
                         int32_t *integers)
{
    float largest = 0;
    for (int64_t d = 0; d < tokens->dim; ++d) {
        const float size = fabsf(token[d]);
        largest = size > largest ? size : largest;
    }
    const float scale = largest / largest_integer(tokens->dim);
    const float factor = scale > 0 ? largest_integer(tokens->dim) / largest : 0;
    const int64_t planes = tokens->bits < 8 ? 2 : 1;
    const int64_t plane = tokens->bits < 8 ? stored_bytes(tokens) : width;
    /* Codes are decoded plane by plane, see decoded_width. */
    for (int64_t p = 0; p < planes; ++p)
        for (int64_t i = 0; i < plane && p * plane + i < width; ++i) {
            const int64_t d = i * planes + p;
            const float value = d < tokens->dim ? token[d] * factor : 0;
            integers[p * plane + i] = (int32_t)(value + (value < 0 ? -0.5f : 0.5f));
        }
    return scale;
}

static maxsim_status prepare_query(const maxsim_tokens *tokens, const maxsim_path_table *path,
                                   const float *words, int64_t count, prepared_query *query)
{
    memset(query, 0, sizeof *query);
    const int64_t dim = tokens->dim, width = decoded_width(tokens, path->step);
    const int64_t lanes = path->lanes, blocks = (count + lanes - 1) / lanes;
    const int64_t slots = blocks * lanes;
    query->count = count;
    query->blocks = blocks;
    int32_t *integers = aligned_zeros(width * 4);
    query->scales = aligned_zeros(slots * 4);
    query->weights = aligned_zeros(slots * 4);
    int enough = integers && query->scales && query->weights;
    if (tokens->bits != 8) /* centroids are float32 */
        enough = enough && (query->floats = aligned_zeros(slots * dim * 4));
    if (tokens->bits != 16) {
        enough = enough && (query->integers = aligned_zeros(slots * width * 2));
        enough = enough && (query->totals = aligned_zeros(slots * 4));
    }
    if (tokens->bits < 8)
        enough = enough && (query->with_centroids = aligned_zeros(slots * tokens->centroid_count * 4));
    for (int64_t slot = 0; slot < slots && enough; ++slot) {
        const int64_t block = slot / lanes, lane = slot % lanes;
        const float *token = words + (slot < count ? slot : count - 1) * dim;
        query->weights[slot] = slot < count;
        if (query->floats)
            for (int64_t d = 0; d < dim; ++d)
                query->floats[(block * dim + d) * lanes + lane] = token[d];
        if (query->integers) {
            query->scales[slot] = to_integers(tokens, token, width, integers);
            path->lay_out(query->integers + block * width * lanes, lane, integers, width);
            for (int64_t at = 0; at < width; ++at)
                query->totals[slot] += integers[at];
        }
    }
    if (tokens->bits < 8 && enough)
        path->multiply_centroids(tokens, query);
    release(integers);
    if (!enough)
        release_query(query);
    return enough ? MAXSIM_OK : MAXSIM_NO_MEMORY;
}

static maxsim_status check_row(const maxsim_tokens *tokens, int64_t row)
{
    if (row < 0 || row >= tokens->item_count)
        return MAXSIM_NO_SUCH_ROW;
    const int64_t start = tokens->offsets[row], end = tokens->offsets[row + 1];
    if (start < 0 || end < start || end > tokens->token_count)
        return MAXSIM_BAD_OFFSETS;
    return MAXSIM_OK;
}

/* Room for one decoded tile, of float32 at most, and for the best of each query token. */
static float *allocate_scratch(const maxsim_tokens *tokens, const maxsim_path_table *path,
                               int64_t slots)
{
    return aligned_zeros((LARGEST_TILE * decoded_width(tokens, path->step) + slots) * 4);
}

static maxsim_status score_candidates(const maxsim_tokens *tokens, const maxsim_path_table *path,
                                      const prepared_query *query, int are_regions,
                                      const int64_t *rows, int64_t count, float *scores)
{
    float *scratch = allocate_scratch(tokens, path, query->blocks * path->lanes);
    maxsim_status status = scratch ? MAXSIM_OK : MAXSIM_NO_MEMORY;
    if (!status && count)
        status = check_row(tokens, rows[0]);
    for (int64_t i = 0; i < count && !status; ++i) {
        const int64_t next = i + 1 < count ? rows[i + 1] : -1;
        if (i + 1 < count)
            status = check_row(tokens, next);
        if (!status)
            status = path->score_item(tokens, query, 1, are_regions, rows[i], next, scratch,
                                      scores + i, 1);
    }
    release(scratch);
    return status;
}

int32_t maxsim_score_rows(const maxsim_tokens *tokens, const maxsim_queries *queries,
                          const int64_t *rows, const int64_t *row_offsets, float *scores,
                          int32_t path_wanted)
{
    const maxsim_path_table *found = find_path(path_wanted);
    if (!found)
        return MAXSIM_NO_SUCH_PATH;
    maxsim_status status = MAXSIM_OK;
    for (int64_t i = 0; i < queries->count && !status; ++i) {
        const int64_t start = queries->offsets[i], count = queries->offsets[i + 1] - start;
        if (row_offsets[i] == row_offsets[i + 1])
            continue;
        const maxsim_path_table *path = path_for(found, count);
        prepared_query query;
        status = prepare_query(tokens, path, queries->tokens + start * tokens->dim, count, &query);
        if (!status)
            status = score_candidates(tokens, path, &query, queries->are_regions,
                                      rows + row_offsets[i], row_offsets[i + 1] - row_offsets[i],
                                      scores + row_offsets[i]);
        release_query(&query);
    }
    return status;
}

int32_t maxsim_score_range(const maxsim_tokens *tokens, const maxsim_queries *queries,
                           int64_t first, int64_t end, float *scores, int64_t stride,
                           int32_t path_wanted)
{
    const maxsim_path_table *path = find_path(path_wanted);
    if (!path)
        return MAXSIM_NO_SUCH_PATH;
    if (queries->count == 1) /* several share each decoded token, and so the path */
        path = path_for(path, queries->offsets[1] - queries->offsets[0]);
    prepared_query *prepared = calloc(queries->count ? (size_t)queries->count : 1, sizeof *prepared);
    if (!prepared)
        return MAXSIM_NO_MEMORY;
    maxsim_status status = MAXSIM_OK;
    int64_t slots = 0;
    for (int64_t i = 0; i < queries->count && !status; ++i) {
        const int64_t start = queries->offsets[i], count = queries->offsets[i + 1] - start;
        status = prepare_query(tokens, path, queries->tokens + start * tokens->dim, count,
                               prepared + i);
        slots += prepared[i].blocks * path->lanes;
    }
    float *scratch = status ? NULL : allocate_scratch(tokens, path, slots);
    if (!status && !scratch)
        status = MAXSIM_NO_MEMORY;
    for (int64_t row = first; row < end && !status; ++row) {
        status = check_row(tokens, row);
        if (!status) /* rows follow each other: the processor sees that by itself */
            status = path->score_item(tokens, prepared, queries->count, queries->are_regions, row,
                                      -1, scratch, scores + (row - first), stride);
    }
    release(scratch);
    for (int64_t i = 0; i < queries->count; ++i)
        release_query(prepared + i);
    free(prepared);
    return status;
}

static void release_short(prepared_short_query *query)
{
    release(query->values);
    release(query->totals);
    release(query->scales);
    release(query->weights);
    memset(query, 0, sizeof *query);
}

static maxsim_status prepare_short(const maxsim_short_query *given, int64_t width,
                                   const maxsim_path_table *path, prepared_short_query *query)
{
    const int64_t lanes = path->lanes, blocks = (given->count + lanes - 1) / lanes;
    const int64_t slots = blocks * lanes;
    query->blocks = blocks;
    query->values = aligned_zeros(slots * width * 2);
    query->totals = aligned_zeros(slots * 4);
    query->scales = aligned_zeros(slots * 4);
    query->weights = aligned_zeros(slots * 4);
    if (!query->values || !query->totals || !query->scales || !query->weights) {
        release_short(query);
        return MAXSIM_NO_MEMORY;
    }
    for (int64_t at = 0; at < given->count * width; ++at)
        if (abs(given->values[at]) > path->short_largest) {
            release_short(query);
            return MAXSIM_BAD_VALUE;
        }
    for (int64_t slot = 0; slot < slots; ++slot) {
        const int64_t token = slot < given->count ? slot : given->count - 1;
        const int8_t *values = given->values + token * width;
        path->lay_out_short(query->values + slot / lanes * width * lanes * path->short_bytes,
                            slot % lanes, values, width);
        for (int64_t at = 0; at < width; ++at)
            query->totals[slot] += values[at];
        query->scales[slot] = given->scales[token];
        query->weights[slot] = slot < given->count;
    }
    return MAXSIM_OK;
}

static int32_t bound(const maxsim_shorts *shorts, const maxsim_short_query *query,
                     const int64_t *rows, int64_t first, int64_t count, float *bounds,
                     int32_t path_wanted)
{
    const maxsim_path_table *path = find_path(path_wanted);
    if (!path)
        return MAXSIM_NO_SUCH_PATH;
    path = path_for(path, query->count);
    if (shorts->width <= 0 || shorts->width % 4)
        return MAXSIM_BAD_WIDTH;
    prepared_short_query prepared;
    maxsim_status status = prepare_short(query, shorts->width, path, &prepared);
    if (status)
        return status;
    void *scratch = aligned_zeros((int64_t)LARGEST_TILE * shorts->width * 4);
    status = scratch ? path->bound_items(shorts, &prepared, query->are_regions, rows, first, count,
                                         scratch, bounds)
                     : MAXSIM_NO_MEMORY;
    release(scratch);
    release_short(&prepared);
    return status;
}

int32_t maxsim_bound_range(const maxsim_shorts *shorts, const maxsim_short_query *query,
                           int64_t first, int64_t end, float *bounds, int32_t path)
{
    return bound(shorts, query, NULL, first, end - first, bounds, path);
}

int32_t maxsim_bound_rows(const maxsim_shorts *shorts, const maxsim_short_query *query,
                          const int64_t *rows, int64_t count, float *bounds, int32_t path)
{
    return bound(shorts, query, rows, 0, count, bounds, path);
}
