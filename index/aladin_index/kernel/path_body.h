/* Scoring, written once for all instruction sets; included by each path after it has defined
 *
 *   LANES                  query tokens that are scored side by side
 *   TILE                   item tokens that are scored together: so many sums are in registers
 *   vf                     LANES floats
 *   vf_zero vf_set vf_load vf_store vf_add vf_mul vf_max vf_fma(a, b, c) = a * b + c
 *   vf_sum vf_largest      of all lanes
 *   widen_half(from, n, to)  float16 to float32
 *
 * and for products of integers, of which each lane takes STEP dimensions at a time,
 *
 *   number                 of a decoded token
 *   decode_bytes(from, n, to)                      from int8
 *   decode_codes(codes, n, shift, to)              from LEVELS[(code >> shift) & 15]
 *   place_integer(query, place, lane, value)       lay a query's value out, place < width
 *   step, sums             STEP dimensions of a block of the query; unfinished products
 *   load_step(query, place)
 *   sums_zero sums_add(sums, step, numbers)
 *   sums_total(sums, totals)  finished products as floats; totals: sum of each lane's integers
 *
 * and for bounds, of which all products are of bytes,
 *
 *   short_number, short_sums, short_step, load_short_step, short_zero, short_lowest, short_add,
 *   short_max, short_total  as those above; short_lowest: less than every sum
 *   SHORT_STEP             dimensions that a lane takes at a time
 *   SHORT_BYTES            of a value of a laid out query
 *   SHORT_LARGEST          no value of a query is larger, nor smaller than its opposite
 *   place_short(query, place, lane, value)
 *   short_tile(from, n, scratch)  n numbers from stored bytes, in scratch if they have to be decoded
 *
 * and PATH, PATH_NAME, PATH_SUPPORTED, and WIDE_PATH: the same with two of its blocks in one, or NULL.
 *
 * The layout is what makes it fast: the lanes of a vector are tokens of the query, and a token of
 * the item is broadcast, dimension by dimension. A vector is then LANES finished products, with no
 * sum across lanes for each pair of tokens.
 */
#include <math.h>

#include <stddef.h>

#define INLINE static inline __attribute__((always_inline))

/* Products of `n` decoded tokens with one block of the query; `n` is a constant wherever this is
 * called, so that the sums stay in registers. */
INLINE void integer_products(const int n, const number *tile, int64_t width, const void *query,
                             const int32_t *totals, vf *products)
{
    sums all[TILE];
    for (int t = 0; t < n; ++t)
        all[t] = sums_zero();
    for (int64_t d = 0; d < width; d += STEP) {
        const step q = load_step(query, d);
        for (int t = 0; t < n; ++t)
            all[t] = sums_add(all[t], q, tile + t * width + d);
    }
    for (int t = 0; t < n; ++t)
        products[t] = sums_total(all[t], totals);
}

INLINE void float_products(const int n, const float *tile, int64_t width, const float *query,
                           int64_t dim, vf *products)
{
    vf sums[TILE];
    for (int t = 0; t < n; ++t)
        sums[t] = vf_zero();
    for (int64_t d = 0; d < dim; ++d) {
        const vf q = vf_load(query + d * LANES);
        for (int t = 0; t < n; ++t)
            sums[t] = vf_fma(q, vf_set(tile[t * width + d]), sums[t]);
    }
    for (int t = 0; t < n; ++t)
        products[t] = sums[t];
}

/* clang-format off */
#define FOR_CONSTANT(n, call)                                                                     \
    switch (n) {                                                                                  \
    case 1: call(1); break;  case 2: call(2); break;                                              \
    case 3: call(3); break;  case 4: call(4); break;                                              \
    case 5: call(5); break;                                                                       \
    case 6: if (TILE > 6) { call(6); break; } /* fall through */                                  \
    case 7: if (TILE > 7) { call(7); break; } /* fall through */                                  \
    default: call(TILE); break;                                                                   \
    }
/* clang-format on */

static void products_of_integers(int n, const number *tile, int64_t width, const void *query,
                                 const int32_t *totals, vf *products)
{
#define CALL(N) integer_products(N, tile, width, query, totals, products)
    FOR_CONSTANT(n, CALL)
#undef CALL
}

static void products_of_floats(int n, const float *tile, int64_t width, const float *query,
                               int64_t dim, vf *products)
{
#define CALL(N) float_products(N, tile, width, query, dim, products)
    FOR_CONSTANT(n, CALL)
#undef CALL
}

static void multiply_centroids(const maxsim_tokens *tokens, prepared_query *query)
{
    const int64_t dim = tokens->dim;
    for (int64_t first = 0; first < tokens->centroid_count; first += TILE) {
        const int64_t left = tokens->centroid_count - first;
        const int n = left < TILE ? (int)left : TILE;
        for (int64_t block = 0; block < query->blocks; ++block) {
            vf products[TILE];
            products_of_floats(n, tokens->centroids + first * dim, dim,
                               query->floats + block * dim * LANES, dim, products);
            for (int t = 0; t < n; ++t)
                vf_store(query->with_centroids + ((first + t) * query->blocks + block) * LANES,
                         products[t]);
        }
    }
}

/* Decode `n` tokens from the one at `first` into `tile`: numbers, or floats from float16. What is
 * past a token's end meets zeros of the query. */
