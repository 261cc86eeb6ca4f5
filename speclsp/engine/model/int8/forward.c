/* A decoder's forward pass in int8 and int4 on x86-64 and ARM64: the arithmetic of decoder.py for Llama- and Qwen-shaped
 * models, in one call.
 *
 *     ids -> embed -> [ norm - qkv - rope - attend - o - norm - gate,up - down ] x layers -> norm -> head -> logits
 *
 * Reason: a round of a 0.5B model reads 0.5 GB of weights, 26 ms on two cores; as 2,000 eager tensor operations it takes
 * 50 ms. Here a pass takes little longer than its weight reads, and cancellation is checked in every layer.
 *
 * No row depends on its neighbours, bit for bit; losslessness rests on that (see decoder.py):
 *   - linears multiply int8 by int8 and sum the products of 256 inputs in 32-bit integers, in any order. Every 256
 *     activations of a row have a scale; these sums are added in float32, in the order of the inputs. With AMX a row has one
 *     scale. Weights have a scale for each output, or blocks their own;
 *   - floating point is computed row by row, or query by query, with explicit fused multiply-adds in an order fixed by
 *     positions alone; keys that are masked for a query weigh exactly zero.
 * So passes of any width, any split of a prompt and any number of threads give the same bits on one path. Paths differ in
 * the last bits of attention.
 *
 * Layouts. Weights: [out/32][in/64][2][16][64], the last 64 bytes being 16 outputs x 4 inputs (the operand layout of
 * both TDPBSSD and VPDPBUSD); gate and up are interleaved by 16 so that one block of 32 holds both. Quantized rows: [row/16][in/64][16][64].
 * The cache is bfloat16. Keys: [layer][kv head][pos/16][D/2][16 keys][2]; values: [layer][kv head][pos/32][D/16][16 pairs
 * of keys][16][2]. Activations between linears are float32, [rows][width].
 */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "forward/system.h" /* first: the names of the vectors' operations would be macros in Windows' headers */

/* Three libraries: AVX-512 (VNNI, BF16) and AMX; NARROW for AVX2 and AVX-VNNI; ARM64. Each header defines the vectors of
 * 16 numbers and their operations: load, mul_add, dot4, ... */
#if defined(__aarch64__)
#define ARM64
#include "simd_neon.h" /* in four registers */
#elif defined(NARROW)
#include "simd_avx2.h" /* in two registers */
#else
#define AVX512
#include "simd_avx512.h" /* in one register */
#endif

/* In the order of use: each needs those above it, and none below it (tests/unit/repo/test_layering.py). */
#include "forward/model.h"
#include "forward/threads.h"
#include "forward/math.h"
#include "forward/timing.h"
#include "forward/rows.h"
#include "forward/attention.h"
#include "forward/coded.h"
#include "forward/finish.h"
#include "forward/linears.h" /* with products/int8.h and products/coded.h */
#include "forward/superblocks.h"
#ifdef NARROW
#include "forward/products/file_numbers_avx2.h"
#include "forward/products/q4k_avx2.h"
#include "forward/products/q6k_avx2.h"
#include "forward/products/coded_avx2.h"
#endif
#include "forward/pass.h"
#include "forward/paths.h"
#include "forward/loading.h"
#include "forward/peaks.h"
#include "forward/mapped.h"

void speclsp_free(Model *m) {
    atomic_store(&m->closing, 1);
    wake_all(m);
    for (int32_t i = 1; i < m->threads; i++) join_thread(m->crew[i]);
    const Shape *s = &m->shape;
    for (int32_t i = 0; i < s->layers; i++) {
        for (int32_t k = 0; k < LINEARS; k++) linear_free(m, &m->layer[i].linear[k]);
        Layer *layer = &m->layer[i];
        free_aligned(layer->norm_attention), free_aligned(layer->norm_mlp), free_aligned(layer->norm_q), free_aligned(layer->norm_k);
    }
    linear_free(m, &m->head), linear_free(m, &m->embedded);
    const int32_t rows = (s->rows + 2 * ROWS - 1) / (2 * ROWS) * 2 * ROWS, attention = s->heads * s->head_dim;
    const int32_t qkv = (attention + 2 * s->kv_heads * s->head_dim + 31) / 32 * 32;
    int32_t widest = s->inner > s->hidden ? s->inner : s->hidden;
    widest = ((widest > attention ? widest : attention) + 63) / 64 * 64;
    unmap(m->x, (size_t)rows * s->hidden * 4), unmap(m->h, (size_t)rows * s->hidden * 4);
    unmap(m->qkv, (size_t)rows * (qkv > 32 ? qkv : 32) * 4), unmap(m->attended, (size_t)rows * attention * 4);
    unmap(m->act, (size_t)rows * s->inner * 4), unmap(m->quantized, (size_t)rows * widest);
    unmap(m->wide, (size_t)(rows + MAX_WIDE_ROWS) * widest * 2);
    unmap(m->row_scale, (size_t)rows * (widest / BLOCK_INPUTS + 1) * 4);
    unmap(m->row_sums, (size_t)rows * (widest / BLOCK_INPUTS + 1) * GROUPS * 4);
    unmap(m->q, (size_t)rows * attention * 2);
    unmap(m->scores, (size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 4);
    unmap(m->weights, (size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 2);
    unmap(m->sums, (size_t)m->threads * SUM_BLOCKS * (s->rows + 2 * ROWS) * 32 * 4);
    destroy_lock(&m->lock), destroy_condition(&m->woken);
    free_aligned(m->norm), free(m->layer), free(m);
}
