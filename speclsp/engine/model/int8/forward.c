/* A decoder's forward pass in int8 and int4 on x86-64 and ARM64: the arithmetic of decoder.py for Llama- and Qwen-shaped
 * models, in one call.
 *
 *     ids -> embed -> [ norm - qkv - rope - attend - o - norm - gate,up - down ] x layers -> norm -> head -> logits
 *
 * Reason: a round of a 0.5B model reads 0.5 GB of weights, 26 ms on two cores; as 2,000 eager tensor operations it takes
 * 50 ms. Here a pass takes little longer than its weight reads, and cancellation is checked in every layer.
 *
 * No row depends on its neighbours, bit for bit; losslessness rests on that (see decoder.py):
 *   - linears multiply int8 by int8 and sum in 32-bit integers, in any order; scales are per output and per row;
 *   - 4-bit linears do so for each 256 inputs, and add these sums in float32 in the order of the inputs;
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
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

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

#define MAX_THREADS 64
#define QUERIES 16       /* processed together in attention */
#define MOST_HEAD_DIM 128
#define STEPS 16         /* of 64 inputs: these weights stay in the first-level cache while all rows are multiplied */
#define ROWS 16          /* in an AMX tile */
#define AHEAD 8192       /* bytes between the weights in use and those to fetch: 0.2 us of reading */
#define SPINS 20000      /* polls of the ticket before a worker sleeps: about 0.3 ms */

enum { QKV, OUT, UP, DOWN, LINEARS };
#if defined(ARM64)
enum { USE_NEON = 1, USE_DOTPROD = 2, USE_AMX = 3 /* never */ };
#elif defined(NARROW)
enum { USE_AVX2 = 1, USE_AVX_VNNI = 2, USE_AMX = 3 /* never */ };
#else
enum { USE_AVX512_VNNI = 1, USE_AVX512_BF16 = 2, USE_AMX = 3 };
#endif
enum { HEAD_MS = LINEARS, ATTENTION_MS, ROWS_MS, PARTS }; /* indices of a pass's times; the linears come first */

#define BLOCK_INPUTS 256 /* of a 4-bit block: a superblock of Q4_K */
#define GROUPS (BLOCK_INPUTS / 32)
#define Q4K_BYTES 144    /* of a superblock in the file */

/* 4-bit weights of 32 outputs and 32 inputs. `nibbles`: [2][4][16 outputs][2] of 16 bits; such 16 bits hold, from the low
 * end, inputs c, c+1, c+4, c+5 of 8 inputs, c being 0 for the first 16 bits of an output and 2 for the second. */
typedef struct { uint8_t step[32], base[32], nibbles[512]; } Group;

/* 4-bit weights of 32 outputs and 256 inputs, from Q4_K; AVX2 has its own in products4_avx2.h. A number q of
 * 0 to 15 stands for the weight
 *     scale * w,  w = (step * factor * q + 128 - base * base_factor) >> 8,  an int8
 * Activations have a scale for each row and block. step and base are Q4_K's own 6-bit numbers of the group. scale, factor
 * and base_factor are chosen for the output's 256 weights so that the largest w is about 127. Rounding to w is finer than
 * int8 with one scale for the row. */
typedef struct {
    float scale[32];
    int32_t offset[32];                     /* 128 x the sum of the output's w, as in Linear */
    uint16_t factor[32], base_factor[32];
    Group group[GROUPS];
} Block; /* 78 cache lines */

typedef struct {
    int8_t *packed;
    void *blocks;      /* [out/32][in/256] of Block, or of the path's own type; NULL: the weights are int8, in `packed` */
    float *scale;      /* [out] */
    float *bias;       /* [out] or NULL */
    int32_t *offset;   /* [out] 128 x the sum of an output's weights: VPDPBUSD takes unsigned activations */
    int32_t out, in;   /* out is a multiple of 32, in of 64; padding is zero */
} Linear;

typedef struct {
    Linear linear[LINEARS];
    float *norm_attention, *norm_mlp, *norm_q, *norm_k;
} Layer;

typedef struct {
    int32_t layers, hidden, heads, kv_heads, head_dim, inner, vocab, positions, rows; /* rows: of the widest pass */
    int32_t q4k_embedding; /* the embedding is superblocks of Q4_K, not bfloat16 */
    float eps, attention_scale;
} Shape;

typedef struct {
    const void *weight; /* bfloat16, or blocks of Q4_K */
    const Linear *to;
    int32_t out, in, interleave;
} Packing;

typedef struct Model Model;
typedef void (*Job)(Model *, int32_t chunk);

/* A superblock of Q4_K (ggml): weight = d * step * q - d_base * base, for 8 groups of 32 inputs. */
typedef struct { float d, d_base; uint8_t step[GROUPS], base[GROUPS], q[BLOCK_INPUTS]; } Superblock;

/* Stores output o of the block at an index. */
typedef void (*SetOutput)(void *blocks, size_t index, int32_t o, const Superblock *);

struct Model {
    Shape shape;
    Layer *layer;
    Linear head;
    float *norm;
    const uint8_t *embedding;     /* [vocab][hidden] bfloat16, or superblocks of Q4_K; owned by the caller */
    float *cos, *sin;             /* [positions][D/2], owned by the caller */
    int32_t path, threads;
    char flip, block_flip;        /* see quantize; of 4-bit linears */
    Job multiply, multiply_blocks, attend; /* of the path */
    SetOutput set_output;
    size_t block_bytes;           /* of 32 outputs and 256 inputs in 4 bits */
    void (*sum_groups)(int16_t *sums, const int8_t *row); /* of 256 inputs; NULL: the path needs no sums */
    /* state of one pass */
    int32_t t, start, group, kv_stride;  /* rows, position of the first, positions per layer and head of this cache */
    uint16_t *keys, *values, *q;  /* q: [rows][heads][D] bfloat16, scaled */
    float *x, *h, *qkv, *attended, *act;
    int8_t *quantized;
    float *row_scale;             /* [rows]; [rows][in/256] for 4-bit linears */
    int16_t *row_sums;            /* [rows][in/32], of quantized activations; for 4-bit linears with AVX2 */
    const Layer *now;
    int32_t now_index;
    const Linear *linear;
    const float *source, *norm_now;
    float *target;
    int32_t target_width, mode, span; /* span: blocks of 32 outputs in a chunk; for the matrix product's last step */
    const Packing *packing;       /* while loading */
    float *scores;                /* [threads][QUERIES][positions] */
    uint16_t *weights;            /* the same in bfloat16 */
    int32_t *sums;                /* [threads][rows][32] */
    /* the thread pool */
    pthread_t crew[MAX_THREADS];
    _Atomic uint64_t ticket;      /* epoch:24 | chunks:20 | next:20 */
    _Atomic int32_t done, sleepers, closing, names;
    uint32_t wake;                /* counts calls of wake_all; under `lock` */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    Job job;
    uint64_t epoch;
    double ms[PARTS];             /* time by part since the last read */
    struct timespec lap;
};

enum { PLAIN, ADD, GATED };       /* target = y, target += y, target = silu(gate) * up */

static __thread int32_t thread_name; /* index of this thread; 0: the caller */

/* ── thread pool: idle threads take chunks of a job, so a core that is busy otherwise delays one chunk ────────────── */

