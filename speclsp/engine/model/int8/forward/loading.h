/* Memory of a model, and its weights: quantized, packed, copied. */
#pragma once

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
    m->wide = m->widen_row ? zeroed((size_t)(rows + MAX_WIDE_ROWS) * widest * 2) : NULL;
    m->row_scale = zeroed((size_t)rows * (widest / BLOCK_INPUTS + 1) * 4);
    m->row_sums = zeroed((size_t)rows * (widest / BLOCK_INPUTS + 1) * GROUPS * 4);
    m->q = zeroed((size_t)rows * attention * 2);
    m->scores = zeroed((size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 4);
    m->weights = zeroed((size_t)m->threads * QUERIES * ((s->positions + 63) / 32 * 32) * 2);
    m->sums = zeroed((size_t)m->threads * SUM_BLOCKS * (s->rows + 2 * ROWS) * 32 * 4);
    atomic_store(&m->names, 1);
    create_lock(&m->lock), create_condition(&m->woken);
    if (!m->layer || !m->x || !m->h || !m->qkv || !m->attended || !m->act || !m->quantized || (m->widen_row && !m->wide) || !m->row_scale || !m->row_sums || !m->scores || !m->q || !m->weights || !m->sums) return NULL;
    for (int32_t i = 1; i < m->threads; i++)
        if (!start_thread(&m->crew[i], work, m)) { m->threads = i; break; }
    return m;
}

/* The published row of a packed one, -1 for padding. Gate and up, `out/2` rows each, are interleaved by 16: block 2i is
 * gate, 2i+1 up. */
static int32_t published_row(const Packing *p, int32_t place) {
    if (!p->interleave) return place < p->out ? place : -1;
    const int32_t row = place / 32 * 16 + place % 16;
    return row < p->out / 2 ? place / 16 % 2 * (p->out / 2) + row : -1;
}

/* The scale of a row of n weights in int8. `check`: 0, or NaN if a weight is not finite, as in zero_or_nan. */
VEC static float int8_scale(const uint16_t *w, int32_t n, float *check) {
    floats most = zeros(), sum = zeros();
    for (int32_t i = 0; i < n; i += 16) {
        const floats v = from_bf16(w + i);
        most = max(most, absolute(v));
        sum = mul_add(v, zeros(), sum);
    }
    *check = sum_of(sum);
    const float scale = highest(most) / 127.0f;
    return scale > 1e-12f ? scale : 1e-12f;
}

/* Store a row of n bfloat16 weights as output o (0 to 31) of a block, in int8. */
VEC static void set_int8_row(const Model *m, const Linear *l, int32_t block, int32_t o, const uint16_t *w, int32_t n, float scale) {
    int8_t *to = l->packed + (size_t)block * 32 * l->in;
    int32_t *offset = l->offset + (size_t)block * l->steps * 32 + o;
    const floats by = all(scale);
    for (int32_t k = 0; k < l->steps; k++) {
        ints sum = zero_ints();
        for (int32_t i = k * m->scale_inputs; i < least((k + 1) * m->scale_inputs, n); i += 16) {
            const ints q = to_ints(divide(from_bf16(w + i), by));
            sum = add_ints(sum, q);
            int32_t four[4];
            store_bytes((int8_t *)four, to_bytes(q), 0);
            int8_t *at = to + (size_t)(i / 64) * 2048 + o / 16 * 1024 + o % 16 * 4;
            for (int32_t u = 0; u < 4; u++) memcpy(at + (i % 64 / 4 + u) * 64, &four[u], 4);
        }
        offset[k * 32] = -128 * total_int(sum);
    }
}

/* The same in coded weights; see coded.h. */
VEC static void set_coded_row(const Model *m, const Linear *l, int32_t block, int32_t o, const uint16_t *w, int32_t n, float scale) {
    const int32_t bits = bits_of(l);
    uint8_t *to = (uint8_t *)l->blocks + (size_t)block * coded_bytes(l->in, bits);
    int32_t *offset = l->offset + (size_t)block * l->steps * 32 + o;
    for (int32_t i = 0; i < n; i += 32) {
        const CodedGroup group = code(w + i, scale, bits);
        set_coded(to, l->in, o, i, &group, bits);
        offset[i / m->scale_inputs * 32] -= 128 * group.sum;
    }
}

/* Round and pack 32 outputs: bfloat16 rows -> int8 or coded weights with one scale each. */
VEC static void pack(Model *m, int32_t chunk) {
    const Packing *p = m->packing;
    const Linear *l = p->to;
    for (int32_t o = 0; o < 32; o++) {
        const int32_t place = chunk * 32 + o, row = published_row(p, place);
        l->scale[place] = 0.0f;
        for (int32_t k = 0; k < l->steps; k++) l->offset[((size_t)chunk * l->steps + k) * 32 + o] = 0;
        if (row < 0) continue;
        const uint16_t *w = (const uint16_t *)p->weight + (size_t)row * p->in;
        float check;
        const float scale = int8_scale(w, p->in, &check);
        (l->source ? set_coded_row : set_int8_row)(m, l, chunk, o, w, p->in, scale);
        l->scale[place] = scale + check;
    }
}

