"""Models of random weights, of every family, saved in the format of their publishers.

transformers takes seconds to import, so tests and their support import it where they use it, and not while tests are
collected.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from speclsp.engine.loading import checkpoint, model_config
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.int8 import building, native
from speclsp.engine.model.kv_cache import CachedModel, on_host

SMALL_LAYERS = 2
SMALL = {
    "hidden_size": 64,
    "num_hidden_layers": SMALL_LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 97,
}
FAMILIES = {
    "llama": {"intermediate_size": 96, "attention_bias": True},
    "llama-scaled-rope": {
        "model_type": "llama",
        "intermediate_size": 96,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    },
    "deepseek-linear-rope": {
        "model_type": "llama",
        "intermediate_size": 96,
        "rope_parameters": {"rope_type": "linear", "rope_theta": 100000.0, "factor": 4.0},
    },
    "mistral": {"intermediate_size": 96, "sliding_window": None},
    "qwen2": {"intermediate_size": 96, "tie_word_embeddings": True},
    "qwen3": {"intermediate_size": 96, "head_dim": 32},
    "gemma": {"intermediate_size": 96, "head_dim": 32, "hidden_activation": "gelu_pytorch_tanh"},
    "granite": {
        "intermediate_size": 96,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.015,
        "logits_scaling": 8.0,
    },
    "granitemoehybrid": {
        "shared_intermediate_size": 96,
        "num_local_experts": 0,
        "position_embedding_type": "rope",
        "layer_types": ["full_attention"] * SMALL_LAYERS,
        "mamba_n_heads": 4,
        "embedding_multiplier": 12.0,
        "residual_multiplier": 0.22,
        "attention_multiplier": 0.015,
        "logits_scaling": 8.0,
    },
    "starcoder2": {
        "intermediate_size": 96,
        "use_bias": True,
        "sliding_window": None,
        "hidden_act": "gelu_pytorch_tanh",
    },
}


def save_random(family: str, directory: Path, **changes: int) -> torch.nn.Module:
    """Save a model of random weights of a family in its publishers' format; returns transformers' module of it."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(0)
    options = {**SMALL, **FAMILIES[family], **changes}
    config = AutoConfig.for_model(options.pop("model_type", family), **options)
    model = AutoModelForCausalLM.from_config(config).float().eval()
    for name, parameter in model.named_parameters():
        if "bias" in name or "norm" in name:
            parameter.data += 0.1 * torch.randn_like(parameter)  # zeros and ones would hide a mistake
    model.save_pretrained(directory)
    return model


def save_seven_heads(directory: Path, layers: int, **sizes: int) -> None:
    """Seven heads of 64 on one of keys, as in the 0.5B; linears of 448 and 1,216 inputs, no multiples of 256."""
    heads = {"hidden_size": 448, "num_attention_heads": 7, "num_key_value_heads": 1, "intermediate_size": 1216}
    save_random("qwen2", directory, **{**heads, "vocab_size": 1000, **sizes}, num_hidden_layers=layers)


IDS = torch.randint(0, 1000, (400,), generator=torch.Generator().manual_seed(2)).tolist()
NATIVE = list(native.paths())  # the instruction sets this machine can use


@contextmanager
def coded_path() -> Iterator[None]:
    """Use the fastest path that multiplies coded weights. AMX multiplies int8 only, and widens them."""
    native.use(next(name for name, path in native.SETTINGS.items() if path in native.CODED_PATHS and path in NATIVE))
    try:
        yield
    finally:
        native.use("auto")


def native_decoder(directory: Path, path: str, vocab: int, threads: int = 2, mlp_bits: int = 8) -> native.NativeDecoder:
    """The decoder of forward.c, on the given instruction set."""
    config = model_config.read_config(directory)
    with checkpoint.open_tensors(directory) as get:
        return building.build(
            model_config.read_shape(config, vocab),
            config.num_hidden_layers,
            config.intermediate_size,
            get,
            context_tokens=512,
            threads=threads,
            path=path,
            mlp_bits=mlp_bits,
        )


def reference_of(decoder: CachedModel, ids: list[int]) -> Floats:
    """The logits of `ids` in one pass over an empty cache."""
    decoder.forget()
    return on_host(decoder.forward(ids))


def distance(logits: Floats, exact: Floats) -> float:
    """The norm of the difference over that of the exact logits."""
    return float(np.linalg.norm(logits - exact) / np.linalg.norm(exact))
