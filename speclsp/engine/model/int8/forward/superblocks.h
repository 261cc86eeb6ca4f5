/* Superblocks of Q4_K and Q6_K (ggml), 256 weights of a row, and the blocks made from them. */
#pragma once

/* IEEE half precision -> float; an infinity is NaN, as no weight may be one. */
static float half_to_float(const uint8_t *at) {
    const uint32_t half = at[0] | (uint32_t)at[1] << 8, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    if (exponent == 31) return __builtin_nanf("");
    float value = exponent ? (float)(1024 + fraction) : (float)fraction;
    for (uint32_t e = exponent ? exponent : 1; e < 25; e++) value *= 0.5f;
    for (uint32_t e = 25; e < exponent; e++) value *= 2.0f;
    return half >> 15 ? -value : value;
}

/* Q4_K: weight = d * step * q - d_base * base, with q of 0 to 15, and step and base of 0 to 63 for each 32 weights. */
typedef struct { float d, d_base; uint8_t step[GROUPS], base[GROUPS], q[BLOCK_INPUTS]; } Q4k;

static Q4k read_q4k(const uint8_t *at) {
    Q4k s = {.d = half_to_float(at), .d_base = half_to_float(at + 2)};
    const uint8_t *packed = at + 4, *nibbles = at + 16;
    for (int32_t g = 0; g < GROUPS; g++) {
        if (g < 4) s.step[g] = packed[g] & 63, s.base[g] = packed[g + 4] & 63;
        else {
            s.step[g] = (uint8_t)((packed[g + 4] & 15) | packed[g - 4] >> 6 << 4);
            s.base[g] = (uint8_t)(packed[g + 4] >> 4 | packed[g] >> 6 << 4);
        }
        for (int32_t i = 0; i < 32; i++) s.q[g * 32 + i] = nibbles[g / 2 * 32 + i] >> g % 2 * 4 & 15;
    }
    return s;
}

static float q4k_weight(const Q4k *s, int32_t i) {
    return s->d * (float)s->step[i / 32] * (float)s->q[i] - s->d_base * (float)s->base[i / 32];
}

/* Q6_K: weight = d * step * (q - 32), with q of 0 to 63, and step of -128 to 127 for each 16 weights. */
typedef struct { float d; int8_t step[2 * GROUPS]; uint8_t q[BLOCK_INPUTS]; } Q6k;

static Q6k read_q6k(const uint8_t *at) {
    Q6k s = {.d = half_to_float(at + 208)};
    memcpy(s.step, at + 192, sizeof s.step);
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) { /* 128 weights: 64 bytes of low halves, 32 of upper two bits */
        const int32_t part = i / 128, quarter = i % 128 / 32, k = i % 32;
        const int32_t low = at[part * 64 + quarter % 2 * 32 + k] >> quarter / 2 * 4 & 15;
        s.q[i] = (uint8_t)(low | (at[128 + part * 32 + k] >> quarter * 2 & 3) << 4);
    }
    return s;
}

static float q6k_weight(const Q6k *s, int32_t i) { return s->d * (float)s->step[i / 16] * (float)(s->q[i] - 32); }

/* Set one output of a block: choose its scale and factors, and store its numbers. */
static void set_q4k(void *blocks, size_t index, int32_t o, const uint8_t *superblock) {
    const Q4k read = read_q4k(superblock), *s = &read;
    Block *block = (Block *)blocks + index;
    if (s->d != s->d || s->d_base != s->d_base) { block->scale[o] = __builtin_nanf(""); return; }
    float most = 1e-12f;
    int32_t steps = 1;
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) {
        const float w = q4k_weight(s, i);
        if (w > most) most = w;
        if (-w > most) most = -w;
        if (s->step[i / 32] > steps) steps = s->step[i / 32];
    }
    const float ideal = 256.0f * 127.0f * s->d / most, top = 4095.0f / (float)steps; /* 4095 * 15 fits 16 bits */
    const int32_t factor = (int32_t)(ideal > top ? top : ideal < -top ? -top : ideal);
    const float scale = factor ? 256.0f * s->d / (float)factor : most / 127.0f; /* d * step: a whole number of scale/256 */
    block->scale[o] = scale;
    block->factor[o] = (uint16_t)factor;
    block->base_factor[o] = (uint16_t)(int64_t)(256.0f * s->d_base / scale + 0.5f); /* sums are modulo 2^16 */
    int32_t sum = 0;
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) {
        Group *group = &block->group[i / 32];
        group->step[o] = s->step[i / 32], group->base[o] = s->base[i / 32];
        sum += (int16_t)(group->step[o] * block->factor[o] * s->q[i] + 128 - group->base[o] * block->base_factor[o]) >> 8;
        uint8_t *pair = group->nibbles + o / 16 * 256 + i % 32 / 8 * 64 + o % 16 * 4 + i % 4 / 2 * 2;
        pair[i % 8 / 4] |= (uint8_t)(s->q[i] << i % 2 * 4);
    }
    block->offset[o] = -128 * sum;
}
