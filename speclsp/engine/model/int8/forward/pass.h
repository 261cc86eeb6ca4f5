/* One pass over a model: ids -> logits. */
#pragma once

static void embed_q4k(float *to, const uint8_t *from, int32_t n) {
    for (int32_t k = 0; k < n; k += BLOCK_INPUTS, from += Q4K_BYTES) {
        const Q4k s = read_q4k(from);
        for (int32_t i = 0; i < BLOCK_INPUTS; i++) to[k + i] = q4k_weight(&s, i);
    }
}

static void embed_q6k(float *to, const uint8_t *from, int32_t n) {
    for (int32_t k = 0; k < n; k += BLOCK_INPUTS, from += Q6K_BYTES) {
        const Q6k s = read_q6k(from);
        for (int32_t i = 0; i < BLOCK_INPUTS; i++) to[k + i] = q6k_weight(&s, i);
    }
}

/* The embedding of a token from int8 or coded weights: its own, or those of the head. */
static void embed_from_linear(const Model *m, float *to, int32_t id) {
    const Linear *l = m->embedded.out ? &m->embedded : &m->head;
    const float scale = l->scale[id];
    const int32_t n = m->shape.hidden;
    if (!l->packed) {
        for (int32_t i = 0; i < n; i++) to[i] = scale * (float)coded_weight(l, id, i);
        return;
    }
    const int8_t *from = l->packed + (size_t)(id / 32) * 32 * l->in + id % 32 / 16 * 1024 + id % 16 * 4;
    for (int32_t i = 0; i < n; i += 4) {
        const int8_t *four = from + i / 64 * 2048 + i % 64 / 4 * 64;
        for (int32_t u = 0; u < 4; u++) to[i + u] = scale * (float)four[u];
    }
}

/* The embeddings of t tokens, [t][hidden]. */
static void embed(const Model *m, const int32_t *ids, int32_t t, float *to) {
    const int32_t n = m->shape.hidden, kind = m->shape.embedding;
    for (int32_t row = 0; row < t; row++, to += n) {
        const size_t blocks = (size_t)ids[row] * (n / BLOCK_INPUTS); /* before this row */
        if (!m->embedding) embed_from_linear(m, to, ids[row]);
        else if (kind == Q4K_WEIGHTS) embed_q4k(to, m->embedding + blocks * Q4K_BYTES, n);
        else if (kind == Q6K_WEIGHTS) embed_q6k(to, m->embedding + blocks * Q6K_BYTES, n);
        else {
            const uint16_t *from = (const uint16_t *)m->embedding + (size_t)ids[row] * n;
            for (int32_t i = 0; i < n; i++) {
                const uint32_t bits = (uint32_t)from[i] << 16;
                memcpy(to + i, &bits, 4);
            }
        }
    }
}

/* Begin a pass of t rows at position `start` of the cache given by `keys` and `values` (kv_stride positions per head). */
static void begin(Model *m, int32_t t, int32_t start, uint16_t *keys, uint16_t *values, int32_t kv_stride) {
    m->t = t, m->start = start, m->keys = keys, m->values = values, m->kv_stride = kv_stride;
    thread_name = 0;
    if (m->path == USE_AMX) tiles_on();
    lap(m, -1);
}

/* y = l * norm(x), for the rows x of the pass. */
static void normed_product(Model *m, const Linear *l, const float *norm, float *y, int32_t width, int32_t mode, int32_t part) {
    m->linear = l, m->norm_now = norm;
    rows(m, some_normed);
    lap(m, ROWS_MS);
    multiply(m, l, y, width, mode);
    lap(m, part);
}

/* y = l * source, for rows of n numbers. */
static void product(Model *m, const Linear *l, const float *source, int32_t n, float *y, int32_t width, int32_t mode, int32_t part) {
    m->linear = l, m->source = source, m->source_width = n;
    rows(m, some_quantized);
    lap(m, ROWS_MS);
    multiply(m, l, y, width, mode);
    lap(m, part);
}

/* Layer i of the rows x. Returns 1 if `cancel` (may be NULL), which is read three times, was set. */
static int32_t one_layer(Model *m, int32_t i, const volatile int32_t *cancel) {
    const Shape *s = &m->shape;
    const Layer *layer = m->now = &m->layer[i];
    m->now_index = i;
    if (cancel && *cancel) return 1;
    normed_product(m, &layer->linear[QKV], layer->norm_attention, m->qkv, layer->linear[QKV].out, PLAIN, QKV);
    rows(m, some_rotated);
    lap(m, ROWS_MS);
    run(m, m->attend, s->kv_heads * ((m->t * (s->heads / s->kv_heads) + QUERIES - 1) / QUERIES));
    lap(m, ATTENTION_MS);
    product(m, &layer->linear[OUT], m->attended, s->heads * s->head_dim, m->x, s->hidden, ADD, OUT);
    if (cancel && *cancel) return 1;
    normed_product(m, &layer->linear[UP], layer->norm_mlp, m->act, s->inner, GATED, UP);
    if (cancel && *cancel) return 1;
    product(m, &layer->linear[DOWN], m->act, s->inner, m->x, s->hidden, ADD, DOWN);
    return 0;
}

/* The logits of the last `wanted` rows. */
static void last_logits(Model *m, float *logits, int32_t wanted) {
    float *x = m->x;
    m->x += (size_t)(m->t - wanted) * m->shape.hidden, m->t = wanted;
    normed_product(m, &m->head, m->norm, logits, m->shape.vocab, PLAIN, HEAD_MS);
    m->x = x;
}

/* Append ids[0..t) at position `start` to the cache. `logits` [wanted][vocab]: of the last `wanted` ids; wanted may be 0.
 * Returns 0: done; 1: cancelled, and the cache holds nothing new. */
int32_t speclsp_forward(Model *m, const int32_t *ids, int32_t t, int32_t start, uint16_t *keys, uint16_t *values,
                        int32_t kv_stride, float *logits, int32_t wanted, const volatile int32_t *cancel) {
    begin(m, t, start, keys, values, kv_stride);
    embed(m, ids, t, m->x);
    lap(m, ROWS_MS);
    int32_t stopped = 0;
    for (int32_t i = 0; i < m->shape.layers && !stopped; i++) stopped = one_layer(m, i, cancel);
    if (!stopped && wanted) last_logits(m, logits, wanted);
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
