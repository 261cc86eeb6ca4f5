/* Matrix products with vector instructions. Included once per instruction, with
 *     MULTIPLY  the function's name         TARGET  its target attribute
 *     DOT4      sums += four unsigned activations times four signed weights
 *     MOST      rows of a pass              BLOCKS  groups of 16 outputs of a pass, 1 or 2
 *     INT8_ONLY (may be undefined) without the products of 4-bit blocks and coded weights
 * MOST * BLOCKS sums, the weights and one activation fit the registers. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define DOTS JOIN(MULTIPLY, _dots)
#define STREAM JOIN(MULTIPLY, _stream)
#define ADD_SCALED JOIN(MULTIPLY, _add_scaled)
#define SUM_STEPS JOIN(MULTIPLY, _sum_steps)
#define ADD_STEP JOIN(MULTIPLY, _add_step)
#define ALL_ROWS JOIN(MULTIPLY, _all_rows)
#define DECODE JOIN(MULTIPLY, _decode)
#define SUM_CODED JOIN(MULTIPLY, _sum_coded)
#define DECODE_STEP JOIN(MULTIPLY, _decode_step)
#define ADD_GROUP JOIN(MULTIPLY, _add_group)
#define LINEAR JOIN(MULTIPLY, _linear)
#define PEAK JOIN(MULTIPLY, _peak)
#define BLOCKWISE JOIN(MULTIPLY, _blocks)
#define UNPACK JOIN(MULTIPLY, _unpack)
#define ADD_PRODUCTS JOIN(MULTIPLY, _add_products)
#define FEW_BY_BLOCK JOIN(MULTIPLY, _few_by_block)
#define ROWS_BY_BLOCK JOIN(MULTIPLY, _rows_by_block)
#define STORE_BLOCK JOIN(MULTIPLY, _store_block)
#define GROUP_ROWS (MOST == 12 ? 8 : MOST) /* of more rows than fit one pass; 16 rows are two groups of 8 */
#define DECODED_ROWS (MOST > 8 ? 8 : MOST) /* from more rows on, coded weights are decoded into the cache */
#define FEW_ROWS (MOST < 4 ? 2 : MOST > 6 ? 8 : 4) /* whose sums fit the registers beside an unpacked group */

/* CASE for the numbers of rows that DOTS is compiled for */
#if MOST > 6
#define EACH_COUNT CASE(1) else CASE(2) else CASE(3) else CASE(4) else CASE(6) else CASE(8) else CASE(10) else CASE(12)
#elif MOST > 3
#define EACH_COUNT CASE(1) else CASE(2) else CASE(3) else CASE(4) else CASE(6)
#else
#define EACH_COUNT CASE(1) else CASE(2) else CASE(3)
#endif

/* n rows of one tile by 32 outputs, with weights from memory. They are read in the order of memory: processors fetch ahead
 * by themselves only along one stream. n is a compile-time constant, so the sums stay in registers. */
TARGET static inline __attribute__((always_inline)) void STREAM(
    ints result[2][MOST], const int8_t *a, const int8_t *weights, const int32_t *offset, int32_t in, const int32_t n) {
    for (int32_t b = 0; b < 2; b++)
        for (int32_t i = 0; i < n; i++) result[b][i] = first_sums(offset + b * 16);
    for (int32_t k = 0; k < in; k += 64, a += 1024)
        for (int32_t b = 0; b < 2; b++, weights += 1024) {
            ints sums[MOST];
            for (int32_t i = 0; i < n; i++) sums[i] = result[b][i];
            for (int32_t u = 0; u < 16; u++) {
                const ints w = load_ints(weights + u * 64);
                fetch(weights + AHEAD + u * 64);
#pragma GCC unroll 12
                for (int32_t i = 0; i < n; i++) {
                    int32_t four;
                    memcpy(&four, a + i * 64 + u * 4, 4);
                    sums[i] = DOT4(sums[i], all_int(four), w);
                }
            }
            for (int32_t i = 0; i < n; i++) result[b][i] = sums[i];
        }
}

/* n rows of one tile by 16 * BLOCKS outputs, with weights from the cache. `ahead` (NULL: a constant as well): memory to fetch
 * into the cache, a line for each four inputs. */