static void wake_all(Model *m) {
    pthread_mutex_lock(&m->lock);
    m->wake++;
    pthread_cond_broadcast(&m->woken);
    pthread_mutex_unlock(&m->lock);
}

static uint32_t wakes(Model *m) {
    pthread_mutex_lock(&m->lock);
    const uint32_t count = m->wake;
    pthread_mutex_unlock(&m->lock);
    return count;
}

/* Sleep until `wake_all` has been called since `wakes` returned `seen`. */
static void sleep_after(Model *m, uint32_t seen) {
    pthread_mutex_lock(&m->lock);
    while (m->wake == seen) pthread_cond_wait(&m->woken, &m->lock);
    pthread_mutex_unlock(&m->lock);
}

/* Take and run one chunk; 0: there is none left. */
static int take(Model *m) {
    uint64_t v = atomic_load_explicit(&m->ticket, memory_order_acquire);
    if ((v & 0xfffff) >= (v >> 20 & 0xfffff)) return 0;
    v = atomic_fetch_add_explicit(&m->ticket, 1, memory_order_acq_rel);
    if ((v & 0xfffff) >= (v >> 20 & 0xfffff)) return 0;
    m->job(m, (int32_t)(v & 0xfffff)); /* the job cannot change before this chunk is counted as done */
    atomic_fetch_add_explicit(&m->done, 1, memory_order_release);
    return 1;
}

/* Run all chunks of a job on all threads, and wait for the last. */
static void run(Model *m, Job job, int32_t chunks) {
    if (chunks == 1 || m->threads == 1) {
        for (int32_t i = 0; i < chunks; i++) job(m, i);
        return;
    }
    m->job = job;
    atomic_store_explicit(&m->done, 0, memory_order_relaxed);
    m->epoch = (m->epoch + 1) & 0xffffff;
    atomic_store_explicit(&m->ticket, m->epoch << 40 | (uint64_t)chunks << 20, memory_order_seq_cst);
    if (atomic_load_explicit(&m->sleepers, memory_order_seq_cst)) wake_all(m);
    while (take(m)) {}
    for (int32_t spin = 0; atomic_load_explicit(&m->done, memory_order_acquire) < chunks; spin++) {
        if (spin < 2000) pause_briefly(); else { sched_yield(); }
    }
}

#ifdef AVX512
typedef struct { uint8_t palette, start, reserved[14]; uint16_t bytes[16]; uint8_t rows[16]; } Tiles;

/* Eight tiles of 16 rows x 64 bytes. Constant, because compilers do not know all bytes the instruction reads. */
static const Tiles TILES = {
    .palette = 1,
    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};
AMX static void tiles_on(void) { _tile_loadconfig(&TILES); }
AMX static void tiles_off(void) { _tile_release(); }
#else
static void tiles_on(void) {}
static void tiles_off(void) {}
#endif

static void *work(void *given) {
    Model *m = given;
    thread_name = atomic_fetch_add(&m->names, 1);
    int on = 0;
    for (int32_t spin = 0; !atomic_load_explicit(&m->closing, memory_order_relaxed);) {
        if (m->path == USE_AMX && !on) { tiles_on(); on = 1; }
        if (take(m)) { spin = 0; continue; }
        if (spin++ < SPINS) { pause_briefly(); continue; }
        const uint32_t seen = wakes(m);
        atomic_fetch_add(&m->sleepers, 1);
        uint64_t v = atomic_load_explicit(&m->ticket, memory_order_seq_cst);
        if ((v & 0xfffff) >= (v >> 20 & 0xfffff) && !atomic_load(&m->closing)) {
            if (on) { tiles_off(); on = 0; }
            sleep_after(m, seen);
        }
        atomic_fetch_sub(&m->sleepers, 1);
        spin = 0;
    }
    if (on) tiles_off();
    return NULL;
}

/* ── rows: norms, quantizing, rotating ───────────────────────────────────────────────────────────────────────────── */

VEC static float sum_of(floats v) { return total(v); }

/* y = x / rms(x) * weight (arXiv 1910.07467); n is a multiple of 16. */
VEC static void normalize(float *y, const float *x, const float *weight, int32_t n, float eps) {
    floats sum = zeros();
    for (int32_t i = 0; i < n; i += 16) { floats v = load(x + i); sum = mul_add(v, v, sum); }
    floats inverse = all(1.0f / __builtin_sqrtf(sum_of(sum) / (float)n + eps));
    for (int32_t i = 0; i < n; i += 16)
        store(y + i, mul(mul(load(x + i), inverse), load(weight + i)));
}

/* int8 with one scale for the row: the largest magnitude becomes 127. `to` is the row's address in the first tile;
 * `flip` (128 or 0) is exclusive-ored onto each byte: VPDPBUSD takes unsigned activations, 128 more than the signed ones. */
VEC static float quantize(int8_t *to, const float *x, int32_t n, int32_t padded, char flip) {
    floats most = zeros();
    for (int32_t i = 0; i < n; i += 16) most = max(most, absolute(load(x + i)));
    float top = highest(most);
    if (!(top > 1e-10f)) top = 1e-10f;
    const floats by = all(127.0f / top);
    for (int32_t i = 0; i < n; i += 16) {
        const ints q = to_ints(mul(load(x + i), by)); /* to nearest even */
        store_bytes(to + i / 64 * 1024 + i % 64, to_bytes(q), flip);
    }
    for (int32_t i = n; i < padded; i += 16) memset(to + i / 64 * 1024 + i % 64, 0, 16);
    return top / 127.0f;
}

/* The start of a row of quantized activations, for a linear of `in` inputs. */
static int8_t *tile_row(Model *m, int32_t row, int32_t in) {
    return m->quantized + (size_t)(row / ROWS) * ROWS * in + row % ROWS * 64;
}

/* A row of activations for m->linear. 4-bit linears add their blocks in float32, so every block gets a scale of its own. */
VEC static void quantize_row(Model *m, int32_t row, const float *x, int32_t n) {
    const Linear *l = m->linear;
    int8_t *to = tile_row(m, row, l->in);
    if (!l->blocks) {
        m->row_scale[row] = quantize(to, x, n, l->in, m->flip);
        return;
    }
    const int32_t steps = l->in / BLOCK_INPUTS;
    for (int32_t k = 0; k < steps; k++, to += BLOCK_INPUTS / 64 * 1024) {
        m->row_scale[row * steps + k] = quantize(to, x + k * BLOCK_INPUTS, BLOCK_INPUTS, BLOCK_INPUTS, m->block_flip);
        if (m->sum_groups) m->sum_groups(m->row_sums + (row * steps + k) * GROUPS, to);
    }
}

VEC static void one_normed(Model *m, int32_t row) {
    const Shape *s = &m->shape;
    float *h = m->h + (size_t)row * s->hidden;
    normalize(h, m->x + (size_t)row * s->hidden, m->norm_now, s->hidden, s->eps);
    quantize_row(m, row, h, s->hidden);
}

VEC static void one_quantized(Model *m, int32_t row) {
    const int32_t n = m->linear == &m->now->linear[OUT] ? m->shape.heads * m->shape.head_dim : m->shape.inner;
    quantize_row(m, row, m->source + (size_t)row * n, n);
}

/* float32 -> bfloat16, round to nearest even; x is never NaN. */
VEC static shorts half(floats x) {
    const ints bits = as_ints(x), odd = both(shift_right(bits, 16), all_int(1));
    return to_shorts(shift_right(add_ints(bits, add_ints(odd, all_int(0x7fff))), 16));
}

