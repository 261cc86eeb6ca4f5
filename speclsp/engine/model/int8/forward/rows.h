/* Work on single rows: norms, quantizing, rotating. */
#pragma once

/* y = x / rms(x) * weight (arXiv 1910.07467); n is a multiple of 16. */
VEC static void normalize(float *y, const float *x, const float *weight, int32_t n, float eps) {
    floats sum = zeros();
    for (int32_t i = 0; i < n; i += 16) { floats v = load(x + i); sum = mul_add(v, v, sum); }
    floats inverse = all(1.0f / __builtin_sqrtf(sum_of(sum) / (float)n + eps));
    for (int32_t i = 0; i < n; i += 16)
        store(y + i, mul(mul(load(x + i), inverse), load(weight + i)));
}

#define CHAINS 4 /* of dependent operations: one alone would wait for each result */

/* 0 if all n numbers are finite, else NaN: integers and the attention's weights would hide an infinity or NaN. `*most`: the
 * largest magnitude. */
VEC static inline float zero_or_nan(const float *x, int32_t n, float *most) {
    floats sum[CHAINS], top[CHAINS];
    for (int32_t u = 0; u < CHAINS; u++) sum[u] = top[u] = zeros();
    int32_t i = 0;
    for (; i + CHAINS * 16 <= n; i += CHAINS * 16)
        for (int32_t u = 0; u < CHAINS; u++) {
            const floats v = load(x + i + u * 16);
            sum[u] = mul_add(v, zeros(), sum[u]);
            top[u] = max(top[u], absolute(v));
        }
    for (; i < n; i += 16) {
        const floats v = load(x + i);
        sum[0] = mul_add(v, zeros(), sum[0]);
        top[0] = max(top[0], absolute(v));
    }
    for (int32_t u = 1; u < CHAINS; u++) sum[0] = add(sum[0], sum[u]), top[0] = max(top[0], top[u]);
    *most = highest(top[0]);
    return sum_of(sum[0]);
}

/* int8 with one scale: the largest magnitude becomes 127. The scale is NaN if a number is not finite, and then so are the
 * products. `to` is the address of the first of the n numbers in its tile; `flip` (128 or 0) is exclusive-ored onto each
 * byte: VPDPBUSD takes unsigned activations, 128 more than the signed ones. */
VEC static float quantize(int8_t *to, const float *x, int32_t n, int32_t padded, char flip) {
    float top;
    const float check = zero_or_nan(x, n, &top);
    if (!(top > 1e-10f)) top = 1e-10f;
    const floats by = all(127.0f / top);
    for (int32_t i = 0; i < n; i += 16) {
        const ints q = to_ints(mul(load(x + i), by)); /* to nearest even */
        store_bytes(to + i / 64 * 1024 + i % 64, to_bytes(q), flip);
    }
    for (int32_t i = n; i < padded; i += 16) memset(to + i / 64 * 1024 + i % 64, 0, 16);
    return top / 127.0f + check;
}

/* The start of a row of quantized activations, for a linear of `in` inputs. */
static int8_t *tile_row(Model *m, int32_t row, int32_t in) {
    return m->quantized + (size_t)(row / ROWS) * ROWS * in + row % ROWS * 64;
}

/* A row of n activations for m->linear. */
VEC static void quantize_row(Model *m, int32_t row, const float *x, int32_t n) {
    const Linear *l = m->linear;
    const BlockFormat *format = &m->format[l->source];
    int8_t *const start = tile_row(m, row, l->in);
    const char flip = l->blocks ? m->block_flip : m->flip;
    for (int32_t k = 0; k < l->steps; k++) {
        const int32_t first = k * m->scale_inputs, end = least(first + m->scale_inputs, l->in);
        int8_t *to = start + first / 64 * 1024;
        m->row_scale[row * l->steps + k] = quantize(to, x + first, least(n, end) - first, end - first, flip);
        if (format->sum_groups) format->sum_groups(m->row_sums + (row * l->steps + k) * 2 * GROUPS, to);
    }
    if (!l->blocks && m->widen_row && m->t >= WIDE_ROWS)
        m->widen_row(m->wide + (size_t)(row / MAX_WIDE_ROWS) * (MAX_WIDE_ROWS * l->in / 4) + row % MAX_WIDE_ROWS, start, l->in);
}

VEC static void one_normed(Model *m, int32_t row) {
    const Shape *s = &m->shape;
    float *h = m->h + (size_t)row * s->hidden;
    normalize(h, m->x + (size_t)row * s->hidden, m->norm_now, s->hidden, s->eps);
    quantize_row(m, row, h, s->hidden);
}

VEC static void one_quantized(Model *m, int32_t row) {
    quantize_row(m, row, m->source + (size_t)row * m->source_width, m->source_width);
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
    float most;
    const float check = zero_or_nan(qkv, m->now->linear[QKV].out, &most);
    if (check != 0.0f) m->x[(size_t)row * s->hidden] = check; /* NaN scores would have no weight */
    const floats scale = all(s->attention_scale);
    uint16_t *q = m->q + (size_t)row * s->heads * d;
    for (int32_t i = 0; i < s->heads * d; i += 16)
        store_shorts(q + i, half(mul(load(qkv + i), scale)));
    for (int32_t j = 0; j < s->kv_heads; j++) {
        const size_t head = ((size_t)m->now_index * s->kv_heads + j) * m->kv_stride;
        uint16_t own[MAX_HEAD_DIM];
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
    if (m->widen_row && m->t >= WIDE_ROWS) m->group = MAX_WIDE_ROWS; /* rows that share cache lines of m->wide */
    run(m, some, (m->t + m->group - 1) / m->group);
}