/* Pack 32 outputs: rows of superblocks -> blocks. */
static void pack_blocks(Model *m, int32_t chunk) {
    const Packing *p = m->packing;
    const int32_t steps = p->in / BLOCK_INPUTS, bytes = p->to->source == Q4K_WEIGHTS ? Q4K_BYTES : Q6K_BYTES;
    for (int32_t o = 0; o < 32; o++) {
        const int32_t row = published_row(p, chunk * 32 + o);
        const uint8_t *from = (const uint8_t *)p->weight + (size_t)(row < 0 ? 0 : row) * steps * bytes;
        for (int32_t k = 0; k < steps && row >= 0; k++)
            m->format[p->to->source].set_output(p->to->blocks, (size_t)chunk * steps + k, o, from + k * bytes);
    }
}

/* Set the packed sizes of a linear, [out][in] as published. `interleave`: gate and up, see published_row. */
static void set_sizes(const Model *m, Linear *l, int32_t out, int32_t in, int32_t interleave, int32_t source) {
    l->source = source;
    l->out = interleave ? (out / 2 + 15) / 16 * 32 : (out + 31) / 32 * 32;
    l->in = (in + 63) / 64 * 64;
    l->steps = (l->in + m->scale_inputs - 1) / m->scale_inputs;
}

/* Memory for a linear, and its bias in the packed order. 0: done; 1: no memory. */
static int32_t allocate(const Model *m, Linear *l, const Packing *p, const float *bias) {
    if (l->source) l->blocks = zeroed(blocks_bytes(m, l));
    else l->packed = zeroed(packed_bytes(l));
    l->scale = allocate_aligned((size_t)l->out * 4);
    l->offset = allocate_aligned((size_t)l->out * l->steps * 4);
    l->bias = bias ? allocate_aligned((size_t)l->out * 4) : NULL;
    if (!(l->source ? l->blocks : l->packed) || !l->scale || !l->offset || (bias && !l->bias)) return 1;
    for (int32_t o = 0; bias && o < l->out; o++) {
        const int32_t row = published_row(p, o);
        l->bias[o] = row < 0 ? 0.0f : bias[row];
    }
    return 0;
}

/* Set the weights of a layer's linear, of the HEAD or of the EMBEDDING, [out][in]: `source` (BF16_WEIGHTS, ...): `in` is a multiple of 16
 * for bfloat16, of 32 for coded weights, of 256 for superblocks. 0: done; 1: no memory; 2: the path has no blocks for that source. */
int32_t speclsp_linear(Model *m, int32_t layer, int32_t which, const void *weight, const float *bias, int32_t out, int32_t in,
                       int32_t source) {
    if (source && !m->format[source].multiply) return 2;
    Linear *l = linear_at(m, layer, which);
    const Packing p = {weight, l, out, in, layer >= 0 && which == UP};
    set_sizes(m, l, out, in, p.interleave, source);
    if (allocate(m, l, &p, bias)) return 1;
    m->packing = &p;
    run(m, !source || is_coded(source) ? pack : pack_blocks, l->out / 32);
    return 0;
}

/* The addresses and bytes of a linear's packed numbers, for a file of them. */
void speclsp_parts(Model *m, int32_t layer, int32_t which, const void **at, int64_t *bytes) {
    const Linear *l = linear_at(m, layer, which);
    at[WEIGHTS_PART] = l->source ? l->blocks : (void *)l->packed;
    at[SCALE_PART] = l->scale, at[OFFSET_PART] = l->offset, at[BIAS_PART] = l->bias;
    part_bytes(m, l, l->bias != NULL, bytes);
}

/* Free a linear's packed numbers: it computes nothing until speclsp_borrow gives it others. */
void speclsp_release(Model *m, int32_t layer, int32_t which) { linear_free(m, linear_at(m, layer, which)); }

/* Compute with packed numbers in memory of the caller, such as a mapped file, that speclsp_linear made on this path. `at` and
 * `bytes`: [LINEAR_PARTS], without a bias 0 bytes. 0: done; 1: the bytes are not those of such a linear; 2: the path has no
 * blocks for that source. */
int32_t speclsp_borrow(Model *m, int32_t layer, int32_t which, int32_t out, int32_t in, int32_t source, void *const *at,
                       const int64_t *bytes) {
    if (source < 0 || source >= SOURCES || (source && !m->format[source].multiply)) return 2;
    Linear *l = linear_at(m, layer, which);
    int64_t expected[LINEAR_PARTS];
    linear_free(m, l);
    set_sizes(m, l, out, in, layer >= 0 && which == UP, source);
    part_bytes(m, l, bytes[BIAS_PART] != 0, expected);
    for (int32_t part = 0; part < LINEAR_PARTS; part++)
        if (bytes[part] != expected[part]) return 1;
    l->borrowed = 1;
    if (source) l->blocks = at[WEIGHTS_PART];
    else l->packed = at[WEIGHTS_PART];
    l->scale = at[SCALE_PART], l->offset = at[OFFSET_PART], l->bias = bytes[BIAS_PART] ? at[BIAS_PART] : NULL;
    return 0;
}

/* which: 0 attention, 1 mlp, 2 q, 3 k; layer -1: the last norm. `weight` [n] float32 is copied. 0: done; 1: no memory. */
int32_t speclsp_norm(Model *m, int32_t layer, int32_t which, const float *weight, int32_t n) {
    float *own = allocate_aligned((size_t)(n + 15) / 16 * 64);
    if (!own) return 1;
    memcpy(own, weight, (size_t)n * 4);
    Layer *l = layer < 0 ? NULL : &m->layer[layer];
    float **at = !l ? &m->norm : which == 0 ? &l->norm_attention : which == 1 ? &l->norm_mlp : which == 2 ? &l->norm_q : &l->norm_k;
    free_aligned(*at);
    *at = own;
    return 0;
}
