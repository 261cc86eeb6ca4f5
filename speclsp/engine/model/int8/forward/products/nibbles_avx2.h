/* Matrix products of 4-bit weights with AVX2: the numbers of the file themselves are multiplied, not int8 made from them.
 *
 * A superblock of Q4_K stands for weight = d * step * q - d_base * base, with q of 0 to 15. For 256 inputs x of a row, int8,
 *     sum of weight * x = d * (sum over groups of step * (sum of q * x)) - d_base * (sum over groups of base * (sum of x))
 * VPMADDUBSW multiplies q (unsigned) by x (signed) and adds two products in 16 bits. The eight results of a group stay below
 * 8 * 2 * 15 * 127 = 30480, so they are added in 16 bits. VPMADDWD by (step, step) then scales and widens them. The sums of
 * a group's x are those of `quantize_row`. All of it is exact; the float32 sums over superblocks are in the order of the inputs. */
#pragma once

#define LANES 4      /* of 8 outputs: a block's 32 */
#define SOME_ROWS 4  /* multiplied together: 8 sums of 16 bits for two lanes, two weights and an activation fit the registers */
#define TABLE_ROWS 32 /* from this number of rows on, a block is unpacked once into the first-level cache */

/* 32 outputs and 32 inputs. `nibbles`: [lane][4][8 outputs][4 bytes]; byte i holds inputs i (low) and i + 4 (high) of 8. */
typedef struct { uint8_t step[32], nibbles[512]; } NibbleGroup;

/* 32 outputs and 256 inputs. `base`: [pair of groups][output][group of the pair]. */
typedef struct {
    float d[32], d_base[32];
    uint8_t base[GROUPS / 2][32][2];
    NibbleGroup group[GROUPS];
} NibbleBlock; /* 76 cache lines */

/* A block's operands, unpacked: [group][lane] of 8 weights registers, steps and pairs of bases. */
typedef struct {
    __m256i weights[GROUPS][LANES][8], step[GROUPS][LANES], base[GROUPS / 2][LANES];
} NibbleTable;

/* Store one output of a block. */
static void set_nibbles(void *blocks, size_t index, int32_t o, const Superblock *s) {
    NibbleBlock *block = (NibbleBlock *)blocks + index;
    block->d[o] = s->d, block->d_base[o] = s->d_base;
    for (int32_t g = 0; g < GROUPS; g++) {
        block->group[g].step[o] = s->step[g];
        block->base[g / 2][o][g % 2] = s->base[g];
    }
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) {
        uint8_t *nibbles = block->group[i / 32].nibbles + o / 8 * 128 + i % 32 / 8 * 32 + o % 8 * 4 + i % 4;
        *nibbles |= (uint8_t)(s->q[i] << i % 8 / 4 * 4);
    }
}

/* The sums of a row's groups of 32 quantized inputs, in the tile layout. */
VEC static void sum_groups(int16_t *sums, const int8_t *row) {
    const __m256i ones = _mm256_set1_epi16(1), bytes = _mm256_set1_epi8(1);
    for (int32_t g = 0; g < GROUPS; g++) {
        const __m256i x = _mm256_loadu_si256((const __m256i *)(row + g / 2 * 1024 + g % 2 * 32));
        const __m256i fours = _mm256_madd_epi16(_mm256_maddubs_epi16(bytes, x), ones);
        __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
        sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1));
        sums[g] = (int16_t)_mm_cvtsi128_si32(sum);
    }
}

#define INLINE static inline __attribute__((always_inline))

/* (step, step) of 8 outputs, as 16 bits each. */
VEC INLINE __m256i steps_of(const NibbleGroup *group, int32_t lane) {
    const __m256i twice = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1,
                                           4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    int64_t eight;
    memcpy(&eight, group->step + lane * 8, 8);
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), twice);
}

VEC INLINE __m256i bases_of(const NibbleBlock *block, int32_t pair, int32_t lane) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)block->base[pair][lane * 8]));
}

/* Weights of 8 outputs and inputs 8j to 8j + 3, and of 8j + 4 to 8j + 7. */
VEC INLINE void unpack_nibbles(__m256i w[2], const NibbleGroup *group, int32_t lane, int32_t j) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i both_halves = _mm256_loadu_si256((const __m256i *)(group->nibbles + lane * 128 + j * 32));
    w[0] = _mm256_and_si256(both_halves, low);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(both_halves, 4), low);
}

VEC static void fill_table(NibbleTable *table, const NibbleBlock *block) {
    for (int32_t g = 0; g < GROUPS; g++)
        for (int32_t lane = 0; lane < LANES; lane++) {
            for (int32_t j = 0; j < 4; j++) unpack_nibbles(table->weights[g][lane] + 2 * j, &block->group[g], lane, j);
            table->step[g][lane] = steps_of(&block->group[g], lane);
            if (g % 2) table->base[g / 2][lane] = bases_of(block, g / 2, lane);
        }
}

/* Add the products of n rows by a block's lanes first to first + lanes - 1 to `sums`, [rows][32]. `table`: NULL to unpack in
 * registers. `a`: the first row's block of inputs; `scales` and `totals`: its scale and sums of groups, each row
 * `scale_stride` and 8 * `scale_stride` after the one before. n, lanes and whether there is a table are compile-time constants. */
