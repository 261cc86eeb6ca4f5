/* Replays the calls of one NativeDecoder, as arm64_calls.py records them, and writes all logits to stdout.
 *
 *     arm64_replay PATH THREADS < calls > logits
 */
#include "forward.c"
#include <stdio.h>

static void get(void *to, size_t bytes) {
    if (fread(to, 1, bytes, stdin) != bytes) {
        fprintf(stderr, "the record of calls ends early\n");
        exit(1);
    }
}

static void *got(size_t bytes) {
    void *at = malloc(bytes);
    if (bytes) get(at, bytes);
    return at;
}

static size_t weight_bytes(int32_t out, int32_t in, int32_t source) {
    const int32_t superblock = source == Q4K_WEIGHTS ? Q4K_BYTES : Q6K_BYTES;
    return source == Q4K_WEIGHTS || source == Q6K_WEIGHTS ? (size_t)out * (in / BLOCK_INPUTS) * superblock : (size_t)out * in * 2;
}

int main(int argc, char **argv) {
    if (argc != 3) return 2;
    Shape shape;
    int32_t stride, own, call;
    get(&shape, sizeof shape);
    get(&stride, 4), get(&own, 4);
    void *embedding = own ? got(weight_bytes(shape.vocab, shape.hidden, shape.embedding)) : NULL;
    const size_t angles = (size_t)shape.positions * shape.head_dim / 2 * 4;
    float *cos = got(angles), *sin = got(angles);
    if (speclsp_path() < atoi(argv[1])) return 3;
    Model *m = speclsp_new(&shape, embedding, cos, sin, atoi(argv[2]), atoi(argv[1]));
    const size_t cache = (size_t)shape.layers * shape.kv_heads * stride * shape.head_dim;
    uint16_t *keys = calloc(cache, 2), *values = calloc(cache, 2);
    for (get(&call, 4); call; get(&call, 4)) {
        int32_t with[6];
        if (call == 1) { /* layer, which, bias, out, in, source */
            get(with, 24);
            void *weight = got(weight_bytes(with[3], with[4], with[5]));
            float *bias = with[2] ? got((size_t)with[3] * 4) : NULL;
            if (speclsp_linear(m, with[0], with[1], weight, bias, with[3], with[4], with[5])) return 4;
            free(weight), free(bias);
        } else if (call == 2) { /* layer, which, n */
            get(with, 12);
            float *weight = got((size_t)with[2] * 4);
            if (speclsp_norm(m, with[0], with[1], weight, with[2])) return 4;
            free(weight);
        } else { /* tokens, start, wanted */
            get(with, 12);
            int32_t *ids = got((size_t)with[0] * 4);
            float *logits = malloc((size_t)with[2] * shape.vocab * 4);
            if (speclsp_forward(m, ids, with[0], with[1], keys, values, stride, logits, with[2], NULL)) return 5;
            fwrite(logits, 4, (size_t)with[2] * shape.vocab, stdout);
            free(ids), free(logits);
        }
    }
    speclsp_free(m);
    return 0;
}
