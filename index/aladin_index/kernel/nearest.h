/* Rows that may be among the nearest to a query, by bounds from one byte per dimension.
 *
 * A vector x is stored as a mean that all share, and a code: x = mean + scale * code + rest, where
 * the norm of the rest is at most `errors`. A query q has, by the inequality of Cauchy and Schwarz,
 *
 *     |<q, x> - <q, mean> - scale * <q, code>|  <=  |q| * errors
 *
 * so that a row is left out only where so many others are nearer for certain as are wanted.
 */
#ifndef NEAREST_H
#define NEAREST_H

#include "maxsim.h"

/* Raised by one when a structure or a function below changes; the binding refuses another. */
enum { NEAREST_INTERFACE = 1 };

/* Vectors side by side: a block has four dimensions of each of them, then the next four. */
enum { NEAREST_LANES = 16, NEAREST_STEP = 4 };

typedef struct {
    const uint8_t *codes; /* [block][width / 4][16][4], each code plus 128; on a multiple of 64 */
    const float *scales;  /* (blocks * 16) */
    const float *errors;  /* (blocks * 16) */
    int64_t count;
    int32_t dim;
    int32_t width;   /* dimensions, rounded up to a multiple of 16 */
    float norm;      /* of the longest vector, at least */
    float code_norm; /* of the longest code times its scale, at least */
} nearest_items;

MAXSIM_API int32_t nearest_interface(void);

/* Write the rows that may be among the `wanted` nearest, in any order, to `rows`, which has room for
 * all, and return how many they are; -1: out of memory, -2: this processor has no such path.
 * `allowed` has one bit per row, the first in the lowest place; NULL: all. */
MAXSIM_API int64_t nearest_rows(const nearest_items *items, const float *query, int64_t wanted,
                                const uint8_t *allowed, int64_t *rows, int32_t path);

/* Encode (count, dim) vectors as the rows from `first` on, a multiple of 16. Codes of dimensions
 * beyond `dim` are left as they are. */
MAXSIM_API void nearest_encode(const float *vectors, const float *mean, int64_t count, int32_t dim,
                               int32_t width, int64_t first, uint8_t *codes, float *scales,
                               float *errors);

/* A query in whole numbers, which are 256 * high + low, two signed bytes. */
typedef struct {
    int16_t *integers; /* (width) */
    int32_t *low;      /* (width / 4), four bytes in each */
    int32_t *high;
    int32_t width;
    uint32_t total; /* 128 times their sum */
    float scale;    /* what they are to be multiplied by */
    float norm;     /* of the query: what a row's `errors` are to be multiplied by */
    float slack;    /* what else a score may be wrong by, of any row */
} nearest_query;

/* Sums over a block's dimensions of (code + 128) * integer, 16 of them, modulo 2^32. */
typedef void (*nearest_products)(const uint8_t *block, const nearest_query *query,
                                 uint32_t *products);

#if defined(__x86_64__)
void nearest_products_avx2(const uint8_t *block, const nearest_query *query, uint32_t *products);
void nearest_products_avx512(const uint8_t *block, const nearest_query *query, uint32_t *products);
#endif

#endif
