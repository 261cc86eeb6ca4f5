/* Blocks of Q6_K for AVX2: see file_numbers_avx2.h. Four products stay below 4 * 63 * 127 = 32004, so they are added in 16 bits. */
#pragma once

/* 32 outputs and 32 inputs. `step`: [output][first or last 16 inputs]. `low`, the low four bits of q: [lane][4][8 outputs][4 bytes];
 * byte i holds inputs i (low) and i + 4 (high) of 8. `high`, its upper two bits: [lane][2][8 outputs][4 bytes]; byte i holds
 * inputs i, i + 4, i + 8 and i + 12 of 16, from the low end. */
typedef struct { int8_t step[32][2]; uint8_t low[512], high[256]; } FileQ6kGroup;

/* 32 outputs and 256 inputs. */
typedef struct { float d[32]; FileQ6kGroup group[GROUPS]; } FileQ6k; /* 106 cache lines */

/* A block's operands, unpacked: [group][lane] of 8 weights registers, and of steps of 16 inputs. */
typedef struct { __m256i weights[GROUPS][LANES][8], step[GROUPS][LANES][2]; } Q6kTable;

/* Store one output of a block. */
static void set_file_q6k(void *blocks, size_t index, int32_t o, const uint8_t *superblock) {
    const Q6k s = read_q6k(superblock);
    FileQ6k *block = (FileQ6k *)blocks + index;
    block->d[o] = s.d;
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) {
        FileQ6kGroup *group = &block->group[i / 32];
        group->step[o][i % 32 / 16] = s.step[i / 16];
        group->low[o / 8 * 128 + i % 32 / 8 * 32 + o % 8 * 4 + i % 4] |= (uint8_t)((s.q[i] & 15) << i % 8 / 4 * 4);
        group->high[o / 8 * 64 + i % 32 / 16 * 32 + o % 8 * 4 + i % 4] |= (uint8_t)(s.q[i] >> 4 << i % 16 / 4 * 2);
    }
}

/* The steps of 8 outputs and 32 inputs, 16 bits each: (first 16 inputs, last 16). */
VEC INLINE __m256i q6k_steps(const FileQ6kGroup *group, int32_t lane) {
    return _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)group->step[lane * 8]));
}

/* Such steps -> (step, step) of the first (0) or the last (1) 16 inputs. */
VEC INLINE __m256i both_steps(__m256i steps, const int32_t half) {
    const __m256i first = _mm256_set1_epi32(0x01000100), last = _mm256_set1_epi32(0x03020302);
    const __m256i word = _mm256_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c, 0, 0x04040404, 0x08080808, 0x0c0c0c0c);
    return _mm256_shuffle_epi8(steps, _mm256_add_epi8(half ? last : first, word));
}

/* Weights of 8 outputs and inputs 8j to 8j + 3, and of 8j + 4 to 8j + 7. */
VEC INLINE void unpack_q6k(__m256i w[2], const FileQ6kGroup *group, int32_t lane, const int32_t j) {
    const __m256i four_bits = _mm256_set1_epi8(15), two_bits = _mm256_set1_epi8(48);
    const __m256i low = _mm256_loadu_si256((const __m256i *)(group->low + lane * 128 + j * 32));
    const __m256i high = _mm256_loadu_si256((const __m256i *)(group->high + lane * 64 + j / 2 * 32));
    const __m256i upper[2] = {j % 2 ? high : _mm256_slli_epi16(high, 4), j % 2 ? _mm256_srli_epi16(high, 2) : _mm256_slli_epi16(high, 2)};
    w[0] = _mm256_or_si256(_mm256_and_si256(low, four_bits), _mm256_and_si256(upper[0], two_bits));
    w[1] = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16(low, 4), four_bits), _mm256_and_si256(upper[1], two_bits));
}

