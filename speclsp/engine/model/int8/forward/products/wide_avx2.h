/* Matrix products of int8 weights and several rows with AVX2. VPMADDWD multiplies numbers of 16 bits. Activations are widened
 * once for all outputs, and weights once for six rows: for one row, widening takes a third of all instructions. The integer
 * sums are those of int8.h, and so is the order of the float32 sums: the results have the same bits. */
#pragma once

/* One row of `in` int8 activations in the tile layout -> its column of [in/4][MAX_WIDE_ROWS rows], four activations of 16 bits in
 * each place. Rows that are multiplied together lie side by side. Activations are unsigned: see ACTIVATION_FLIP. */
VEC static void widen_row(uint64_t *to, const int8_t *row, int32_t in) {
    for (int32_t i = 0; i < in; i += 16, to += 4 * MAX_WIDE_ROWS) {
        uint64_t fours[4];
        store_shorts(fours, _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(row + i / 64 * 1024 + i % 64))));
        for (int32_t k = 0; k < 4; k++) to[k * MAX_WIDE_ROWS] = fours[k];
    }
}

/* Add the products of n rows by 8 outputs and 64 inputs to `sums`, [MAX_WIDE_ROWS rows][2]. A register has 4 outputs, each as two
 * sums, one for inputs 0 and 1 of every four and one for inputs 2 and 3.
 * `ahead`: bytes between the weights in use and those to fetch; 0: fetch none. n and `ahead` are compile-time constants. */
VEC static inline __attribute__((always_inline)) void wide_dots(
    __m256i (*sums)[2], const uint64_t *x, const int8_t *weights, const int32_t n, const int32_t ahead) {
    __m256i sum[MAX_WIDE_ROWS][2];
    for (int32_t i = 0; i < n; i++)
        for (int32_t four = 0; four < 2; four++) sum[i][four] = sums[i][four];
#pragma GCC unroll 1
    for (int32_t u = 0; u < 16; u++, x += MAX_WIDE_ROWS, weights += 64) {
        const __m128i *w = (const __m128i *)weights;
        const __m256i left = _mm256_cvtepi8_epi16(_mm_loadu_si128(w)), right = _mm256_cvtepi8_epi16(_mm_loadu_si128(w + 1));
        if (ahead) fetch(weights + ahead);
#pragma GCC unroll 6
        for (int32_t i = 0; i < n; i++) {
            const __m256i inputs = _mm256_set1_epi64x((int64_t)x[i]);
            sum[i][0] = _mm256_add_epi32(sum[i][0], _mm256_madd_epi16(inputs, left));
            sum[i][1] = _mm256_add_epi32(sum[i][1], _mm256_madd_epi16(inputs, right));
        }
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t four = 0; four < 2; four++) sums[i][four] = sum[i][four];
}

/* Two registers of `wide_dots` -> the sums of 8 outputs in order. */
VEC static inline __m256i add_pairs(const __m256i *two) {
    return _mm256_permute4x64_epi64(_mm256_hadd_epi32(two[0], two[1]), 0xd8);
}

/* An int8 linear: m->multiply of the AVX2 path. */
VEC static void multiply_wide(Model *m, int32_t chunk) {
    if (m->t < WIDE_ROWS) {
        multiply_avx2(m, chunk);
        return;
    }
    const Linear *l = m->linear;
    const int32_t end = chunk_end(m, chunk);
    for (int32_t block = chunk * m->span; block < end; block++) {
        const float *scale = l->scale + block * 32;
        for (int32_t row = 0, count; row < m->t; row += count) {
            count = least(m->t - row, MAX_WIDE_ROWS);
            const uint64_t *x = m->wide + (size_t)row * (l->in / 4);
            const int8_t *weights = l->packed + (size_t)block * 32 * l->in;
            const int32_t *offset = l->offset + (size_t)block * l->steps * 32;
            floats sums[MAX_WIDE_ROWS][2];
            for (int32_t i = 0; i < count; i++) sums[i][0] = sums[i][1] = zeros();
            for (int32_t step = 0; step < l->steps; step++, offset += 32) {
                const float *row_scale = m->row_scale + row * l->steps + step;
                const int32_t in = least(BLOCK_INPUTS, l->in - step * BLOCK_INPUTS);
                __m256i products[4][MAX_WIDE_ROWS][2]; /* of 8 outputs in each part */
                memset(products, 0, sizeof products);
                /* In the order of memory, 64 inputs at a time: these stay in the first-level cache for the four parts. */
                for (int32_t k = 0; k < in; k += 64, x += 16 * MAX_WIDE_ROWS, weights += 2048)
                    for (int32_t part = 0; part < 4; part++) {
                        const int8_t *w = weights + part / 2 * 1024 + part % 2 * 32;
#define CASE(n) if (count == (n)) { if (row || part % 2) wide_dots(products[part], x, w, n, 0); else wide_dots(products[part], x, w, n, AHEAD); }
                        CASE(6) else CASE(5) else CASE(4) else CASE(3) else CASE(2) else CASE(1)
#undef CASE
                    }
                for (int32_t i = 0; i < count; i++) {
                    const ints both_halves[2] = {{add_pairs(products[0][i]), add_pairs(products[1][i])},
                                                 {add_pairs(products[2][i]), add_pairs(products[3][i])}};
                    for (int32_t half = 0; half < 2; half++) {
                        const ints exact = add_ints(both_halves[half], first_sums(offset + half * 16));
                        sums[i][half] = mul_add(to_floats(exact), all(row_scale[i * l->steps]), sums[i][half]);
                    }
                }
            }
            for (int32_t i = 0; i < count; i++)
                finish(m, block, row + i, mul(sums[i][0], load(scale)), mul(sums[i][1], load(scale + 16)));
        }
    }
}
