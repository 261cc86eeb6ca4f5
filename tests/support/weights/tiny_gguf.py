"""Writes a GGUF of a few kilobytes with a real model's layout, for the tests of weights."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
from tokenizers import pre_tokenizers

HIDDEN, LAYERS, HEADS, KV_HEADS, FEED_FORWARD = 64, 2, 4, 2, 96
HEAD = HIDDEN // HEADS
SPECIAL = ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
MERGES = ("d e", "de f", "Ġ Ġ", "ĠĠ ĠĠ", "r e", "re t", "u r", "ur n", "ret urn")
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
ORDINARY = [*LETTERS, *(merge.replace(" ", "") for merge in MERGES)]
TOKENS = [*ORDINARY, *SPECIAL, "<tool_call>", "[PAD0]"]
TYPES = [1] * len(ORDINARY) + [3] * len(SPECIAL) + [4, 5]

Tensors = dict[str, np.ndarray]
SUPERBLOCKS = {144: gguf.GGMLQuantizationType.Q4_K, 210: gguf.GGMLQuantizationType.Q6_K}  # by bytes


def random_tensors(seed: int = 0, *, biases: bool, tied: bool = False) -> Tensors:
    """float32 tensors under their GGUF names, with values that bf16 cannot all hold."""
    rng = np.random.default_rng(seed)
    kv = KV_HEADS * HEAD
    shapes = {
        "attn_q": (HIDDEN, HIDDEN),
        "attn_k": (kv, HIDDEN),
        "attn_v": (kv, HIDDEN),
        "attn_output": (HIDDEN, HIDDEN),
        "ffn_gate": (FEED_FORWARD, HIDDEN),
        "ffn_up": (FEED_FORWARD, HIDDEN),
        "ffn_down": (HIDDEN, FEED_FORWARD),
        "attn_norm": (HIDDEN,),
        "ffn_norm": (HIDDEN,),
    }
    made = {"token_embd.weight": (len(TOKENS), HIDDEN), "output_norm.weight": (HIDDEN,)}
    if not tied:
        made["output.weight"] = (len(TOKENS), HIDDEN)
    for layer in range(LAYERS):
        made |= {f"blk.{layer}.{name}.weight": shape for name, shape in shapes.items()}
        if biases:
            made |= {f"blk.{layer}.{name}.bias": shapes[name][:1] for name in ("attn_q", "attn_k", "attn_v")}
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in made.items()}


def write(
    path: Path,
    tensors: Tensors,
    *,
    family: str = "qwen2",
    pre: str = "qwen2",
    model: str = "gpt2",
    quantized: gguf.GGMLQuantizationType | None = None,
) -> Path:
    """Write the file; matrices as `quantized`, vectors as float32, and bytes as superblocks, one in a row."""
    writer = gguf.GGUFWriter(path, family)
    writer.add_block_count(LAYERS)
    writer.add_context_length(512)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model(model)
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(TOKENS)
    writer.add_token_types(TYPES)
    writer.add_token_merges(list(MERGES))
    writer.add_eos_token_id(TOKENS.index("<|endoftext|>"))
    for name, values in tensors.items():
        if values.dtype == np.uint8:
            writer.add_tensor(name, values, raw_dtype=SUPERBLOCKS[values.shape[1]])
        elif quantized is not None and values.ndim == 2:
            writer.add_tensor(name, gguf.quantize(values, quantized), raw_dtype=quantized)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
