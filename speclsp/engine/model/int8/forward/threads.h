/* The thread pool: idle threads take chunks of a job, so a core that is busy otherwise delays one chunk. */
#pragma once

static void wake_all(Model *m) {
    acquire(&m->lock);
    m->wake++;
    wake_waiting(&m->woken);
    release(&m->lock);
}

static uint32_t wakes(Model *m) {
    acquire(&m->lock);
    const uint32_t count = m->wake;
    release(&m->lock);
    return count;
}

/* Sleep until `wake_all` has been called since `wakes` returned `seen`. */
static void sleep_after(Model *m, uint32_t seen) {
    acquire(&m->lock);
    while (m->wake == seen) await_condition(&m->woken, &m->lock);
    release(&m->lock);
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
        if (spin < 2000) pause_briefly(); else yield_thread();
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

static ThreadResult THREAD_CALL work(void *given) {
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
    return 0;
}
