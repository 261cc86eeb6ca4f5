/* AMX's tile instructions in C, and the conversion to bfloat16 in AVX-512, for processors without them. Included before
 * forward.c. Integer sums are those of the instructions; the products of bfloat16 may be rounded in another way. */
#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static __thread uint8_t tile[8][16][64];

static inline void tile_load(int to, const void *from, size_t stride) {
    for (int row = 0; row < 16; row++) memcpy(tile[to][row], (const char *)from + row * stride, 64);
}

static inline void tile_store(int from, void *to, size_t stride) {
    for (int row = 0; row < 16; row++) memcpy((char *)to + row * stride, tile[from][row], 64);
}

/* [16][16] int32 += [16][64] int8 by [16][16][4] int8 */
static inline void tile_add_int8(int sums, int a, int b) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            int32_t sum;
            memcpy(&sum, &tile[sums][m][n * 4], 4);
            for (int k = 0; k < 64; k++) sum += (int8_t)tile[a][m][k] * (int8_t)tile[b][k / 4][n * 4 + k % 4];
            memcpy(&tile[sums][m][n * 4], &sum, 4);
        }
}

static inline float tile_bf16(const uint8_t *at) {
    const uint32_t bits = (uint32_t)(at[0] | at[1] << 8) << 16;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* [16][16] float32 += [16][32] bfloat16 by [16][16][2] bfloat16 */
static inline void tile_add_bf16(int sums, int a, int b) {
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 16; n++) {
            float sum;
            memcpy(&sum, &tile[sums][m][n * 4], 4);
            for (int k = 0; k < 32; k++) sum += tile_bf16(&tile[a][m][k * 2]) * tile_bf16(&tile[b][k / 2][n * 4 + k % 2 * 2]);
            memcpy(&tile[sums][m][n * 4], &sum, 4);
        }
}

/* Sixteen float32 -> bfloat16, to nearest even; every processor with AMX has an instruction for it. */
__attribute__((target("avx512f,avx512bw"))) static inline __m256i to_bf16(__m512 x) {
    const __m512i bits = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
}

#undef _tile_loadd
#undef _tile_stored
#undef _tile_zero
#undef _tile_dpbssd
#undef _tile_dpbf16ps
#undef _mm512_cvtneps_pbh
#define _mm512_cvtneps_pbh(x) to_bf16(x)
#define _tile_loadd(to, from, stride) tile_load(to, from, stride)
#define _tile_stored(from, to, stride) tile_store(from, to, stride)
#define _tile_zero(to) memset(tile[to], 0, sizeof tile[to])
#define _tile_dpbssd(sums, a, b) tile_add_int8(sums, a, b)
#define _tile_dpbf16ps(sums, a, b) tile_add_bf16(sums, a, b)
#define _tile_loadconfig(config) ((void)(config))
#define _tile_release() ((void)0)
