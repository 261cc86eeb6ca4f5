/* The sizes, types and state of a model and of one pass. */
#pragma once

#define MAX_THREADS 64
#define QUERIES 16       /* processed together in attention */
#define MAX_HEAD_DIM 128
#define STEPS 16         /* of 64 inputs: these weights stay in the first-level cache while all rows are multiplied */
#define SUM_BLOCKS 4     /* of 32 outputs, whose sums a thread keeps while many rows are multiplied */
#define CACHED_BYTES (384 << 10) /* of activations: at most this much stays in the second-level cache */
#define CACHED_STEPS 4   /* of 256 inputs: of 320 rows, 320 KiB */
#define SPREAD_ROWS 64   /* from this number of rows on, all of them fetch the next weights */
#define ROWS 16          /* in an AMX tile */
#define WIDE_ROWS 4      /* from this number of rows on, AVX2 widens weights and activations once; see products/wide_avx2.h */
#define MAX_WIDE_ROWS 6      /* rows that are multiplied together then */
#define AHEAD 8192       /* bytes between the weights in use and those to fetch: 0.2 us of reading */
#define AHEAD_OF_ROWS 12288 /* the same where more rows than fit one pass use the weights */
#define SPINS 20000      /* polls of the ticket before a worker sleeps: about 0.3 ms */

enum { QKV, OUT, UP, DOWN, LINEARS };
enum { HEAD = -1, EMBEDDING = -2 }; /* in place of a layer's number */
#if defined(ARM64)
enum { USE_NEON = 1, USE_DOTPROD = 2, USE_AMX = 3 /* never */ };
#elif defined(NARROW)
enum { USE_AVX2 = 1, USE_AVX_VNNI = 2, USE_AMX = 3 /* never */ };
#else
enum { USE_AVX512_VNNI = 1, USE_AVX512_BF16 = 2, USE_AMX = 3 };
#endif
enum { HEAD_MS = LINEARS, ATTENTION_MS, ROWS_MS, PARTS }; /* indices of a pass's times; the linears come first */

/* Inputs whose activations share a scale, and of a superblock of Q4_K or Q6_K. Activations of the 0.5B have a few large
 * numbers in a row: with one scale for the row, the others keep few bits. */
#define BLOCK_INPUTS 256
#define WHOLE_ROW (1 << 30) /* for AMX: its tiles would be stored after every four products */
#define GROUPS (BLOCK_INPUTS / 32)
#define Q4K_BYTES 144    /* of a superblock in the file */
#define Q6K_BYTES 210
/* The weights of a linear or of the embedding as they arrive: coded ones as bfloat16, which coded.h rounds. */
enum { BF16_WEIGHTS, Q4K_WEIGHTS, Q6K_WEIGHTS, CODED4_WEIGHTS, CODED6_WEIGHTS, SOURCES };

/* 4-bit weights of 32 outputs and 32 inputs. `nibbles`: [2][4][16 outputs][2] of 16 bits; such 16 bits hold, from the low
 * end, inputs c, c+1, c+4, c+5 of 8 inputs, c being 0 for the first 16 bits of an output and 2 for the second. */
typedef struct { uint8_t step[32], base[32], nibbles[512]; } Group;

/* 4-bit weights of 32 outputs and 256 inputs, from Q4_K; AVX2 has its own in products/q4k_avx2.h. A number q of
 * 0 to 15 stands for the weight
 *     scale * w,  w = (step * factor * q + 128 - base * base_factor) >> 8,  an int8
 * Activations have a scale for each row and block. step and base are Q4_K's own 6-bit numbers of the group. scale, factor
 * and base_factor are chosen for the output's 256 weights so that the largest w is about 127. Rounding to w is finer than
 * int8 with one scale for the row. */
typedef struct {
    float scale[32];
    int32_t offset[32];                     /* -128 x the sum of the output's w, as in Linear */
    uint16_t factor[32], base_factor[32];
    Group group[GROUPS];
} Block; /* 78 cache lines */

typedef struct {
    int8_t *packed;
    void *blocks;      /* [out/32][in/256] of the path's own type for `source`, or coded weights; NULL: int8, in `packed` */
    float *scale;      /* [out] */
    float *bias;       /* [out] or NULL */
    int32_t *offset;   /* [out/32][steps][32] -128 x the sum of an output's weights: VPDPBUSD takes unsigned activations */
    int32_t out, in;   /* out is a multiple of 32, in of 64; padding is zero */
    int32_t steps;     /* blocks of scale_inputs inputs; the last may have fewer */
    int32_t source;    /* BF16_WEIGHTS, ... */
    int32_t borrowed;  /* 1: the numbers are in the caller's memory, a mapped file */
} Linear;

enum { WEIGHTS_PART, SCALE_PART, OFFSET_PART, BIAS_PART, LINEAR_PARTS }; /* of a linear's packed numbers */

typedef struct {
    Linear linear[LINEARS];
    float *norm_attention, *norm_mlp, *norm_q, *norm_k;
} Layer;

typedef struct {
    int32_t layers, hidden, heads, kv_heads, head_dim, inner, vocab, positions, rows; /* rows: of the widest pass */
    int32_t embedding; /* BF16_WEIGHTS, ... */
    float eps, attention_scale;
} Shape;

