/* Blocks of Q4_K for AVX2: see file_numbers_avx2.h. The eight results of a group stay below 8 * 2 * 15 * 127 = 30480, so they
 * are added in 16 bits. */
#pragma once

/* 32 outputs and 32 inputs. `nibbles`: [lane][4][8 outputs][4 bytes]; byte i holds inputs i (low) and i + 4 (high) of 8. */
typedef struct { uint8_t step[32], nibbles[512]; } FileQ4kGroup;

/* 32 outputs and 256 inputs. `base`: [pair of groups][output][group of the pair]. */
typedef struct {
    float d[32], d_base[32];
    uint8_t base[GROUPS / 2][32][2];
    FileQ4kGroup group[GROUPS];
} FileQ4k; /* 76 cache lines */

/* A block's operands, unpacked: [group][lane] of 8 weights registers, steps and pairs of bases. */
typedef struct {
    __m256i weights[GROUPS][LANES][8], step[GROUPS][LANES], base[GROUPS / 2][LANES];
} Q4kTable;

/* Store one output of a block. */
static void set_file_q4k(void *blocks, size_t index, int32_t o, const uint8_t *superblock) {
    const Q4k read = read_q4k(superblock), *s = &read;
    FileQ4k *block = (FileQ4k *)blocks + index;
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

/* (step, step) of 8 outputs, as 16 bits each. */
VEC INLINE __m256i q4k_steps(const FileQ4kGroup *group, int32_t lane) {
    const __m256i twice = _mm256_setr_epi8(0, -1, 0, -1, 1, -1, 1, -1, 2, -1, 2, -1, 3, -1, 3, -1,
                                           4, -1, 4, -1, 5, -1, 5, -1, 6, -1, 6, -1, 7, -1, 7, -1);
    int64_t eight;
    memcpy(&eight, group->step + lane * 8, 8);
    return _mm256_shuffle_epi8(_mm256_set1_epi64x(eight), twice);
}

VEC INLINE __m256i q4k_bases(const FileQ4k *block, int32_t pair, int32_t lane) {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)block->base[pair][lane * 8]));
}

/* Weights of 8 outputs and inputs 8j to 8j + 3, and of 8j + 4 to 8j + 7. */
VEC INLINE void unpack_q4k(__m256i w[2], const FileQ4kGroup *group, int32_t lane, int32_t j) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i both_halves = _mm256_loadu_si256((const __m256i *)(group->nibbles + lane * 128 + j * 32));
    w[0] = _mm256_and_si256(both_halves, low);
    w[1] = _mm256_and_si256(_mm256_srli_epi16(both_halves, 4), low);
}

VEC static void fill_q4k(void *to, const void *from) {
    Q4kTable *table = to;
    const FileQ4k *block = from;
    for (int32_t g = 0; g < GROUPS; g++)
        for (int32_t lane = 0; lane < LANES; lane++) {
            for (int32_t j = 0; j < 4; j++) unpack_q4k(table->weights[g][lane] + 2 * j, &block->group[g], lane, j);
            table->step[g][lane] = q4k_steps(&block->group[g], lane);
            if (g % 2) table->base[g / 2][lane] = q4k_bases(block, g / 2, lane);
        }
}

/* A BlockDots. */
VEC INLINE void q4k_dots(float *sums, const int8_t *a, const float *scales, const int16_t *totals, int32_t scale_stride,
                         const void *from, const void *unpacked, const int32_t first, const int32_t n, const int32_t lanes) {
    const FileQ4k *block = from;
    const Q4kTable *table = unpacked;
    __m256i scaled_sums[SOME_ROWS][LANES];
    for (int32_t g = 0; g < GROUPS; g++) {
        const FileQ4kGroup *group = &block->group[g];
        const int8_t *x = a + g / 2 * 1024 + g % 2 * 32;
        if (!table && !first)
            for (int32_t line = 0; line < 10; line++) /* every line of a later block: a miss takes as long as a block */
                fetch((const int8_t *)(block + 2) + (g * 10 + line) * 64);
        __m256i products[SOME_ROWS][LANES];
#pragma GCC unroll 4
        for (int32_t j = 0; j < 4; j++) {
            __m256i w[LANES][2];
            for (int32_t lane = 0; lane < lanes; lane++) {
                if (!table) unpack_q4k(w[lane], group, first + lane, j);
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
            const __m256i step = table ? table->step[g][first + lane] : q4k_steps(group, first + lane);
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
            const __m256i base = table ? table->base[pair][first + lane] : q4k_bases(block, pair, first + lane);
            add_group_sums(bases, base, totals + pair * 2, scale_stride, n);
        }
        for (int32_t i = 0; i < n; i++) {
            const __m256 scale = _mm256_set1_ps(scales[i * scale_stride]);
            float *sum = sums + i * 32 + at;
            const __m256 above = _mm256_fmadd_ps(_mm256_cvtepi32_ps(scaled_sums[i][lane]), _mm256_mul_ps(d, scale), _mm256_loadu_ps(sum));
            _mm256_storeu_ps(sum, _mm256_fnmadd_ps(_mm256_cvtepi32_ps(bases[i]), _mm256_mul_ps(d_base, scale), above));
        }
    }
}

/* A linear of Q4_K. */
VEC static void multiply_q4k(Model *m, int32_t chunk) {
    Q4kTable table;
    multiply_file_numbers(m, chunk, sizeof(FileQ4k), &table, fill_q4k, q4k_dots);
}
