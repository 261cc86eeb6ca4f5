"""Meaning of a model's config.json, by the record of its family (weights/gguf/model_families.py).

config.json ─► read_config: a ModelConfig, its sizes checked ─► read_shape: the ModelShape that the decoders need
"""

from __future__ import annotations

import logging
import math
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from speclsp.engine.loading.checkpoint_checks import FIX, ExpectedTensor, check_numbers, first_line
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.model_shape import ModelShape
from speclsp.errors import WeightsError
from speclsp.weights.gguf.model_families import FAMILIES, Family
from speclsp.weights.untrusted import untrusted_files

ACTIVATIONS = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}  # a config's name: ours
SIZES = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """config.json: sizes as it names them, and its position encoding."""

    directory: Path
    raw: dict[str, Any] = field(repr=False)
    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    rope: dict[str, Any]  # rope_type, rope_theta, ...

    @property
    def family(self) -> Family:
        """The record of its family."""
        return FAMILIES[self.model_type]

    def number(self, name: str, default: float) -> float:
        """A setting that must be a positive number. Raises WeightsError."""
        return positive(name, self.raw.get(name, default), self.directory)


def read_config(directory: Path) -> ModelConfig:
    """config.json of a model's directory.

    Raises:
        WeightsError: unreadable, an unsupported model type, it requires its own code, or a size that it lacks.
    """
    raw = read_raw(directory)
    if "auto_map" in raw:
        raise WeightsError(f"{directory} contains model code (auto_map); speclsp never runs such code.")
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in FAMILIES:
        raise WeightsError(f"{directory} is a {str(kind)[:40]!r} model; speclsp runs {', '.join(sorted(FAMILIES))}.")
    family = FAMILIES[kind]
    for name in (*SIZES, family.inner):
        if raw.get(name) is None:
            raise contradiction(directory, f"it has no {name}")
    check_variant(raw, family, directory)
    hidden, heads = raw["hidden_size"], raw["num_attention_heads"]
    head_dim = raw.get("head_dim") or family.head_dim
    if not head_dim and hidden % heads:
        raise contradiction(directory, f"hidden_size {hidden} is not a multiple of {heads} heads")
    head_dim = head_dim or hidden // heads
    if head_dim % 2:
        raise contradiction(directory, f"heads of {head_dim} have no two halves to rotate")
    return ModelConfig(
        directory=directory,
        raw=raw,
        model_type=kind,
        **{name: raw[name] for name in SIZES},
        intermediate_size=raw[family.inner],
        num_key_value_heads=raw.get("num_key_value_heads") or heads,
        head_dim=head_dim,
        rope=rope_of(raw, directory),
    )


def read_raw(directory: Path) -> dict[str, Any]:
    """config.json as a dictionary whose sizes are plausible. Raises WeightsError."""
    file = directory / "config.json"
    try:
        raw = untrusted_files.read_json(file, untrusted_files.CONFIG_BYTES)
    except untrusted_files.Unreadable as error:
        raise WeightsError(f"{file} {error}. {error.fix or FIX}") from None
    check_numbers(raw, file)
    return raw


def check_variant(raw: dict[str, Any], family: Family, directory: Path) -> None:
    """Raise WeightsError for a variant of a family that the decoders do not compute."""
    for name, value in family.requires:
        if raw.get(name) != value:
            actual = str(raw.get(name))[:40]
            raise WeightsError(f"{directory} is a model with {name} = {actual!r}; speclsp runs those with {value!r}.")
    kinds = raw.get("layer_types")
    if family.layer_types and not (
        isinstance(kinds, list) and kinds and family.layer_types.issuperset(map(str, kinds))
    ):
        raise WeightsError(f"{directory} is a model with layers that are no attention; speclsp does not run them.")


def rope_of(raw: dict[str, Any], directory: Path) -> dict[str, Any]:
    """The position encoding's parameters, of either form: rope_parameters, or rope_scaling beside rope_theta."""
    rope = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(rope, dict):
        raise contradiction(directory, f"its position encoding is {str(rope)[:40]!r}")
    theta = positive("rope_theta", rope.get("rope_theta", raw.get("rope_theta") or 10_000.0), directory)
    return {**rope, "rope_type": rope.get("rope_type", rope.get("type", "default")), "rope_theta": theta}


def positive(name: str, value: object, directory: Path) -> float:
    """A setting's value, if it is a positive number. Raises WeightsError."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not (math.isfinite(value) and value > 0):
        raise contradiction(directory, f"{name} is {str(value)[:40]!r}, not a positive number")
    return float(value)


def contradiction(directory: Path, problem: str) -> WeightsError:
    """The error for a config.json that describes no model."""
    return WeightsError(f"{directory / 'config.json'} contradicts itself: {problem}. {FIX}")


def matrix_bytes(config: ModelConfig) -> int:
    """Bytes of a model's largest matrix, in 16 bits per value: of `up`, with `gate` where there is one."""
    return 2 * (1 + config.family.gated) * config.hidden_size * config.intermediate_size


