/* Products of pairs of 16 bits; see nearest.h. */
#include "nearest.h"

#include <immintrin.h>

enum { GROUPS = 4 }; /* of four vectors, whose four dimensions fill a register */

void nearest_products_avx2(const uint8_t *block, const nearest_query *query, uint32_t *products)
{
    __m256i sums[GROUPS];
    for (int i = 0; i < GROUPS; ++i)
        sums[i] = _mm256_setzero_si256();
    for (int32_t d = 0; d < query->width; d += 4, block += 64) {
        int64_t four;
        __builtin_memcpy(&four, query->integers + d, sizeof four);
        const __m256i everywhere = _mm256_set1_epi64x(four);
        for (int i = 0; i < GROUPS; ++i) {
            const __m128i bytes = _mm_loadu_si128((const __m128i *)(block + 16 * i));
            const __m256i codes = _mm256_cvtepu8_epi16(bytes);
            sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(codes, everywhere));
        }
    }
    /* Each vector's two sums are neighbours; adding them orders the vectors 0 1 4 5 2 3 6 7. */
    for (int i = 0; i < GROUPS; i += 2) {
        const __m256i both = _mm256_hadd_epi32(sums[i], sums[i + 1]);
        _mm256_storeu_si256((__m256i *)(products + 4 * i),
                            _mm256_permute4x64_epi64(both, _MM_SHUFFLE(3, 1, 2, 0)));
    }
}
