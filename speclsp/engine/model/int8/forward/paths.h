/* The instruction sets of a machine, and the functions of each path. */
#pragma once

#ifdef ARM64
/* The best path that the processor has; every one has NEON. */
int32_t speclsp_path(void) {
#ifdef __APPLE__
    return USE_DOTPROD; /* since M1 */
#else
    return getauxval(AT_HWCAP) >> 20 & 1 ? USE_DOTPROD : USE_NEON; /* HWCAP_ASIMDDP of Linux */
#endif
}
#else
static void cpuid(uint32_t leaf, uint32_t part, uint32_t *a, uint32_t *b, uint32_t *c, uint32_t *d) {
    __asm__ volatile("cpuid" : "=a"(*a), "=b"(*b), "=c"(*c), "=d"(*d) : "a"(leaf), "c"(part));
}

/* CPUID leaf 7 (Intel's manual, volume 2): registers b, c, d of part 0, and a of part 1. All zero if the processor or its
 * kernel has no AVX2 and FMA. */
typedef struct { uint32_t b, c, d, a1; int avx512, amx; } Features; /* avx512, amx: the kernel saves their registers */

static Features features(void) {
    Features f = {0};
    uint32_t a, b, c, d, low, high;
    cpuid(0, 0, &a, &b, &c, &d);
    if (a < 7) return f;
    cpuid(1, 0, &a, &b, &c, &d);
    if (!(c >> 27 & 1) || !(c >> 12 & 1)) return f; /* OSXSAVE, FMA */
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return f;
    cpuid(7, 0, &a, &f.b, &f.c, &f.d);
    if (!(f.b >> 5 & 1)) return (Features){0}; /* AVX2 */
    if (a) cpuid(7, 1, &f.a1, &b, &c, &d);
    f.avx512 = (low & 0xe6) == 0xe6, f.amx = (low >> 17 & 3) == 3;
    return f;
}

static int has_avx512_vnni(const Features *f) {
    const uint32_t base = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31; /* F, DQ, BW, VL */
    return f->avx512 && (f->b & base) == base && f->c >> 11 & 1;
}

/* The best path of this build that the machine and its kernel allow; 0: none. */
int32_t speclsp_path(void) {
    const Features f = features();
#ifdef NARROW
    return !f.b ? 0 : f.a1 >> 4 & 1 || has_avx512_vnni(&f) ? USE_AVX_VNNI : USE_AVX2;
#else
    if (!has_avx512_vnni(&f)) return 0;
    const int bf16 = f.a1 >> 5 & 1, tiles = f.d >> 22 & f.d >> 24 & f.d >> 25 & 1; /* AMX-BF16, -TILE, -INT8 */
    if (tiles && f.amx && permit_tiles()) return USE_AMX;
    return bf16 ? USE_AVX512_BF16 : USE_AVX512_VNNI;
#endif
}
#endif

static void choose_path(Model *m, int32_t path) {
    m->path = path;
    m->flip = m->block_flip = path == USE_AMX ? 0 : ACTIVATION_FLIP;
    m->scale_inputs = path == USE_AMX ? WHOLE_ROW : BLOCK_INPUTS;
    BlockFormat *q4k = &m->format[Q4K_WEIGHTS];
    *q4k = (BlockFormat){.set_output = set_q4k, .bytes = sizeof(Block)};
    m->attend = attend_vectors;
    BlockFormat *coded4 = &m->format[CODED4_WEIGHTS], *coded6 = &m->format[CODED6_WEIGHTS];
    coded4->bytes = coded_bytes(BLOCK_INPUTS, 4), coded6->bytes = coded_bytes(BLOCK_INPUTS, 6);
#if defined(ARM64)
    m->multiply = path == USE_DOTPROD ? multiply_dotprod : multiply_neon;
    q4k->multiply = path == USE_DOTPROD ? multiply_dotprod_blocks : multiply_neon_blocks;
    coded4->multiply = path == USE_DOTPROD ? multiply_dotprod_coded4 : multiply_neon_coded4;
    coded6->multiply = path == USE_DOTPROD ? multiply_dotprod_coded6 : multiply_neon_coded6;
#elif defined(NARROW)
    const Features f = features();
    m->multiply = path == USE_AVX2 ? multiply_wide : f.a1 >> 4 & 1 ? multiply_vnni : multiply_vnni_evex;
    q4k->multiply = f.a1 >> 4 & 1 ? multiply_vnni_blocks : multiply_vnni_evex_blocks;
    coded4->multiply = f.a1 >> 4 & 1 ? multiply_vnni_coded4 : multiply_vnni_evex_coded4;
    coded6->multiply = f.a1 >> 4 & 1 ? multiply_vnni_coded6 : multiply_vnni_evex_coded6;
    if (path == USE_AVX2) {
        m->widen_row = widen_row;
        /* Its blocks hold the numbers of the file, and their products take signed activations. */
        *q4k = (BlockFormat){multiply_q4k, set_file_q4k, sizeof(FileQ4k), sum_by_32};
        m->format[Q6K_WEIGHTS] = (BlockFormat){multiply_q6k, set_file_q6k, sizeof(FileQ6k), sum_by_16};
        *coded4 = (BlockFormat){multiply_coded4, NULL, coded_bytes(BLOCK_INPUTS, 4), sum_by_32};
        *coded6 = (BlockFormat){multiply_coded6, NULL, coded_bytes(BLOCK_INPUTS, 6), sum_by_32};
        m->block_flip = 0;
    }
#else
    m->multiply = path == USE_AMX ? multiply_amx : multiply_vectors;
    if (path != USE_AMX) { /* AMX's activations are signed */
        q4k->multiply = multiply_vectors_blocks;
        coded4->multiply = multiply_vectors_coded4, coded6->multiply = multiply_vectors_coded6;
    }
    if (path == USE_AMX) m->attend = attend_amx;
    else if (path == USE_AVX512_BF16) m->attend = attend_bf16;
#endif
}