typedef struct {
    const void *weight; /* of the linear's source */
    const Linear *to;
    int32_t out, in, interleave;
} Packing;

typedef struct Model Model;
typedef void (*Job)(Model *, int32_t chunk);

/* The blocks of a path for one source. `set_output` stores the superblock of output o in the block at an index. */
typedef struct {
    Job multiply;
    void (*set_output)(void *blocks, size_t index, int32_t o, const uint8_t *superblock);
    size_t bytes; /* of 32 outputs and 256 inputs; 0: the path does not have the source */
    void (*sum_groups)(int16_t *sums, const int8_t *row); /* of 256 activations, [2 * GROUPS] at most; NULL: it needs no sums */
} BlockFormat;

struct Model {
    Shape shape;
    Layer *layer;
    Linear head, embedded; /* embedded: the embedding, read by rows; without outputs where it has no such weights */
    float *norm;
    const uint8_t *embedding;     /* [vocab][hidden], of the shape's source; owned by the caller. NULL: `embedded`, or the head */
    float *cos, *sin;             /* [positions][D/2], owned by the caller */
    int32_t path, threads;
    char flip, block_flip;        /* see quantize; of linears of blocks */
    int32_t scale_inputs;         /* activations of a row that share a scale: BLOCK_INPUTS or WHOLE_ROW */
    Job multiply, attend;         /* of the path */
    BlockFormat format[SOURCES];  /* of the path; `multiply` is NULL where it has no blocks for a source */
    void (*widen_row)(uint64_t *to, const int8_t *row, int32_t in); /* NULL: the path does not need it */
    /* state of one pass */
    int32_t t, start, group, kv_stride;  /* rows, position of the first, positions per layer and head of this cache */
    uint16_t *keys, *values, *q;  /* q: [rows][heads][D] bfloat16, scaled */
    float *x, *h, *qkv, *attended, *act;
    int8_t *quantized;
    uint64_t *wide;               /* [rows/6][in/4][6] fours, the same in 16 bits; AVX2 with WIDE_ROWS or more. NULL: another path */
    float *row_scale;             /* [rows][steps], of quantized activations */
    int16_t *row_sums;            /* [rows][steps][2 * GROUPS], of quantized activations; see BlockFormat */
    const Layer *now;
    int32_t now_index;
    const Linear *linear;
    const float *source, *norm_now;
    float *target;
    int32_t source_width;
    int32_t target_width, mode, span; /* span: blocks of 32 outputs in a chunk; for the matrix product's last step */
    const Packing *packing;       /* while loading */
    float *scores;                /* [threads][QUERIES][positions] */
    uint16_t *weights;            /* the same in bfloat16 */
    int32_t *sums;                /* [threads][rows][32] */
    /* the thread pool */
    Thread crew[MAX_THREADS];
    _Atomic uint64_t ticket;      /* epoch:24 | chunks:20 | next:20 */
    _Atomic int32_t done, sleepers, closing, names;
    uint32_t wake;                /* counts calls of wake_all; under `lock` */
    Lock lock;
    Condition woken;
    Job job;
    uint64_t epoch;
    double ms[PARTS];             /* time by part since the last read */
    double lap_s;                 /* when the last part ended */
};

enum { PLAIN, ADD, GATED };       /* target = y, target += y, target = silu(gate) * up */

static __thread int32_t thread_name; /* index of this thread; 0: the caller */

/* Memory in whole huge pages, with AHEAD bytes behind it, and the sizes of weights. */
static size_t mapped_bytes(size_t bytes) { return (bytes + 8192 + 0x1fffff) & ~(size_t)0x1fffff; }
static void *zeroed(size_t bytes) { return zero_pages(mapped_bytes(bytes)); }

static void unmap(void *at, size_t bytes) {
    if (at) free_pages(at, mapped_bytes(bytes));
}

static size_t packed_bytes(const Linear *l) { return (size_t)l->out * l->in; }
static size_t blocks_bytes(const Model *m, const Linear *l) { return (size_t)l->out / 32 * (l->in / 32) * (m->format[l->source].bytes / GROUPS); }

/* The bytes of a linear's packed numbers, by part. */
static void part_bytes(const Model *m, const Linear *l, int with_bias, int64_t *bytes) {
    bytes[WEIGHTS_PART] = (int64_t)(l->source ? blocks_bytes(m, l) : packed_bytes(l));
    bytes[SCALE_PART] = (int64_t)l->out * 4, bytes[OFFSET_PART] = (int64_t)l->out * l->steps * 4;
    bytes[BIAS_PART] = with_bias ? (int64_t)l->out * 4 : 0;
}

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }

static Linear *linear_at(Model *m, int32_t layer, int32_t which) {
    return layer == HEAD ? &m->head : layer == EMBEDDING ? &m->embedded : &m->layer[layer].linear[which];
}

static void linear_free(const Model *m, Linear *l) {
    if (!l->borrowed) {
        unmap(l->packed, packed_bytes(l)), unmap(l->blocks, blocks_bytes(m, l));
        free_aligned(l->scale), free_aligned(l->offset), free_aligned(l->bias);
    }
    l->packed = NULL, l->blocks = NULL, l->scale = NULL, l->offset = NULL, l->bias = NULL;
}