/* Rotary position embedding, halves rotated (arXiv 2104.09864, as in Llama). */
VEC static void rotate(float *x, const float *cos, const float *sin, int32_t half) {
    for (int32_t i = 0; i < half; i += 16) {
        floats a = load(x + i), b = load(x + half + i);
        floats c = load(cos + i), s = load(sin + i);
        store(x + i, mul_sub(a, c, mul(b, s)));
        store(x + half + i, mul_add(b, c, mul(a, s)));
    }
}

VEC static void one_rotated(Model *m, int32_t row) {
    const Shape *s = &m->shape;
    const int32_t d = s->head_dim, position = m->start + row;
    const float *cos = m->cos + (size_t)position * (d / 2), *sin = m->sin + (size_t)position * (d / 2);
    float *qkv = m->qkv + (size_t)row * m->now->linear[QKV].out;
    for (int32_t i = 0; i < s->heads + s->kv_heads; i++) {
        const float *norm = i < s->heads ? m->now->norm_q : m->now->norm_k;
        if (norm) normalize(qkv + i * d, qkv + i * d, norm, d, s->eps);
        rotate(qkv + i * d, cos, sin, d / 2);
    }
    const floats scale = all(s->attention_scale);
    uint16_t *q = m->q + (size_t)row * s->heads * d;
    for (int32_t i = 0; i < s->heads * d; i += 16)
        store_shorts(q + i, half(mul(load(qkv + i), scale)));
    for (int32_t j = 0; j < s->kv_heads; j++) {
        const size_t head = ((size_t)m->now_index * s->kv_heads + j) * m->kv_stride;
        uint16_t own[MOST_HEAD_DIM];
        uint16_t *key = m->keys + (head + position / 16 * 16) * d + position % 16 * 2;
        for (int32_t i = 0; i < d; i += 16)
            store_shorts(own + i, half(load(qkv + (s->heads + j) * d + i)));
        for (int32_t i = 0; i < d; i += 2) memcpy(key + i * 16, own + i, 4);
        uint16_t *value = m->values + (head + position / 32 * 32) * d + position % 32 / 2 * 32 + position % 2;
        for (int32_t i = 0; i < d; i += 16)
            store_shorts(own + i, half(load(qkv + (s->heads + s->kv_heads + j) * d + i)));
        for (int32_t i = 0; i < d; i++) value[i / 16 * 512 + i % 16 * 2] = own[i];
    }
}

static void each_row(Model *m, int32_t chunk, Job one) {
    for (int32_t row = chunk * m->group; row < m->t && row < (chunk + 1) * m->group; row++) one(m, row);
}
static void some_normed(Model *m, int32_t chunk) { each_row(m, chunk, one_normed); }
static void some_quantized(Model *m, int32_t chunk) { each_row(m, chunk, one_quantized); }
static void some_rotated(Model *m, int32_t chunk) { each_row(m, chunk, one_rotated); }

/* A chunk is a few rows: a single row takes less time than waking another core. */
static void rows(Model *m, Job some) {
    m->group = m->t <= 2 * m->threads ? 1 : m->t < 64 ? 4 : 8;
    run(m, some, (m->t + m->group - 1) / m->group);
}

/* ── attention ───────────────────────────────────────────────────────────────────────────────────────────────────── */

/* 2^x for x up to 126: 2^(nearest integer) times a polynomial in the rest; error below 2e-7 plus rounding. */
VEC static floats two_to(floats x) {
    x = max(x, all(-150.0f));
    const floats n = nearest(x), r = sub(x, n);
    floats p = mul_add(all(0.001340043f), r, all(0.009676037f));
    p = mul_add(p, r, all(0.05550327f));
    p = mul_add(p, r, all(0.2402211f));
    p = mul_add(p, r, all(0.6931472f));
    p = mul_add(p, r, all(1.0f));
    return times_2_to(p, n);
}

#define LOG2_E 1.44269504088896341f

/* One KV head and QUERIES queries (of one or more rows): a query is (row, head of the group), row-major. Each function adds
 * a query's products in the order of the dimensions or positions, whatever its neighbours are. */
typedef struct {
    const uint16_t *keys, *values, *q[QUERIES];
    float *out[QUERIES], *scores, scale[QUERIES];
    uint16_t *weights;
    int32_t last[QUERIES], seen, stride, real; /* last: a query's own position; real: queries that are not padding */
} Attention;

static Attention attention_of(Model *m, int32_t chunk) {
    const Shape *s = &m->shape;
    const int32_t d = s->head_dim, group = s->heads / s->kv_heads, total = m->t * group;
    const int32_t per_head = (total + QUERIES - 1) / QUERIES, j = chunk / per_head, first = chunk % per_head * QUERIES;
    const size_t head = ((size_t)m->now_index * s->kv_heads + j) * m->kv_stride;
    Attention at = {.keys = m->keys + head * d, .values = m->values + head * d, .stride = (s->positions + 63) / 32 * 32};
    for (int32_t i = 0; i < QUERIES; i++) {
        const int32_t number = first + i < total ? first + i : total - 1; /* padded with the last query */
        const int32_t row = number / group, h = j * group + number % group;
        at.q[i] = m->q + ((size_t)row * s->heads + h) * d;
        at.out[i] = m->attended + ((size_t)row * s->heads + h) * d;
        at.last[i] = m->start + row;
        at.real += first + i < total;
    }
    at.seen = at.last[QUERIES - 1] + 1;
    at.scores = m->scores + (size_t)thread_name * QUERIES * at.stride;
    at.weights = m->weights + (size_t)thread_name * QUERIES * at.stride;
    return at;
}

/* The largest of the visible scores: the first `whole` ones, then the lanes of `rest`. */
VEC static float most_of(const float *scores, int32_t whole, mask rest) {
    floats most = all(-1e30f);
    for (int32_t key = 0; key < whole; key += 16) most = max(most, load(scores + key));
    return highest(max(most, choose(rest, most, load_some(scores + whole, rest))));
}

/* Scores -> weights, e^(score - the query's maximum), in place, zero where masked; 1 / their sums -> at->scale. */
VEC static void soften(Attention *at) {
    for (int32_t i = 0; i < at->real; i++) {
        float *scores = at->scores + (size_t)i * at->stride;
        const int32_t whole = (at->last[i] + 1) / 16 * 16, padded = (at->seen + 31) / 32 * 32; /* whole: all visible */
        const mask rest = first_lanes(at->last[i] + 1 - whole);
        const floats by = all(LOG2_E), base = mul(all(most_of(scores, whole, rest)), by);
        floats sum = zeros();
        for (int32_t key = 0; key < whole; key += 16) {
            const floats e = two_to(mul_sub(load(scores + key), by, base));
            sum = add(sum, e);
            store(scores + key, e);
        }
        if (whole < padded) {
            const floats e = choose(rest, zeros(), two_to(mul_sub(load_some(scores + whole, rest), by, base)));
            sum = add(sum, e);
            store(scores + whole, e);
        }
        for (int32_t key = whole + 16; key < padded; key += 16) store(scores + key, zeros());
        at->scale[i] = 1.0f / sum_of(sum);
    }
}

