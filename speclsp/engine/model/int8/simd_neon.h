/* The vector operations of forward.c on ARM64: sixteen numbers in four registers. Their results are those of AVX2, bit for
 * bit: the same operations in the same order. */
#pragma once
#include <arm_neon.h>

typedef struct { float32x4_t v[4]; } floats;
typedef struct { int32x4_t v[4]; } ints;
typedef struct { uint16x8_t v[2]; } shorts;
typedef int8x16_t bytes;
typedef int32_t mask; /* the number of lanes from the first on */

#define VEC
#define FEW 4 /* queries in attention at a time: 16 accumulators */
#define SIDE 1 /* registers of keys or values at a time */
#define ACTIVATION_FLIP 0 /* SDOT multiplies signed activations */
#define pause_briefly() __asm__ volatile("yield")
#define fetch(p) __builtin_prefetch((const char *)(p))
#define fetch_near(p) __builtin_prefetch((const char *)(p))
#define fetch_to_write(p) __builtin_prefetch((const char *)(p), 1)
#define first_sums(offset) ((void)(offset), zero_ints()) /* see Linear */

#define N static inline __attribute__((unused, always_inline))
#define EACH for (int i = 0; i < 4; i++)
#define FLOATS2(name, f) N floats name(floats x, floats y) { floats z; EACH z.v[i] = f(x.v[i], y.v[i]); return z; }
#define INTS2(name, f) N ints name(ints x, ints y) { ints z; EACH z.v[i] = f(x.v[i], y.v[i]); return z; }

FLOATS2(add, vaddq_f32)
FLOATS2(sub, vsubq_f32)
FLOATS2(mul, vmulq_f32)
FLOATS2(divide, vdivq_f32)
FLOATS2(max, vmaxq_f32)
FLOATS2(min, vminq_f32)
INTS2(add_ints, vaddq_s32)
INTS2(sub_ints, vsubq_s32)
INTS2(both, vandq_s32)
INTS2(either, vorrq_s32)

/* on 32 numbers of 16 bits, modulo 2^16 */
#define HALVES2(name, f) \
    N ints name(ints x, ints y) { \
        EACH x.v[i] = vreinterpretq_s32_s16(f(vreinterpretq_s16_s32(x.v[i]), vreinterpretq_s16_s32(y.v[i]))); \
        return x; \
    }
HALVES2(mul_halves, vmulq_s16)
HALVES2(add_halves, vaddq_s16)
HALVES2(sub_halves, vsubq_s16)

