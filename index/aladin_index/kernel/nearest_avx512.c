/* Products of bytes by VNNI; see nearest.h. */
#include "nearest.h"

#include <immintrin.h>

enum { CHAINS = 4 }; /* sums side by side, for an instruction waits for its sum */

/* Not the intrinsic: GCC would load and broadcast four bytes in an instruction of its own. */
static inline __attribute__((always_inline)) __m512i add_products(__m512i sum, __m512i codes,
                                                                  const int32_t *four)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(codes), "m"(*four));
    return sum;
}

void nearest_products_avx512(const uint8_t *block, const nearest_query *query, uint32_t *products)
{
    __m512i low[CHAINS], high[CHAINS];
    for (int i = 0; i < CHAINS; ++i)
        low[i] = high[i] = _mm512_setzero_si512();
    for (int32_t step = 0; step < query->width / 4; step += CHAINS, block += 64 * CHAINS)
        for (int i = 0; i < CHAINS; ++i) {
            const __m512i codes = _mm512_loadu_si512(block + 64 * i);
            low[i] = add_products(low[i], codes, query->low + step + i);
            high[i] = add_products(high[i], codes, query->high + step + i);
        }
    for (int i = 1; i < CHAINS; ++i) {
        low[0] = _mm512_add_epi32(low[0], low[i]);
        high[0] = _mm512_add_epi32(high[0], high[i]);
    }
    _mm512_storeu_si512(products, _mm512_add_epi32(low[0], _mm512_slli_epi32(high[0], 8)));
}
