"""transformers on the same shapes and the same GPU: its compiled static-cache generate, and its assisted generation."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from benchmarks.speed.gpu.models import Model
from benchmarks.speed.gpu.trace import COMPLETION_TOKENS, replayed_rounds
from speclsp.engine.loading import nf4_linear

SEED = 1


def idle(device: str) -> None:
    """Wait until the device has done all it was given."""
    if device != "cpu":
        torch.cuda.synchronize()


def peers(models: tuple[Model, str, Model], device: str, length: int, trace: dict[str, Any] | None) -> dict[str, Any]:
    """transformers' static-cache compiled generate and its assisted generation: same shapes, lengths and machine."""
    with nf4_linear.quiet_imports():
        from transformers import AutoConfig, AutoModelForCausalLM

    def model(shape: Model) -> Any:
        config = AutoConfig.for_model(
            "qwen2", hidden_size=shape.hidden, intermediate_size=shape.inner, num_hidden_layers=shape.layers,
            num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=min(shape.vocab, 151_936),
            tie_word_embeddings=shape.tied, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            max_position_embeddings=4096, bos_token_id=None, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
        with torch.device(device):
            return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()

    draft_model, _, target_model = models
    target, draft = model(target_model), model(draft_model)
    ids = torch.randint(0, 1000, (1, length), generator=torch.Generator().manual_seed(SEED)).to(device)
    common = {"do_sample": False, "attention_mask": torch.ones_like(ids)}

    def generate(tokens: int, **options: Any) -> float:
        """Milliseconds, from call to idle."""
        idle(device)
        began_s = time.perf_counter()
        with torch.inference_mode():
            target.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, **common, **options)
        idle(device)
        return (time.perf_counter() - began_s) * 1e3

    def decode_ms(**options: Any) -> float:
        """Of COMPLETION_TOKENS - 1 tokens after the first: prefill and setting up are taken off."""
        for tokens in (COMPLETION_TOKENS, COMPLETION_TOKENS, 1):  # compiles, and compiles again
            generate(tokens, **options)
        whole = statistics.median(generate(COMPLETION_TOKENS, **options) for _ in range(5))
        return whole - statistics.median(generate(1, **options) for _ in range(5))

    scale = COMPLETION_TOKENS / (COMPLETION_TOKENS - 1)
    figures: dict[str, Any] = {"static_compiled_plain_ms": round(decode_ms(cache_implementation="static") * scale, 2)}
    gamma = 5
    generation = draft.generation_config
    generation.num_assistant_tokens, generation.num_assistant_tokens_schedule = gamma, "constant"
    generation.assistant_confidence_threshold = 0.0
    round_ms = decode_ms(assistant_model=draft) / (COMPLETION_TOKENS - 1)  # random weights: a round yields one token
    figures["assisted"] = {"gamma": gamma, "round_ms_at_most": round(round_ms, 3)}
    if trace is not None:
        figures["assisted"]["replayed_trace_ms"] = round(round_ms * replayed_rounds(trace, gamma), 2)
    return figures