N floats mul_add(floats x, floats y, floats z) { EACH z.v[i] = vfmaq_f32(z.v[i], x.v[i], y.v[i]); return z; }
N floats neg_mul_add(floats x, floats y, floats z) { EACH z.v[i] = vfmsq_f32(z.v[i], x.v[i], y.v[i]); return z; }
N floats mul_sub(floats x, floats y, floats z) {
    EACH z.v[i] = vfmaq_f32(vnegq_f32(z.v[i]), x.v[i], y.v[i]);
    return z;
}
N floats all(float x) { floats z; EACH z.v[i] = vdupq_n_f32(x); return z; }
N ints all_int(int32_t x) { ints z; EACH z.v[i] = vdupq_n_s32(x); return z; }
N floats zeros(void) { return all(0.0f); }
N ints zero_ints(void) { return all_int(0); }
N floats load(const float *p) { floats z; EACH z.v[i] = vld1q_f32(p + i * 4); return z; }
N void store(float *p, floats x) { EACH vst1q_f32(p + i * 4, x.v[i]); }
N ints load_ints(const void *p) { ints z; EACH z.v[i] = vld1q_s32((const int32_t *)p + i * 4); return z; }
N void store_ints(void *p, ints x) { EACH vst1q_s32((int32_t *)p + i * 4, x.v[i]); }
N ints widen_bytes(const void *p) { /* unsigned 8 bits -> 32 */
    const uint8x16_t x = vld1q_u8(p);
    const uint16x8_t low = vmovl_u8(vget_low_u8(x)), high = vmovl_high_u8(x);
    return (ints){{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(low))), vreinterpretq_s32_u32(vmovl_high_u16(low)),
                   vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(high))), vreinterpretq_s32_u32(vmovl_high_u16(high))}};
}
N ints sub_bytes(ints x, ints y) { /* modulo 2^8 */
    EACH x.v[i] = vreinterpretq_s32_s8(vsubq_s8(vreinterpretq_s8_s32(x.v[i]), vreinterpretq_s8_s32(y.v[i])));
    return x;
}
N ints repeat_bytes(const void *p) { /* 16 bytes -> each in all four bytes of a number */
    const uint8x16_t x = vld1q_u8(p);
    const uint32x4_t first = {0, 0x01010101, 0x02020202, 0x03030303};
    ints z;
    EACH z.v[i] = vreinterpretq_s32_u8(vqtbl1q_u8(x, vaddq_u8(vreinterpretq_u8_u32(first), vdupq_n_u8((uint8_t)(i * 4)))));
    return z;
}
N shorts load_shorts(const void *p) { return (shorts){{vld1q_u16(p), vld1q_u16((const uint16_t *)p + 8)}}; }
N void store_shorts(void *p, shorts x) { vst1q_u16(p, x.v[0]), vst1q_u16((uint16_t *)p + 8, x.v[1]); }
N void store_bytes(void *p, bytes x, char flip) { vst1q_s8(p, veorq_s8(x, vdupq_n_s8((int8_t)flip))); }
N floats as_floats(ints x) { floats z; EACH z.v[i] = vreinterpretq_f32_s32(x.v[i]); return z; }
N ints as_ints(floats x) { ints z; EACH z.v[i] = vreinterpretq_s32_f32(x.v[i]); return z; }
N floats to_floats(ints x) { floats z; EACH z.v[i] = vcvtq_f32_s32(x.v[i]); return z; }
N ints to_ints(floats x) { ints z; EACH z.v[i] = vcvtnq_s32_f32(x.v[i]); return z; } /* to nearest even */
N ints shift_left(ints x, int n) { EACH x.v[i] = vshlq_s32(x.v[i], vdupq_n_s32(n)); return x; }
N ints shift_right(ints x, int n) { /* zeros come in */
    EACH x.v[i] = vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(x.v[i]), vdupq_n_s32(-n)));
    return x;
}
N ints shift_halves_right(ints x, int n) {
    EACH x.v[i] = vreinterpretq_s32_u16(vshlq_u16(vreinterpretq_u16_s32(x.v[i]), vdupq_n_s16((int16_t)-n)));
    return x;
}
N ints widen(shorts x) {
    return (ints){{vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(x.v[0]))), vreinterpretq_s32_u32(vmovl_high_u16(x.v[0])),
                   vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(x.v[1]))), vreinterpretq_s32_u32(vmovl_high_u16(x.v[1]))}};
}
N shorts to_shorts(ints x) { /* the low 16 bits */
    uint16x4_t low[4];
    EACH low[i] = vmovn_u32(vreinterpretq_u32_s32(x.v[i]));
    return (shorts){{vcombine_u16(low[0], low[1]), vcombine_u16(low[2], low[3])}};
}
N bytes to_bytes(ints x) {
    return vcombine_s8(vqmovn_s16(vcombine_s16(vqmovn_s32(x.v[0]), vqmovn_s32(x.v[1]))),
                       vqmovn_s16(vcombine_s16(vqmovn_s32(x.v[2]), vqmovn_s32(x.v[3]))));
}
N floats absolute(floats x) { EACH x.v[i] = vabsq_f32(x.v[i]); return x; }
N floats nearest(floats x) { EACH x.v[i] = vrndnq_f32(x.v[i]); return x; }
N floats times_2_to(floats p, floats n) { /* p * 2^n; results below the normal numbers become zero */
    EACH {
        const int32x4_t e = vmaxq_s32(vaddq_s32(vcvtnq_s32_f32(n.v[i]), vdupq_n_s32(127)), vdupq_n_s32(0));
        p.v[i] = vmulq_f32(p.v[i], vreinterpretq_f32_s32(vshlq_n_s32(e, 23)));
    }
    return p;
}
N floats about_inverse(floats x) { return divide(all(1.0f), x); }

/* Sums and maxima of all lanes, in the order of AVX-512's reductions: halves, quarters, pairs. */
N float total(floats x) {
    const float32x4_t q = vaddq_f32(vaddq_f32(x.v[0], x.v[2]), vaddq_f32(x.v[1], x.v[3]));
    const float32x2_t pair = vadd_f32(vget_low_f32(q), vget_high_f32(q));
    return vget_lane_f32(pair, 0) + vget_lane_f32(pair, 1);
}
N float highest(floats x) { return vmaxvq_f32(vmaxq_f32(vmaxq_f32(x.v[0], x.v[2]), vmaxq_f32(x.v[1], x.v[3]))); }
N int32_t total_int(ints x) { return vaddvq_s32(vaddq_s32(vaddq_s32(x.v[0], x.v[1]), vaddq_s32(x.v[2], x.v[3]))); }

/* masks */
N mask first_lanes(int32_t n) { return n < 0 ? 0 : n > 16 ? 16 : n; }
N floats load_some(const float *p, mask n) {
    float lanes[16] = {0};
    memcpy(lanes, p, (size_t)n * 4);
    return load(lanes);
}
N void store_some(float *p, mask n, floats x) {
    float lanes[16];
    store(lanes, x);
    memcpy(p, lanes, (size_t)n * 4);
}
N floats choose(mask n, floats x, floats y) { /* y in the lanes of the mask */
    float lanes[16], others[16];
    store(lanes, x), store(others, y);
    memcpy(lanes, others, (size_t)n * 4);
    return load(lanes);
}

/* sums += four signed x signed bytes */
N ints dot4(ints sums, ints x, ints w) {
    EACH {
        const int8x16_t a = vreinterpretq_s8_s32(x.v[i]), b = vreinterpretq_s8_s32(w.v[i]);
        const int32x4_t low = vpaddlq_s16(vmull_s8(vget_low_s8(a), vget_low_s8(b))), high = vpaddlq_s16(vmull_high_s8(a, b));
        sums.v[i] = vaddq_s32(sums.v[i], vpaddq_s32(low, high));
    }
    return sums;
}
__attribute__((target("dotprod"), unused)) static inline ints dot4_dotprod(ints sums, ints x, ints w) {
    EACH sums.v[i] = vdotq_s32(sums.v[i], vreinterpretq_s8_s32(x.v[i]), vreinterpretq_s8_s32(w.v[i]));
    return sums;
}