#ifdef AVX512
/* The same with weights in bfloat16, as the dot products of bfloat16 take them; their sum is that of the rounded ones. */
BF16 static void soften_bf16(Attention *at) {
    for (int32_t i = 0; i < at->real; i++) {
        const float *scores = at->scores + (size_t)i * at->stride;
        uint16_t *weights = at->weights + (size_t)i * at->stride;
        const int32_t whole = (at->last[i] + 1) / 16 * 16, padded = (at->seen + 31) / 32 * 32;
        const mask rest = first_lanes(at->last[i] + 1 - whole);
        const floats by = all(LOG2_E), base = mul(all(most_of(scores, whole, rest)), by);
        floats sum = zeros();
        for (int32_t key = 0; key < padded; key += 16) {
            const mask visible = key < whole ? 0xffff : key == whole ? rest : 0;
            const floats weight = choose(visible, zeros(), two_to(mul_sub(load_some(scores + key, visible), by, base)));
            const __m256i e = (__m256i)_mm512_cvtneps_pbh(weight);
            sum = add(sum, as_floats(shift_left(widen(e), 16)));
            _mm256_storeu_si256((__m256i *)(weights + key), e);
        }
        at->scale[i] = 1.0f / sum_of(sum);
    }
}
#endif

VEC static void scale_out(const Attention *at, int32_t query, int32_t c, floats sums) {
    if (query < at->real) store(at->out[query] + c, mul(sums, all(at->scale[query])));
}

#ifdef AVX512
AMX static void attend_amx(Model *m, int32_t chunk) {
    const int32_t d = m->shape.head_dim;
    Attention at = attention_of(m, chunk);
    uint16_t q[QUERIES * MOST_HEAD_DIM] __attribute__((aligned(64)));
    for (int32_t i = 0; i < QUERIES; i++) memcpy(q + i * d, at.q[i], (size_t)d * 2);
    _tile_loadd(0, q, d * 2);
    if (d > 32) _tile_loadd(1, q + 32, d * 2);
    if (d > 64) _tile_loadd(2, q + 64, d * 2);
    if (d > 96) _tile_loadd(3, q + 96, d * 2);
    for (int32_t key = 0; key < at.seen; key += 16) {
        const uint16_t *k = at.keys + (size_t)key * d;
        _tile_zero(4);
        _tile_loadd(5, k, 64);
        _tile_dpbf16ps(4, 0, 5);
        if (d > 32) { _tile_loadd(6, k + 512, 64); _tile_dpbf16ps(4, 1, 6); }
        if (d > 64) { _tile_loadd(5, k + 1024, 64); _tile_dpbf16ps(4, 2, 5); }
        if (d > 96) { _tile_loadd(6, k + 1536, 64); _tile_dpbf16ps(4, 3, 6); }
        _tile_stored(4, at.scores + key, at.stride * 4);
    }
    soften_bf16(&at);
    float sums[4][16][16] __attribute__((aligned(64)));
    for (int32_t c = 0; c < d; c += 64) {
        const int four = d - c >= 64;
        _tile_zero(0);
        _tile_zero(1);
        if (four) { _tile_zero(2); _tile_zero(3); }
        for (int32_t key = 0; key < at.seen; key += 32) {
            const uint16_t *v = at.values + (size_t)key * d + c / 16 * 512;
            _tile_loadd(4, at.weights + key, at.stride * 2);
            _tile_loadd(5, v, 64);
            _tile_dpbf16ps(0, 4, 5);
            _tile_loadd(6, v + 512, 64);
            _tile_dpbf16ps(1, 4, 6);
            if (four) {
                _tile_loadd(7, v + 1024, 64);
                _tile_dpbf16ps(2, 4, 7);
                _tile_loadd(5, v + 1536, 64);
                _tile_dpbf16ps(3, 4, 5);
            }
        }
        _tile_stored(0, sums[0], 64);
        _tile_stored(1, sums[1], 64);
        if (four) { _tile_stored(2, sums[2], 64); _tile_stored(3, sums[3], 64); }
        for (int32_t i = 0; i < at.real; i++)
            for (int32_t part = 0; part < (four ? 4 : 2); part++)
                scale_out(&at, i, c + part * 16, load(sums[part][i]));
    }
}
#endif

VEC static floats low_half(ints pairs) { return as_floats(shift_left(pairs, 16)); }
VEC static floats high_half(ints pairs) { return as_floats(both(pairs, all_int((int32_t)0xffff0000))); }
/* In float32: keys and values are widened once for all queries. */
VEC static void attend_vectors(Model *m, int32_t chunk) {
    const int32_t d = m->shape.head_dim;
    Attention at = attention_of(m, chunk);
    float q[MOST_HEAD_DIM][QUERIES], wide[MOST_HEAD_DIM * 16]; /* wide: of 16 keys [D][16], of 32 values [32][16] */
    for (int32_t i = 0; i < QUERIES; i++)
        for (int32_t c = 0; c < d; c++) {
            const uint32_t bits = (uint32_t)at.q[i][c] << 16;
            memcpy(&q[c][i], &bits, 4);
        }
    for (int32_t key = 0; key < at.seen; key += 16) {
        for (int32_t c = 0; c < d / 2; c++) {
            const ints pairs = load_ints(at.keys + (size_t)key * d + c * 32);
            store(wide + c * 32, low_half(pairs));
            store(wide + c * 32 + 16, high_half(pairs));
        }
        for (int32_t few = 0; few < at.real; few += FEW) {
            floats sum[FEW];
            for (int32_t i = 0; i < FEW; i++) sum[i] = zeros();
            for (int32_t c = 0; c < d; c++) {
                const floats k = load(wide + c * 16);
                for (int32_t i = 0; i < FEW; i++) sum[i] = mul_add(all(q[c][few + i]), k, sum[i]);
            }
            for (int32_t i = 0; i < FEW; i++) store(at.scores + (size_t)(few + i) * at.stride + key, sum[i]);
        }
    }
    soften(&at);
    for (int32_t c = 0; c < d; c += 16) {
        float sums[QUERIES][16] = {{0}};
        for (int32_t key = 0; key < at.seen; key += 32) {
            for (int32_t u = 0; u < 16; u++) {
                const ints pairs = load_ints(at.values + (size_t)key * d + c / 16 * 512 + u * 32);
                store(wide + u * 32, low_half(pairs));
                store(wide + u * 32 + 16, high_half(pairs));
            }
            for (int32_t few = 0; few < at.real; few += FEW) {
                const float *weights = at.scores + (size_t)few * at.stride + key;
                floats sum[FEW];
                for (int32_t i = 0; i < FEW; i++) sum[i] = load(sums[few + i]);
                for (int32_t u = 0; u < 32; u++) {
                    const floats v = load(wide + u * 16);
                    for (int32_t i = 0; i < FEW; i++) sum[i] = mul_add(all(weights[(size_t)i * at.stride + u]), v, sum[i]);
                }
                for (int32_t i = 0; i < FEW; i++) store(sums[few + i], sum[i]);
            }
        }
        for (int32_t i = 0; i < at.real; i++) scale_out(&at, i, c, load(sums[i]));
    }
}

#ifdef AVX512
/* With VDPBF16PS, which adds two products at a time. */
#define dot2(sums, x, y) _mm512_dpbf16_ps(sums, (__m512bh)(x), (__m512bh)(y))

