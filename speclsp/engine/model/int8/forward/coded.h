/* Coded weights: int8 weights w = step * q - base, with q of 4 or 6 bits, and a step and a base for each 32 inputs of an
 * output. An output has one scale, as in int8. So a product equals that of the int8 weights, bit for bit, on every path.
 *
 * Layout of 32 outputs: [in/256][2 halves of 16 outputs], and of such a half, with up to 8 groups of 32 inputs:
 *     step[groups][16], base[groups][16],
 *     low[groups][4][16 outputs][4 bytes], the low four bits: byte i holds inputs i (low end) and i + 4 of 8,
 *     high[groups][2][16 outputs][4 bytes], the upper two of 6 bits: byte i holds inputs i, i + 4, i + 8 and i + 12 of 16. */
#pragma once

typedef struct { int32_t step, base, sum; uint8_t q[32]; } CodedGroup; /* sum: of the 32 weights */

static int is_coded(int32_t source) { return source >= CODED4_WEIGHTS; }
static int32_t bits_of(const Linear *l) { return l->source == CODED4_WEIGHTS ? 4 : 6; }

/* Bytes of a group of 16 outputs and 32 inputs, and of 32 outputs. */
static int32_t group_bytes(int32_t bits) { return 32 + 64 * bits; }
static int32_t coded_bytes(int32_t in, int32_t bits) { return in / 32 * 2 * group_bytes(bits); }

/* The half that holds output o and input i, and its number of groups. */
static uint8_t *coded_half(const void *blocks, int32_t in, int32_t o, int32_t i, int32_t bits, int32_t *groups) {
    const int32_t first = i / BLOCK_INPUTS * BLOCK_INPUTS;
    *groups = least(BLOCK_INPUTS, in - first) / 32;
    return (uint8_t *)blocks + coded_bytes(first, bits) + o / 16 * *groups * group_bytes(bits);
}

/* Store a group, the inputs i to i + 31 of output o (0 to 31). */
static void set_coded(void *blocks, int32_t in, int32_t o, int32_t i, const CodedGroup *group, int32_t bits) {
    int32_t groups;
    uint8_t *half = coded_half(blocks, in, o, i, bits, &groups);
    const int32_t g = i % BLOCK_INPUTS / 32;
    uint8_t *low = half + groups * 32 + g * 256 + o % 16 * 4, *high = half + groups * 288 + g * 64 * (bits - 4) + o % 16 * 4;
    half[g * 16 + o % 16] = (uint8_t)group->step, half[(groups + g) * 16 + o % 16] = (uint8_t)group->base;
    uint32_t fours[8]; /* q of four inputs */
    memcpy(fours, group->q, sizeof fours);
    for (int32_t j = 0; j < 4; j++) {
        const uint32_t both_fours = (fours[2 * j] & 0x0f0f0f0f) | (fours[2 * j + 1] & 0x0f0f0f0f) << 4;
        memcpy(low + j * 64, &both_fours, 4);
    }
    for (int32_t j = 0; j < bits - 4; j++) {
        uint32_t upper = 0;
        for (int32_t u = 0; u < 4; u++) upper |= (fours[4 * j + u] >> 4 & 0x03030303) << 2 * u;
        memcpy(high + j * 64, &upper, 4);
    }
}

/* The int8 weight of output o and input i of a coded linear. */
static int8_t coded_weight(const Linear *l, int32_t o, int32_t i) {
    const int32_t bits = bits_of(l), g = i % BLOCK_INPUTS / 32, u = i % 32;
    int32_t groups;
    const uint8_t *half = coded_half((uint8_t *)l->blocks + (size_t)(o / 32) * coded_bytes(l->in, bits), l->in, o % 32, i, bits, &groups);
    int32_t q = half[groups * 32 + g * 256 + u / 8 * 64 + o % 16 * 4 + u % 4] >> u % 8 / 4 * 4 & 15;
    const uint8_t *high = half + groups * 288 + g * 64 * (bits - 4) + o % 16 * 4 + u % 4;
    if (bits == 6) q |= (high[u / 16 * 64] >> u % 16 / 4 * 2 & 3) << 4;
    return (int8_t)(half[g * 16 + o % 16] * q - half[(groups + g) * 16 + o % 16]);
}

/* Choose step, base and q of 32 weights: of a few steps and bases around those that span the weights, the ones with the least
 * squared error. */
VEC static CodedGroup code(const uint16_t *w, float scale, int32_t bits) {
    const int32_t levels = (1 << bits) - 1, most_step = 254 / levels; /* w is from -127 to 127 */
    const floats top = all((float)levels);
    floats x[2];
    for (int32_t i = 0; i < 2; i++) x[i] = divide(from_bf16(w + i * 16), all(scale));
    const float high = highest(max(x[0], x[1])), low = -highest(max(sub(zeros(), x[0]), sub(zeros(), x[1])));
    const int32_t usual = (int32_t)((high - low) * 0.95f / (float)levels);
    CodedGroup best = {0};
    float least_error = __builtin_inff();
    for (int32_t step = usual - 1; step <= usual + 1; step++) {
        if (step < 1 || step > most_step) continue;
        const int32_t middle = (int32_t)__builtin_floorf(((float)(step * levels) - high - low) * 0.5f + 0.5f), by = (step + 2) / 4;
        for (int32_t turn = -1; turn <= 1; turn++) {
            int32_t base = middle + turn * by;
            base = base > 127 ? 127 : base < step * levels - 127 ? step * levels - 127 : base;
            const floats inverse = all(1.0f / (float)step);
            floats error = zeros();
            ints q[2];
            for (int32_t i = 0; i < 2; i++) {
                const floats level = min(max(nearest(mul(add(x[i], all((float)base)), inverse)), zeros()), top);
                const floats miss = sub(sub(mul(level, all((float)step)), all((float)base)), x[i]);
                error = mul_add(miss, miss, error);
                q[i] = to_ints(level);
            }
            const float sum = total(error);
            if (!(sum < least_error)) continue;
            least_error = sum, best.step = step, best.base = base;
            best.sum = step * total_int(add_ints(q[0], q[1])) - 32 * base;
            for (int32_t i = 0; i < 2; i++) store_bytes((int8_t *)best.q + i * 16, to_bytes(q[i]), 0);
        }
    }
    return best;
}
