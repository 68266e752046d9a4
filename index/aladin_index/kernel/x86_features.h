/* What an x86-64 processor can do, asked of the processor itself: `__builtin_cpu_supports` answers
 * with a library of the compiler's, which zig's Clang leaves empty. */
#ifndef MAXSIM_X86_FEATURES_H
#define MAXSIM_X86_FEATURES_H

#include <cpuid.h>
#include <stdint.h>

/* Registers that the operating system saves: bits 1 and 2 are SSE and AVX, 5 to 7 AVX-512. */
static inline uint32_t x86_saved_registers(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

/* AVX2, FMA and F16C. */
static inline int x86_ask_avx2(void)
{
    uint32_t a, b, c, d;
    const uint32_t fma = 1u << 12, xsave = 1u << 27, f16c = 1u << 29, avx2 = 1u << 5;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (fma | xsave | f16c)) != (fma | xsave | f16c))
        return 0;
    if ((x86_saved_registers() & 0x06) != 0x06)
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & avx2) != 0;
}

/* AVX-512 F, BW, VL and VNNI, beside the above. */
static inline int x86_ask_avx512_vnni(void)
{
    uint32_t a, b, c, d;
    const uint32_t f = 1u << 16, bw = 1u << 30, vl = 1u << 31, vnni = 1u << 11;
    if (!x86_ask_avx2() || (x86_saved_registers() & 0xe6) != 0xe6)
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (f | bw | vl)) == (f | bw | vl) &&
           (c & vnni) != 0;
}

/* The answers are kept: virtual machines take tens of microseconds to give them. */
static inline int x86_has_avx2(void)
{
    static _Atomic int known; /* 0: not asked yet, 1: no, 2: yes */
    if (!known)
        known = 1 + x86_ask_avx2();
    return known == 2;
}

static inline int x86_has_avx512_vnni(void)
{
    static _Atomic int known;
    if (!known)
        known = 1 + x86_ask_avx512_vnni();
    return known == 2;
}

#endif
