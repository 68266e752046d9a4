/* AVX2 with FMA and F16C: x86-64 processors since about 2013. A block of a query fills HALVES
 * registers: with two, what is loaded of an item serves twice as many words. */
#include "levels.h"
#include "paths.h"
#include "x86_features.h"

#include <immintrin.h>

enum { LANES = 8 * HALVES, TILE = HALVES == 1 ? 8 : 6 };

typedef struct {
    __m256 half[HALVES];
} vf;
typedef struct {
    __m256i half[HALVES];
} vi;

#define OP static inline __attribute__((always_inline))
#define EACH(h) for (int h = 0; h < HALVES; ++h)

OP vf vf_set(float a) { vf r; EACH(h) r.half[h] = _mm256_set1_ps(a); return r; }
OP vf vf_zero(void) { return vf_set(0); }
OP vf vf_load(const float *p) { vf r; EACH(h) r.half[h] = _mm256_loadu_ps(p + 8 * h); return r; }
OP void vf_store(float *p, vf a) { EACH(h) _mm256_storeu_ps(p + 8 * h, a.half[h]); }
OP vf vf_add(vf a, vf b) { EACH(h) a.half[h] = _mm256_add_ps(a.half[h], b.half[h]); return a; }
OP vf vf_mul(vf a, vf b) { EACH(h) a.half[h] = _mm256_mul_ps(a.half[h], b.half[h]); return a; }
OP vf vf_max(vf a, vf b) { EACH(h) a.half[h] = _mm256_max_ps(a.half[h], b.half[h]); return a; }
/* Sums are changed where they are, not by intrinsics: GCC (12 to 14) gives each of them another
 * register and copies it back, which leaves too few registers. */
OP vf vf_fma(vf a, vf b, vf c)
{
    EACH(h) __asm__("vfmadd231ps %2, %1, %0" : "+x"(c.half[h]) : "x"(a.half[h]), "x"(b.half[h]));
    return c;
}
OP vi vi_add(vi a, vi b)
{
    EACH(h) __asm__("vpaddd %1, %0, %0" : "+x"(a.half[h]) : "x"(b.half[h]));
    return a;
}
OP float vf_sum(vf a)
{
    __m256 all = a.half[0];
    for (int h = 1; h < HALVES; ++h)
        all = _mm256_add_ps(all, a.half[h]);
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
OP float vf_largest(vf a)
{
    __m256 all = a.half[0];
    for (int h = 1; h < HALVES; ++h)
        all = _mm256_max_ps(all, a.half[h]);
    __m128 four = _mm_max_ps(_mm256_castps256_ps128(all), _mm256_extractf128_ps(all, 1));
    four = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(four, _mm_movehdup_ps(four)));
}

OP vi vi_set(int32_t a) { vi r; EACH(h) r.half[h] = _mm256_set1_epi32(a); return r; }
OP vi vi_load(const void *p)
{
    vi r;
    EACH(h) r.half[h] = _mm256_loadu_si256((const __m256i *)p + h);
    return r;
}
OP vf vi_to_floats(vi a) { vf r; EACH(h) r.half[h] = _mm256_cvtepi32_ps(a.half[h]); return r; }

/* Pairs of int16: a product of bytes (maddubs) would saturate. */
enum { STEP = 2 };
typedef int16_t number;
typedef vi sums;
typedef vi step;

OP void place_integer(int16_t *query, int64_t place, int64_t lane, int32_t value)
{
    query[place / 2 * 2 * LANES + lane * 2 + place % 2] = (int16_t)value;
}
OP step load_step(const int16_t *query, int64_t place) { return vi_load(query + place * LANES); }
OP sums sums_zero(void) { return vi_set(0); }
OP sums sums_add(sums s, step q, const number *token)
{
    int32_t both;
    __builtin_memcpy(&both, token, sizeof both);
    const __m256i everywhere = _mm256_set1_epi32(both);
    EACH(h) q.half[h] = _mm256_madd_epi16(q.half[h], everywhere);
    return vi_add(s, q);
}
OP vf sums_total(sums s, const int32_t *totals)
{
    (void)totals;
    return vi_to_floats(s);
}

/* Bounds: pairs of products of bytes, which do not saturate as long as no value of a query is
 * larger than SHORT_LARGEST. */
enum { SHORT_BYTES = 1, SHORT_STEP = 4, SHORT_LARGEST = 64 };
typedef uint8_t short_number;
typedef vi short_sums;
typedef vi short_step;
OP void place_short(int8_t *query, int64_t place, int64_t lane, int8_t value)
{
    query[place / 4 * 4 * LANES + lane * 4 + place % 4] = value;
}
OP short_step load_short_step(const int8_t *query, int64_t place)
{
    return vi_load(query + place * LANES);
}
OP short_sums short_zero(void) { return vi_set(0); }
OP short_sums short_lowest(void) { return vi_set(INT32_MIN); }
OP short_sums short_add(short_sums s, short_step q, const short_number *token)
{
    int32_t four;
    __builtin_memcpy(&four, token, sizeof four);
    const __m256i everywhere = _mm256_set1_epi32(four), ones = _mm256_set1_epi16(1);
    EACH(h) q.half[h] = _mm256_madd_epi16(_mm256_maddubs_epi16(everywhere, q.half[h]), ones);
    return vi_add(s, q);
}
OP short_sums short_max(short_sums a, short_sums b)
{
    EACH(h) a.half[h] = _mm256_max_epi32(a.half[h], b.half[h]);
    return a;
}
OP vf short_total(short_sums s, const int32_t *totals)
{
    const vi all = vi_load(totals);
    EACH(h) s.half[h] = _mm256_sub_epi32(s.half[h], _mm256_slli_epi32(all.half[h], 7));
    return vi_to_floats(s);
}
OP const short_number *short_tile(const uint8_t *from, int64_t n, void *scratch)
{
    (void)n, (void)scratch;
    return from;
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

OP void decode_codes(const uint8_t *codes, int64_t n, int shift, number *to)
{
    const __m128i table = _mm_loadu_si128((const __m128i *)LEVELS);
    const __m128i keep = _mm_set1_epi8(15), by = _mm_cvtsi32_si128(shift);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m128i bytes = _mm_loadu_si128((const __m128i *)(codes + i));
        const __m128i places = _mm_and_si128(_mm_srl_epi16(bytes, by), keep);
        const __m128i found = _mm_shuffle_epi8(table, places);
        _mm256_storeu_si256((__m256i *)(to + i), _mm256_cvtepi8_epi16(found));
    }
    for (; i < n; ++i)
        to[i] = LEVELS[(codes[i] >> shift) & 15];
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

#define PATH_SUPPORTED x86_has_avx2
#include "path_body.h"