BF16 static void attend_bf16(Model *m, int32_t chunk) {
    const int32_t d = m->shape.head_dim;
    Attention at = attention_of(m, chunk);
    int32_t q[MOST_HEAD_DIM / 2][QUERIES]; /* two numbers of a query in each */
    for (int32_t i = 0; i < QUERIES; i++)
        for (int32_t c = 0; c < d / 2; c++) memcpy(&q[c][i], at.q[i] + c * 2, 4);
    for (int32_t few = 0; few < at.real; few += FEW)
        for (int32_t key = 0; key < at.seen; key += 32) { /* the cache holds whole blocks of 32 */
            floats left[FEW], right[FEW];
            for (int32_t i = 0; i < FEW; i++) left[i] = right[i] = zeros();
            const uint16_t *k = at.keys + (size_t)key * d;
            for (int32_t c = 0; c < d / 2; c++) {
                const ints k0 = load_ints(k + c * 32), k1 = load_ints(k + 16 * d + c * 32);
                fetch((k + 32 * d + c * 32));
                fetch((k + 48 * d + c * 32));
                for (int32_t i = 0; i < FEW; i++) {
                    const ints x = all_int(q[c][few + i]);
                    left[i] = dot2(left[i], k0, x);
                    right[i] = dot2(right[i], k1, x);
                }
            }
            for (int32_t i = 0; i < FEW; i++) {
                store(at.scores + (size_t)(few + i) * at.stride + key, left[i]);
                store(at.scores + (size_t)(few + i) * at.stride + key + 16, right[i]);
            }
        }
    soften_bf16(&at);
    for (int32_t few = 0; few < at.real; few += FEW)
        for (int32_t c = 0; c < d; c += 32) {
            floats left[FEW], right[FEW];
            for (int32_t i = 0; i < FEW; i++) left[i] = right[i] = zeros();
            for (int32_t key = 0; key < at.seen; key += 32) {
                const uint16_t *v = at.values + (size_t)key * d + c / 16 * 512;
                for (int32_t u = 0; u < 16; u++) {
                    const ints v0 = load_ints(v + u * 32), v1 = load_ints(v + 512 + u * 32);
                    fetch((v + 32 * d + u * 32));
                    fetch((v + 32 * d + 512 + u * 32));
                    for (int32_t i = 0; i < FEW; i++) {
                        int32_t two;
                        memcpy(&two, at.weights + (size_t)(few + i) * at.stride + key + u * 2, 4);
                        left[i] = dot2(left[i], v0, all_int(two));
                        right[i] = dot2(right[i], v1, all_int(two));
                    }
                }
            }
            for (int32_t i = 0; i < FEW; i++) {
                scale_out(&at, few + i, c, left[i]);
                scale_out(&at, few + i, c + 16, right[i]);
            }
        }
}
#endif

/* ── linears: a chunk is 32 outputs of every row ─────────────────────────────────────────────────────────────────── */

/* Integer sums [16] of one row and 16 outputs -> floats. */
VEC static floats scaled(Model *m, ints sums, int32_t output, int32_t row) {
    return mul(mul(to_floats(sums), load(m->linear->scale + output)), all(m->row_scale[row]));
}

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
    const mask first = first_lanes(room), second = first_lanes(room - 16);
    if (m->mode == ADD) {
        store_some(to, first, add(load_some(to, first), a));
        store_some(to + 16, second, add(load_some(to + 16, second), b));
    } else {
        store_some(to, first, a);
        store_some(to + 16, second, b);
    }
}

#ifdef AVX512
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

/* ── timing of peaks, in products.h and peaks.h ──────────────────────────────────────────────────────────────────── */

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
#include "products.h"
#define MULTIPLY multiply_dotprod
#define TARGET __attribute__((target("dotprod")))
#define DOT4 dot4_dotprod
#define MOST 6
#define BLOCKS 1
#include "products.h"
#elif defined(NARROW)
#define MULTIPLY multiply_avx2
#define TARGET VEC
#define DOT4 dot4
#define MOST 3
#define BLOCKS 2
#define INT8_ONLY /* products4_avx2.h has the 4-bit products */
#include "products.h"
#define MULTIPLY multiply_vnni /* VPDPBUSD of AVX-VNNI */
#define TARGET __attribute__((target("avx2,fma,avxvnni")))
#define DOT4 dot4_vnni
#define MOST 6
#define BLOCKS 1
#include "products.h"
#define MULTIPLY multiply_vnni_evex /* the same, encoded for processors that have AVX-512 VNNI instead */
#define TARGET __attribute__((target("avx2,fma,avx512f,avx512vl,avx512vnni")))
#define DOT4 dot4_vnni_evex
#define MOST 6
#define BLOCKS 1
#include "products.h"
#else
#define MULTIPLY multiply_vectors
#define TARGET VEC
#define DOT4 dot4
#define MOST 12
#define BLOCKS 2
#include "products.h"
#endif

static void multiply(Model *m, const Linear *l, float *target, int32_t width, int32_t mode) {
    m->linear = l;
    m->target = target;
    m->target_width = width;
    m->mode = mode;
    /* Long spans read memory in a row; eight for each thread leave little to wait for at the end. */
    const int32_t blocks = l->out / 32, span = blocks / (m->threads * 8);
    m->span = m->path == USE_AMX || span < 1 ? 1 : span > 16 ? 16 : span;
    run(m, l->blocks ? m->multiply_blocks : m->multiply, (blocks + m->span - 1) / m->span);
}

static void lap(Model *m, int32_t part) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (part >= 0) m->ms[part] += (double)(now.tv_sec - m->lap.tv_sec) * 1e3 + (double)(now.tv_nsec - m->lap.tv_nsec) * 1e-6;
    m->lap = now;
}

/* ── Q4_K ────────────────────────────────────────────────────────────────────────────────────────────────────────── */

/* IEEE half precision -> float. */
static float half_to_float(const uint8_t *at) {
    const uint32_t half = at[0] | (uint32_t)at[1] << 8, exponent = half >> 10 & 31, fraction = half & 0x3ff;
    float value = exponent ? (float)(1024 + fraction) : (float)fraction;
    for (uint32_t e = exponent ? exponent : 1; e < 25; e++) value *= 0.5f;
    for (uint32_t e = 25; e < exponent; e++) value *= 2.0f;
    return half >> 15 ? -value : value;
}

static Superblock read_q4k(const uint8_t *at) {
    Superblock s = {.d = half_to_float(at), .d_base = half_to_float(at + 2)};
    const uint8_t *packed = at + 4, *nibbles = at + 16;
    for (int32_t g = 0; g < GROUPS; g++) {
        if (g < 4) s.step[g] = packed[g] & 63, s.base[g] = packed[g + 4] & 63;
        else {
            s.step[g] = (uint8_t)((packed[g + 4] & 15) | packed[g - 4] >> 6 << 4);
            s.base[g] = (uint8_t)(packed[g + 4] >> 4 | packed[g] >> 6 << 4);
        }
        for (int32_t i = 0; i < 32; i++) s.q[g * 32 + i] = nibbles[g / 2 * 32 + i] >> g % 2 * 4 & 15;
    }
    return s;
}

static float weight_of(const Superblock *s, int32_t i) {
    return s->d * (float)s->step[i / 32] * (float)s->q[i] - s->d_base * (float)s->base[i / 32];
}

