/* The vector operations of forward.c in AVX2: sixteen numbers in two registers. For processors without AVX-512. */
#pragma once
#include <immintrin.h>

#define NEAREST (_MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)

typedef struct { __m256 a, b; } floats;
typedef struct { __m256i a, b; } ints;
typedef ints mask; /* lanes of all ones or none */
typedef __m256i shorts;
typedef __m128i bytes;

#define ACTIVATION_FLIP (char)128 /* VPDPBUSD multiplies unsigned activations; see quantize */
#define pause_briefly() _mm_pause()
/* into the second-level cache: the first has too few places for misses */
#define fetch(p) _mm_prefetch((const char *)(p), _MM_HINT_T1)
#define fetch_near(p) _mm_prefetch((const char *)(p), _MM_HINT_T0)
#define fetch_to_write(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#define first_sums(offset) load_ints(offset) /* see Linear */

#define VEC __attribute__((target("avx2,fma")))
#define FEW 4 /* queries in attention at a time: 8 accumulators */
#define SIDE 1 /* registers of keys or values at a time */

#define N VEC static inline __attribute__((unused))
#define PS2(name, f) N floats name(floats x, floats y) { return (floats){f(x.a, y.a), f(x.b, y.b)}; }
#define PS3(name, f) \
    N floats name(floats x, floats y, floats z) { return (floats){f(x.a, y.a, z.a), f(x.b, y.b, z.b)}; }
#define SI2(name, f) N ints name(ints x, ints y) { return (ints){f(x.a, y.a), f(x.b, y.b)}; }

PS2(add, _mm256_add_ps)
PS2(sub, _mm256_sub_ps)
PS2(mul, _mm256_mul_ps)
PS2(divide, _mm256_div_ps)
PS2(max, _mm256_max_ps)
PS2(min, _mm256_min_ps)
PS3(mul_add, _mm256_fmadd_ps)
PS3(mul_sub, _mm256_fmsub_ps)
PS3(neg_mul_add, _mm256_fnmadd_ps)
SI2(add_ints, _mm256_add_epi32)
SI2(sub_ints, _mm256_sub_epi32)
SI2(both, _mm256_and_si256)
SI2(either, _mm256_or_si256)
SI2(mul_halves, _mm256_mullo_epi16) /* on 32 numbers of 16 bits, modulo 2^16 */
SI2(add_halves, _mm256_add_epi16)
SI2(sub_halves, _mm256_sub_epi16)
SI2(sub_bytes, _mm256_sub_epi8) /* modulo 2^8 */

