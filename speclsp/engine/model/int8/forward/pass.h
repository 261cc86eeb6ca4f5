/* One pass over a model: ids -> logits. */
#pragma once

static void lap(Model *m, int32_t part) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (part >= 0) m->ms[part] += (double)(now.tv_sec - m->lap.tv_sec) * 1e3 + (double)(now.tv_nsec - m->lap.tv_nsec) * 1e-6;
    m->lap = now;
}


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
    for (int32_t i = 0; i < m->shape.hidden; i++) {
        const size_t packed = (size_t)(id / 32) * 32 * l->in + i / 64 * 2048 + id % 32 / 16 * 1024 + i % 64 / 4 * 64 + id % 16 * 4 + i % 4;
        to[i] = l->scale[id] * (float)(l->packed ? l->packed[packed] : coded_weight(l, id, i));
    }
}

static void embed(Model *m, const int32_t *ids) {
    const int32_t n = m->shape.hidden;
    for (int32_t row = 0; row < m->t; row++) {
        float *to = m->x + (size_t)row * n;
        if (!m->embedding) {
            embed_from_linear(m, to, ids[row]);
            continue;
        }
        const size_t blocks = (size_t)ids[row] * (n / BLOCK_INPUTS); /* before this row */
        if (m->shape.embedding == Q4K_WEIGHTS) {
            embed_q4k(to, m->embedding + blocks * Q4K_BYTES, n);
            continue;
        }
        if (m->shape.embedding == Q6K_WEIGHTS) {
            embed_q6k(to, m->embedding + blocks * Q6K_BYTES, n);
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