INLINE void decode(const maxsim_tokens *tokens, int64_t first, int n, int64_t width, void *tile)
{
    const int64_t bytes = stored_bytes(tokens);
    const uint8_t *stored = (const uint8_t *)tokens->values + first * bytes;
    for (int t = 0; t < n; ++t, stored += bytes) {
        number *out = (number *)tile + t * width;
        if (tokens->bits == 16) {
            widen_half((const uint16_t *)stored, tokens->dim, (float *)tile + t * width);
        } else if (tokens->bits == 8) {
            decode_bytes((const int8_t *)stored, tokens->dim, out);
        } else {
            decode_codes(stored, bytes, 0, out);
            decode_codes(stored, bytes, 4, out + bytes);
        }
    }
}

/* Ask for `n` tokens from the one at `first` to be brought near: rows are scattered, and what the
 * processor guesses ends with the row. */
INLINE void prefetch(const maxsim_tokens *tokens, int64_t first, int64_t n)
{
    const int64_t bytes = stored_bytes(tokens);
    const char *values = (const char *)tokens->values + first * bytes;
    for (int64_t at = 0; at < n * bytes; at += 64)
        __builtin_prefetch(values + at);
    if (tokens->scales)
        for (int64_t t = 0; t < n; t += 16)
            __builtin_prefetch(tokens->scales + first + t);
    if (tokens->centroid_ids)
        __builtin_prefetch(tokens->centroid_ids + first);
}

/* Products of a tile with one block of a query, in the scale of the tokens themselves. */
INLINE void tile_products(const maxsim_tokens *tokens, const prepared_query *query, int64_t block,
                          int64_t first, int n, int64_t width, const void *tile, vf *products)
{
    if (tokens->bits == 16) {
        products_of_floats(n, tile, width, query->floats + block * tokens->dim * LANES,
                           tokens->dim, products);
        return;
    }
    products_of_integers(n, tile, width, query->integers + block * width * LANES,
                         query->totals + block * LANES, products);
    const vf scales = vf_load(query->scales + block * LANES);
    for (int t = 0; t < n; ++t)
        products[t] = vf_mul(products[t], vf_mul(scales, vf_set(tokens->scales[first + t])));
    if (tokens->centroid_ids)
        for (int t = 0; t < n; ++t) {
            const int64_t id = tokens->centroid_ids[first + t];
            const float *with = query->with_centroids + (id * query->blocks + block) * LANES;
            products[t] = vf_add(products[t], vf_load(with));
        }
}

static maxsim_status score_item(const maxsim_tokens *tokens, const prepared_query *queries,
                                int64_t query_count, int are_regions, int64_t row, int64_t next,
                                float *scratch, float *scores, int64_t stride)
{
    const int64_t start = tokens->offsets[row], count = tokens->offsets[row + 1] - start;
    int64_t next_start = 0, next_count = 0;
    if (next >= 0) {
        next_start = tokens->offsets[next];
        next_count = tokens->offsets[next + 1] - next_start;
    }
    if (tokens->centroid_ids)
        for (int64_t t = start; t < start + count; ++t)
            if (tokens->centroid_ids[t] >= tokens->centroid_count)
                return MAXSIM_BAD_CENTROID;

    const int64_t width = decoded_width(tokens, STEP);
    void *tile = scratch;
    float *best = scratch + TILE * width; /* [query][block][lane]: of words over the item so far */
    for (int64_t i = 0; i < query_count; ++i)
        scores[i * stride] = 0;
    /* Tiles of about one size, not full ones and a small rest: a small one leaves multipliers idle. */
    const int64_t tiles = (count + TILE - 1) / TILE;
    const int64_t small = tiles ? count / tiles : 0, large_tiles = tiles ? count % tiles : 0;
    const int64_t ahead = tiles ? (next_count + tiles - 1) / tiles : 0; /* of the next item */
    int64_t from = 0;
    for (int64_t k = 0; k < tiles; ++k) {
        const int n = (int)(small + (k < large_tiles));
        const int64_t left = next_count - k * ahead;
        if (left > 0)
            prefetch(tokens, next_start + k * ahead, left < ahead ? left : ahead);
        decode(tokens, start + from, n, width, tile);
        float *own = best;
        for (int64_t i = 0; i < query_count; ++i) {
            const prepared_query *query = queries + i;
            vf products[TILE], largest[TILE];
            for (int64_t block = 0; block < query->blocks; ++block, own += LANES) {
                tile_products(tokens, query, block, start + from, n, width, tile, products);
                if (are_regions) {
                    for (int t = 0; t < n; ++t)
                        largest[t] = block ? vf_max(largest[t], products[t]) : products[t];
                } else {
                    vf most = k ? vf_load(own) : products[0];
                    for (int t = 0; t < n; ++t)
                        most = vf_max(most, products[t]);
                    vf_store(own, most);
                }
            }
            if (are_regions && query->blocks)
                for (int t = 0; t < n; ++t)
                    scores[i * stride] += vf_largest(largest[t]);
        }
        from += n;
    }
    if (!are_regions && tiles) {
        const float *own = best;
        for (int64_t i = 0; i < query_count; ++i) {
            vf sum = vf_zero();
            for (int64_t block = 0; block < queries[i].blocks; ++block, own += LANES)
                sum = vf_fma(vf_load(own), vf_load(queries[i].weights + block * LANES), sum);
            scores[i * stride] = vf_sum(sum);
        }
    }
    return MAXSIM_OK;
}

/* Lay a query's token out in its lane of a block. */
static void lay_out(int16_t *block, int64_t lane, const int32_t *integers, int64_t width)
{
    for (int64_t at = 0; at < width; ++at)
        place_integer(block, at, lane, integers[at]);
}

#include "bound_body.h"

const maxsim_path_table PATH = {
    PATH_NAME,   LANES,         STEP,          PATH_SUPPORTED, WIDE_PATH,   lay_out, multiply_centroids, score_item,
    SHORT_BYTES, SHORT_LARGEST, lay_out_short, bound_items,
};
