/* The code paths: the same code (path_body.h) compiled for several instruction sets. */
#ifndef MAXSIM_PATHS_H
#define MAXSIM_PATHS_H

#include "maxsim.h"

/* A query's tokens as the inner loops take them: side by side, one a lane, in blocks of `lanes`.
 * The last block is filled up with copies of the last token, which change no maximum, and
 * `weights` keep them out of sums. */
typedef struct {
    int64_t count;           /* tokens of the query */
    int64_t blocks;          /* of `lanes` tokens */
    int16_t *integers;       /* [block], then as the path lays them out: for int8 and codes */
    int32_t *totals;         /* [block][lane]: sum of a token's integers */
    float *floats;           /* [block][dim][lane]: for float16, and against centroids */
    float *scales;           /* [block][lane]: what the integers are to be multiplied by */
    float *weights;          /* [block][lane]: 1 for a token, 0 for a copy */
    float *with_centroids;   /* [centroid][block][lane]: products, codes only */
} prepared_query;

/* A short query in the same blocks; the copies in the last one have the weight 0. */
typedef struct {
    int64_t blocks;
    int8_t *values;  /* [block], then as the path lays them out, two bytes a value at most */
    int32_t *totals; /* [block][lane]: sum of a token's values */
    float *scales;   /* [block][lane] */
    float *weights;  /* [block][lane] */
} prepared_short_query;

typedef struct maxsim_path_table {
    const char *name;
    int32_t lanes;
    int32_t step; /* dimensions that a lane takes at a time */
    int (*is_supported)(void);
    /* The same with twice as many lanes, for queries that fill them; NULL: there is none. */
    const struct maxsim_path_table *wide;
    /* Lay the integers of a query's token out in its lane of a block. */
    void (*lay_out)(int16_t *block, int64_t lane, const int32_t *integers, int64_t width);
    /* Fill `with_centroids`. */
    void (*multiply_centroids)(const maxsim_tokens *tokens, prepared_query *query);
    /* Score one item for several queries; the score of query i goes to scores[i * stride].
     * `next` is the row that will come next, to be fetched meanwhile; -1: none.
     * `scratch` holds what `scratch_floats` says. */
    maxsim_status (*score_item)(const maxsim_tokens *tokens, const prepared_query *queries,
                                int64_t query_count, int are_regions, int64_t row, int64_t next,
                                float *scratch, float *scores, int64_t stride);
    int32_t short_bytes;   /* of a value of a laid out short query */
    int32_t short_largest; /* no value of a short query is larger, nor smaller than its opposite */
    /* Lay the values of a short query's token out in its lane of a block. */
    void (*lay_out_short)(int8_t *block, int64_t lane, const int8_t *values, int64_t width);
    /* Score the short forms of the items of `rows`, or of the `count` items from `first` on where
     * that is NULL; `scratch` has room for LARGEST_TILE short tokens of int32. */
    maxsim_status (*bound_items)(const maxsim_shorts *shorts, const prepared_short_query *query,
                                 int are_regions, const int64_t *rows, int64_t first,
                                 int64_t count, void *scratch, float *bounds);
} maxsim_path_table;

/* No path decodes and scores more item tokens together. */
enum { LARGEST_TILE = 8 };

/* Bytes of one stored token. */
static inline int64_t stored_bytes(const maxsim_tokens *tokens)
{
    return ((int64_t)tokens->dim * tokens->bits + 7) / 8;
}

/* Numbers of one decoded token, a multiple of `step`. Codes are decoded in two planes: first
 * those in the lower halves of all bytes, then the others. */
static inline int64_t decoded_width(const maxsim_tokens *tokens, int64_t step)
{
    int64_t numbers = tokens->dim;
    if (tokens->bits < 8)
        numbers = stored_bytes(tokens) * 2;
    return (numbers + step - 1) / step * step;
}

extern const maxsim_path_table maxsim_portable_path;
#if defined(__x86_64__)
extern const maxsim_path_table maxsim_avx2_path;
extern const maxsim_path_table maxsim_avx2_wide_path;
extern const maxsim_path_table maxsim_avx512_path;
#endif

#endif
