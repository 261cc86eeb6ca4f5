/* Attention, in float32, with dot products of bfloat16, or with AMX. */
#pragma once

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
    uint16_t q[QUERIES * MAX_HEAD_DIM] __attribute__((aligned(64)));
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

/* In float32: keys and values are widened once for all queries. SIDE registers of keys, or of values, share a broadcast query
 * or weight. */
VEC static void attend_vectors(Model *m, int32_t chunk) {
    const int32_t d = m->shape.head_dim;
    Attention at = attention_of(m, chunk);
    float q[MAX_HEAD_DIM][QUERIES], wide[SIDE][MAX_HEAD_DIM * 16]; /* wide: of 16 keys [D][16], of 32 values [32][16] */
    for (int32_t i = 0; i < QUERIES; i++)
        for (int32_t c = 0; c < d; c++) {
            const uint32_t bits = (uint32_t)at.q[i][c] << 16;
            memcpy(&q[c][i], &bits, 4);
        }
    for (int32_t key = 0; key < at.seen; key += 16 * SIDE) { /* the cache holds whole blocks of 32 */
        for (int32_t side = 0; side < SIDE; side++)
            for (int32_t c = 0; c < d / 2; c++) {
                const ints pairs = load_ints(at.keys + (size_t)(key + side * 16) * d + c * 32);
                store(wide[side] + c * 32, low_half(pairs));
                store(wide[side] + c * 32 + 16, high_half(pairs));
            }
        for (int32_t few = 0; few < at.real; few += FEW) {
            floats sum[FEW][SIDE], k[SIDE];
            for (int32_t i = 0; i < FEW; i++)
                for (int32_t side = 0; side < SIDE; side++) sum[i][side] = zeros();
            for (int32_t c = 0; c < d; c++) {
                for (int32_t side = 0; side < SIDE; side++) k[side] = load(wide[side] + c * 16);
                for (int32_t i = 0; i < FEW; i++) {
                    const floats x = all(q[c][few + i]);
                    for (int32_t side = 0; side < SIDE; side++) sum[i][side] = mul_add(x, k[side], sum[i][side]);
                }
            }
            for (int32_t i = 0; i < FEW; i++)
                for (int32_t side = 0; side < SIDE; side++)
                    store(at.scores + (size_t)(few + i) * at.stride + key + side * 16, sum[i][side]);
        }
    }
    soften(&at);
    for (int32_t c = 0; c < d; c += 16 * SIDE) {
        float sums[QUERIES][SIDE][16] = {{{0}}};
        for (int32_t key = 0; key < at.seen; key += 32) {
            for (int32_t side = 0; side < SIDE; side++)
                for (int32_t u = 0; u < 16; u++) {
                    const ints pairs = load_ints(at.values + (size_t)key * d + (c / 16 + side) * 512 + u * 32);
                    store(wide[side] + u * 32, low_half(pairs));
                    store(wide[side] + u * 32 + 16, high_half(pairs));
                }
            for (int32_t few = 0; few < at.real; few += FEW) {
                const float *weights = at.scores + (size_t)few * at.stride + key;
                floats sum[FEW][SIDE], v[SIDE];
                for (int32_t i = 0; i < FEW; i++)
                    for (int32_t side = 0; side < SIDE; side++) sum[i][side] = load(sums[few + i][side]);
                for (int32_t u = 0; u < 32; u++) {
                    for (int32_t side = 0; side < SIDE; side++) v[side] = load(wide[side] + u * 16);
                    for (int32_t i = 0; i < FEW; i++) {
                        const floats x = all(weights[(size_t)i * at.stride + u]);
                        for (int32_t side = 0; side < SIDE; side++) sum[i][side] = mul_add(x, v[side], sum[i][side]);
                    }
                }
                for (int32_t i = 0; i < FEW; i++)
                    for (int32_t side = 0; side < SIDE; side++) store(sums[few + i][side], sum[i][side]);
            }
        }
        for (int32_t i = 0; i < at.real; i++)
            for (int32_t side = 0; side < SIDE; side++) scale_out(&at, i, c + side * 16, load(sums[i][side]));
    }
}

#ifdef AVX512
/* With VDPBF16PS, which adds two products at a time. */
#define dot2(sums, x, y) _mm512_dpbf16_ps(sums, (__m512bh)(x), (__m512bh)(y))

BF16 static void attend_bf16(Model *m, int32_t chunk) {
    const int32_t d = m->shape.head_dim;
    Attention at = attention_of(m, chunk);
    int32_t q[MAX_HEAD_DIM / 2][QUERIES]; /* two numbers of a query in each */
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
