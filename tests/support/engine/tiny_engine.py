"""The trained tiny models as an engine in this process."""

from __future__ import annotations

from dataclasses import replace

import torch

from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.fused_round import FusedRound
from speclsp.engine.loading import checkpoint, loading
from speclsp.weights import cards
from support.engine.random_models import NATIVE

FAST = "int8" if NATIVE else "fp32"  # float32 in the reference decoder takes ten times as long


def tiny_engine(number_format: str = FAST, draft: bool = True) -> CompletionEngine:
    """The model, with one thread and a context of 512 tokens."""
    options = EngineConfig(context_tokens=512, threads=1, quantization=number_format, draft=draft)
    loaded = loading.load(Config(model="tiny", engine=options), cards.load("tiny"))
    assert isinstance(loaded, CompletionEngine)
    return loaded


def set_slots(engine: CompletionEngine, slots: int, most_slots: int = 0) -> None:
    """Give each cache so many slots, all of them empty; a GPU's has no more than it has allocated."""
    for decoder in engine.decoders():
        decoder.empty()
        allocated = len(decoder.slot_ids)
        decoder.most_slots = min(max(slots, most_slots), allocated)
        decoder.slots_in_use = list(range(min(slots, allocated)))


def fused_tiny_engine() -> CompletionEngine:
    """As on a GPU: fused rounds of both models, run eagerly on a CPU under a GPU's device name."""
    tiny = cards.models_root() / "tiny"
    target, draft = (
        checkpoint.read_decoder(tiny / name, "fp32", "cpu:0", 512, 2048, is_draft=name == "draft", dtype=torch.float32)
        for name in ("target", "draft")
    )
    return replace(tiny_engine("fp32"), target_decoder=target, draft_decoder=draft, fused=FusedRound(target, draft))
