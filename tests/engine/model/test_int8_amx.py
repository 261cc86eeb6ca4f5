"""The AMX path of forward.c with its tile instructions in C, so that machines without AMX test it too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.engine.random_models import IDS, NATIVE, distance, native_decoder, save_seven_heads
from support.soak import in_soak

from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.library import SUFFIX

TILES = Path(__file__).parents[2] / "support/engine/amx_tiles.h"
FLAGS = ("-O3", "-ffp-contract=off", "-fno-sanitize=undefined", "-shared", "-fPIC", "-pthread")

pytestmark = pytest.mark.skipif("AVX-512 VNNI" not in NATIVE, reason="the rest of the path needs AVX-512")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model")
    save_seven_heads(directory, layers=2)
    return directory


@pytest.fixture(scope="module", autouse=True)
def emulated(tmp_path_factory: pytest.TempPathFactory):
    """The path "AMX" is the emulated one."""
    library = tmp_path_factory.mktemp("library") / f"forward{SUFFIX}"
    source = Path(native.__file__).with_name("forward.c")
    compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-linux-gnu.2.17", *FLAGS]
    subprocess.run([*compiler, "-include", str(TILES), "-o", str(library), str(source)], check=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(native.PATHS, "AMX", (str(library.with_suffix("")), native.PATHS["AMX"][1]))
        yield


def test_any_number_of_threads_gives_the_same_bits(model: Path):
    decoders = [native_decoder(model, "AMX", 1000, threads) for threads in (1, 2, 3)]
    first, *others = [np.concatenate([d.forward(IDS[:70]), d.forward(IDS[70:90])]) for d in decoders]
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize("split", [1, 16, 17, 33, *in_soak(2, 15, 24, 48)])
def test_passes_of_any_width_give_the_same_bits(split: int, model: Path):
    decoder, ids = native_decoder(model, "AMX", 1000), IDS[:100]
    whole = decoder.forward(ids)
    decoder.forget()
    assert np.array_equal(
        whole, np.concatenate([decoder.forward(ids[at : at + split]) for at in range(0, len(ids), split)])
    )


def test_it_is_near_the_path_of_vectors(model: Path):
    """A row has one scale here, and one for every 256 activations there."""
    tiles, vectors = (native_decoder(model, path, 1000).forward(IDS[:100]) for path in ("AMX", "AVX-512 VNNI"))
    assert 0 < distance(tiles, vectors) < 0.05
