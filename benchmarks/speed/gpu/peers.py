"""transformers on the same shapes and the same GPU: plain, assisted, with a static cache, and compiled."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

import torch

from benchmarks.speed.gpu.models import Model, context_of, measurable_models
from benchmarks.speed.gpu.schedule import Record
from benchmarks.speed.gpu.timing import Bench, idle
from benchmarks.speed.gpu.trace import COMPLETION_TOKENS, TRACE, replayed_rounds
from speclsp.engine.loading import model_config

SEED = 1
GAMMA = 5
UNCOMPILED_S = 10.0  # of a pair, at least
COMPILE_S = 40.0  # allowed for a pair; compiling was not timed on a GPU
WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "static": {"cache_implementation": "static", "disable_compile": True},
    "compiled": {"cache_implementation": "static"},
}


def run(bench: Bench, record: Record) -> None:
    """Every pair without compiling."""
    for name, draft_model, target_model in measurable_models(bench, record, UNCOMPILED_S):
        uncompiled(record, name, Generation(bench, draft_model, target_model))


def run_compiled(bench: Bench, record: Record) -> None:
    """Every pair with torch.compile."""
    for name, draft_model, target_model in measurable_models(bench, record, COMPILE_S):
        compiled(record, name, Generation(bench, draft_model, target_model))


def uncompiled(record: Record, name: str, pair: Generation) -> None:
    """Plain, with a static cache, and assisted."""
    for way in ("plain", "static"):
        record.put(name, f"{way}_ms", value=pair.completion_ms(**WAYS[way]))
    round_ms = pair.assisted_round_ms()
    record.put(name, "assisted_round_ms", value=round_ms)
    if TRACE.is_file():
        trace = json.loads(TRACE.read_text(encoding="utf-8"))
        replayed = {"gamma": GAMMA, "ms": round(round_ms * replayed_rounds(trace, GAMMA), 2)}
        record.put(name, "assisted_replayed", value=replayed)


def compiled(record: Record, name: str, pair: Generation) -> None:
    """With a static cache and torch.compile."""
    record.put(name, "compiled_ms", value=pair.completion_ms(**WAYS["compiled"]))


class Generation:
    """A draft and a target of random weights in transformers, with a random prompt."""

    def __init__(self, bench: Bench, draft: Model, target: Model) -> None:
        self.bench = bench
        self.target, self.draft = (transformers_model(shape, bench.device) for shape in (target, draft))
        length = context_of(bench)[1]
        dice = torch.Generator().manual_seed(SEED)
        self.ids = torch.randint(0, min(1000, target.vocab), (1, length), generator=dice).to(bench.device)
        self.tokens, self.times = (4, 1) if bench.tiny else (COMPLETION_TOKENS, 3)

    def generate_ms(self, tokens: int, **options: Any) -> float:
        """Milliseconds, from call to idle."""
        idle(self.bench.device)
        began_s = time.perf_counter()
        with torch.inference_mode():
            self.target.generate(
                self.ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False,
                attention_mask=torch.ones_like(self.ids), **options,
            )  # fmt: skip
        idle(self.bench.device)
        return (time.perf_counter() - began_s) * 1e3

    def decode_ms(self, **options: Any) -> float:
        """Of the tokens after the first: prefill and setting up are taken off."""
        for tokens in (self.tokens, self.tokens, 1):  # compiles, and compiles again
            self.generate_ms(tokens, **options)
        whole = statistics.median(self.generate_ms(self.tokens, **options) for _ in range(self.times))
        return whole - statistics.median(self.generate_ms(1, **options) for _ in range(self.times))

    def completion_ms(self, **options: Any) -> float:
        """Of COMPLETION_TOKENS tokens."""
        return round(self.decode_ms(**options) * COMPLETION_TOKENS / (self.tokens - 1), 2)

    def assisted_round_ms(self) -> float:
        """A round of assisted generation. With random weights a round yields one token."""
        generation = self.draft.generation_config
        generation.num_assistant_tokens, generation.num_assistant_tokens_schedule = GAMMA, "constant"
        generation.assistant_confidence_threshold = 0.0
        return round(self.decode_ms(assistant_model=self.draft) / (self.tokens - 1), 3)


def transformers_model(shape: Model, device: str) -> Any:
    """Random weights in a model's shape."""
    with model_config.quiet_imports():
        from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(
        "qwen2", hidden_size=shape.hidden, intermediate_size=shape.inner, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=min(shape.vocab, 151_936),
        tie_word_embeddings=shape.tied, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
        max_position_embeddings=4096, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
