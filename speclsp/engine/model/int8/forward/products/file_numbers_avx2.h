/* Matrix products of blocks with AVX2: the numbers of the file themselves are multiplied, not int8 made from them.
 *
 * With whole numbers q, step and base, the sums over 256 inputs x of a row, int8, are exact integers:
 *     Q4_K: d * (sum over groups of step * (sum of q * x)) - d_base * (sum over groups of base * (sum of x))
 *     Q6_K: d * (sum over groups of step * (sum of q * x - 32 * (sum of x)))
 * VPMADDUBSW multiplies q (unsigned) by x (signed) and adds two products in 16 bits. VPMADDWD by (step, step) scales and
 * widens them. The sums of a group's x are computed with the row. The float32 sums over superblocks are in the order of the
 * inputs. */
#pragma once

#define LANES 4       /* of 8 outputs: a block's 32 */
#define SOME_ROWS 4   /* multiplied together: 8 sums for two lanes, the weights and an activation fit the registers */
#define TABLE_ROWS 32 /* from this number of rows on, a block is unpacked once into the first-level cache */
#define INLINE static inline __attribute__((always_inline))

/* The sums of a row's groups of 16 quantized inputs, in the tile layout. */
VEC static void sum_by_16(int16_t *sums, const int8_t *row) {
    for (int32_t i = 0; i < 2 * GROUPS; i++) {
        const __m128i x = _mm_loadu_si128((const __m128i *)(row + i / 4 * 1024 + i % 4 * 16));
        __m128i sum = _mm_madd_epi16(_mm_maddubs_epi16(_mm_set1_epi8(1), x), _mm_set1_epi16(1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sums[i] = (int16_t)_mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
    }
}

/* The sums of its groups of 32. */
VEC static void sum_by_32(int16_t *sums, const int8_t *row) {
    int16_t halves[2 * GROUPS];
    sum_by_16(halves, row);
    for (int32_t g = 0; g < GROUPS; g++) sums[g] = (int16_t)(halves[2 * g] + halves[2 * g + 1]);
}

/* Add to each of n rows the products of two numbers of each of 8 outputs, `pair`, and its sums of two groups, at `totals`. */
VEC INLINE void add_group_sums(__m256i *sums, __m256i pair, const int16_t *totals, int32_t scale_stride, const int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        int32_t two;
        memcpy(&two, totals + i * scale_stride * 2 * GROUPS, 4);
        sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(pair, _mm256_set1_epi32(two)));
    }
}

/* Adds the products of n rows by a block's lanes first to first + lanes - 1 to `sums`, [rows][32]. `table`: the block unpacked;
 * NULL to unpack it in registers. `a`: the first row's block of inputs; `scales` and `totals`: its scale and sums of groups, each
 * row `scale_stride` and 2 * GROUPS * `scale_stride` after the one before. n, lanes and whether there is a table are
 * compile-time constants. */
typedef void (*BlockDots)(float *sums, const int8_t *a, const float *scales, const int16_t *totals, int32_t scale_stride,
                          const void *block, const void *table, const int32_t first, const int32_t n, const int32_t lanes);

/* A linear of blocks of `bytes`; `fill` unpacks a block into `table`. */
VEC INLINE void multiply_file_numbers(Model *m, int32_t chunk, const size_t bytes, void *table,
                                      void (*fill)(void *table, const void *block), const BlockDots dots) {
    const Linear *l = m->linear;
    const int32_t end = chunk_end(m, chunk), steps = l->steps;
    float *sums = (float *)m->sums + (size_t)thread_name * (m->shape.rows + 2 * ROWS) * 32; /* [rows][32] */
    for (int32_t output = chunk * m->span; output < end; output++) {
        const uint8_t *block = (const uint8_t *)l->blocks + (size_t)output * steps * bytes;
        memset(sums, 0, (size_t)m->t * 32 * 4);
        for (int32_t k = 0; k < steps; k++, block += bytes) {
            const int unpacked = m->t >= TABLE_ROWS;
            if (unpacked) fill(table, block);
            for (int32_t row = 0, count; row < m->t; row += count) {
                count = least(m->t - row, SOME_ROWS); /* all in one tile */
                const int8_t *a = tile_row(m, row, l->in) + k * (BLOCK_INPUTS / 64) * 1024;
                const float *scales = m->row_scale + row * steps + k;
                const int16_t *totals = m->row_sums + (row * steps + k) * 2 * GROUPS;
#define DOTS4(n, from, first, lanes) dots(sums + row * 32, a, scales, totals, steps, block, from, first, n, lanes);
#define CASE(n) if (count == (n)) { \
        if (unpacked) { DOTS4(n, table, 0, 2) DOTS4(n, table, 2, 2) } \
        else if ((n) <= 2) DOTS4(n, NULL, 0, 4) \
        else { DOTS4(n, NULL, 0, 2) DOTS4(n, NULL, 2, 2) } }
                CASE(1) else CASE(2) else CASE(3) else CASE(4)
#undef CASE
#undef DOTS4
            }
        }
        for (int32_t row = 0; row < m->t; row++)
            finish(m, output, row, load(sums + row * 32), load(sums + row * 32 + 16));
    }
}
