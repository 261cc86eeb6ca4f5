/* Times: of the parts of a pass, and of an operation that is repeated. */
#pragma once

static void lap(Model *m, int32_t part) {
    const double now_s = seconds_now();
    if (part >= 0) m->ms[part] += (now_s - m->lap_s) * 1e3;
    m->lap_s = now_s;
}

/* Calls `step` until `seconds` have passed; `each`: operations of one call. The result is operations a second. */
#define REPEAT(step, each) \
    const double began = seconds_now(); \
    double done = 0, passed; \
    do { step; done += (each); } while ((passed = seconds_now() - began) < seconds); \
    return done / passed;

static volatile int32_t peak_sink, peak_source = 0x01020304;
