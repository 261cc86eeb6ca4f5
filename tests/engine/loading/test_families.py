"""A family's record gives a config.json the meaning that transformers gives it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.engine.random_models import FAMILIES, SMALL

from speclsp.engine.loading import model_config
from speclsp.errors import WeightsError

# As publishers write them: with the older names of the position encoding, and without what the class supplies.
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama 3.2": {
        "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
        "intermediate_size": 8192, "num_hidden_layers": 16, "vocab_size": 128256, "rms_norm_eps": 1e-05,
        "rope_theta": 500000.0, "head_dim": 64, "hidden_act": "silu", "max_position_embeddings": 131072,
        "rope_scaling": {
            "factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
    },
    "deepseek coder": SMALL | {
        "model_type": "llama", "intermediate_size": 96, "rms_norm_eps": 1e-06, "rope_theta": 100000,
        "rope_scaling": {"factor": 4.0, "type": "linear"},
    },
    "one key head for each query head": {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 96, "vocab_size": 97,
    },
    "gemma, defaults": SMALL | {"model_type": "gemma", "intermediate_size": 96},
    "qwen3, defaults": SMALL | {"model_type": "qwen3", "intermediate_size": 96, "rope_scaling": None},
    "starcoder2, defaults": SMALL | {"model_type": "starcoder2", "intermediate_size": 96},
    "granite, defaults": SMALL | {"model_type": "granite", "intermediate_size": 96},
}  # fmt: skip
RANDOM = {name: SMALL | {"model_type": name} | given for name, given in FAMILIES.items()}
CONFIGS = PUBLISHED | RANDOM
HYBRID: dict[str, Any] = {"model_type": "granitemoehybrid"} | FAMILIES["granitemoehybrid"]


def read(directory: Path, raw: dict[str, Any]) -> model_config.ModelConfig:
    (directory / "config.json").write_text(json.dumps(raw))
    return model_config.read_config(directory)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_config_means_what_it_means_to_transformers(name: str, tmp_path: Path):
    from transformers import AutoConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    raw = CONFIGS[name]
    config, theirs = read(tmp_path, raw), AutoConfig.for_model(**json.loads(json.dumps(raw)))
    shape = model_config.read_shape(config, 10**6)
    head_dim = getattr(theirs, "head_dim", None) or theirs.hidden_size // theirs.num_attention_heads
    assert (shape.hidden, shape.heads, shape.kv_heads, shape.head_dim, shape.vocab) == (
        theirs.hidden_size, theirs.num_attention_heads, theirs.num_key_value_heads, head_dim, theirs.vocab_size,
    )  # fmt: skip
    inner = getattr(theirs, config.family.inner)
    assert (config.num_hidden_layers, config.intermediate_size) == (theirs.num_hidden_layers, inner)
    assert shape.eps == getattr(theirs, config.family.eps[0])
    kind = theirs.rope_parameters["rope_type"]
    if kind == "default":
        frequencies = 1.0 / theirs.rope_parameters["rope_theta"] ** (torch.arange(0, head_dim, 2).float() / head_dim)
    else:
        frequencies, _ = ROPE_INIT_FUNCTIONS[kind](theirs, torch.device("cpu"))
    np.testing.assert_array_max_ulp(shape.inv_freq, frequencies.numpy(), maxulp=1)  # rounded from double precision
    multipliers = [getattr(theirs, f"{part}_multiplier", None) for part in ("embedding", "residual", "attention")]
    if config.family.has_multipliers:
        assert [shape.embed_scale, shape.residual_scale, shape.attention_scale] == multipliers
        assert shape.logits_scale == 1.0 / theirs.logits_scaling


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"num_hidden_layers": None}, "contradicts itself: it has no num_hidden_layers"),
        ({"hidden_size": 66}, "hidden_size 66 is not a multiple of 4 heads"),
        ({"rope_parameters": "yarn"}, "its position encoding is 'yarn'"),
        ({"rope_theta": 0.0}, "rope_theta = 0.0: expected a positive number"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'linear' with parameters that are not valid"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "4"}}, "'linear' with parameters that are not valid"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "'llama3' with parameters that are not valid"),
        ({"rope_scaling": {"rope_type": ["x"]}}, "runs default, linear and llama3"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "encoding 'yarn'; speclsp runs default, linear"),
        ({"rope_scaling": {"rope_theta": "big"}}, "rope_theta is 'big', not a positive number"),
        ({"head_dim": 15}, "heads of 15 have no two halves to rotate"),
        ({"hidden_act": ["silu"]}, r"activation .*silu.* is not one of"),
        (HYBRID | {"shared_intermediate_size": "96"}, "shared_intermediate_size = 96: expected a whole number"),
        ({"hidden_act": "xielu"}, "activation 'xielu' is not one of silu, gelu, gelu_pytorch_tanh"),
        (HYBRID | {"num_local_experts": 8}, "num_local_experts = '8'; speclsp runs those with 0"),
        (HYBRID | {"position_embedding_type": "nope"}, "position_embedding_type = 'nope'; speclsp runs"),
        (HYBRID | {"layer_types": ["attention", "mamba"]}, "layers that are no attention"),
        (HYBRID | {"layer_types": None}, "layers that are no attention"),
        ({"model_type": "granite", "residual_multiplier": 0}, "residual_multiplier is '0', not a positive number"),
        ({"model_type": "granite", "logits_scaling": "8"}, "logits_scaling is '8', not a positive number"),
    ],
)
def test_a_config_that_describes_no_model_is_refused_with_the_reason(
    changes: dict[str, Any], says: str, tmp_path: Path
):
    with pytest.raises(WeightsError, match=says):
        model_config.read_shape(read(tmp_path, PUBLISHED["one key head for each query head"] | changes), 97)
