/* Linears: a chunk is 32 outputs of every row. */
#pragma once

static int32_t chunk_end(const Model *m, int32_t chunk) { return least((chunk + 1) * m->span, m->linear->out / 32); }

/* Add the bias to one row and 32 outputs, and store them. */
VEC static void finish(Model *m, int32_t chunk, int32_t row, floats left, floats right) {
    const Linear *l = m->linear;
    const int32_t output = chunk * 32;
    const floats a = l->bias ? add(left, load(l->bias + output)) : left;
    const floats b = l->bias ? add(right, load(l->bias + output + 16)) : right;
    if (m->mode == GATED) { /* a is the gate, b is up: silu(a) * b = a * b / (1 + e^-a) */
        const floats below = add(all(1.0f), two_to(min(mul(a, all(-LOG2_E)), all(120.0f))));
        const floats guess = about_inverse(below); /* plus one Newton step: a division takes twice as long */
        const floats inverse = mul_add(guess, neg_mul_add(below, guess, all(1.0f)), guess);
        store(m->target + (size_t)row * m->target_width + chunk * 16, mul(mul(a, b), inverse));
        return;
    }
    float *to = m->target + (size_t)row * m->target_width + output;
    const int32_t room = m->target_width - output; /* padding outputs are not stored */
    if (room >= 32) { /* AMD's AVX2 takes ten times as long to store with a mask */
        store(to, m->mode == ADD ? add(load(to), a) : a);
        store(to + 16, m->mode == ADD ? add(load(to + 16), b) : b);
        return;
    }
    const mask first = first_lanes(room), second = first_lanes(room - 16);
    if (m->mode == ADD) {
        store_some(to, first, add(load_some(to, first), a));
        store_some(to + 16, second, add(load_some(to + 16, second), b));
    } else {
        store_some(to, first, a);
        store_some(to + 16, second, b);
    }
}

/* Fetch what `finish` will write, for one row. */
static inline void fetch_target(const Model *m, int32_t chunk, int32_t row) {
    const float *to = m->target + (size_t)row * m->target_width + chunk * (m->mode == GATED ? 16 : 32);
    fetch_to_write(to);
    if (m->mode != GATED) fetch_to_write(to + 16);
}

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

VEC static ints twice(ints x) { return either(x, shift_left(x, 16)); } /* a 16-bit number to both halves of its 32 bits */
/* The high bytes of 32 numbers of 16 bits: those of x stay where they are, those of y take the places below them. */
VEC static ints high_bytes(ints x, ints y) { return either(both(x, all_int((int32_t)0xff00ff00)), shift_halves_right(y, 8)); }


static double seconds_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Calls `step` until `seconds` have passed; `each`: operations of one call. The result is operations a second. */
#define REPEAT(step, each) \
    const double began = seconds_now(); \
    double done = 0, passed; \
    do { step; done += (each); } while ((passed = seconds_now() - began) < seconds); \
    return done / passed;

static volatile int32_t peak_sink, peak_source = 0x01020304;

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