N floats zeros(void) { return (floats){_mm256_setzero_ps(), _mm256_setzero_ps()}; }
N ints zero_ints(void) { return (ints){_mm256_setzero_si256(), _mm256_setzero_si256()}; }
N floats all(float v) { return (floats){_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
N ints all_int(int32_t v) { return (ints){_mm256_set1_epi32(v), _mm256_set1_epi32(v)}; }
N floats load(const float *p) { return (floats){_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
N void store(float *p, floats x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
N shorts load_shorts(const void *p) { return _mm256_loadu_si256(p); }
N void store_shorts(void *p, shorts x) { _mm256_storeu_si256(p, x); }
N void store_bytes(void *p, bytes x, char flip) { _mm_storeu_si128(p, _mm_xor_si128(x, _mm_set1_epi8(flip))); }
N ints load_ints(const void *p) {
    return (ints){_mm256_loadu_si256(p), _mm256_loadu_si256((const __m256i *)p + 1)};
}
N void store_ints(void *p, ints x) { _mm256_storeu_si256(p, x.a), _mm256_storeu_si256((__m256i *)p + 1, x.b); }
N ints widen_bytes(const void *p) { /* unsigned 8 bits -> 32 */
    const __m128i x = _mm_loadu_si128(p);
    return (ints){_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
}
N ints repeat_bytes(const void *p) { /* 16 bytes -> each in all four bytes of a number */
    const __m256i x = _mm256_broadcastsi128_si256(_mm_loadu_si128(p));
    const __m256i first = _mm256_setr_epi32(0, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707);
    return (ints){_mm256_shuffle_epi8(x, first), _mm256_shuffle_epi8(x, _mm256_add_epi8(first, _mm256_set1_epi8(8)))};
}
N floats as_floats(ints x) { return (floats){_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
N ints as_ints(floats x) { return (ints){_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
N floats to_floats(ints x) { return (floats){_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
N ints to_ints(floats x) { return (ints){_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
N ints shift_left(ints x, int n) { return (ints){_mm256_slli_epi32(x.a, n), _mm256_slli_epi32(x.b, n)}; }
N ints shift_right(ints x, int n) { return (ints){_mm256_srli_epi32(x.a, n), _mm256_srli_epi32(x.b, n)}; }
N ints shift_halves_right(ints x, int n) { /* zeros come in */
    return (ints){_mm256_srli_epi16(x.a, n), _mm256_srli_epi16(x.b, n)};
}
N ints widen(__m256i x) {
    return (ints){_mm256_cvtepu16_epi32(_mm256_castsi256_si128(x)), _mm256_cvtepu16_epi32(_mm256_extracti128_si256(x, 1))};
}
N floats absolute(floats x) {
    const __m256 m = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return (floats){_mm256_and_ps(x.a, m), _mm256_and_ps(x.b, m)};
}
N floats nearest(floats x) {
    return (floats){_mm256_round_ps(x.a, NEAREST), _mm256_round_ps(x.b, NEAREST)};
}
N __m256 half_times_2_to(__m256 p, __m256 n) { /* p * 2^n; results below the normal numbers become zero */
    const __m256i e = _mm256_max_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), _mm256_setzero_si256());
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(e, 23)));
}
N floats times_2_to(floats p, floats n) {
    return (floats){half_times_2_to(p.a, n.a), half_times_2_to(p.b, n.b)};
}
N floats about_inverse(floats x) { return divide(all(1.0f), x); } /* the same bits on all processors, ARM64 too */

/* Sums and maxima of all lanes, in the order of AVX-512's reductions: halves, quarters, pairs. */
N float total(floats x) {
    const __m256 h = _mm256_add_ps(x.a, x.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
N float highest(floats x) {
    const __m256 h = _mm256_max_ps(x.a, x.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}
N int32_t total_int(ints x) {
    int32_t lane[8], sum = 0;
    _mm256_storeu_si256((__m256i *)lane, _mm256_add_epi32(x.a, x.b));
    for (int i = 0; i < 8; i++) sum += lane[i];
    return sum;
}

/* masks */
N floats choose(mask m, floats x, floats y) { /* y where the mask is set */
    return (floats){_mm256_blendv_ps(x.a, y.a, _mm256_castsi256_ps(m.a)), _mm256_blendv_ps(x.b, y.b, _mm256_castsi256_ps(m.b))};
}
N mask first_lanes(int32_t n) { /* the first n lanes */
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return (mask){_mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane), _mm256_cmpgt_epi32(_mm256_set1_epi32(n - 8), lane)};
}
N floats load_some(const float *p, mask m) {
    return (floats){_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
N void store_some(float *p, mask m, floats x) {
    _mm256_maskstore_ps(p, m.a, x.a), _mm256_maskstore_ps(p + 8, m.b, x.b);
}

/* 32 bits -> 16 and 8; the values fit. */
N __m256i to_shorts(ints x) { /* the low 16 bits */
    const __m256i m = _mm256_set1_epi32(0xffff);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(_mm256_and_si256(x.a, m), _mm256_and_si256(x.b, m)), 0xd8);
}
N __m128i to_bytes(ints x) {
    const __m256i w = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    return _mm_packs_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
}

/* sums += four unsigned x signed bytes, exactly: in 16-bit numbers, where no pair of products overflows 32 bits. */
N __m256i half_dot4(__m256i sums, __m256i x, __m256i w) {
    const __m256i low = _mm256_set1_epi16(0xff);
    const __m256i even = _mm256_madd_epi16(_mm256_and_si256(x, low), _mm256_srai_epi16(_mm256_slli_epi16(w, 8), 8));
    const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(x, 8), _mm256_srai_epi16(w, 8));
    return _mm256_add_epi32(sums, _mm256_add_epi32(even, odd));
}
N ints dot4(ints sums, ints x, ints w) {
    return (ints){half_dot4(sums.a, x.a, w.a), half_dot4(sums.b, x.b, w.b)};
}

/* The same in one instruction per half, in its two encodings. */
#define DOT4_OF(name, features, half) \
    __attribute__((target(features))) static inline ints name(ints sums, ints x, ints w) { \
        return (ints){half(sums.a, x.a, w.a), half(sums.b, x.b, w.b)}; \
    }
DOT4_OF(dot4_vnni, "avx2,fma,avxvnni", _mm256_dpbusd_avx_epi32)
DOT4_OF(dot4_vnni_evex, "avx2,fma,avx512f,avx512vl,avx512vnni", _mm256_dpbusd_epi32)
