/* The machine's peaks, with the instructions of each path: what a pass cannot be faster than. */

#define PEAK_READ_BYTES ((size_t)512 << 20) /* of all threads: a model's weights, far more than a cache */

enum { READ_BYTES, INT8_PRODUCTS, ATTENTION_PRODUCTS };

typedef struct { double (*one)(double seconds); double seconds, result; const uint8_t *memory; size_t bytes; } Peak;

/* Multiply-adds a second in float32, the attention of the paths without bfloat16 products. */
VEC static double float_peak(double seconds) {
    floats sums[2 * FEW];
    const floats x = to_floats(all_int(peak_source));
    for (int32_t i = 0; i < 2 * FEW; i++) sums[i] = x;
    REPEAT(
        for (int32_t turn = 0; turn < 10000; turn++)
            for (int32_t i = 0; i < 2 * FEW; i++) sums[i] = mul_add(x, sums[i], x);
        for (int32_t i = 0; i < 2 * FEW; i++) peak_sink += (int32_t)highest(sums[i]);
    , 10000.0 * 2 * FEW * 16)
}

#ifdef AVX512
BF16 static double bf16_peak(double seconds) {
    floats sums[2 * FEW];
    const ints x = all_int(peak_source);
    for (int32_t i = 0; i < 2 * FEW; i++) sums[i] = zeros();
    REPEAT(
        for (int32_t turn = 0; turn < 10000; turn++)
            for (int32_t i = 0; i < 2 * FEW; i++) sums[i] = dot2(sums[i], x, x);
        for (int32_t i = 0; i < 2 * FEW; i++) peak_sink += (int32_t)highest(sums[i]);
    , 10000.0 * 2 * FEW * 32)
}

AMX static double amx_peak(double seconds) {
    tiles_on();
    REPEAT(
        for (int32_t turn = 0; turn < 2000; turn++) {
            _tile_dpbssd(0, 4, 6);
            _tile_dpbssd(1, 4, 7);
            _tile_dpbssd(2, 5, 6);
            _tile_dpbssd(3, 5, 7);
        }
    , 2000.0 * 4 * 16 * 16 * 64)
}

AMX static double amx_bf16_peak(double seconds) {
    tiles_on();
    REPEAT(
        for (int32_t turn = 0; turn < 2000; turn++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    , 2000.0 * 4 * 16 * 16 * 32)
}
#endif

/* Bytes a second of one thread's reads in a row, as a pass reads weights. */
VEC static double read_peak(const uint8_t *memory, size_t bytes, double seconds) {
    ints sum = zero_ints();
    REPEAT(
        for (size_t i = 0; i < bytes; i += 128) {
            fetch(memory + i + AHEAD);
            fetch(memory + i + AHEAD + 64);
            sum = add_ints(sum, add_ints(load_ints(memory + i), load_ints(memory + i + 64)));
        }
        peak_sink += total_int(sum);
    , (double)bytes)
}

static ThreadResult THREAD_CALL run_peak(void *given) {
    Peak *peak = given;
    peak->result = peak->memory ? read_peak(peak->memory, peak->bytes, peak->seconds) : peak->one(peak->seconds);
    return 0;
}

static double (*peak_of(int32_t path, int32_t what))(double) {
#if defined(ARM64)
    return what == ATTENTION_PRODUCTS ? float_peak : path == USE_DOTPROD ? multiply_dotprod_peak : multiply_neon_peak;
#elif defined(NARROW)
    if (what == ATTENTION_PRODUCTS) return float_peak;
    return path == USE_AVX2 ? multiply_avx2_peak : features().a1 >> 4 & 1 ? multiply_vnni_peak : multiply_vnni_evex_peak;
#else
    if (path == USE_AMX) return what == ATTENTION_PRODUCTS ? amx_bf16_peak : amx_peak;
    if (what == ATTENTION_PRODUCTS) return path == USE_AVX512_BF16 ? bf16_peak : float_peak;
    return multiply_vectors_peak;
#endif
}

/* Bytes (READ_BYTES) or multiply-adds a second of all threads together, measured for `seconds`. 0: no memory. */
double speclsp_peak(int32_t path, int32_t what, int32_t threads, double seconds) {
    Peak peaks[MAX_THREADS];
    Thread crew[MAX_THREADS];
    if (threads > MAX_THREADS) threads = MAX_THREADS;
    const size_t bytes = PEAK_READ_BYTES / (size_t)threads / 128 * 128; /* of a thread */
    uint8_t *memory = NULL;
    if (what == READ_BYTES) {
        memory = zeroed(bytes * (size_t)threads);
        if (!memory) return 0;
        memset(memory, 1, bytes * (size_t)threads); /* an untouched page is the same zero page everywhere */
    }
    double sum = 0;
    int32_t started = 0;
    for (int32_t i = 0; i < threads; i++) {
        peaks[i] = (Peak){peak_of(path, what), seconds, 0, memory ? memory + (size_t)i * bytes : NULL, bytes};
        if (i && start_thread(&crew[i], run_peak, &peaks[i])) started = i;
        else if (i) break;
    }
    run_peak(&peaks[0]);
    sum = peaks[0].result;
    for (int32_t i = 1; i <= started; i++) {
        join_thread(crew[i]);
        sum += peaks[i].result;
    }
    unmap(memory, bytes * (size_t)threads);
#ifdef AVX512
    if (path == USE_AMX) tiles_off();
#endif
    return sum;
}
