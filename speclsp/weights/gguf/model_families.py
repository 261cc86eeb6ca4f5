"""Model families that speclsp runs: one record each, with the differences from Llama.

A family is a `model_type` of config.json. Two readers share the records: model_config.py the settings and checkpoint.py
the tensors. Tests compare each family with transformers. The listed GGUF files are of qwen2.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The differences of a family from Llama."""

    eps: tuple[str, float] = ("rms_norm_eps", 1e-6)  # setting, and its default
    activation: tuple[str, str] = ("hidden_act", "silu")
    head_dim: int = 0  # where config.json has none; 0: hidden / heads
    inner: str = "intermediate_size"  # setting of the MLP's width
    gated: bool = True  # False: down(act(up))
    up: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")  # linears into the MLP; one name: both are in it
    down: str = "mlp.down_proj"
    layer_norm: bool = False  # with bias, in place of RMSNorm
    norm_offset: float = 0.0  # added to the stored weights of norms
    scales_embedding: bool = False  # by the root of its width
    has_multipliers: bool = False  # of embedding, residuals, attention and logits
    requires: tuple[tuple[str, object], ...] = ()  # settings, and the only value that the decoders compute
    layer_types: frozenset[str] = frozenset()  # those that the decoders compute, where config.json lists them


FAMILIES = {  # by model_type
    "llama": Family(),
    "mistral": Family(),
    "qwen2": Family(),
    "qwen3": Family(head_dim=128),
    "gemma": Family(
        activation=("hidden_activation", "gelu_pytorch_tanh"), head_dim=256, norm_offset=1.0, scales_embedding=True
    ),
    "granite": Family(has_multipliers=True),
    "granitemoehybrid": Family(  # Granite 4, the dense models
        inner="shared_intermediate_size",
        up=("shared_mlp.input_linear",),
        down="shared_mlp.output_linear",
        has_multipliers=True,
        requires=(("num_local_experts", 0), ("position_embedding_type", "rope")),
        layer_types=frozenset(("attention", "full_attention")),
    ),
    "starcoder2": Family(
        eps=("norm_epsilon", 1e-5),
        activation=("hidden_act", "gelu_pytorch_tanh"),
        layer_norm=True,
        gated=False,
        up=("mlp.c_fc",),
        down="mlp.c_proj",
    ),
}
GGUF_LAYER_NAMES = {  # a layer's tensors of qwen2, by their names in a GGUF file
    "attn_norm": "input_layernorm",
    **{f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"},
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    **{f"ffn_{x}": f"mlp.{x}_proj" for x in ("up", "gate", "down")},
}
GGUF_OUTER_NAMES = {  # tensors outside the layers
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
