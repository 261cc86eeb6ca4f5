"""The shape of a transformer, and the rows of its passes: shared by the decoders, in C and in PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from speclsp.engine.model.bfloat16 import Floats

ROWS = 8  # queries in an attention slice, and rows in a slice of a linear whose result depends on the row count
PREFILL_TOKENS = 64  # in one step of the reference's prefill: short, so that cancelling lands within one


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of a decoder-only transformer: the fields of config.json, named by their effect."""

    vocab: int  # real entries: rows of the head beyond it are padding and never valid
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    inv_freq: Floats  # [D/2]
    activation: str = "silu"  # or "gelu", "gelu_tanh"
    gated: bool = True  # down(act(gate) * up), else down(act(up))
    layer_norm: bool = False  # LayerNorm with bias (StarCoder2) instead of RMSNorm
    embed_scale: float = 1.0  # Gemma sqrt(hidden), Granite embedding_multiplier
    residual_scale: float = 1.0  # Granite
    attention_scale: float = 0.0  # of q·k; 0: 1/sqrt(head_dim)
    logits_scale: float = 1.0  # Granite: 1/logits_scaling
