/* Matrix products with vector instructions. Included once per instruction, with
 *     MULTIPLY  the function's name         TARGET  its target attribute
 *     DOT4      sums += four unsigned activations times four signed weights
 *     MOST      rows of a pass              BLOCKS  groups of 16 outputs of a pass, 1 or 2
 * MOST * BLOCKS sums, the weights and one activation fit the registers. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define DOTS JOIN(MULTIPLY, _dots)
#define STREAM JOIN(MULTIPLY, _stream)
#define PEAK JOIN(MULTIPLY, _peak)

/* n rows of one tile by 32 outputs, with weights from memory. They are read in the order of memory: processors fetch ahead
 * by themselves only along one stream. n is a compile-time constant, so the sums stay in registers. */
TARGET static inline __attribute__((always_inline)) void STREAM(
    ints result[2][MOST], const int8_t *a, const int8_t *weights, int32_t in, const int32_t n) {
    for (int32_t b = 0; b < 2; b++)
        for (int32_t i = 0; i < n; i++) result[b][i] = zero_ints();
    for (int32_t k = 0; k < in; k += 64, a += 1024)
        for (int32_t b = 0; b < 2; b++, weights += 1024) {
            ints sums[MOST];
            for (int32_t i = 0; i < n; i++) sums[i] = result[b][i];
            for (int32_t u = 0; u < 16; u++) {
                const ints w = load_ints(weights + u * 64);
                fetch(weights + AHEAD + u * 64);
#pragma GCC unroll 12
                for (int32_t i = 0; i < n; i++) {
                    int32_t four;
                    memcpy(&four, a + i * 64 + u * 4, 4);
                    sums[i] = DOT4(sums[i], all_int(four), w);
                }
            }
            for (int32_t i = 0; i < n; i++) result[b][i] = sums[i];
        }
}

/* n rows of one tile by 16 * BLOCKS outputs, with weights from the cache. `ahead`: bytes between the weights in use and
 * those to fetch into the cache; 0 (a constant as well): fetch none. */
TARGET static inline __attribute__((always_inline)) void DOTS(
    ints (*result)[MOST], const int8_t *a, const int8_t *weights, int32_t in, const int32_t n, const int32_t ahead) {
    ints sums[BLOCKS][MOST];
    for (int32_t b = 0; b < BLOCKS; b++)
        for (int32_t i = 0; i < n; i++) sums[b][i] = zero_ints();
    for (int32_t k = 0; k < in; k += 64, a += 1024, weights += 2048)
        for (int32_t u = 0; u < 16; u++) {
            ints w[BLOCKS];
            for (int32_t b = 0; b < BLOCKS; b++) {
                w[b] = load_ints(weights + b * 1024 + u * 64);
                if (ahead) fetch(weights + ahead + b * 1024 + u * 64);
            }
#pragma GCC unroll 12
            for (int32_t i = 0; i < n; i++) {
                int32_t four;
                memcpy(&four, a + i * 64 + u * 4, 4);
                const ints x = all_int(four);
                for (int32_t b = 0; b < BLOCKS; b++) sums[b][i] = DOT4(sums[b][i], x, w[b]);
            }
        }
    for (int32_t b = 0; b < BLOCKS; b++)
        for (int32_t i = 0; i < n; i++) result[b][i] = sums[b][i];
}

/* The first rows of a block wait for its weights; the next rows find them in the cache and fetch those of the block after. */
TARGET static void MULTIPLY(Model *m, int32_t chunk) {
    const Linear *l = m->linear;
    const int32_t end = (chunk + 1) * m->span < l->out / 32 ? (chunk + 1) * m->span : l->out / 32, bytes = 32 * l->in;
    for (int32_t block = chunk * m->span; block < end; block++) {
        const int8_t *weights = l->packed + (size_t)block * bytes;
        const int32_t *offset = l->offset + block * 32;
        for (int32_t row = 0, count, first = 0; row < m->t; row += count) {
            const int32_t rest = m->t - row < ROWS - row % ROWS ? m->t - row : ROWS - row % ROWS; /* in this tile */
            count = rest <= MOST ? rest : MOST == 12 ? 8 : MOST;
            const int32_t ahead = row == first && block + 1 < end ? bytes : 0;
            if (!row) first = count;
            ints sums[2][MOST];
            const int8_t *a = tile_row(m, row, l->in);
            for (int32_t part = 0; part < 2; part += BLOCKS) {
#define CASE(n) if (count <= (n)) { \
        if (!row) STREAM(sums, a, weights, l->in, n); \
        else if (ahead) DOTS(sums + part, a, weights + part * 1024, l->in, n, ahead); \
        else DOTS(sums + part, a, weights + part * 1024, l->in, n, 0); }
                CASE(1)
                else CASE(2)
                else CASE(3)
#if MOST > 3
                else CASE(4)
                else CASE(6)
#endif
#if MOST > 6
                else CASE(8)
                else CASE(10)
                else CASE(12)
#endif
#undef CASE
                if (!row) break; /* both parts are done */
            }
            for (int32_t i = 0; i < count; i++)
                finish(m, block, row + i, without_flip(sums[0][i], offset), without_flip(sums[1][i], offset + 16));
        }
    }
}

/* Multiply-adds a second of one thread with everything in registers: no pass is faster. */
TARGET static double PEAK(double seconds) {
    ints sums[MOST][BLOCKS], w[BLOCKS];
    for (int32_t b = 0; b < BLOCKS; b++) w[b] = all_int(peak_source + b);
    for (int32_t i = 0; i < MOST; i++)
        for (int32_t b = 0; b < BLOCKS; b++) sums[i][b] = zero_ints();
    REPEAT(
        for (int32_t turn = 0; turn < 10000; turn++) {
            const ints x = all_int(peak_source); /* read each time: else its product is computed once */
            for (int32_t i = 0; i < MOST; i++)
                for (int32_t b = 0; b < BLOCKS; b++) sums[i][b] = DOT4(sums[i][b], x, w[b]);
        }
        for (int32_t i = 0; i < MOST; i++) peak_sink += total_int(sums[i][0]) + total_int(sums[i][BLOCKS - 1]);
    , 10000.0 * MOST * BLOCKS * 64)
}
#undef PEAK
#undef JOIN_
#undef JOIN
#undef DOTS
#undef STREAM
#undef MULTIPLY
#undef TARGET
#undef DOT4
#undef MOST
#undef BLOCKS
