"""Adapters: a model with one equals, bit for bit, the model of the merged weights; and bad ones are refused."""

from __future__ import annotations

import hashlib
import re
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.random_models import IDS, coded_path
from support.engine.superblock_models import save_random_q4k_m
from support.engine.tiny_tasks import HOLES
from support.soak import in_soak
from support.weights import small_adapters
from support.weights.small_adapters import EVERY_LINEAR, LINEARS, TINY, Tensors

from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import adapter_choice, checkpoint, loading
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.int8 import native
from speclsp.engine.model.kv_cache import on_host
from speclsp.weights import adapters, cards

pytestmark = pytest.mark.usefixtures("one_thread")
TARGET = TINY / "target"
A = f"base_model.model.{LINEARS[0]}.lora_A.weight"
CARD = cards.load("tiny")
MODEL = CARD.target, TARGET
FORMATS = ["fp32", "bf16", "int8", "int4", "nf4", "oneDNN", "cuda"]


def logits(directory: Path, number_format: str, lora: Lora | None = None) -> Floats:
    device = "cuda" if number_format == "cuda" else "cpu"
    kind = {"oneDNN": "int8", "cuda": "bf16"}.get(number_format, number_format)
    decoder = checkpoint.read_decoder(directory, kind, device, 512, 1000, lora=lora)
    return on_host(decoder.forward([token % 1000 for token in IDS[:40]]))


def fitted(directory: Path, tensors: Tensors, file: Path) -> Lora:
    """The tensors as an adapter's file, read and checked for the model in `directory`."""
    small_adapters.save_file(tensors, file, small_adapters.metadata(directory))
    return adapter_choice.fitted(adapters.read_file(file), CARD.target, directory)