def read_shape(config: ModelConfig, vocab: int) -> ModelShape:
    """The shape that the decoders need; `vocab`: entries of the tokenizer. Raises WeightsError."""
    family = config.family
    name, default = family.activation
    activation = config.raw.get(name) or default
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise WeightsError(f"activation {str(activation)[:40]!r} is not one of {', '.join(ACTIVATIONS)}.")

    def multiplier(name: str, default: float = 1.0) -> float:
        return config.number(name, 1.0) if family.has_multipliers else default

    return ModelShape(
        vocab=min(vocab, config.vocab_size),
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        eps=config.number(*family.eps),
        inv_freq=rope_frequencies(config),
        activation=ACTIVATIONS[activation],
        gated=family.gated,
        layer_norm=family.layer_norm,
        embed_scale=math.sqrt(config.hidden_size) if family.scales_embedding else multiplier("embedding_multiplier"),
        residual_scale=multiplier("residual_multiplier"),
        attention_scale=multiplier("attention_multiplier", 0.0),
        logits_scale=1.0 / multiplier("logits_scaling"),
    )


@np.errstate(all="ignore")  # a config's numbers may be of any size
def rope_frequencies(config: ModelConfig) -> Floats:
    """The inverse frequencies [D/2] of the position encoding. Raises WeightsError.

    Formulas: arXiv 2104.09864; "linear" arXiv 2306.15595; "llama3" as Llama 3.1 was published.
    """
    rope = config.rope
    power = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    plain: Floats = np.float32(1.0) / np.power(rope["rope_theta"], power.astype(np.float64)).astype(np.float32)
    kind = rope["rope_type"]
    try:
        if kind == "default":
            return plain
        if kind == "linear":
            linear: Floats = plain / (rope["factor"] + 0.0)  # + 0.0 is an error unless it is a number
            return linear
        if kind == "llama3":
            return llama3_frequencies(plain, rope)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:  # parameters may be of any type
        raise WeightsError(
            f"config.json sets the position encoding {str(kind)[:40]!r} with parameters that are not valid "
            f"({type(error).__name__}: {first_line(error)}). {FIX}"
        ) from None
    raise WeightsError(
        f"{config.directory} has the position encoding {str(kind)[:40]!r}; speclsp runs default, linear and llama3."
    )


def llama3_frequencies(plain: Floats, rope: dict[str, Any]) -> Floats:
    """Long waves are divided by `factor`, short ones stay, and those between are mixed."""
    names = ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor")
    factor, original, low, high = (rope[name] + 0.0 for name in names)
    wave = 2 * math.pi / plain
    share = (original / wave - low) / (high - low)  # of the plain frequency, between both
    mixed = (1 - share) * plain / factor + share * plain
    scaled = np.where(wave > original / low, plain / factor, plain)
    return np.where((wave >= original / high) & (wave <= original / low), mixed, scaled).astype(np.float32)


def expected_tensors(config: ModelConfig, shape: ModelShape) -> Iterator[list[ExpectedTensor]]:
    """All tensors a model may have, in groups: of an optional group either all are present or none."""
    family, hidden, inner, vocab = config.family, shape.hidden, config.intermediate_size, config.vocab_size
    wide = 2 * inner if family.gated else inner
    queries, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield [("model.embed_tokens.weight", (vocab, hidden), False)]
    yield [("lm_head.weight", (vocab, hidden), True)]
    yield from norm("model.norm", hidden)
    for layer in range(config.num_hidden_layers):
        at = f"model.layers.{layer}"
        yield from norm(f"{at}.input_layernorm", hidden)
        yield from norm(f"{at}.post_attention_layernorm", hidden)
        yield [(f"{at}.self_attn.q_norm.weight", (shape.head_dim,), True)]
        yield [(f"{at}.self_attn.k_norm.weight", (shape.head_dim,), True)]
        for linears, columns in (
            ({"self_attn.q_proj": queries, "self_attn.k_proj": keys, "self_attn.v_proj": keys}, hidden),
            ({"self_attn.o_proj": hidden}, queries),
            ({name: wide // len(family.up) for name in family.up}, hidden),
            ({family.down: hidden}, inner),
        ):
            yield [(f"{at}.{name}.weight", (rows, columns), False) for name, rows in linears.items()]
            yield [(f"{at}.{name}.bias", (rows,), True) for name, rows in linears.items()]


def norm(name: str, size: int) -> Iterator[list[ExpectedTensor]]:
    """A norm's weight, and its optional bias."""
    yield [(f"{name}.weight", (size,), False)]
    yield [(f"{name}.bias", (size,), True)]


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Import bitsandbytes or transformers without kernel downloads and without output on stderr.

    Both try the package `kernels` first, which downloads code at run time: it is made unavailable here.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if "kernels" not in sys.modules:
        sys.modules["kernels"] = None  # type: ignore[assignment]
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
