/* Times: of the parts of a pass, and of an operation that is repeated. */
#pragma once

static void lap(Model *m, int32_t part) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (part >= 0) m->ms[part] += (double)(now.tv_sec - m->lap.tv_sec) * 1e3 + (double)(now.tv_nsec - m->lap.tv_nsec) * 1e-6;
    m->lap = now;
}

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
