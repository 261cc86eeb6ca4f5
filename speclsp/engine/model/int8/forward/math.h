/* Arithmetic on vectors: sums, powers of two, bfloat16, halves and bytes of numbers. */
#pragma once

VEC static float sum_of(floats v) { return total(v); }

/* 2^x for x up to 126: 2^(nearest integer) times a polynomial in the rest; error below 2e-7 plus rounding. */
VEC static floats two_to(floats x) {
    x = max(x, all(-150.0f));
    const floats n = nearest(x), r = sub(x, n);
    floats p = mul_add(all(0.001340043f), r, all(0.009676037f));
    p = mul_add(p, r, all(0.05550327f));
    p = mul_add(p, r, all(0.2402211f));
    p = mul_add(p, r, all(0.6931472f));
    p = mul_add(p, r, all(1.0f));
    return times_2_to(p, n);
}

#define LOG2_E 1.44269504088896341f

/* float32 -> bfloat16, round to nearest even; x is never NaN. */
VEC static shorts half(floats x) {
    const ints bits = as_ints(x), odd = both(shift_right(bits, 16), all_int(1));
    return to_shorts(shift_right(add_ints(bits, add_ints(odd, all_int(0x7fff))), 16));
}

VEC static floats from_bf16(const uint16_t *at) { return as_floats(shift_left(widen(load_shorts(at)), 16)); }

VEC static floats low_half(ints pairs) { return as_floats(shift_left(pairs, 16)); }
VEC static floats high_half(ints pairs) { return as_floats(both(pairs, all_int((int32_t)0xffff0000))); }

VEC static ints twice(ints x) { return either(x, shift_left(x, 16)); } /* a 16-bit number to both halves of its 32 bits */
/* The high bytes of 32 numbers of 16 bits: those of x stay where they are, those of y take the places below them. */
VEC static ints high_bytes(ints x, ints y) { return either(both(x, all_int((int32_t)0xff00ff00)), shift_halves_right(y, 8)); }