TARGET static inline __attribute__((always_inline)) void DOTS(
    ints (*result)[MOST], const int8_t *a, const int8_t *weights, const int32_t *offset, int32_t in, const int32_t n,
    const int8_t *ahead) {
    ints sums[BLOCKS][MOST];
    for (int32_t b = 0; b < BLOCKS; b++)
        for (int32_t i = 0; i < n; i++) sums[b][i] = first_sums(offset + b * 16);
    for (int32_t k = 0; k < in; k += 64, a += 1024, weights += 2048)
#pragma GCC unroll 2
        for (int32_t u = 0; u < 16; u++) {
            ints w[BLOCKS];
            for (int32_t b = 0; b < BLOCKS; b++) w[b] = load_ints(weights + b * 1024 + u * 64);
            if (ahead) fetch(ahead + k * 16 + u * 64);
#pragma GCC unroll 12
            for (int32_t i = 0; i < n; i++) {
                int32_t four;
                memcpy(&four, a + i * 64 + u * 4, 4);
                const ints x = all_int(four);
                for (int32_t b = 0; b < BLOCKS; b++) sums[b][i] = DOT4(sums[b][i], x, w[b]);
            }
        }
    for (int32_t b = 0; b < BLOCKS; b++)
        for (int32_t i = 0; i < n; i++) result[b][i] = sums[b][i];
}

/* sums[i] += the products of n rows and 16 outputs times the rows' scales, which are `stride` apart. */
TARGET static inline __attribute__((always_inline)) void ADD_SCALED(
    floats *sums, const ints *products, const float *row_scale, int32_t stride, const int32_t n) {
#pragma GCC unroll 12
    for (int32_t i = 0; i < n; i++)
        sums[i] = mul_add(to_floats(products[i]), all(row_scale[i * stride]), sums[i]);
}

/* n rows of one tile by 32 outputs, with all inputs and weights from memory. n is a compile-time constant. */
TARGET static inline __attribute__((always_inline)) void SUM_STEPS(
    floats sums[2][MOST], const int8_t *a, const int8_t *weights, const Linear *l, const int32_t *offset, const float *row_scale,
    const int32_t n) {
    for (int32_t b = 0; b < 2; b++)
        for (int32_t i = 0; i < n; i++) sums[b][i] = zeros();
    for (int32_t k = 0; k < l->steps; k++, a += BLOCK_INPUTS / 64 * 1024, weights += 32 * BLOCK_INPUTS, offset += 32) {
        const int32_t in = least(BLOCK_INPUTS, l->in - k * BLOCK_INPUTS);
        ints products[2][MOST];
        fetch(offset + 32), fetch(offset + 48);
        STREAM(products, a, weights, offset, in, n);
        for (int32_t b = 0; b < 2; b++) ADD_SCALED(sums[b], products[b], row_scale + k, l->steps, n);
    }
}

/* Add the products of n rows of one tile, 32 outputs and the inputs of one step to `sums` [row][32]; the first step stores
 * them. `ahead`: memory to fetch, a line for each four inputs. n and whether `ahead` is NULL are compile-time constants. */
TARGET static inline __attribute__((always_inline)) void ADD_STEP(
    float *sums, const int8_t *a, const int8_t *weights, const int32_t *offset, int32_t in, const float *row_scale,
    int32_t stride, int32_t first, const int32_t n, const int8_t *ahead) {
    for (int32_t part = 0; part < 2; part += BLOCKS) {
        ints products[BLOCKS][MOST];
        DOTS(products, a, weights + part * 1024, offset + part * 16, in, n, part ? NULL : ahead);
        for (int32_t b = 0; b < BLOCKS; b++)
#pragma GCC unroll 12
            for (int32_t i = 0; i < n; i++) {
                float *sum = sums + i * 32 + (part + b) * 16;
                store(sum, mul_add(to_floats(products[b][i]), all(row_scale[i * stride]), first ? zeros() : load(sum)));
            }
    }
}

/* Add the products of n rows by 16 outputs and the 32 inputs of group g, whose weights are unpacked: four inputs in each w. `a`:
 * the first row's step. n is a compile-time constant. */
TARGET static inline __attribute__((always_inline)) void ADD_GROUP(
    ints *products, const int8_t *a, int32_t g, const ints w[8], const int32_t n) {
#pragma GCC unroll 8
    for (int32_t u = 0; u < 8; u++)
#pragma GCC unroll 12
        for (int32_t i = 0; i < n; i++) {
            int32_t four;
            memcpy(&four, a + g / 2 * 1024 + i * 64 + g % 2 * 32 + u * 4, 4);
            products[i] = DOT4(products[i], all_int(four), w[u]);
        }
}

#include "coded.h"

/* All rows by the blocks from `block` to `end`, at most SUM_BLOCKS. The weights of a step, 8 KiB, stay in the first-level cache
 * for all rows. The rows' activations of `together` steps stay in the second-level cache for all blocks. The first two groups
 * of rows fetch the weights of the next step, or all groups do if they are many: misses that come together are waited for.
 * `bits`: 8, or of coded weights, whose steps are decoded one at a time. */
