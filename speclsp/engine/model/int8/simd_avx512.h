/* The vector operations of forward.c in AVX-512: sixteen numbers in one register. */
#pragma once
#include <immintrin.h>

#define VEC __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")))
#define BF16 __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512bf16")))
#define AMX \
    __attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,amx-tile,amx-int8,amx-bf16")))
#define FEW 8 /* queries in attention at a time: 8 or 16 accumulators */
#define SIDE 2 /* registers of keys or values at a time */

typedef __m512 floats;
typedef __m512i ints;
typedef __mmask16 mask;
typedef __m256i shorts; /* sixteen of 16 bits */
typedef __m128i bytes;

#define ACTIVATION_FLIP (char)128 /* VPDPBUSD multiplies unsigned activations; see quantize */
#define pause_briefly() _mm_pause()
/* into the second-level cache: the first has too few places for misses */
#define fetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
#define fetch_near(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define fetch_to_write(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#define first_sums(offset) load_ints(offset) /* see Linear */

#define zeros() _mm512_setzero_ps()
#define zero_ints() _mm512_setzero_si512()
#define all(x) _mm512_set1_ps(x)
#define all_int(x) _mm512_set1_epi32(x)
#define load(p) _mm512_loadu_ps(p)
#define load_ints(p) _mm512_loadu_si512(p)
#define store(p, x) _mm512_storeu_ps(p, x)
#define load_shorts(p) _mm256_loadu_si256((const __m256i *)(p))
#define store_shorts(p, x) _mm256_storeu_si256((__m256i *)(p), x)
#define store_bytes(p, x, flip) _mm_storeu_si128((__m128i *)(p), _mm_xor_si128(x, _mm_set1_epi8(flip)))
#define add(x, y) _mm512_add_ps(x, y)
#define sub(x, y) _mm512_sub_ps(x, y)
#define mul(x, y) _mm512_mul_ps(x, y)
#define divide(x, y) _mm512_div_ps(x, y)
#define max(x, y) _mm512_max_ps(x, y)
#define min(x, y) _mm512_min_ps(x, y)
#define absolute(x) _mm512_abs_ps(x)
#define nearest(x) _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)
#define times_2_to(x, n) _mm512_scalef_ps(x, n)
#define about_inverse(x) _mm512_rcp14_ps(x)
#define mul_add(x, y, z) _mm512_fmadd_ps(x, y, z)
#define mul_sub(x, y, z) _mm512_fmsub_ps(x, y, z)
#define neg_mul_add(x, y, z) _mm512_fnmadd_ps(x, y, z)
#define highest(x) _mm512_reduce_max_ps(x)
#define total(x) _mm512_reduce_add_ps(x)
#define total_int(x) _mm512_reduce_add_epi32(x)
#define add_ints(x, y) _mm512_add_epi32(x, y)
#define sub_ints(x, y) _mm512_sub_epi32(x, y)
#define both(x, y) _mm512_and_si512(x, y)
#define either(x, y) _mm512_or_si512(x, y)
#define mul_halves(x, y) _mm512_mullo_epi16(x, y) /* on 32 numbers of 16 bits, modulo 2^16 */
#define add_halves(x, y) _mm512_add_epi16(x, y)
#define sub_halves(x, y) _mm512_sub_epi16(x, y)
#define shift_halves_right(x, n) _mm512_srli_epi16(x, n) /* zeros come in */
#define widen_bytes(p) _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(p))) /* unsigned 8 bits -> 32 */
#define sub_bytes(x, y) _mm512_sub_epi8(x, y) /* modulo 2^8 */
#define repeat_bytes(p) /* 16 bytes -> each in all four bytes of a number */ \
    _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(p))), _mm512_set_epi32( \
        0x0f0f0f0f, 0x0e0e0e0e, 0x0d0d0d0d, 0x0c0c0c0c, 0x0b0b0b0b, 0x0a0a0a0a, 0x09090909, 0x08080808, \
        0x07070707, 0x06060606, 0x05050505, 0x04040404, 0x03030303, 0x02020202, 0x01010101, 0))
#define store_ints(p, x) _mm512_storeu_si512(p, x)
#define shift_left(x, n) _mm512_slli_epi32(x, n)
#define shift_right(x, n) _mm512_srli_epi32(x, n)
#define as_floats(x) _mm512_castsi512_ps(x)
#define as_ints(x) _mm512_castps_si512(x)
#define to_floats(x) _mm512_cvtepi32_ps(x)
#define to_ints(x) _mm512_cvtps_epi32(x)         /* to nearest even */
#define widen(x) _mm512_cvtepu16_epi32(x)        /* 16 bits -> 32 */
#define to_shorts(x) _mm512_cvtepi32_epi16(x)    /* the low 16 bits */
#define to_bytes(x) _mm512_cvtsepi32_epi8(x)
#define dot4(sums, x, w) _mm512_dpbusd_epi32(sums, x, w) /* += four unsigned bytes of x times four signed bytes of w */
#define choose(m, x, y) _mm512_mask_blend_ps(m, x, y) /* y where the mask is set */
#define first_lanes(n) ((mask)((n) >= 16 ? 0xffff : (n) <= 0 ? 0 : (1u << (n)) - 1))
#define load_some(p, m) _mm512_maskz_loadu_ps(m, p)
#define store_some(p, m, x) _mm512_mask_storeu_ps(p, m, x)