/* Set one output of a block: choose its scale and factors, and store its numbers. */
static void set_output(void *blocks, size_t index, int32_t o, const Superblock *s) {
    Block *block = (Block *)blocks + index;
    float most = 1e-12f;
    int32_t steps = 1;
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) {
        const float w = weight_of(s, i);
        if (w > most) most = w;
        if (-w > most) most = -w;
        if (s->step[i / 32] > steps) steps = s->step[i / 32];
    }
    const float ideal = 256.0f * 127.0f * s->d / most, top = 4095.0f / (float)steps; /* 4095 * 15 fits 16 bits */
    const int32_t factor = (int32_t)(ideal > top ? top : ideal < -top ? -top : ideal);
    const float scale = factor ? 256.0f * s->d / (float)factor : most / 127.0f; /* d * step: a whole number of scale/256 */
    block->scale[o] = scale;
    block->factor[o] = (uint16_t)factor;
    block->base_factor[o] = (uint16_t)(int64_t)(256.0f * s->d_base / scale + 0.5f); /* sums are modulo 2^16 */
    int32_t sum = 0;
    for (int32_t i = 0; i < BLOCK_INPUTS; i++) {
        Group *group = &block->group[i / 32];
        group->step[o] = s->step[i / 32], group->base[o] = s->base[i / 32];
        sum += (int16_t)(group->step[o] * block->factor[o] * s->q[i] + 128 - group->base[o] * block->base_factor[o]) >> 8;
        uint8_t *pair = group->nibbles + o / 16 * 256 + i % 32 / 8 * 64 + o % 16 * 4 + i % 4 / 2 * 2;
        pair[i % 8 / 4] |= (uint8_t)(s->q[i] << i % 2 * 4);
    }
    block->offset[o] = 128 * sum;
}

#ifdef NARROW
#include "products4_avx2.h"
#endif

/* ── one pass ────────────────────────────────────────────────────────────────────────────────────────────────────── */

static void embed_q4k(float *to, const uint8_t *from, int32_t n) {
    for (int32_t k = 0; k < n; k += BLOCK_INPUTS, from += Q4K_BYTES) {
        const Superblock s = read_q4k(from);
        for (int32_t i = 0; i < BLOCK_INPUTS; i++) to[k + i] = weight_of(&s, i);
    }
}

static void embed(Model *m, const int32_t *ids) {
    const int32_t n = m->shape.hidden;
    for (int32_t row = 0; row < m->t; row++) {
        float *to = m->x + (size_t)row * n;
        if (m->shape.q4k_embedding) {
            embed_q4k(to, m->embedding + (size_t)ids[row] * (n / BLOCK_INPUTS) * Q4K_BYTES, n);
            continue;
        }
        const uint16_t *from = (const uint16_t *)m->embedding + (size_t)ids[row] * n;
        for (int32_t i = 0; i < n; i++) {
            const uint32_t bits = (uint32_t)from[i] << 16;
            memcpy(to + i, &bits, 4);
        }
    }
}

/* Append ids[0..t) at position `start` to the cache given by `keys` and `values` (kv_stride positions per head).
 * `logits` [wanted][vocab]: of the last `wanted` ids; wanted may be 0. `cancel` (may be NULL) is read three times a layer.
 * Returns 0: done; 1: cancelled, and the cache holds nothing new. */
int32_t speclsp_forward(Model *m, const int32_t *ids, int32_t t, int32_t start, uint16_t *keys, uint16_t *values,
                        int32_t kv_stride, float *logits, int32_t wanted, const volatile int32_t *cancel) {
    const Shape *s = &m->shape;
    m->t = t, m->start = start, m->keys = keys, m->values = values, m->kv_stride = kv_stride;
    thread_name = 0;
    if (m->path == USE_AMX) tiles_on();
    lap(m, -1);
    embed(m, ids);
    lap(m, ROWS_MS);
    int32_t stopped = 0;
    for (int32_t i = 0; i < s->layers; i++) {
        if (cancel && *cancel) { stopped = 1; break; }
        const Layer *layer = m->now = &m->layer[i];
        m->now_index = i;
        m->linear = &layer->linear[QKV], m->norm_now = layer->norm_attention;
        rows(m, some_normed);
        lap(m, ROWS_MS);
        multiply(m, &layer->linear[QKV], m->qkv, layer->linear[QKV].out, PLAIN);
        lap(m, QKV);
        rows(m, some_rotated);
        lap(m, ROWS_MS);
        run(m, m->attend, s->kv_heads * ((t * (s->heads / s->kv_heads) + QUERIES - 1) / QUERIES));
        lap(m, ATTENTION_MS);
        m->linear = &layer->linear[OUT], m->source = m->attended;
        rows(m, some_quantized);
        lap(m, ROWS_MS);
        multiply(m, &layer->linear[OUT], m->x, s->hidden, ADD);
        lap(m, OUT);
        if (cancel && *cancel) { stopped = 1; break; }
        m->linear = &layer->linear[UP], m->norm_now = layer->norm_mlp;
        rows(m, some_normed);
        lap(m, ROWS_MS);
        multiply(m, &layer->linear[UP], m->act, s->inner, GATED);
        lap(m, UP);
        if (cancel && *cancel) { stopped = 1; break; }
        m->linear = &layer->linear[DOWN], m->source = m->act;
        rows(m, some_quantized);
        lap(m, ROWS_MS);
        multiply(m, &layer->linear[DOWN], m->x, s->hidden, ADD);
        lap(m, DOWN);
    }
    if (!stopped && wanted) {
        float *x = m->x;
        m->x += (size_t)(t - wanted) * s->hidden, m->t = wanted;
        m->linear = &m->head, m->norm_now = m->norm;
        rows(m, some_normed);
        lap(m, ROWS_MS);
        multiply(m, &m->head, logits, s->vocab, PLAIN);
        lap(m, HEAD_MS);
        m->x = x;
    }
    if (m->path == USE_AMX) tiles_off();
    return stopped;
}

/* Milliseconds spent in each linear, the head, attention and row work since the last call, into ms[PARTS]. */
void speclsp_profile(Model *m, double *ms) {
    memcpy(ms, m->ms, sizeof m->ms);
    memset(m->ms, 0, sizeof m->ms);
}

/* Only the matrix products of one pass of t rows: the memory-bandwidth bound of a round. */
void speclsp_read_weights(Model *m, int32_t t) {
    m->t = t;
    thread_name = 0;
    if (m->path == USE_AMX) tiles_on();
    for (int32_t i = 0; i < m->shape.layers; i++)
        for (int32_t k = 0; k < LINEARS; k++)
            multiply(m, &m->layer[i].linear[k], k == UP ? m->act : m->qkv, k == UP ? m->shape.inner : 32, k == UP ? GATED : PLAIN);
    multiply(m, &m->head, m->qkv, 32, PLAIN);
    if (m->path == USE_AMX) tiles_off();
}

/* ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────────── */

static void *zeroed(size_t bytes) {
    void *at = mmap(NULL, (bytes + 8192 + 0x1fffff) & ~(size_t)0x1fffff, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE); /* a pass reads all of it: TLB misses would be a tenth of its time */
#endif
    return at;
}

static void unmap(void *at, size_t bytes) {
    if (at) munmap(at, (bytes + 8192 + 0x1fffff) & ~(size_t)0x1fffff);
}

static size_t packed_bytes(const Linear *l) { return (size_t)l->out * l->in; }
static size_t blocks_bytes(const Model *m, const Linear *l) { return (size_t)l->out / 32 * (l->in / BLOCK_INPUTS) * m->block_bytes; }