TARGET static void ALL_ROWS(Model *m, int32_t block, int32_t end, int32_t bits) {
    const Linear *l = m->linear;
    const int32_t steps = l->steps, bytes = bits == 8 ? 32 * l->in : coded_bytes(l->in, bits), stride = (m->shape.rows + 2 * ROWS) * 32;
    const int32_t together = m->t * l->in <= CACHED_BYTES ? steps : CACHED_STEPS, turns = least(steps, 8);
    const int32_t step_bytes = bits == 8 ? 32 * BLOCK_INPUTS : coded_bytes(BLOCK_INPUTS, bits);
    const int32_t lines = step_bytes / 64; /* of the cache */
    const int8_t *const stored = bits == 8 ? l->packed : l->blocks;
    float *const sums = (float *)m->sums + (size_t)thread_name * SUM_BLOCKS * stride; /* [block][row][32] */
    int8_t decoded[32 * BLOCK_INPUTS] __attribute__((aligned(64)));
    for (int32_t from = 0; from < steps; from += together)
        for (int32_t b = block; b < end; b++) {
            const floats left = load(l->scale + b * 32), right = load(l->scale + b * 32 + 16);
            const int32_t to = least(from + together, steps);
            for (int32_t k = from; k < to; k++) {
                const int32_t in = least(BLOCK_INPUTS, l->in - k * BLOCK_INPUTS), last = k + 1 == steps;
                const int8_t *const source = stored + (size_t)b * bytes + k * step_bytes, *weights = source;
                const int32_t *offset = l->offset + ((size_t)b * steps + k) * 32;
                const int8_t *next = source + (k + 1 < to ? step_bytes : bytes - (k - from) * step_bytes);
                if (bits != 8) weights = DECODE_STEP(decoded, (const uint8_t *)source, in / 32, bits);
                for (int32_t row = 0, count; row < m->t; row += count) {
                    const int32_t rest = least(m->t - row, ROWS - row % ROWS); /* in this tile */
                    count = rest <= MOST ? rest : GROUP_ROWS;
                    const int8_t *a = tile_row(m, row, l->in) + k * (BLOCK_INPUTS / 64) * 1024;
                    const float *row_scale = m->row_scale + row * steps + k;
                    float *sum = sums + (b - block) * stride + row * 32;
                    const int8_t *ahead = NULL;
                    if (m->t >= SPREAD_ROWS)
                        for (int32_t line = row * lines / m->t; line < (row + count) * lines / m->t; line++) fetch_near(next + line * 64);
                    else if (row < 2 * GROUP_ROWS) ahead = source + AHEAD_OF_ROWS + (row ? 16 * in : 0);
                    for (int32_t i = row + k + turns - steps; i >= row && i < row + count; i += turns) fetch_target(m, b, i);
#define CASE(n) if (count <= (n)) { \
        if (ahead) ADD_STEP(sum, a, weights, offset, in, row_scale, steps, !k, n, ahead); \
        else ADD_STEP(sum, a, weights, offset, in, row_scale, steps, !k, n, NULL); }
                    EACH_COUNT
#undef CASE
                    for (int32_t i = 0; last && i < count; i++)
                        finish(m, b, row + i, mul(load(sum + i * 32), left), mul(load(sum + i * 32 + 16), right));
                }
            }
        }
}

/* A linear of int8 weights (`bits` 8) or of coded ones. Few rows read the weights as a stream. `bits` is a compile-time constant. */
TARGET static inline __attribute__((always_inline)) void LINEAR(Model *m, int32_t chunk, const int32_t bits) {
    const Linear *l = m->linear;
    const int32_t end = chunk_end(m, chunk), bytes = bits == 8 ? 32 * l->in : coded_bytes(l->in, bits);
    const int8_t *const stored = bits == 8 ? l->packed : l->blocks;
    for (int32_t block = chunk * m->span; block < end; block++) {
        if (m->t > (bits == 8 ? MOST : DECODED_ROWS)) {
            ALL_ROWS(m, block, least(block + SUM_BLOCKS, end), bits);
            block += SUM_BLOCKS - 1;
            continue;
        }
        const int8_t *weights = stored + (size_t)block * bytes;
        const int32_t *offset = l->offset + (size_t)block * l->steps * 32;
        const float *scale = l->scale + block * 32;
        floats sums[2][MOST];
#define CASE(n) if (m->t <= (n)) { \
        if (bits == 8) SUM_STEPS(sums, m->quantized, weights, l, offset, m->row_scale, n); \
        else SUM_CODED(sums, m->quantized, (const uint8_t *)weights, l, offset, m->row_scale, n, bits); }
        EACH_COUNT
#undef CASE
        for (int32_t row = 0; row < m->t; row++)
            finish(m, block, row, mul(sums[0][row], load(scale)), mul(sums[1][row], load(scale + 16)));
    }
}

