/* Memory in huge pages, and the sizes of weights. */
#pragma once

static void *zeroed(size_t bytes) {
    void *at = mmap(NULL, (bytes + 8192 + 0x1fffff) & ~(size_t)0x1fffff, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) return NULL;
#ifdef MADV_HUGEPAGE
    madvise(at, bytes, MADV_HUGEPAGE); /* a pass reads all of it: TLB misses would be a tenth of its time */
#endif
    return at;
}

static void unmap(void *at, size_t bytes) {
    if (at) munmap(at, (bytes + 8192 + 0x1fffff) & ~(size_t)0x1fffff);
}

static size_t packed_bytes(const Linear *l) { return (size_t)l->out * l->in; }
static size_t blocks_bytes(const Model *m, const Linear *l) { return (size_t)l->out / 32 * (l->in / BLOCK_INPUTS) * m->block_bytes; }

static Linear *linear_at(Model *m, int32_t layer, int32_t which) {
    return layer < 0 ? &m->head : &m->layer[layer].linear[which];
}