@pytest.mark.parametrize("number_format", FORMATS)
def test_a_merged_model_equals_the_model_of_merged_weights(
    number_format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if number_format == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    if number_format == "oneDNN":
        monkeypatch.setattr(native, "supports", lambda shape, inner: False)
    for dtype in (torch.int8, torch.bfloat16, torch.float16, torch.float32):
        tensors = small_adapters.matrices(TARGET, EVERY_LINEAR, dtype)
        merged = shutil.copytree(TARGET, tmp_path / f"{dtype}")
        small_adapters.merge_by_definition(merged, tensors)
        with_adapter = logits(TARGET, number_format, fitted(TARGET, tensors, tmp_path / f"{dtype}.safetensors"))
        assert np.array_equal(with_adapter, logits(merged, number_format)), dtype
    assert not np.array_equal(with_adapter, logits(TARGET, number_format))


def test_with_4_bit_blocks_only_the_adapted_linears_are_rounded_again(tmp_path: Path):
    base, merged = tmp_path / "base", tmp_path / "merged"
    save_random_q4k_m(base)
    tensors = small_adapters.matrices(base, ("model.layers.0.self_attn.o_proj", "model.layers.1.mlp.up_proj"))
    shutil.copytree(base, merged)
    small_adapters.merge_by_definition(merged, tensors)
    lora = fitted(base, tensors, tmp_path / "a.safetensors")
    with coded_path():
        assert np.array_equal(logits(base, "int4", lora), logits(merged, "int4"))
        assert not np.array_equal(logits(base, "int4", lora), logits(base, "int8", lora)), "the others stay 4 bits"


# ── decoding ─────────────────────────────────────────────────────────────────────────────────────────────────


def loaded(models_dir: Path, number_format: str = "auto", adapter: str = "auto") -> CompletionEngine:
    options = EngineConfig(context_tokens=512, threads=1, quantization=number_format, adapter=adapter, draft=True)
    return loading.load(Config(model="tiny", models_dir=str(models_dir), engine=options), CARD)


def texts(engine: CompletionEngine, **options: object) -> list[list[int]]:
    answers = []
    for prefix, suffix in HOLES:
        completion = engine.complete(Request(prefix=prefix, suffix=suffix, max_tokens=24, **options), threading.Event())
        assert list(completion)
        answers.append(completion.result.tokens)
    return answers


@pytest.mark.parametrize("number_format", ["int8", *in_soak("fp32")])
def test_speculation_is_lossless_against_the_adapted_model(number_format: str, tmp_path: Path):
    small_adapters.write(tmp_path, scale="16.0")
    engine = loaded(tmp_path, number_format)
    assert "adapter mine " in engine.target and "adapter" not in engine.draft, "which drafts as well as it can"
    plain = texts(engine, speculate=False)
    for sources in (("model",), ("ngram",), ()):
        assert texts(engine, sources=sources) == plain, sources
    unadapted = loaded(tmp_path, number_format, adapter="none")
    assert "adapter" not in unadapted.target + unadapted.draft
    assert texts(unadapted, speculate=False) != plain


# ── bad files ────────────────────────────────────────────────────────────────────────────────────────────────


def put(name: str, value: torch.Tensor) -> Callable[[Tensors], object]:
    return lambda tensors: tensors.update({name: value})


SPOILT: dict[str, tuple[dict[str, object], str]] = {
    "other weights": ({"weights_sha256": "0" * 64}, "belongs to weights with the sha256 0000"),
    "another format": ({"format": "pt"}, "format = 'pt' in its metadata: expected 'speclsp-lora-1'"),
    "no rank": ({"rank": ""}, "rank = '' in its metadata: expected a number from 1 to 1024"),
    "another rank": ({"rank": "8"}, r"as \[4, 192\] I8: rank 8 expects \[8, in\]"),
    "an infinite scale": ({"scale": "1e999"}, "scale inf"),
    "NaN": ({"edit": put(f"{A}.scale", torch.full((4,), torch.nan))}, "not finite or too large"),
    "infinity": ({"edit": lambda t: t[A].copy_(torch.inf), "dtype": torch.bfloat16}, "not finite or too large"),
    "a change that overflows": ({"scale": "1e30"}, "not finite or too large"),
    "an unknown tensor": ({"edit": put("lm_head.lora_A.weight", torch.ones(4, 4))}, "has a tensor 'lm_head.lora_A"),
    "half a pair": ({"edit": lambda t: [t.pop(A), t.pop(f"{A}.scale")]}, "has no tensor .*lora_A"),
    "another width": ({"edit": put(A, torch.ones(4, 64).to(torch.int8))}, r"as \[192, 64\].*has it as \[192, 192\]"),
    "no columns": ({"edit": put(A, torch.ones(4, 0).to(torch.int8))}, r"as \[4, 0\] I8: rank 4 expects"),
    "int8 without scales": ({"edit": lambda t: t.pop(f"{A}.scale")}, "in int8: expected .* F32"),
    "scales without int8": (
        {"edit": lambda t: t.update({f"{A}.scale": torch.ones(4)}), "dtype": torch.float32},
        "has a tensor .*scale': expected matrices",
    ),
    "doubles": ({"edit": put(A, torch.ones(4, 192).double())}, r"as \[4, 192\] F64: .* in I8, BF16, F16, F32"),
    "a layer too many": (
        {"edit": lambda t: t.update({name.replace("layers.0", "layers.5"): t[name].clone() for name in list(t)})},
        "adapts layer 5, and the model has the layers 0 to 4",
    ),
    "too large": ({"edit": put(A, torch.ones(4, 3 << 20).to(torch.int8))}, r"has 125\d+ bytes; the limit is 8388608"),
}


@pytest.mark.parametrize("defect", SPOILT)
def test_a_bad_adapter_is_one_message_with_the_way_out(defect: str, tmp_path: Path):
    changes, pattern = SPOILT[defect]
    file = small_adapters.write(tmp_path, **changes)
    lora, problem = adapter_choice.choose("auto", str(tmp_path), *MODEL)
    assert lora is None
    assert problem.startswith(str(file)) and problem.endswith(adapters.WITHOUT) and "\n" not in problem
    assert re.search(pattern, problem), problem


def test_a_file_that_its_card_does_not_describe_is_refused(tmp_path: Path):
    file = small_adapters.write(tmp_path)
    content = file.read_bytes()

    def problem_now() -> str:
        lora, problem = adapter_choice.choose("auto", str(tmp_path), *MODEL)
        assert (lora is None) is bool(problem)
        return problem

    assert problem_now() == ""
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "was altered: its sha256 is " in problem_now()
    file.write_bytes(content[:-1])
    assert "it was truncated or altered" in problem_now()
    file.unlink()
    assert adapter_choice.choose("auto", str(tmp_path), *MODEL) == (None, ""), "a card without its file"


@settings(max_examples=60)
@given(edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4), cut=st.integers())
def test_any_bytes_are_an_adapter_or_an_error(
    edits: list[tuple[float, int]], cut: int, tmp_path_factory: pytest.TempPathFactory
):
    file = small_adapters.write(tmp_path_factory.mktemp("fuzzed"))
    content = bytearray(file.read_bytes())
    header = int.from_bytes(content[:8], "little") + 8
    for place, value in edits:
        content[int(place * header)] = value
    file.write_bytes(content[: cut % len(content)] if cut % 3 == 0 else content)
    try:
        lora = adapter_choice.fitted(adapters.read_file(file), CARD.target, TARGET)
    except adapters.AdapterError:
        return
    assert np.isfinite(logits(TARGET, "fp32", lora)).all()


# ── the sum that names weights ───────────────────────────────────────────────────────────────────────────────


def test_weights_are_named_by_their_published_file(tmp_path: Path):
    alone = adapters.sum_of_weights(TARGET)
    assert alone == hashlib.sha256((TARGET / "model.safetensors").read_bytes()).hexdigest()
    for name in ("b.safetensors", "a.safetensors"):
        shutil.copy(TARGET / "model.safetensors", tmp_path / name)
    listed = f"{alone}  a.safetensors\n{alone}  b.safetensors\n"  # as sha256sum prints
    assert adapters.sum_of_weights(tmp_path) == hashlib.sha256(listed.encode()).hexdigest()


@pytest.mark.parametrize("key", ["jobs", "edit_format", "drafts_for"])
def test_a_bad_card_is_one_sentence_and_is_not_used(key: str, tmp_path: Path):
    small_adapters.write_card(small_adapters.write(tmp_path), "tiny", **{key: "window"})
    (problem,) = adapters.listing(str(tmp_path))[1]
    assert re.search(f"mine.toml has .*{key}: expected the texts weights, sha256", problem)
    assert adapter_choice.choose("auto", str(tmp_path), *MODEL) == (None, "")