TARGET static void MULTIPLY(Model *m, int32_t chunk) { LINEAR(m, chunk, 8); }

#ifndef INT8_ONLY
/* The int8 weights of 16 outputs (half 0 or 1) and the 32 inputs of group g, four inputs in each w. See Block. */
TARGET static inline __attribute__((always_inline)) void UNPACK(ints w[8], const Block *block, int32_t g, int32_t half) {
    const ints nibble = all_int(0x000f000f);
    const Group *group = &block->group[g];
    for (int32_t line = 0; line < 5; line++) /* every line of a later block, which has 78: a miss takes as long as a block */
        fetch((const int8_t *)(block + 2) + ((g * 2 + half) * 5 + line) * 64);
    const ints factor = twice(widen(load_shorts(block->factor + half * 16)));
    const ints base_factor = twice(widen(load_shorts(block->base_factor + half * 16)));
    const ints step = mul_halves(twice(widen_bytes(group->step + half * 16)), factor);
    const ints base = sub_halves(all_int(0x00800080), mul_halves(twice(widen_bytes(group->base + half * 16)), base_factor));
    for (int32_t j = 0; j < 4; j++) {
        const ints four = load_ints(group->nibbles + half * 256 + j * 64); /* four numbers in every 16 bits */
        const ints v0 = add_halves(mul_halves(both(four, nibble), step), base);
        const ints v1 = add_halves(mul_halves(both(shift_right(four, 4), nibble), step), base);
        const ints v2 = add_halves(mul_halves(both(shift_right(four, 8), nibble), step), base);
        const ints v3 = add_halves(mul_halves(shift_halves_right(four, 12), step), base);
        w[2 * j] = high_bytes(v1, v0);
        w[2 * j + 1] = high_bytes(v3, v2);
    }
}

/* Add the products of n rows and 16 outputs (half 0 or 1 of a block) to `sums` [row][32], of which `count` rows are used.
 * The rows' scales are `stride` apart. */
TARGET static inline __attribute__((always_inline)) void ADD_PRODUCTS(
    float *sums, const ints *products, const Block *block, int32_t half, const float *row_scale, int32_t stride,
    int32_t count, const int32_t n) {
    const floats scale = load(block->scale + half * 16);
#pragma GCC unroll 12
    for (int32_t i = 0; i < n; i++)
        if (i < count) {
            float *sum = sums + i * 32 + half * 16;
            store(sum, mul_add(to_floats(products[i]), mul(scale, all(row_scale[i * stride])), load(sum)));
        }
}

/* n rows by a block that is unpacked in registers; n is a compile-time constant. */
TARGET static inline __attribute__((always_inline)) void FEW_BY_BLOCK(
    float *sums, const int8_t *a, const Block *block, const float *row_scale, int32_t stride, int32_t count, const int32_t n) {
    for (int32_t half = 0; half < 2; half++) {
        ints products[MOST];
        for (int32_t i = 0; i < n; i++) products[i] = first_sums(block->offset + half * 16);
        for (int32_t g = 0; g < GROUPS; g++) {
            ints w[8];
            UNPACK(w, block, g, half);
            ADD_GROUP(products, a, g, w, n);
        }
        ADD_PRODUCTS(sums, products, block, half, row_scale, stride, count, n);
    }
}

/* n rows by a block whose weights were stored; n is a compile-time constant. */
TARGET static inline __attribute__((always_inline)) void ROWS_BY_BLOCK(
    float *sums, const int8_t *a, const int8_t *weights, const Block *block, const float *row_scale, int32_t stride,
    int32_t count, const int32_t n) {
    for (int32_t part = 0; part < 2; part += BLOCKS) {
        ints products[BLOCKS][MOST];
        DOTS(products, a, weights + part * 1024, block->offset + part * 16, BLOCK_INPUTS, n, NULL);
        for (int32_t b = 0; b < BLOCKS; b++)
            ADD_PRODUCTS(sums, products[b], block, part + b, row_scale, stride, count, n);
    }
}

