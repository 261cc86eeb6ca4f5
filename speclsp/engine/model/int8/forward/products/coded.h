/* Products of coded weights, included by int8.h for each instruction: see forward/coded.h. The weights of a few rows are decoded in
 * registers; those of many rows once, into the second-level cache. */
#define DECODE JOIN(MULTIPLY, _decode)
#define SUM_CODED JOIN(MULTIPLY, _sum_coded)
#define DECODE_ALL JOIN(MULTIPLY, _decode_all)
#define CODED JOIN(MULTIPLY, _coded)

/* The int8 weights of 16 outputs and the 32 inputs of group g, four inputs in each w. `half`: see forward/coded.h. */
TARGET static inline __attribute__((always_inline)) void DECODE(
    ints w[8], const uint8_t *half, int32_t groups, int32_t g, const int32_t bits) {
    const ints four_bits = all_int(0x0f0f0f0f), two_bits = all_int(0x30303030);
    const ints step = both(repeat_bytes(half + g * 16), all_int(0x00ff00ff)), base = repeat_bytes(half + (groups + g) * 16);
    const uint8_t *low = half + groups * 32 + g * 256, *high = half + groups * 288 + g * 128;
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
#pragma GCC unroll 8
                for (int32_t u = 0; u < 8; u++)
#pragma GCC unroll 12
                    for (int32_t i = 0; i < n; i++) {
                        int32_t four;
                        memcpy(&four, a + g / 2 * 1024 + i * 64 + g % 2 * 32 + u * 4, 4);
                        products[i] = DOT4(products[i], all_int(four), w[u]);
                    }
            }
            ADD_SCALED(sums[b], products, row_scale + k, l->steps, n);
        }
    }
}

/* The int8 weights of 32 outputs, in the layout of `packed`. */
TARGET static inline __attribute__((always_inline)) void DECODE_ALL(int8_t *to, const uint8_t *half, int32_t in, const int32_t bits) {
    for (int32_t k = 0; k < in; k += BLOCK_INPUTS) {
        const int32_t groups = least(BLOCK_INPUTS, in - k) / 32;
        for (int32_t b = 0; b < 2; b++, half += groups * group_bytes(bits))
            for (int32_t g = 0; g < groups; g++) {
                for (int32_t line = 0; line < (bits + 1); line++) fetch(half + AHEAD + g * group_bytes(bits) + line * 64);
                ints w[8];
                DECODE(w, half, groups, g, bits);
                for (int32_t u = 0; u < 8; u++) store_ints(to + (k / 32 + g) / 2 * 2048 + b * 1024 + g % 2 * 512 + u * 64, w[u]);
            }
    }
}

/* A linear of coded weights. `bits` is a compile-time constant. */
TARGET static inline __attribute__((always_inline)) void CODED(Model *m, int32_t chunk, const int32_t bits) {
    const Linear *l = m->linear;
    const int32_t end = chunk_end(m, chunk), all_at_once = m->t > 2 * MOST;
    int8_t *weights = m->decoded + (size_t)thread_name * 32 * m->widest;
    for (int32_t block = chunk * m->span; block < end; block++) {
        const uint8_t *coded = (const uint8_t *)l->blocks + (size_t)block * coded_bytes(l->in, bits);
        const int32_t *offset = l->offset + (size_t)block * l->steps * 32;
        const float *scale = l->scale + block * 32;
        if (all_at_once) DECODE_ALL(weights, coded, l->in, bits);
        for (int32_t row = 0, count; row < m->t; row += count) {
            const int32_t rest = least(m->t - row, ROWS - row % ROWS); /* in this tile */
            count = rest <= MOST ? rest : MOST == 12 ? 8 : MOST;
            floats sums[2][MOST];
            const int8_t *a = tile_row(m, row, l->in);
            const float *row_scale = m->row_scale + row * l->steps;
#define CASE(n) if (count <= (n)) { \
        if (all_at_once) SUM_STEPS(sums, a, weights, l, offset, row_scale, n, 0, 0); \
        else SUM_CODED(sums, a, coded, l, offset, row_scale, n, bits); }
            EACH_COUNT
#undef CASE
            for (int32_t i = 0; i < count; i++)
                finish(m, block, row + i, mul(sums[0][i], load(scale)), mul(sums[1][i], load(scale + 16)));
        }
    }
}

TARGET static void JOIN(MULTIPLY, _coded4)(Model *m, int32_t chunk) { CODED(m, chunk, 4); }
TARGET static void JOIN(MULTIPLY, _coded6)(Model *m, int32_t chunk) { CODED(m, chunk, 6); }
#undef DECODE
#undef SUM_CODED
#undef DECODE_ALL
#undef CODED