static Linear *linear_at(Model *m, int32_t layer, int32_t which) {
    return layer < 0 ? &m->head : &m->layer[layer].linear[which];
}

#ifdef ARM64
/* The best path that the processor has; every one has NEON. */
int32_t speclsp_path(void) {
#ifdef __APPLE__
    return USE_DOTPROD; /* since M1 */
#else
    return getauxval(AT_HWCAP) >> 20 & 1 ? USE_DOTPROD : USE_NEON; /* HWCAP_ASIMDDP of Linux */
#endif
}
#else
static void cpuid(uint32_t leaf, uint32_t part, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
    __asm__ volatile("cpuid" : "=a"(*a), "=b"(*b), "=c"(*c), "=d"(*d) : "a"(leaf), "c"(part));
}

/* CPUID leaf 7 (Intel's manual, volume 2): registers b, c, d of part 0, and a of part 1. All zero if the processor or its
 * kernel has no AVX2 and FMA. */
typedef struct { uint32_t b, c, d, a1; int avx512, amx; } Features; /* avx512, amx: the kernel saves their registers */

static Features features(void) {
    Features f = {0};
    uint32_t a, b, c, d, low, high;
    cpuid(0, 0, &a, &b, &c, &d);
    if (a < 7) return f;
    cpuid(1, 0, &a, &b, &c, &d);
    if (!(c >> 27 & 1) || !(c >> 12 & 1)) return f; /* OSXSAVE, FMA */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return f;
    cpuid(7, 0, &a, &f.b, &f.c, &f.d);
    if (!(f.b >> 5 & 1)) return (Features){0}; /* AVX2 */
    if (a) cpuid(7, 1, &f.a1, &b, &c, &d);
    f.avx512 = (low & 0xe6) == 0xe6, f.amx = (low >> 17 & 3) == 3;
    return f;
}

static int has_avx512_vnni(const Features *f) {
    const uint32_t base = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    return f->avx512 && (f->b & base) == base && f->c >> 11 & 1;
}

/* The best path of this build that the machine and its kernel allow; 0: none. */
int32_t speclsp_path(void) {
    const Features f = features();
#ifdef NARROW
    return !f.b ? 0 : f.a1 >> 4 & 1 || has_avx512_vnni(&f) ? USE_AVX_VNNI : USE_AVX2;
#else
    if (!has_avx512_vnni(&f)) return 0;
    const int bf16 = f.a1 >> 5 & 1, tiles = f.d >> 22 & f.d >> 24 & f.d >> 25 & 1; /* AMX-BF16, -TILE, -INT8 */
    if (tiles && f.amx && syscall(SYS_arch_prctl, 0x1023 /* ARCH_REQ_XCOMP_PERM */, 18 /* XTILEDATA */) == 0) return USE_AMX;
    return bf16 ? USE_AVX512_BF16 : USE_AVX512_VNNI;
#endif
}
#endif

static void choose_path(Model *m, int32_t path) {
    m->path = path;
    m->flip = m->block_flip = path == USE_AMX ? 0 : ACTIVATION_FLIP;
    m->set_output = set_output, m->block_bytes = sizeof(Block);
    m->attend = attend_vectors;
#if defined(ARM64)
    m->multiply = path == USE_DOTPROD ? multiply_dotprod : multiply_neon;
    m->multiply_blocks = path == USE_DOTPROD ? multiply_dotprod_blocks : multiply_neon_blocks;
#elif defined(NARROW)
    const Features f = features();
    m->multiply = path == USE_AVX2 ? multiply_avx2 : f.a1 >> 4 & 1 ? multiply_vnni : multiply_vnni_evex;
    m->multiply_blocks = f.a1 >> 4 & 1 ? multiply_vnni_blocks : multiply_vnni_evex_blocks;
    if (path == USE_AVX2) { /* its blocks hold the numbers of the file, and its products take signed activations */
        m->multiply_blocks = multiply_nibbles, m->block_flip = 0, m->sum_groups = sum_groups;
        m->set_output = set_nibbles, m->block_bytes = sizeof(NibbleBlock);
    }
#else
    m->multiply = path == USE_AMX ? multiply_amx : multiply_vectors;
    m->multiply_blocks = multiply_vectors_blocks; /* not with AMX: its activations are signed */
    if (path == USE_AMX) m->attend = attend_amx;
    else if (path == USE_AVX512_BF16) m->attend = attend_bf16;
#endif
}

