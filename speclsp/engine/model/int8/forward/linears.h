/* Linears: a chunk is 32 outputs of every row. */
#pragma once

#ifdef AVX512
/* Integer sums [16] of one row and 16 outputs -> floats, where a row has one scale. */
VEC static floats scaled(Model *m, ints sums, int32_t output, int32_t row) {
    return mul(mul(to_floats(sums), load(m->linear->scale + output)), all(m->row_scale[row]));
}

/* One pass over the weights, for 16 rows or for 32, which share the loaded weights. */
AMX static void multiply_amx(Model *m, int32_t chunk) {
    const Linear *l = m->linear;
    const int32_t steps = l->in / 64;
    const int8_t *weights = l->packed + (size_t)chunk * 32 * l->in;
    int32_t *sums = m->sums + (size_t)thread_name * (m->shape.rows + 2 * ROWS) * 32; /* [rows/16][2][16][16] */
    /* All rows are multiplied by STEPS of the weights at a time; sums are kept in memory. One tile of rows needs no memory. */
    const int32_t stride = m->t > ROWS ? STEPS : steps;
    for (int32_t first = 0; first < steps; first += stride) {
        const int32_t end = first + stride < steps ? first + stride : steps;
        for (int32_t row = 0; row < m->t; row += 2 * ROWS) {
            const int8_t *a = m->quantized + (size_t)row * l->in + first * 1024, *b = weights + first * 2048;
            const size_t below = (size_t)ROWS * l->in;
            int32_t *sum = sums + row * 32;
            const int two = row + ROWS < m->t;
            if (first == 0) {
                _tile_zero(0);
                _tile_zero(1);
                if (two) { _tile_zero(2); _tile_zero(3); }
            } else {
                _tile_loadd(0, sum, 64);
                _tile_loadd(1, sum + 256, 64);
                if (two) { _tile_loadd(2, sum + 512, 64); _tile_loadd(3, sum + 768, 64); }
            }
            if (two) {
                for (int32_t k = first; k < end; k++, a += 1024, b += 2048) {
                    if (row == 0)
                        for (int32_t ahead = 0; ahead < 2048; ahead += 64) _mm_prefetch((const char *)b + 16384 + ahead, _MM_HINT_T1);
                    _tile_loadd(4, a, 64);
                    _tile_loadd(6, b, 64);
                    _tile_dpbssd(0, 4, 6);
                    _tile_loadd(7, b + 1024, 64);
                    _tile_dpbssd(1, 4, 7);
                    _tile_loadd(5, a + below, 64);
                    _tile_dpbssd(2, 5, 6);
                    _tile_dpbssd(3, 5, 7);
                }
                _tile_stored(2, sum + 512, 64);
                _tile_stored(3, sum + 768, 64);
            } else {
                for (int32_t k = first; k < end; k++, a += 1024, b += 2048) {
                    for (int32_t ahead = 0; ahead < 2048; ahead += 64) fetch(b + 2048 + ahead);
                    _tile_loadd(4, a, 64);
                    _tile_loadd(6, b, 64);
                    _tile_dpbssd(0, 4, 6);
                    _tile_loadd(7, b + 1024, 64);
                    _tile_dpbssd(1, 4, 7);
                }
            }
            _tile_stored(0, sum, 64);
            _tile_stored(1, sum + 256, 64);
            for (int32_t i = 0; end == steps && i < 2 * ROWS && row + i < m->t; i++) {
                const int32_t *own = sum + i / ROWS * 512 + i % ROWS * 16;
                finish(m, chunk, row + i, scaled(m, load_ints(own), chunk * 32, row + i),
                       scaled(m, load_ints(own + 256), chunk * 32 + 16, row + i));
            }
        }
    }
}
#endif

#if defined(ARM64)
#define MULTIPLY multiply_neon
#define TARGET VEC
#define DOT4 dot4
#define MOST 4
#define BLOCKS 1
#include "products/int8.h"
#define MULTIPLY multiply_dotprod
#define TARGET __attribute__((target("dotprod")))
#define DOT4 dot4_dotprod
#define MOST 6
#define BLOCKS 1
#include "products/int8.h"
#elif defined(NARROW)
#define MULTIPLY multiply_avx2
#define TARGET VEC
#define DOT4 dot4
#define MOST 3
#define BLOCKS 2
#define INT8_ONLY /* products/file_numbers_avx2.h has the products of blocks */
#include "products/int8.h"
#include "products/wide_avx2.h"
#define MULTIPLY multiply_vnni /* VPDPBUSD of AVX-VNNI */
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#define DOT4 dot4_vnni
#define MOST 6
#define BLOCKS 1
#include "products/int8.h"
#define MULTIPLY multiply_vnni_evex /* the same, encoded for processors that have AVX-512 VNNI instead */
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512vl,avx512vnni")))
#define DOT4 dot4_vnni_evex
#define MOST 6
#define BLOCKS 1
#include "products/int8.h"
#else
#define MULTIPLY multiply_vectors
#define TARGET VEC
#define DOT4 dot4
#define MOST 12
#define BLOCKS 2
#include "products/int8.h"
#endif

static void multiply(Model *m, const Linear *l, float *target, int32_t width, int32_t mode) {
    m->linear = l;
    m->target = target;
    m->target_width = width;
    m->mode = mode;
    /* Long spans read memory in a row; eight for each thread leave little to wait for at the end. */
    const int32_t blocks = l->out / 32, span = blocks / (m->threads * 8);
    m->span = m->path == USE_AMX || span < 1 ? 1 : span > 16 ? 16 : span;
    run(m, l->source ? m->format[l->source].multiply : m->multiply, (blocks + m->span - 1) / m->span);
}