VEC INLINE void nibble_dots(float *sums, const int8_t *a, const float *scales, const int16_t *totals, int32_t scale_stride,
                            const NibbleBlock *block, const NibbleTable *table, const int32_t first, const int32_t n,
                            const int32_t lanes) {
    __m256i scaled_sums[SOME_ROWS][LANES];
    for (int32_t g = 0; g < GROUPS; g++) {
        const NibbleGroup *group = &block->group[g];
        const int8_t *x = a + g / 2 * 1024 + g % 2 * 32;
        if (!table && !first)
            for (int32_t line = 0; line < 10; line++) /* every line of a later block: a miss takes as long as a block */
                fetch((const int8_t *)(block + 2) + (g * 10 + line) * 64);
        __m256i products[SOME_ROWS][LANES];
#pragma GCC unroll 4
        for (int32_t j = 0; j < 4; j++) {
            __m256i w[LANES][2];
            for (int32_t lane = 0; lane < lanes; lane++) {
                if (!table) unpack_nibbles(w[lane], group, first + lane, j);
                else for (int32_t u = 0; u < 2; u++) w[lane][u] = table->weights[g][first + lane][2 * j + u];
            }
#pragma GCC unroll 2
            for (int32_t u = 0; u < 2; u++)
#pragma GCC unroll 4
                for (int32_t i = 0; i < n; i++) {
                    int32_t four;
                    memcpy(&four, x + i * 64 + j * 8 + u * 4, 4);
                    const __m256i inputs = _mm256_set1_epi32(four);
                    for (int32_t lane = 0; lane < lanes; lane++) {
                        const __m256i pairs = _mm256_maddubs_epi16(w[lane][u], inputs);
                        products[i][lane] = j || u ? _mm256_add_epi16(products[i][lane], pairs) : pairs;
                    }
                }
        }
        for (int32_t lane = 0; lane < lanes; lane++) {
            const __m256i step = table ? table->step[g][first + lane] : steps_of(group, first + lane);
            for (int32_t i = 0; i < n; i++) {
                const __m256i product = _mm256_madd_epi16(products[i][lane], step);
                scaled_sums[i][lane] = g ? _mm256_add_epi32(scaled_sums[i][lane], product) : product;
            }
        }
    }
    for (int32_t lane = 0; lane < lanes; lane++) {
        const int32_t at = (first + lane) * 8;
        const __m256 d = _mm256_loadu_ps(block->d + at), d_base = _mm256_loadu_ps(block->d_base + at);
        __m256i bases[SOME_ROWS];
        for (int32_t i = 0; i < n; i++) bases[i] = _mm256_setzero_si256();
        for (int32_t pair = 0; pair < GROUPS / 2; pair++) {
            const __m256i base = table ? table->base[pair][first + lane] : bases_of(block, pair, first + lane);
            for (int32_t i = 0; i < n; i++) {
                int32_t two;
                memcpy(&two, totals + i * scale_stride * GROUPS + pair * 2, 4);
                bases[i] = _mm256_add_epi32(bases[i], _mm256_madd_epi16(base, _mm256_set1_epi32(two)));
            }
        }
        for (int32_t i = 0; i < n; i++) {
            const __m256 scale = _mm256_set1_ps(scales[i * scale_stride]);
            float *sum = sums + i * 32 + at;
            const __m256 above = _mm256_fmadd_ps(_mm256_cvtepi32_ps(scaled_sums[i][lane]), _mm256_mul_ps(d, scale), _mm256_loadu_ps(sum));
            _mm256_storeu_ps(sum, _mm256_fnmadd_ps(_mm256_cvtepi32_ps(bases[i]), _mm256_mul_ps(d_base, scale), above));
        }
    }
}

/* A linear of 4-bit blocks: m->multiply_blocks of the AVX2 path. */
VEC static void multiply_nibbles(Model *m, int32_t chunk) {
    const Linear *l = m->linear;
    const int32_t end = (chunk + 1) * m->span < l->out / 32 ? (chunk + 1) * m->span : l->out / 32, steps = l->in / BLOCK_INPUTS;
    float *sums = (float *)m->sums + (size_t)thread_name * (m->shape.rows + 2 * ROWS) * 32; /* [rows][32] */
    NibbleTable table;
    for (int32_t output = chunk * m->span; output < end; output++) {
        const NibbleBlock *block = (const NibbleBlock *)l->blocks + (size_t)output * steps;
        memset(sums, 0, (size_t)m->t * 32 * 4);
        for (int32_t k = 0; k < steps; k++, block++) {
            const int unpacked = m->t >= TABLE_ROWS;
            if (unpacked) fill_table(&table, block);
            for (int32_t row = 0, count; row < m->t; row += count) {
                count = m->t - row < SOME_ROWS ? m->t - row : SOME_ROWS; /* all in one tile */
                const int8_t *a = tile_row(m, row, l->in) + k * (BLOCK_INPUTS / 64) * 1024;
                const float *scales = m->row_scale + row * steps + k;
                const int16_t *totals = m->row_sums + (row * steps + k) * GROUPS;
#define DOTS4(n, from, first, lanes) nibble_dots(sums + row * 32, a, scales, totals, steps, block, from, first, n, lanes);
#define CASE(n) if (count == (n)) { \
        if (unpacked) { DOTS4(n, &table, 0, 2) DOTS4(n, &table, 2, 2) } \
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