VEC static void fill_q6k(void *to, const void *from) {
    Q6kTable *table = to;
    const FileQ6k *block = from;
    for (int32_t g = 0; g < GROUPS; g++)
        for (int32_t lane = 0; lane < LANES; lane++) {
#pragma GCC unroll 4
            for (int32_t j = 0; j < 4; j++) unpack_q6k(table->weights[g][lane] + 2 * j, &block->group[g], lane, j);
            const __m256i steps = q6k_steps(&block->group[g], lane);
            table->step[g][lane][0] = both_steps(steps, 0), table->step[g][lane][1] = both_steps(steps, 1);
        }
}

/* A BlockDots. */
VEC INLINE void q6k_dots(float *sums, const int8_t *a, const float *scales, const int16_t *totals, int32_t scale_stride,
                         const void *from, const void *unpacked, const int32_t first, const int32_t n, const int32_t lanes) {
    const FileQ6k *block = from;
    const Q6kTable *table = unpacked;
    __m256i scaled_sums[SOME_ROWS][LANES];
    for (int32_t i = 0; i < n; i++)
        for (int32_t lane = 0; lane < lanes; lane++) scaled_sums[i][lane] = _mm256_setzero_si256();
    for (int32_t g = 0; g < GROUPS; g++) {
        const FileQ6kGroup *group = &block->group[g];
        const int8_t *x = a + g / 2 * 1024 + g % 2 * 32;
        if (!table && !first)
            for (int32_t line = 0; line < 14; line++) /* every line of a later block: a miss takes as long as a block */
                fetch((const int8_t *)(block + 2) + (g * 14 + line) * 64);
        __m256i step[LANES][2];
        for (int32_t lane = 0; lane < lanes; lane++)
            for (int32_t half = 0; half < 2; half++)
                step[lane][half] = table ? table->step[g][first + lane][half] : both_steps(q6k_steps(group, first + lane), half);
#pragma GCC unroll 4
        for (int32_t j = 0; j < 4; j++) {
            __m256i w[LANES][2];
            for (int32_t lane = 0; lane < lanes; lane++) {
                if (!table) unpack_q6k(w[lane], group, first + lane, j);
                else for (int32_t u = 0; u < 2; u++) w[lane][u] = table->weights[g][first + lane][2 * j + u];
            }
#pragma GCC unroll 4
            for (int32_t i = 0; i < n; i++) {
                int32_t fours[2];
                memcpy(fours, x + i * 64 + j * 8, 8);
                const __m256i left = _mm256_set1_epi32(fours[0]), right = _mm256_set1_epi32(fours[1]);
                for (int32_t lane = 0; lane < lanes; lane++) {
                    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w[lane][0], left), _mm256_maddubs_epi16(w[lane][1], right));
                    scaled_sums[i][lane] = _mm256_add_epi32(scaled_sums[i][lane], _mm256_madd_epi16(pairs, step[lane][j / 2]));
                }
            }
        }
    }
    for (int32_t lane = 0; lane < lanes; lane++) {
        const int32_t at = (first + lane) * 8;
        const __m256 d = _mm256_loadu_ps(block->d + at);
        __m256i middles[SOME_ROWS]; /* the products of steps and sums of x */
        for (int32_t i = 0; i < n; i++) middles[i] = _mm256_setzero_si256();
        for (int32_t g = 0; g < GROUPS; g++)
            add_group_sums(middles, q6k_steps(&block->group[g], first + lane), totals + g * 2, scale_stride, n);
        for (int32_t i = 0; i < n; i++) {
            const __m256i exact = _mm256_sub_epi32(scaled_sums[i][lane], _mm256_slli_epi32(middles[i], 5));
            const __m256 scale = _mm256_mul_ps(d, _mm256_set1_ps(scales[i * scale_stride]));
            float *sum = sums + i * 32 + at;
            _mm256_storeu_ps(sum, _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact), scale, _mm256_loadu_ps(sum)));
        }
    }
}

/* A linear of Q6_K. */
VEC static void multiply_q6k(Model *m, int32_t chunk) {
    Q6kTable table;
    multiply_file_numbers(m, chunk, sizeof(FileQ6k), &table, fill_q6k, q6k_dots);
}
