"""ik_llama.cpp through its Python package, which has no server: plain greedy decoding, one model for each mode.

The package's own generate clears the cache and sorts in Python, so this loop calls the library itself. Its prefix cache
is the last answer's: the part after the shared prefix is removed. Settings of a mode: `file` (which GGUF: q4_k_m, q4_0,
iq4_xs or q8_0), `repack` (rows interleaved while loading, the engine's fast form for CPUs).
"""

from __future__ import annotations

import ctypes
from importlib import metadata
from typing import Any

import numpy as np
from protocol import Answer, TokenLog, serve, shared_prefix

PACKAGE = "ik-llama-cpp-python"
ctypes.CDLL(str(metadata.distribution(PACKAGE).locate_file("ik_llama_cpp/lib/libggml.so")))  # libllama.so has no rpath

from ik_llama_cpp import _ctypes_api as api  # noqa: E402
from ik_llama_cpp import _internals as batches  # noqa: E402

CONTEXT_TOKENS = 2048

remove_tail = api._lib.llama_kv_cache_seq_rm
remove_tail.argtypes, remove_tail.restype = [ctypes.c_void_p, *[ctypes.c_int32] * 3], ctypes.c_bool


class Model:
    """A loaded model file and its KV cache."""

    def __init__(self, file: str, repack: bool, threads: int) -> None:
        api.llama_backend_init()
        settings = api.llama_model_default_params()
        settings.repack_tensors, settings.use_mmap = repack, not repack  # repacked weights need memory of their own
        model = api.llama_model_load_from_file(file.encode(), settings)
        if not model:
            raise RuntimeError(f"{file} cannot be loaded")
        context = api.llama_context_default_params()
        context.n_ctx = context.n_batch = CONTEXT_TOKENS
        context.n_threads = context.n_threads_batch = threads
        context.flash_attn = True
        self.context = api.llama_init_from_model(model, context)
        if not self.context:
            raise RuntimeError(f"no context for {file}")
        self.vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        self.step_tokens = api.llama_n_ubatch(self.context)
        self.ids: list[int] = []  # cached

    def rewind(self, tokens: int) -> None:
        """Keep the first `tokens` cached tokens."""
        if tokens == 0:
            api.llama_kv_cache_clear(self.context)
        elif not remove_tail(self.context, 0, tokens, -1):
            raise RuntimeError("the cache cannot be cut")
        del self.ids[tokens:]

    def next_token(self, ids: list[int]) -> int:
        """Append `ids` to the cache; the most likely token after them."""
        for at in range(0, len(ids), self.step_tokens):
            part = ids[at : at + self.step_tokens]
            batch = batches.make_batch_range(
                part, pos_start=len(self.ids), logits_last=at + self.step_tokens >= len(ids)
            )
            code = api.llama_decode(self.context, batch)
            api.llama_batch_free(batch)
            if code:
                raise RuntimeError(f"llama_decode ended with {code}")
            self.ids += part
        return int(np.ctypeslib.as_array(api.llama_get_logits_ith(self.context, -1), (self.vocab,)).argmax())


def load(job: dict[str, Any]) -> Answer:
    models = {
        mode: Model(f"{job['model']}.{settings['file']}.gguf", settings.get("repack", False), job["threads"])
        for mode, settings in job["modes"].items()
    }

    def answer(ids: list[int], max_tokens: int, mode: str, cold: bool, log: TokenLog) -> None:
        model = models[mode]
        model.rewind(0 if cold else min(shared_prefix(model.ids, ids), len(ids) - 1))
        token = model.next_token(ids[len(model.ids) :])
        log([token])
        for _ in range(max_tokens - 1):
            token = model.next_token([token])
            log([token])

    return answer


if __name__ == "__main__":
    serve(load, (PACKAGE,))
