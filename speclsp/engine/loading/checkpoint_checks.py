"""Consistency checks of a model's config.json, tokenizer and tensors, before any weight is read.

The forward passes trust these numbers: forward.c checks no bounds of its own. Without a limit, a config of a million
layers or a huge vocabulary would fail only when memory runs out. Every error names the file, the value and the
expected value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp.engine.model import gguf_tensors
from speclsp.errors import WeightsError
from speclsp.weights import model_directory
from speclsp.weights.untrusted import safetensors_header
from speclsp.weights.untrusted.safetensors_header import StoredTensor
from speclsp.weights.untrusted.untrusted_files import Unreadable

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # checkpoint.py reads it and passes it in

MOST = {  # of each number; several times what the largest known models have
    "num_hidden_layers": 1 << 10,
    "hidden_size": 1 << 17,
    "intermediate_size": 1 << 20,
    "shared_intermediate_size": 1 << 20,
    "num_attention_heads": 1 << 10,
    "num_key_value_heads": 1 << 10,
    "head_dim": 1 << 12,
    "vocab_size": 1 << 22,
    "max_position_embeddings": 1 << 24,
}
POSITIVE = ("rms_norm_eps", "norm_epsilon", "rope_theta")
FLOATS = ("F64", "F32", "F16", "BF16")
FIX = (
    "The files do not belong together: copy the model's own files there, or download them again with "
    "`speclsp models pull`."
)


ExpectedTensor = tuple[str, tuple[int, ...], bool]  # name, shape, True if it may be missing


def check_numbers(config: Mapping[str, Any], file: Path) -> None:
    """Check the sizes in `config`, a parsed config.json. Raises WeightsError for implausible ones."""
    for name, most in MOST.items():
        value = config.get(name)
        if value is not None and (type(value) is not int or not 0 < value <= most):
            raise WeightsError(
                f"{file} has {name} = {str(value)[:40]}: expected a whole number from 1 to {most}. {FIX}"
            )
    for name in POSITIVE:
        value = config.get(name)
        if value is not None and (type(value) not in (int, float) or not math.isfinite(value) or value <= 0):
            raise WeightsError(f"{file} has {name} = {str(value)[:40]}: expected a positive number. {FIX}")
    heads, kv_heads = config.get("num_attention_heads"), config.get("num_key_value_heads")
    if heads and kv_heads and heads % kv_heads:
        raise WeightsError(
            f"{file} has {heads} query heads and {kv_heads} key heads: the first must be a multiple of the second. "
            f"{FIX}"
        )


def check_tokenizer(tokenizer: Tokenizer, config: Mapping[str, Any], file: Path) -> None:
    """Check that each token has a row in the embedding, and that end of text is a marker. Raises WeightsError."""
    rows, ends = config.get("vocab_size"), config.get("eos_token_id")
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1)
    if largest < 0:
        raise WeightsError(f"{file} has no tokens. {FIX}")
    if type(rows) is int and largest >= rows:
        raise WeightsError(f"{file} has a token {largest}, and config.json says vocab_size = {rows}. {FIX}")
    added = tokenizer.get_added_tokens_decoder()
    for end in ends if isinstance(ends, list) else [ends]:
        if type(end) is int and added and end not in added:
            raise WeightsError(
                f"{file} belongs to another model: the end token {end} of config.json is not one of its special "
                f"tokens. {FIX}"
            )


def check_tensors(
    directory: Path, expected: Iterable[Sequence[ExpectedTensor]]
) -> dict[str, tuple[Path, StoredTensor]]:
    """Check that the files hold every tensor that `expected` names, in its shape, as floats. Raises WeightsError.

    Returns each stored tensor with its file, by name.
    """
    stored: dict[str, StoredTensor] = {}
    files: dict[str, Path] = {}
    for file in model_directory.weight_files(directory):
        read = gguf_tensors.stored_tensors if file.suffix == ".gguf" else safetensors_header.read
        try:
            for name, tensor in read(file).items():
                stored[name], files[name] = tensor, file
        except Unreadable as error:
            raise WeightsError(f"{file} {error}. {error.fix or FIX}") from None
    for group in expected:
        present = [name for name, _, _ in group if name in stored]
        for name, size, optional in group:
            actual = stored.get(name)
            if actual is None:
                if optional and not present:
                    continue
                raise WeightsError(f"{directory} has no tensor {name}, which its config.json needs. {FIX}")
            if actual.shape != size:
                problem = f"{files[name]} holds {name} as {list(actual.shape)}"
                raise WeightsError(f"{problem}: config.json expects {list(size)}. {FIX}")
            if actual.dtype not in FLOATS:
                problem = f"{files[name]} holds {name} as {actual.dtype}"
                raise WeightsError(f"{problem}: expected one of {', '.join(FLOATS)}. {FIX}")
    return {name: (files[name], tensor) for name, tensor in stored.items()}


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its type's name if it has none."""
    return (str(error).splitlines() or [type(error).__name__])[0]
