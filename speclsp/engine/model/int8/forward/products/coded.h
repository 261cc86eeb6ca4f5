/* Products of coded weights, included by int8.h for each instruction: see forward/coded.h. The weights of a few rows are decoded in
 * registers; those of many rows once, into the first-level cache. */

/* The int8 weights of 16 outputs and the 32 inputs of group g, four inputs in each w. `half`: see forward/coded.h. */
TARGET static inline __attribute__((always_inline)) void DECODE(
    ints w[8], const uint8_t *half, int32_t groups, int32_t g, const int32_t bits) {
    const ints four_bits = all_int(0x0f0f0f0f), two_bits = all_int(0x30303030);
    const ints step = both(repeat_bytes(half + g * 16), all_int(0x00ff00ff)), base = repeat_bytes(half + (groups + g) * 16);
    const uint8_t *low = half + groups * 32 + g * 256, *high = half + groups * 288 + g * 64 * (bits - 4);
#pragma GCC unroll 4
    for (int32_t j = 0; j < 4; j++) {
        const ints lows = load_ints(low + j * 64);
        ints q0 = both(lows, four_bits), q1 = both(shift_right(lows, 4), four_bits);
        if (bits == 6) {
            const ints highs = load_ints(high + j / 2 * 64);
            q0 = either(q0, both(j % 2 ? highs : shift_left(highs, 4), two_bits));
            q1 = either(q1, both(j % 2 ? shift_right(highs, 2) : shift_left(highs, 2), two_bits));
        }
        w[2 * j] = sub_bytes(mul_halves(q0, step), base); /* both bytes of 16 bits: step * q fits one */
        w[2 * j + 1] = sub_bytes(mul_halves(q1, step), base);
    }
}

/* As SUM_STEPS, with coded weights. n and `bits` are compile-time constants. */
TARGET static inline __attribute__((always_inline)) void SUM_CODED(
    floats sums[2][MOST], const int8_t *a, const uint8_t *half, const Linear *l, const int32_t *offset, const float *row_scale,
    const int32_t n, const int32_t bits) {
    for (int32_t b = 0; b < 2; b++)
        for (int32_t i = 0; i < n; i++) sums[b][i] = zeros();
    for (int32_t k = 0; k < l->steps; k++, a += BLOCK_INPUTS / 64 * 1024, offset += 32) {
        const int32_t groups = least(BLOCK_INPUTS, l->in - k * BLOCK_INPUTS) / 32;
        for (int32_t b = 0; b < 2; b++, half += groups * group_bytes(bits)) {
            ints products[MOST];
            for (int32_t i = 0; i < n; i++) products[i] = first_sums(offset + b * 16);
            for (int32_t g = 0; g < groups; g++) {
                for (int32_t line = 0; line < (bits + 1); line++) fetch(half + AHEAD + g * group_bytes(bits) + line * 64);
                ints w[8];
                DECODE(w, half, groups, g, bits);
                ADD_GROUP(products, a, g, w, n);
            }
            ADD_SCALED(sums[b], products, row_scale + k, l->steps, n);
        }
    }
}

/* The int8 weights of one step of 32 outputs, in the layout of `packed`; returns `to`. */
TARGET static const int8_t *DECODE_STEP(int8_t *to, const uint8_t *half, int32_t groups, int32_t bits) {
    for (int32_t b = 0; b < 2; b++, half += groups * group_bytes(bits))
        for (int32_t g = 0; g < groups; g++) {
            ints w[8];
            if (bits == 4) DECODE(w, half, groups, g, 4);
            else DECODE(w, half, groups, g, 6);
            for (int32_t u = 0; u < 8; u++) store_ints(to + g / 2 * 2048 + b * 1024 + g % 2 * 512 + u * 64, w[u]);
        }
    return to;
}
