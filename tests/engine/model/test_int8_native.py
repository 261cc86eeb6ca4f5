"""The int8 decoder of forward.c: the same bits for AMX and AVX-512, any pass, and any number of threads."""

from __future__ import annotations

import platform
import sys
from pathlib import Path

import pytest
import torch
from support.engine.random_models import IDS, NATIVE, native_decoder, reference_of, save_random

from speclsp.engine.api import Cancel
from speclsp.engine.model.int8 import native
from speclsp.engine.model.kv_cache import Cancelled


@pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="elsewhere the package is pure Python"
)
def test_the_library_is_built_with_the_package_where_it_can_be():
    assert all(native.library(file) is not None for file, _ in native.PATHS.values())
    assert list(native.paths()) == [name for name in native.PATHS if name in native.paths()], "fastest first"


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven heads of 64 on one of keys, as in the 0.5B."""
    directory = tmp_path_factory.mktemp("wide")
    sizes = {"hidden_size": 448, "num_attention_heads": 7, "num_key_value_heads": 1, "intermediate_size": 1216}
    save_random("qwen2", directory, **sizes, num_hidden_layers=3, vocab_size=1000)
    return directory


@pytest.mark.parametrize("path", NATIVE)
def test_any_number_of_threads_gives_the_same_bits(path: str, wide: Path):
    decoders = [native_decoder(wide, path, 1000, threads) for threads in (1, 2, 3)]
    first, *others = [torch.cat([d.forward(IDS[:200]), d.forward(IDS[200:230])]) for d in decoders]
    assert all(torch.equal(first, other) for other in others)


@pytest.mark.skipif("AMX" not in NATIVE, reason="without AMX there is nothing to compare AVX-512 with")
def test_amx_and_avx512_give_the_same_bits(wide: Path):
    amx, vectors = (native_decoder(wide, path, 1000).forward(IDS[:230]) for path in ("AMX", "AVX-512 VNNI"))
    assert torch.equal(amx, vectors)


@pytest.mark.skipif(len(NATIVE) < 2, reason="one instruction set: nothing to compare")
def test_avx2_differs_in_the_last_bits_only(wide: Path):
    first, last = (native_decoder(wide, path, 1000).forward(IDS[:230]) for path in (NATIVE[0], NATIVE[-1]))
    assert (first - last).norm() / first.norm() < 0.02


@pytest.mark.parametrize("path", NATIVE)
@pytest.mark.parametrize("family", ["llama", "llama-scaled-rope", "mistral", "qwen2", "qwen3"])
def test_the_int8_logits_are_near_those_of_transformers(path: str, family: str, tmp_path: Path):
    """Heads of 32 and 128, biases, norms of q and k, padding of every width."""
    wider = {"hidden_size": 160, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 240}
    model = save_random(family, tmp_path, **wider, **({"head_dim": 128} if family == "qwen3" else {}))
    decoder = native_decoder(tmp_path, path, 97)
    with torch.inference_mode():
        wanted = model(torch.tensor([[i % 97 for i in IDS[:180]]])).logits[0]
    logits = decoder.forward([i % 97 for i in IDS[:180]])
    assert (logits - wanted).norm() / wanted.norm() < 0.05
    assert decoder.profile().keys() == set(native.PARTS)


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
    assert torch.equal(decoder.forward(IDS[100:110]), reference_of(decoder, IDS[:110])[100:])
