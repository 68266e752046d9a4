/* AVX2 with FMA and F16C: x86-64 processors since about 2013. */
#include "paths.h"
#include "x86_features.h"

#include <immintrin.h>

enum { LANES = 8 };

typedef __m256 vf;
typedef __m256i vi;

#define OP static inline __attribute__((always_inline))

OP vf vf_zero(void) { return _mm256_setzero_ps(); }
OP vf vf_set(float a) { return _mm256_set1_ps(a); }
OP vf vf_load(const float *p) { return _mm256_loadu_ps(p); }
OP void vf_store(float *p, vf a) { _mm256_storeu_ps(p, a); }
OP vf vf_add(vf a, vf b) { return _mm256_add_ps(a, b); }
OP vf vf_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
OP vf vf_max(vf a, vf b) { return _mm256_max_ps(a, b); }
OP vf vf_fma(vf a, vf b, vf c) { return _mm256_fmadd_ps(a, b, c); }
OP float vf_sum(vf a)
{
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
OP float vf_largest(vf a)
{
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}

OP vi vi_zero(void) { return _mm256_setzero_si256(); }
OP vi vi_add(vi a, vi b) { return _mm256_add_epi32(a, b); }
OP vi vi_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }

/* Pairs of int16: a product of bytes (maddubs) would saturate. */
enum { STEP = 2 };
typedef int16_t number;
typedef __m256i sums;
typedef __m256i step;

OP void place_integer(int16_t *query, int64_t place, int64_t lane, int32_t value)
{
    query[place / 2 * 2 * LANES + lane * 2 + place % 2] = (int16_t)value;
}
OP step load_step(const int16_t *query, int64_t place) { return vi_load(query + place * LANES); }
OP sums sums_zero(void) { return vi_zero(); }
OP sums sums_add(sums s, step q, const number *token)
{
    int32_t both;
    __builtin_memcpy(&both, token, sizeof both);
    return vi_add(s, _mm256_madd_epi16(q, _mm256_set1_epi32(both)));
}
OP vf sums_total(sums s, const int32_t *totals)
{
    (void)totals;
    return _mm256_cvtepi32_ps(s);
}

/* Bounds: the products of whole numbers above, of smaller ones. */
enum { SHORT_BYTES = 2 };
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
OP short_sums short_lowest(void) { return _mm256_set1_epi32(INT32_MIN); }
OP short_sums short_add(short_sums s, short_step q, const number *token)
{
    return sums_add(s, q, token);
}
OP short_sums short_max(short_sums a, short_sums b) { return _mm256_max_epi32(a, b); }
OP vf short_total(short_sums s, const int32_t *totals) { return sums_total(s, totals); }
OP const number *short_tile(const uint8_t *from, int64_t n, number *scratch)
{
    for (int64_t i = 0; i < n; ++i)
        scratch[i] = (number)(from[i] - 128);
    return scratch;
}

OP void decode_bytes(const int8_t *from, int64_t n, number *to)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(from + i));
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_cvtepi8_epi16(bytes));
    }
    for (; i < n; ++i)
        to[i] = from[i];
}

OP void decode_codes(const uint8_t *codes, int64_t n, int shift, int mask, const int8_t *levels,
                     number *to)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)levels);
    const __m128i keep = _mm_set1_epi8((char)mask), by = _mm_cvtsi32_si128(shift);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(codes + i));
        const __m128i places = _mm_and_si128(_mm_srl_epi16(bytes, by), keep);
        const __m128i found = _mm_shuffle_epi8(table, places);
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_cvtepi8_epi16(found));
    }
    for (; i < n; ++i)
        to[i] = levels[(codes[i] >> shift) & mask];
}

OP void widen_half(const uint16_t *from, int64_t n, float *to)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        const __m128i halves = _mm_loadu_si128((const __m128i *)(from + i));
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(halves));
    }
    for (; i < n; ++i)
        to[i] = _cvtsh_ss(from[i]);
}

#define PATH maxsim_avx2_path
#define PATH_NAME "avx2"
#define PATH_SUPPORTED x86_has_avx2
#include "path_body.h"
