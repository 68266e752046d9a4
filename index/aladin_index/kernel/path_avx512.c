/* AVX-512 with VNNI: Intel's servers since 2019, AMD's processors since 2022. */
#include "levels.h"
#include "paths.h"
#include "x86_features.h"

#include <immintrin.h>

enum { LANES = 16, TILE = 8 };

typedef __m512 vf;
typedef __m512i vi;

#define OP static inline __attribute__((always_inline))

OP vf vf_zero(void) { return _mm512_setzero_ps(); }
OP vf vf_set(float a) { return _mm512_set1_ps(a); }
OP vf vf_load(const float *p) { return _mm512_loadu_ps(p); }
OP void vf_store(float *p, vf a) { _mm512_storeu_ps(p, a); }
OP vf vf_add(vf a, vf b) { return _mm512_add_ps(a, b); }
OP vf vf_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
OP vf vf_max(vf a, vf b) { return _mm512_max_ps(a, b); }
OP vf vf_fma(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
OP float vf_sum(vf a) { return _mm512_reduce_add_ps(a); }
OP float vf_largest(vf a) { return _mm512_reduce_max_ps(a); }

OP vi vi_zero(void) { return _mm512_setzero_si512(); }
OP vi vi_add(vi a, vi b) { return _mm512_add_epi32(a, b); }
OP vi vi_load(const void *p) { return _mm512_loadu_si512(p); }

/* One VNNI instruction adds four products of an unsigned and a signed byte to each lane. A query's
 * integer is 256 * high + low, two signed bytes; an item's value is stored as value + 128, and
 * 128 times the sum of the query's integers is taken off at the end. So every broadcast of four
 * dimensions serves two instructions, and sums that wrap around come back. */
enum { STEP = 4 };
typedef uint8_t number;
typedef struct {
    __m512i low, high;
} sums;
typedef sums step;

OP void place_integer(int16_t *query, int64_t place, int64_t lane, int32_t value)
{
    int8_t *bytes = (int8_t *)query + place / 4 * 4 * LANES * 2 + lane * 4 + place % 4;
    const int32_t low = (int8_t)(value & 0xff);
    bytes[0] = (int8_t)low;
    bytes[4 * LANES] = (int8_t)((value - low) / 256);
}
OP step load_step(const int16_t *query, int64_t place)
{
    const int16_t *at = query + place * LANES;
    return (step){vi_load(at), vi_load(at + 2 * LANES)};
}
OP sums sums_zero(void) { return (sums){vi_zero(), vi_zero()}; }
/* Not the intrinsic: GCC (12 to 14) copies every sum to a new register and back around it, which
 * takes half the speed. */
OP __m512i add_products(__m512i sum, __m512i unsigned_bytes, __m512i signed_bytes)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
    return sum;
}
OP sums sums_add(sums s, step q, const number *token)
{
    int32_t four;
    __builtin_memcpy(&four, token, sizeof four);
    const __m512i everywhere = _mm512_set1_epi32(four);
    return (sums){add_products(s.low, everywhere, q.low), add_products(s.high, everywhere, q.high)};
}
OP vf sums_total(sums s, const int32_t *totals)
{
    const __m512i both = vi_add(s.low, _mm512_slli_epi32(s.high, 8));
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(both, _mm512_slli_epi32(vi_load(totals), 7)));
}

/* Bounds: a query's value is one signed byte, and short tokens are stored as they are multiplied. */
enum { SHORT_BYTES = 1, SHORT_STEP = STEP, SHORT_LARGEST = 127 };
typedef number short_number;
typedef __m512i short_sums;
typedef __m512i short_step;
OP void place_short(int8_t *query, int64_t place, int64_t lane, int8_t value)
{
    query[place / 4 * 4 * LANES + lane * 4 + place % 4] = value;
}
OP short_step load_short_step(const int8_t *query, int64_t place)
{
    return vi_load(query + place * LANES);
}
OP short_sums short_zero(void) { return vi_zero(); }
OP short_sums short_lowest(void) { return _mm512_set1_epi32(INT32_MIN); }
OP short_sums short_add(short_sums s, short_step q, const short_number *token)
{
    int32_t four;
    __builtin_memcpy(&four, token, sizeof four);
    return add_products(s, _mm512_set1_epi32(four), q);
}
OP short_sums short_max(short_sums a, short_sums b) { return _mm512_max_epi32(a, b); }
OP vf short_total(short_sums s, const int32_t *totals)
{
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(s, _mm512_slli_epi32(vi_load(totals), 7)));
}
OP const short_number *short_tile(const uint8_t *from, int64_t n, void *scratch)
{
    (void)n, (void)scratch;
    return from;
}

OP void decode_bytes(const int8_t *from, int64_t n, number *to)
{
    const __m512i by_128 = _mm512_set1_epi8((char)0x80);
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        _mm512_storeu_si512(to + i, _mm512_xor_si512(vi_load(from + i), by_128));
    for (; i < n; ++i)
        to[i] = (number)(from[i] + 128);
}

OP void decode_codes(const uint8_t *codes, int64_t n, int shift, number *to)
{
    const __m512i by_128 = _mm512_set1_epi8((char)0x80), keep = _mm512_set1_epi8(15);
    const __m512i table = _mm512_xor_si512(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)LEVELS)), by_128);
    const __m128i by = _mm_cvtsi32_si128(shift);
    for (int64_t i = 0; i < n; i += 64) {
        const __mmask64 there = n - i < 64 ? ((__mmask64)1 << (n - i)) - 1 : ~(__mmask64)0;
        const __m512i bytes = _mm512_maskz_loadu_epi8(there, codes + i);
        const __m512i places = _mm512_and_si512(_mm512_srl_epi16(bytes, by), keep);
        _mm512_mask_storeu_epi8(to + i, there, _mm512_shuffle_epi8(table, places));
    }
}

OP void widen_half(const uint16_t *from, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m256i halves = _mm256_loadu_si256((const __m256i *)(from + i));
        _mm512_storeu_ps(to + i, _mm512_cvtph_ps(halves));
    }
    for (; i < n; ++i)
        to[i] = _cvtsh_ss(from[i]);
}

#define PATH maxsim_avx512_path
#define PATH_NAME "avx512"
#define PATH_SUPPORTED x86_has_avx512_vnni
#define WIDE_PATH NULL
#include "path_body.h"