/* A block's int8 weights, in the layout of a linear's `packed`, for many rows. */
TARGET static void STORE_BLOCK(int8_t *to, const Block *block) {
    for (int32_t g = 0; g < GROUPS; g++)
        for (int32_t half = 0; half < 2; half++) {
            ints w[8];
            UNPACK(w, block, g, half);
            for (int32_t u = 0; u < 8; u++) store_ints(to + g / 2 * 2048 + half * 1024 + g % 2 * 512 + u * 64, w[u]);
        }
}

/* A linear of 4-bit blocks. A block is unpacked once: in registers, or for more than FEW_ROWS rows into the first-level
 * cache. The products of a block are summed in integers, the blocks in float32, in the order of the inputs. */
TARGET static void BLOCKWISE(Model *m, int32_t chunk) {
    const Linear *l = m->linear;
    const int32_t end = chunk_end(m, chunk), steps = l->steps;
    float *sums = (float *)m->sums + (size_t)thread_name * (m->shape.rows + 2 * ROWS) * 32; /* [rows][32] */
    int8_t weights[32 * BLOCK_INPUTS] __attribute__((aligned(64)));
    for (int32_t output = chunk * m->span; output < end; output++) {
        const Block *block = (const Block *)l->blocks + (size_t)output * steps;
        memset(sums, 0, (size_t)m->t * 32 * 4);
        for (int32_t k = 0; k < steps; k++, block++) {
            const float *row_scale = m->row_scale + k;
            if (m->t <= FEW_ROWS) {
                const int8_t *a = tile_row(m, 0, l->in) + k * (BLOCK_INPUTS / 64) * 1024;
#define CASE(n) if ((n) <= FEW_ROWS && m->t <= (n)) FEW_BY_BLOCK(sums, a, block, row_scale, steps, m->t, (n) <= FEW_ROWS ? (n) : 1);
                EACH_COUNT
#undef CASE
                continue;
            }
            STORE_BLOCK(weights, block);
            for (int32_t row = 0, count; row < m->t; row += count) {
                const int32_t rest = least(m->t - row, ROWS - row % ROWS); /* in this tile */
                count = rest <= MOST ? rest : MOST == 12 ? 8 : MOST;
                const int8_t *a = tile_row(m, row, l->in) + k * (BLOCK_INPUTS / 64) * 1024;
                float *sum = sums + row * 32;
#define CASE(n) if (count <= (n)) ROWS_BY_BLOCK(sum, a, weights, block, row_scale + row * steps, steps, count, n);
                EACH_COUNT
#undef CASE
            }
        }
        for (int32_t row = 0; row < m->t; row++)
            finish(m, output, row, load(sums + row * 32), load(sums + row * 32 + 16));
    }
}

TARGET static void JOIN(MULTIPLY, _coded4)(Model *m, int32_t chunk) { LINEAR(m, chunk, 4); }
TARGET static void JOIN(MULTIPLY, _coded6)(Model *m, int32_t chunk) { LINEAR(m, chunk, 6); }
#endif

/* Multiply-adds a second of one thread with everything in registers: no pass is faster. */
TARGET static double PEAK(double seconds) {
    ints sums[MOST][BLOCKS], w[BLOCKS];
    for (int32_t b = 0; b < BLOCKS; b++) w[b] = all_int(peak_source + b);
    for (int32_t i = 0; i < MOST; i++)
        for (int32_t b = 0; b < BLOCKS; b++) sums[i][b] = zero_ints();
    REPEAT(
        for (int32_t turn = 0; turn < 10000; turn++) {
            const ints x = all_int(peak_source); /* read each time: else its product is computed once */
            for (int32_t i = 0; i < MOST; i++)
                for (int32_t b = 0; b < BLOCKS; b++) sums[i][b] = DOT4(sums[i][b], x, w[b]);
        }
        for (int32_t i = 0; i < MOST; i++) peak_sink += total_int(sums[i][0]) + total_int(sums[i][BLOCKS - 1]);
    , 10000.0 * MOST * BLOCKS * 64)
}
#undef PEAK
#undef BLOCKWISE
#undef UNPACK
#undef ADD_PRODUCTS
#undef FEW_BY_BLOCK
#undef ROWS_BY_BLOCK
#undef STORE_BLOCK
#undef FEW_ROWS
#undef DECODED_ROWS
#undef GROUP_ROWS
#undef EACH_COUNT
#undef JOIN_
#undef JOIN
#undef DOTS
#undef STREAM
#undef ADD_SCALED
#undef SUM_STEPS
#undef ADD_STEP
#undef DECODE
#undef SUM_CODED
#undef DECODE_STEP
#undef ADD_GROUP
#undef LINEAR
#undef ALL_ROWS
#undef MULTIPLY
#undef TARGET
#undef INT8_ONLY
#undef DOT4
#undef MOST
#undef BLOCKS
