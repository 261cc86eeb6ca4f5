"""The int8 decoder of forward.c, on each path: the same bits for any pass and any number of threads."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest
import torch
from support.engine.random_models import (
    IDS,
    NATIVE,
    distance,
    native_decoder,
    reference_of,
    save_random,
    save_seven_heads,
)
from support.engine.superblock_models import save_random_q4k_m

from speclsp.config import KNOWN
from speclsp.engine.api import Cancel
from speclsp.engine.loading import checkpoint, model_config
from speclsp.engine.model.bfloat16 import Array
from speclsp.engine.model.int8 import building, native
from speclsp.engine.model.int8.peaks import ATTENTION_PRODUCTS, INT8_PRODUCTS, READ_BYTES, measure
from speclsp.engine.model.kv_cache import SLOTS, Cancelled
from speclsp.engine.model.superblocks import WeightMatrix
from speclsp.errors import WeightsError


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="elsewhere the package has other libraries")
def test_the_library_is_built_with_the_package_where_it_can_be():
    assert all(native.library(file) is not None for file in ("_forward", "_forward_avx2"))
    assert list(native.paths()) == [name for name in native.PATHS if name in native.paths()], "fastest first"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wide")
    save_seven_heads(directory, layers=3)
    return directory


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("blocks")
    save_random_q4k_m(directory)
    return directory


WEIGHTS = {"int8": ("wide", 8), "coded": ("wide", 4), "blocks": ("blocks", 4)}
CASES = [(path, kind) for path in NATIVE for kind in WEIGHTS if kind == "int8" or path in native.CODED_PATHS]
WIDTHS = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 25, 33, 48]


@pytest.mark.parametrize(("path", "kind"), CASES)
def test_passes_of_any_width_on_any_number_of_threads_give_the_same_bits(
    path: str, kind: str, request: pytest.FixtureRequest
):
    """Every number of rows that the matrix products treat in their own way, at positions of every remainder."""
    (fixture, mlp_bits), ids = WEIGHTS[kind], IDS[:150]
    decoder, *others = (
        native_decoder(request.getfixturevalue(fixture), path, 1000, threads, mlp_bits) for threads in (2, 1, 3)
    )
    assert decoder.number_format == ("int8" if kind == "int8" else "int4")
    whole = decoder.forward(ids)
    for other in others:
        assert np.array_equal(other.forward(ids), whole)
    for width in WIDTHS:
        decoder.forget()
        parts = [decoder.forward(ids[start : start + width]) for start in range(0, len(ids), width)]
        assert np.array_equal(np.concatenate(parts), whole), width


LAYER = "model.layers.1."
TENSORS = [
    "model.embed_tokens.weight",
    *(f"{LAYER}self_attn.{part}_proj.{kind}" for part in "qkv" for kind in ("weight", "bias")),
    *(f"{LAYER}{part}_proj.weight" for part in ("self_attn.o", "mlp.gate", "mlp.up", "mlp.down")),
    *(f"{LAYER}{part}_layernorm.weight" for part in ("input", "post_attention")),
    "model.norm.weight",
]


@pytest.mark.parametrize("path", NATIVE)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", TENSORS)
def test_a_weight_that_is_not_finite_is_never_hidden_by_integers(path: str, value: float, name: str, wide: Path):
    """The logits have no finite maximum, in the pass that meets it and in later ones that attend to its tokens."""
    config = model_config.read_config(wide)
    with checkpoint.open_tensors(wide) as read:

        def broken(wanted: str, optional: bool = False) -> Array | None:
            tensor = read(wanted, optional=optional)
            if wanted != name:
                return tensor
            tensor = tensor.copy()
            at = IDS[3] * 448 + 5 if name == TENSORS[0] else 5  # the embedding of the fourth token
            tensor.reshape(-1)[at] = value
            return tensor

        decoder = building.build(
            model_config.read_shape(config, 1000), config.num_hidden_layers, config.intermediate_size, broken,
            context_tokens=512, threads=2, path=path,
        )  # fmt: skip
    assert not np.isfinite(decoder.forward(IDS[:20]).max(axis=-1)[3:]).any()
    assert not np.isfinite(decoder.forward(IDS[20:21]).max(axis=-1)).any()


def test_each_path_can_be_forced_by_its_setting():
    for setting, path in native.SETTINGS.items():
        if path in native.paths():
            native.use(setting)
            assert native.best_path() == path
    native.use("auto")
    assert native.best_path() == next(iter(native.paths()), "")
    assert {*native.SETTINGS, "auto"} == {*KNOWN["engine.cpu_path"].rule.choices}


def test_a_path_that_the_machine_lacks_is_an_error_with_those_it_has(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "paths", lambda: ("AVX-VNNI", "AVX2"))
    with pytest.raises(WeightsError, match=r"does not have\. It has: auto, avx-vnni, avx2\."):
        native.use("amx")


@pytest.mark.parametrize("path", NATIVE)
@pytest.mark.parametrize("family", ["llama", "llama-scaled-rope", "mistral", "qwen2", "qwen3"])
def test_the_int8_logits_are_near_those_of_transformers(path: str, family: str, tmp_path: Path):
    """Heads of 32 and 128, biases, norms of q and k, padding of every width."""
    wider = {"hidden_size": 160, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 240}
    model = save_random(family, tmp_path, **wider, **({"head_dim": 128} if family == "qwen3" else {}))
    decoder = native_decoder(tmp_path, path, 97)
    with torch.inference_mode():
        wanted = model(torch.tensor([[i % 97 for i in IDS[:180]]])).logits[0].numpy()
    logits = decoder.forward([i % 97 for i in IDS[:180]])
    assert distance(logits, wanted) < 0.05
    assert decoder.profile().keys() == set(native.PARTS)


@pytest.mark.parametrize("path", [path for path in NATIVE if path != "AMX"])  # it has one scale for a row
@pytest.mark.parametrize(("large", "others"), [(3, slice(256, 448)), (447, slice(0, 256))])
def test_a_large_activation_costs_only_its_own_256_their_bits(path: str, large: int, others: slice, wide: Path):
    """A head of 448 inputs alone: 256, and a last block of 192."""
    embedding, head = (torch.randn(1000, 448, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))
    embedding[:, large], weights = 1000, torch.zeros(1000, 448)
    weights[:, others] = head[:, others]
    shape = model_config.read_shape(model_config.read_config(wide), 1000)
    rows = WeightMatrix(embedding.numpy())
    decoder = native.NativeDecoder(shape, 0, 1216, rows, context_tokens=512, threads=2, path=path)
    decoder.set_linear(native.LAST, 0, WeightMatrix(weights.numpy()), None)
    decoder.set_norm(native.LAST, 0, np.ones(448, np.float32))
    x = embedding[IDS[:50]]
    wanted = x / (x.square().mean(1, keepdim=True) + shape.eps).sqrt() @ weights.T
    assert distance(decoder.forward(IDS[:50]), wanted.numpy()) < 0.02


@pytest.mark.parametrize("path", NATIVE)
def test_a_pass_cancelled_half_way_leaves_the_cache_unchanged(path: str, wide: Path):
    decoder, cancel = native_decoder(wide, path, 1000), Cancel()
    decoder.catch_up(IDS[:100], cancel)
    cancel.set()
    for stop in (
        lambda: decoder.extend(IDS[100:200], cancel),
        lambda: decoder.forward_with_tail(IDS[100:200], 3, cancel),
    ):
        with pytest.raises(Cancelled):
            stop()
        assert decoder.ids == IDS[:100]
    assert decoder.forward_with_tail(IDS[100:108], 8, cancel).shape == (8, 1000), "a round alone is finished"
    decoder.rewind(100)
    assert np.array_equal(decoder.forward(IDS[100:110]), reference_of(decoder, IDS[:110])[100:])


@pytest.mark.parametrize("path", NATIVE)
def test_a_path_has_measured_peaks(path: str):
    for what in (READ_BYTES, INT8_PRODUCTS, ATTENTION_PRODUCTS):
        assert measure(path, what, threads=2, seconds=0.02, turns=1) > 0.1


@pytest.mark.parametrize("path", NATIVE[:1])
def test_a_text_from_the_archive_has_the_same_logits(path: str, wide: Path):
    decoder, another = (native_decoder(wide, path, 1000) for _ in range(2))
    texts = [[(token + shift) % 1000 for token in IDS[:150]] for shift in range(2 * SLOTS)]
    for ids in texts:
        decoder.catch_up(ids)
    for ids in texts:
        assert decoder.catch_up(ids) == 150, "nothing is computed again"
        logits = decoder.forward(IDS[150:158])
        assert np.array_equal(logits, reference_of(another, ids + IDS[150:158])[150:])
