/* Late interaction on tokens in their stored form: what the outside sees.
 *
 * A text scores with a photo the sum over the words of the best region. Whichever of the two is
 * the query: with words as the query it is the sum over the query's tokens of the best token of
 * the item, with regions as the query the sum over the item's tokens of the best of the query.
 */
#ifndef MAXSIM_H
#define MAXSIM_H

#include <stdint.h>

#if defined(_WIN32)
#define MAXSIM_API __declspec(dllexport)
#else
#define MAXSIM_API __attribute__((visibility("default")))
#endif

/* Raised by one when a structure or a function below changes; the binding refuses another. */
enum { MAXSIM_INTERFACE = 6 };

/* All items' tokens one after the other; item i has the tokens offsets[i] to offsets[i + 1]. */
typedef struct {
    const void *values;           /* float16, int8, or codes, the first dimension in the low bits */
    const float *scales;          /* one a token; not used for float16 */
    const uint16_t *centroid_ids; /* one a token; codes only */
    const float *centroids;       /* (centroid_count, dim); codes only */
    const int64_t *offsets;       /* (item_count + 1) */
    int64_t item_count;
    int64_t token_count;
    int64_t centroid_count;
    int32_t dim;
    int32_t bits; /* of a dimension: 16 is float16, 8 is int8, 4 are codes */
} maxsim_tokens;

/* Queries, one after the other; query i has the tokens offsets[i] to offsets[i + 1]. */
typedef struct {
    const float *tokens; /* (tokens, dim) */
    const int64_t *offsets;
    int64_t count;
    int32_t are_regions; /* else words */
} maxsim_queries;

/* Short forms of all items' tokens, for bounds: a byte a dimension, its value plus 128. */
typedef struct {
    const uint8_t *values;
    const float *scales;    /* one an item: what the values of its tokens are to be multiplied by */
    const int64_t *offsets; /* (item_count + 1), as those of the tokens */
    int64_t item_count;
    int64_t token_count;
    int32_t width; /* bytes of a short token, a multiple of 4 */
} maxsim_shorts;

/* A query in short form. */
typedef struct {
    const int8_t *values; /* (count, width), see maxsim_short_largest */
    const float *scales;  /* (count): what a token's values are to be multiplied by */
    int64_t count;
    int32_t are_regions; /* else words */
} maxsim_short_query;

typedef enum {
    MAXSIM_OK = 0,
    MAXSIM_NO_SUCH_ROW = 1,
    MAXSIM_BAD_OFFSETS = 2,
    MAXSIM_BAD_CENTROID = 3,
    MAXSIM_NO_MEMORY = 4,
    MAXSIM_NO_SUCH_PATH = 5,
    MAXSIM_BAD_WIDTH = 6,
    MAXSIM_BAD_VALUE = 7,
} maxsim_status;

MAXSIM_API int32_t maxsim_interface(void);

/* Name of a code path that this processor supports; 0 is the fastest; NULL past the last. */
MAXSIM_API const char *maxsim_path(int32_t path);

/* The largest absolute value of a short query that a path multiplies; 0 past the last path. */
MAXSIM_API int32_t maxsim_short_largest(int32_t path);

/* Score the candidates of each query: query i has the rows row_offsets[i] to row_offsets[i + 1],
 * and their scores go to the same places. */
MAXSIM_API int32_t maxsim_score_rows(const maxsim_tokens *tokens, const maxsim_queries *queries,
                                     const int64_t *rows, const int64_t *row_offsets,
                                     float *scores, int32_t path);

/* Score the items `first` to `end` for all queries: scores[i * stride + row - first]. Every token
 * is read and decoded once, however many queries there are. */
MAXSIM_API int32_t maxsim_score_range(const maxsim_tokens *tokens, const maxsim_queries *queries,
                                      int64_t first, int64_t end, float *scores, int64_t stride,
                                      int32_t path);

/* Score the short forms of the items `first` to `end` for one query: bounds[row - first]. Products
 * are whole numbers without roundings. */
MAXSIM_API int32_t maxsim_bound_range(const maxsim_shorts *shorts, const maxsim_short_query *query,
                                      int64_t first, int64_t end, float *bounds, int32_t path);

/* The same for `count` items in any order: bounds[i] is that of the item rows[i]. */
MAXSIM_API int32_t maxsim_bound_rows(const maxsim_shorts *shorts, const maxsim_short_query *query,
                                     const int64_t *rows, int64_t count, float *bounds,
                                     int32_t path);

/* Round (count, dim) vectors to the levels of codes of 4 bits, or to whole numbers from -127 to
 * 127 (8 bits), each times its vector's scale. Given `feedback`, (dim, dim), an error of dimension
 * d times row d is taken off the dimensions after it before those are rounded.
 * Writes places of levels, or the numbers themselves. */
MAXSIM_API int32_t maxsim_round(const float *vectors, const float *scales, const float *feedback,
                                int64_t count, int32_t dim, int32_t bits, int8_t *rounded);

#endif
