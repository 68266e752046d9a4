/* Plain C, for any processor; compilers turn the loops over lanes into what vectors there are. */
#include "levels.h"
#include "paths.h"

enum { LANES = 8, TILE = 8 };

typedef struct {
    float lane[LANES];
} vf;
typedef struct {
    int32_t lane[LANES];
} vi;

#define EACH(l) for (int l = 0; l < LANES; ++l)
#define OP static inline __attribute__((always_inline))

OP vf vf_set(float a) { vf r; EACH(l) r.lane[l] = a; return r; }
OP vf vf_zero(void) { return vf_set(0); }
OP vf vf_load(const float *p) { vf r; EACH(l) r.lane[l] = p[l]; return r; }
OP void vf_store(float *p, vf a) { EACH(l) p[l] = a.lane[l]; }
OP vf vf_add(vf a, vf b) { EACH(l) a.lane[l] += b.lane[l]; return a; }
OP vf vf_mul(vf a, vf b) { EACH(l) a.lane[l] *= b.lane[l]; return a; }
OP vf vf_fma(vf a, vf b, vf c) { EACH(l) c.lane[l] += a.lane[l] * b.lane[l]; return c; }
OP vf vf_max(vf a, vf b)
{
    EACH(l) a.lane[l] = a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l];
    return a;
}
OP float vf_sum(vf a)
{
    float sum = 0;
    EACH(l) sum += a.lane[l];
    return sum;
}
OP float vf_largest(vf a)
{
    float largest = a.lane[0];
    EACH(l) largest = a.lane[l] > largest ? a.lane[l] : largest;
    return largest;
}

OP vi vi_zero(void) { vi r; EACH(l) r.lane[l] = 0; return r; }

enum { STEP = 2 };
typedef int16_t number;
typedef vi sums;
typedef struct {
    int16_t first[LANES], second[LANES];
} step;

OP void place_integer(int16_t *query, int64_t place, int64_t lane, int32_t value)
{
    query[place * LANES + lane] = (int16_t)value;
}
OP step load_step(const int16_t *query, int64_t place)
{
    step r;
    __builtin_memcpy(&r, query + place * LANES, sizeof r);
    return r;
}
OP sums sums_zero(void) { return vi_zero(); }
OP sums sums_add(sums s, step q, const number *token)
{
    EACH(l) s.lane[l] += q.first[l] * token[0] + q.second[l] * token[1];
    return s;
}
OP vf sums_total(sums s, const int32_t *totals)
{
    (void)totals;
    vf r;
    EACH(l) r.lane[l] = (float)s.lane[l];
    return r;
}

/* Bounds: the products of whole numbers above, of smaller ones. */
enum { SHORT_BYTES = 2, SHORT_STEP = STEP, SHORT_LARGEST = 127 };
typedef number short_number;
typedef sums short_sums;
typedef step short_step;
OP void place_short(int8_t *query, int64_t place, int64_t lane, int8_t value)
{
    place_integer((int16_t *)query, place, lane, value);
}
OP short_step load_short_step(const int8_t *query, int64_t place)
{
    return load_step((const int16_t *)query, place);
}
OP short_sums short_zero(void) { return sums_zero(); }
OP short_sums short_lowest(void) { vi r; EACH(l) r.lane[l] = INT32_MIN; return r; }
OP short_sums short_add(short_sums s, short_step q, const short_number *token)
{
    return sums_add(s, q, token);
}
OP short_sums short_max(short_sums a, short_sums b) 
{
    EACH(l) a.lane[l] = a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l];
    return a;
}
OP vf short_total(short_sums s, const int32_t *totals) { return sums_total(s, totals); }
OP const short_number *short_tile(const uint8_t *from, int64_t n, void *scratch)
{
    short_number *tile = scratch;
    for (int64_t i = 0; i < n; ++i)
        tile[i] = (short_number)(from[i] - 128);
    return tile;
}

OP void decode_bytes(const int8_t *from, int64_t n, number *to)
{
    for (int64_t i = 0; i < n; ++i)
        to[i] = from[i];
}

OP void decode_codes(const uint8_t *codes, int64_t n, int shift, number *to)
{
    for (int64_t i = 0; i < n; ++i)
        to[i] = LEVELS[(codes[i] >> shift) & 15];
}

OP void widen_half(const uint16_t *from, int64_t n, float *to)
{
    for (int64_t i = 0; i < n; ++i) {
        /* Shift exponent and fraction into place, and mend the exponent's bias by a product,
         * which gets subnormal numbers right too. Infinity and NaN are no tokens. */
        const uint32_t bits = (uint32_t)(from[i] & 0x7fff) << 13;
        float value;
        __builtin_memcpy(&value, &bits, 4);
        value *= 0x1p112f;
        to[i] = from[i] & 0x8000 ? -value : value;
    }
}

static int supported(void) { return 1; }

#define PATH maxsim_portable_path
#define PATH_NAME "portable"
#define PATH_SUPPORTED supported
#define WIDE_PATH NULL
#include "path_body.h"
