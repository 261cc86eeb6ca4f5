/* Products of coded weights with AVX2: q itself is multiplied, see file_numbers_avx2.h. The integers are those of the int8 weights:
 *     sum of w * x = sum over groups of step * (sum of q * x) - base * (sum of x)
 * In 16 bits, eight products of 4 bits stay below 8 * 2 * 15 * 127 = 30480, and two of 6 bits below 4 * 63 * 127 = 32004. */
#pragma once

/* Numbers of 8 outputs (`lane` 0 or 1 of a half) and inputs 8j to 8j + 3, and of 8j + 4 to 8j + 7, of group g. */
VEC INLINE void unpack_coded(__m256i q[2], const uint8_t *half, int32_t groups, int32_t g, int32_t lane, const int32_t j, const int32_t bits) {
    const __m256i four_bits = _mm256_set1_epi8(15), two_bits = _mm256_set1_epi8(48);
    const __m256i low = _mm256_loadu_si256((const __m256i *)(half + groups * 32 + g * 256 + j * 64 + lane * 32));
    q[0] = _mm256_and_si256(low, four_bits);
    q[1] = _mm256_and_si256(_mm256_srli_epi16(low, 4), four_bits);
    if (bits == 6) {
        const __m256i high = _mm256_loadu_si256((const __m256i *)(half + groups * 288 + g * 128 + j / 2 * 64 + lane * 32));
        q[0] = _mm256_or_si256(q[0], _mm256_and_si256(j % 2 ? high : _mm256_slli_epi16(high, 4), two_bits));
        q[1] = _mm256_or_si256(q[1], _mm256_and_si256(j % 2 ? _mm256_srli_epi16(high, 2) : _mm256_slli_epi16(high, 2), two_bits));
    }
}

/* (step, step) of 8 outputs, 16 bits each. */
VEC INLINE __m256i coded_steps(const uint8_t *step) {
    const __m256i both_halves = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1,
                                                 4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    int64_t eight;
    memcpy(&eight, step, 8);
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), both_halves);
}

/* (base of group g, base of group g + 1) of 8 outputs, 16 bits each. */
VEC INLINE __m256i coded_bases(const uint8_t *base) {
    const __m128i g0 = _mm_loadl_epi64((const __m128i *)base), g1 = _mm_loadl_epi64((const __m128i *)(base + 16));
    return _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(g0, g1));
}

/* Add the products of n rows by 16 outputs and up to 256 inputs, times the rows' scales, to `sums`, [rows][32]. For `a`, `scales`,
 * `totals` and `scale_stride` see BlockDots. n and `bits` are compile-time constants. */
VEC INLINE void coded_dots(float *sums, const int8_t *a, const float *scales, const int16_t *totals, int32_t scale_stride,
                           const uint8_t *half, int32_t groups, const int32_t n, const int32_t bits) {
    __m256i scaled_sums[SOME_ROWS][2];
    for (int32_t i = 0; i < n; i++) scaled_sums[i][0] = scaled_sums[i][1] = _mm256_setzero_si256();
    for (int32_t g = 0; g < groups; g++) {
        const int8_t *x = a + g / 2 * 1024 + g % 2 * 32;
        for (int32_t line = 0; line < bits + 1; line++) fetch(half + AHEAD + g * group_bytes(bits) + line * 64);
        const __m256i step[2] = {coded_steps(half + g * 16), coded_steps(half + g * 16 + 8)};
        __m256i products[SOME_ROWS][2];
#pragma GCC unroll 4
        for (int32_t j = 0; j < 4; j++) {
            __m256i q[2][2];
            for (int32_t lane = 0; lane < 2; lane++) unpack_coded(q[lane], half, groups, g, lane, j, bits);
#pragma GCC unroll 4
            for (int32_t i = 0; i < n; i++) {
                int32_t fours[2];
                memcpy(fours, x + i * 64 + j * 8, 8);
                const __m256i left = _mm256_set1_epi32(fours[0]), right = _mm256_set1_epi32(fours[1]);
                for (int32_t lane = 0; lane < 2; lane++) {
                    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(q[lane][0], left), _mm256_maddubs_epi16(q[lane][1], right));
                    if (bits > 4) scaled_sums[i][lane] = _mm256_add_epi32(scaled_sums[i][lane], _mm256_madd_epi16(pairs, step[lane]));
                    else products[i][lane] = j ? _mm256_add_epi16(products[i][lane], pairs) : pairs;
                }
            }
        }
        for (int32_t i = 0; bits == 4 && i < n; i++)
            for (int32_t lane = 0; lane < 2; lane++)
                scaled_sums[i][lane] = _mm256_add_epi32(scaled_sums[i][lane], _mm256_madd_epi16(products[i][lane], step[lane]));
    }
    for (int32_t lane = 0; lane < 2; lane++) {
        __m256i bases[SOME_ROWS];
        for (int32_t i = 0; i < n; i++) bases[i] = _mm256_setzero_si256();
        for (int32_t g = 0; g < groups; g += 2)
            add_group_sums(bases, coded_bases(half + (groups + g) * 16 + lane * 8), totals + g, scale_stride, n);
        for (int32_t i = 0; i < n; i++) {
            float *sum = sums + i * 32 + lane * 8;
            const __m256 exact = _mm256_cvtepi32_ps(_mm256_sub_epi32(scaled_sums[i][lane], bases[i]));
            _mm256_storeu_ps(sum, _mm256_fmadd_ps(exact, _mm256_set1_ps(scales[i * scale_stride]), _mm256_loadu_ps(sum)));
        }
    }
}

/* A linear of coded weights. `bits` is a compile-time constant. */
VEC INLINE void multiply_coded(Model *m, int32_t chunk, const int32_t bits) {
    const Linear *l = m->linear;
    const int32_t end = chunk_end(m, chunk), steps = l->steps;
    float *sums = (float *)m->sums + (size_t)thread_name * (m->shape.rows + 2 * ROWS) * 32; /* [rows][32] */
    for (int32_t block = chunk * m->span; block < end; block++) {
        const uint8_t *half = (const uint8_t *)l->blocks + (size_t)block * coded_bytes(l->in, bits);
        const floats left = load(l->scale + block * 32), right = load(l->scale + block * 32 + 16);
        memset(sums, 0, (size_t)m->t * 32 * 4);
        for (int32_t k = 0; k < steps; k++) {
            const int32_t groups = least(BLOCK_INPUTS, l->in - k * BLOCK_INPUTS) / 32;
            for (int32_t b = 0; b < 2; b++, half += groups * group_bytes(bits))
                for (int32_t row = 0, count; row < m->t; row += count) {
                    count = least(m->t - row, SOME_ROWS); /* all in one tile */
                    const int8_t *a = tile_row(m, row, l->in) + k * (BLOCK_INPUTS / 64) * 1024;
                    const float *scales = m->row_scale + row * steps + k;
                    const int16_t *totals = m->row_sums + (row * steps + k) * 2 * GROUPS;
#define CASE(n) if (count == (n)) coded_dots(sums + row * 32 + b * 16, a, scales, totals, steps, half, groups, n, bits);
                    CASE(1) else CASE(2) else CASE(3) else CASE(4)
#undef CASE
                }
        }
        for (int32_t row = 0; row < m->t; row++)
            finish(m, block, row, mul(load(sums + row * 32), left), mul(load(sums + row * 32 + 16), right));
    }
}

VEC static void multiply_coded4(Model *m, int32_t chunk) { multiply_coded(m, chunk, 4); }
VEC static void multiply_coded6(Model *m, int32_t chunk) { multiply_coded(m, chunk, 6); }
