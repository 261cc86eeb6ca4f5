/* The end of a linear, for one row and a chunk of 32 outputs: bias, activation, storage. */
#pragma once

static int32_t chunk_end(const Model *m, int32_t chunk) { return least((chunk + 1) * m->span, m->linear->out / 32); }

/* Add the bias to one row and 32 outputs, and store them. */
VEC static void finish(Model *m, int32_t chunk, int32_t row, floats left, floats right) {
    const Linear *l = m->linear;
    const int32_t output = chunk * 32;
    const floats a = l->bias ? add(left, load(l->bias + output)) : left;
    const floats b = l->bias ? add(right, load(l->bias + output + 16)) : right;
    if (m->mode == GATED) { /* a is the gate, b is up: silu(a) * b = a * b / (1 + e^-a) */
        const floats below = add(all(1.0f), two_to(min(mul(a, all(-LOG2_E)), all(120.0f))));
        const floats guess = about_inverse(below); /* plus one Newton step: a division takes twice as long */
        const floats inverse = mul_add(guess, neg_mul_add(below, guess, all(1.0f)), guess);
        store(m->target + (size_t)row * m->target_width + chunk * 16, mul(mul(a, b), inverse));
        return;
    }
    float *to = m->target + (size_t)row * m->target_width + output;
    const int32_t room = m->target_width - output; /* padding outputs are not stored */
    if (room >= 32) { /* AMD's AVX2 takes ten times as long to store with a mask */
        store(to, m->mode == ADD ? add(load(to), a) : a);
        store(to + 16, m->mode == ADD ? add(load(to + 16), b) : b);
        return;
    }
    const mask first = first_lanes(room), second = first_lanes(room - 16);
    if (m->mode == ADD) {
        store_some(to, first, add(load_some(to, first), a));
        store_some(to + 16, second, add(load_some(to + 16, second), b));
    } else {
        store_some(to, first, a);
        store_some(to + 16, second, b);
    }
}

/* Fetch what `finish` will write, for one row. */
static inline void fetch_target(const Model *m, int32_t chunk, int32_t row) {
    const float *to = m->target + (size_t)row * m->target_width + chunk * (m->mode == GATED ? 16 : 32);
    fetch_to_write(to);
    if (m->mode != GATED) fetch_to_write(to + 16);
}