/* A new model without weights; NULL: no memory. `path` is a result of speclsp_path. */
Model *speclsp_new(const Shape *shape, const void *embedding, const float *cos, const float *sin, int32_t threads, int32_t path) {
    Model *m = calloc(1, sizeof *m);
    if (!m) return NULL;
    m->shape = *shape;
    const Shape *s = &m->shape;
    m->embedding = embedding, m->cos = (float *)cos, m->sin = (float *)sin;
    choose_path(m, path);
    m->threads = threads < 1 ? 1 : threads > MAX_THREADS ? MAX_THREADS : threads;
    const int32_t rows = (s->rows + 2 * ROWS - 1) / (2 * ROWS) * 2 * ROWS;
    const int32_t attention = s->heads * s->head_dim, qkv = (attention + 2 * s->kv_heads * s->head_dim + 31) / 32 * 32;
    int32_t widest = s->inner > s->hidden ? s->inner : s->hidden;
    widest = ((widest > attention ? widest : attention) + 63) / 64 * 64;
    m->layer = calloc((size_t)s->layers, sizeof *m->layer);
    m->x = zeroed((size_t)rows * s->hidden * 4);
    m->h = zeroed((size_t)rows * s->hidden * 4);
    m->qkv = zeroed((size_t)rows * (qkv > 32 ? qkv : 32) * 4);
    m->attended = zeroed((size_t)rows * attention * 4);
    m->act = zeroed((size_t)rows * s->inner * 4);
    m->quantized = zeroed((size_t)rows * widest);
    m->row_scale = zeroed((size_t)rows * (widest / BLOCK_INPUTS + 1) * 4);
    m->row_sums = zeroed((size_t)rows * (widest / BLOCK_INPUTS + 1) * GROUPS * 2);
    m->q = zeroed((size_t)rows * attention * 2);
    m->scores = zeroed((size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 4);
    m->weights = zeroed((size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 2);
    m->sums = zeroed((size_t)m->threads * (s->rows + 2 * ROWS) * 32 * 4);
    atomic_store(&m->names, 1);
    pthread_mutex_init(&m->lock, NULL), pthread_cond_init(&m->woken, NULL);
    if (!m->layer || !m->x || !m->h || !m->qkv || !m->attended || !m->act || !m->quantized || !m->row_scale || !m->row_sums || !m->scores || !m->q || !m->weights || !m->sums) return NULL;
    for (int32_t i = 1; i < m->threads; i++)
        if (pthread_create(&m->crew[i], NULL, work, m)) { m->threads = i; break; }
    return m;
}

/* The published row of a packed one, -1 for padding. Gate and up, `out/2` rows each, are interleaved by 16: block 2i is
 * gate, 2i+1 up. */
static int32_t published_row(const Packing *p, int32_t place) {
    if (!p->interleave) return place < p->out ? place : -1;
    const int32_t row = place / 32 * 16 + place % 16;
    return row < p->out / 2 ? place / 16 % 2 * (p->out / 2) + row : -1;
}

/* Quantize and pack 32 outputs: bfloat16 rows -> int8 with one scale each. */
VEC static void pack(Model *m, int32_t chunk) {
    const Packing *p = m->packing;
    const Linear *l = p->to;
    int8_t *to = l->packed + (size_t)chunk * 32 * l->in;
    for (int32_t o = 0; o < 32; o++) {
        const int32_t place = chunk * 32 + o, row = published_row(p, place);
        l->scale[place] = 0.0f, l->offset[place] = 0;
        if (row < 0) continue;
        const uint16_t *w = (const uint16_t *)p->weight + (size_t)row * p->in;
        floats most = zeros();
        for (int32_t i = 0; i < p->in; i += 16) {
            const floats v = as_floats(shift_left(widen(load_shorts(w + i)), 16));
            most = max(most, absolute(v));
        }
        float scale = highest(most) / 127.0f;
        if (!(scale > 1e-12f)) scale = 1e-12f;
        const floats by = all(scale);
        ints sum = zero_ints();
        for (int32_t i = 0; i < p->in; i += 16) {
            const floats v = as_floats(shift_left(widen(load_shorts(w + i)), 16));
            const ints q = to_ints(divide(v, by));
            sum = add_ints(sum, q);
            int32_t four[4];
            store_bytes((int8_t *)four, to_bytes(q), 0);
            int8_t *block = to + (size_t)(i / 64) * 2048 + o / 16 * 1024 + o % 16 * 4;
            for (int32_t u = 0; u < 4; u++) memcpy(block + (i % 64 / 4 + u) * 64, &four[u], 4);
        }
        l->scale[place] = scale;
        l->offset[place] = 128 * total_int(sum);
    }
}

/* Pack 32 outputs: rows of Q4_K -> blocks. */
static void pack_blocks(Model *m, int32_t chunk) {
    const Packing *p = m->packing;
    const int32_t steps = p->in / BLOCK_INPUTS;
    for (int32_t o = 0; o < 32; o++) {
        const int32_t row = published_row(p, chunk * 32 + o);
        const uint8_t *from = (const uint8_t *)p->weight + (size_t)(row < 0 ? 0 : row) * steps * Q4K_BYTES;
        for (int32_t k = 0; k < steps && row >= 0; k++) {
            const Superblock s = read_q4k(from + k * Q4K_BYTES);
            m->set_output(p->to->blocks, (size_t)chunk * steps + k, o, &s);
        }
    }
}

/* Memory for a linear, and its bias in the packed order. 0: done; 1: no memory. */
static int32_t allocate(const Model *m, Linear *l, const Packing *p, const float *bias, int four_bits) {
    l->out = p->interleave ? (p->out / 2 + 15) / 16 * 32 : (p->out + 31) / 32 * 32;
    l->in = (p->in + 63) / 64 * 64;
    if (four_bits) l->blocks = zeroed(blocks_bytes(m, l));
    else l->packed = zeroed(packed_bytes(l));
    l->scale = aligned_alloc(64, (size_t)l->out * 4);
    l->offset = aligned_alloc(64, (size_t)l->out * 4);
    l->bias = bias ? aligned_alloc(64, (size_t)l->out * 4) : NULL;
    if (!(four_bits ? l->blocks : l->packed) || !l->scale || !l->offset || (bias && !l->bias)) return 1;
    for (int32_t o = 0; bias && o < l->out; o++) {
        const int32_t row = published_row(p, o);
        l->bias[o] = row < 0 ? 0.0f : bias[row];
    }
    return 0;
}

/* Set the weights of a layer's linear (layer -1: the head), [out][in]: with four_bits blocks of Q4_K, `in` a multiple of 256;
 * else bfloat16, `in` a multiple of 16. 0: done; 1: no memory. */
int32_t speclsp_linear(Model *m, int32_t layer, int32_t which, const void *weight, const float *bias, int32_t out, int32_t in,
                       int32_t four_bits) {
    Linear *l = linear_at(m, layer, which);
    const Packing p = {weight, l, out, in, layer >= 0 && which == UP};
    if (allocate(m, l, &p, bias, four_bits)) return 1;
    m->packing = &p;
    run(m, four_bits ? pack_blocks : pack, l->out / 32);
    return 0;
}

/* which: 0 attention, 1 mlp, 2 q, 3 k; layer -1: the last norm. `weight` [n] float32 is copied. 0: done; 1: no memory. */
int32_t speclsp_norm(Model *m, int32_t layer, int32_t which, const float *weight, int32_t n) {
    float *own = aligned_alloc(64, (size_t)(n + 15) / 16 * 64);
    if (!own) return 1;
    memcpy(own, weight, (size_t)n * 4);
    if (layer < 0) m->norm = own;
    else if (which == 0) m->layer[layer].norm_attention = own;
    else if (which == 1) m->layer[layer].norm_mlp = own;
    else if (which == 2) m->layer[layer].norm_q = own;
    else m->layer[layer].norm_k = own;
    return 0;
}

#include "peaks.h"

static void linear_free(const Model *m, Linear *l) {
    unmap(l->packed, packed_bytes(l)), unmap(l->blocks, blocks_bytes(m, l));
    free(l->scale), free(l->offset), free(l->bias);
}

void speclsp_free(Model *m) {
    atomic_store(&m->closing, 1);
    wake_all(m);
    for (int32_t i = 1; i < m->threads; i++) pthread_join(m->crew[i], NULL);
    const Shape *s = &m->shape;
    for (int32_t i = 0; i < s->layers; i++) {
        for (int32_t k = 0; k < LINEARS; k++) linear_free(m, &m->layer[i].linear[k]);
        free(m->layer[i].norm_attention), free(m->layer[i].norm_mlp), free(m->layer[i].norm_q), free(m->layer[i].norm_k);
    }
    linear_free(m, &m->head);
    const int32_t rows = (s->rows + 2 * ROWS - 1) / (2 * ROWS) * 2 * ROWS, attention = s->heads * s->head_dim;
    const int32_t qkv = (attention + 2 * s->kv_heads * s->head_dim + 31) / 32 * 32;
    int32_t widest = s->inner > s->hidden ? s->inner : s->hidden;
    widest = ((widest > attention ? widest : attention) + 63) / 64 * 64;
    unmap(m->x, (size_t)rows * s->hidden * 4), unmap(m->h, (size_t)rows * s->hidden * 4);
    unmap(m->qkv, (size_t)rows * (qkv > 32 ? qkv : 32) * 4), unmap(m->attended, (size_t)rows * attention * 4);
    unmap(m->act, (size_t)rows * s->inner * 4), unmap(m->quantized, (size_t)rows * widest);
    unmap(m->row_scale, (size_t)rows * (widest / BLOCK_INPUTS + 1) * 4);
    unmap(m->row_sums, (size_t)rows * (widest / BLOCK_INPUTS + 1) * GROUPS * 2);
    unmap(m->q, (size_t)rows * attention * 2);
    unmap(m->scores, (size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 4);
    unmap(m->weights, (size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 2);
    unmap(m->sums, (size_t)m->threads * (s->rows + 2 * ROWS) * 32 * 4);
    pthread_mutex_destroy(&m->lock), pthread_cond_destroy(&m->woken);
    free(m->norm), free(m->layer), free(m);
}
