"""The decoder on ARM64, emulated: with int8 the bits of AVX2, for every pass and both paths; with int4 near them.

AVX2 multiplies the 4-bit numbers of the file, ARM64 int8 made from them: the weights are rounded differently.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from support.engine.arm64_calls import Recorder, emulated
from support.engine.random_models import IDS, NATIVE, distance, native_decoder, save_random, save_seven_heads
from support.engine.superblock_models import save_random_q4k_m
from support.soak import in_soak

from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.int8 import native

pytestmark = pytest.mark.skipif("AVX2" not in NATIVE, reason="the reference is the AVX2 path of x86-64")


BITS = {"int8": 8, "blocks": 4, "coded": 4}
SMALL_BLOCKS = {
    "layers": 2, "hidden_size": 256, "num_attention_heads": 4, "num_key_value_heads": 1, "intermediate_size": 512,
    "vocab_size": 97,
}  # fmt: skip
SMALL_CODED = {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 480, "vocab_size": 97}


class Recording(NamedTuple):
    """The calls and logits of AVX2, and the logits of ARM64 so far."""

    weights: str
    recorder: Recorder
    logits: Floats
    on_arm64: dict[str, Floats]


@pytest.fixture(scope="module", params=BITS)
def recorded(request: pytest.FixtureRequest, soak: bool, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """The calls and logits of AVX2: a prompt, rounds of several widths, and one token at a time.

    An emulated processor is slow, so only the soak has models with the sizes of the other tests.
    """
    directory = tmp_path_factory.mktemp("model")
    vocab = 1000 if request.param == "coded" and soak else 97
    if request.param == "blocks":
        save_random_q4k_m(directory, **({} if soak else SMALL_BLOCKS))
    elif request.param == "coded":
        save_seven_heads(directory, layers=1, **({} if soak else SMALL_CODED))
    else:
        sizes = {"hidden_size": 160, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 240}
        save_random("qwen3", directory, **sizes, head_dim=64, num_hidden_layers=2, vocab_size=97)
    recorder = Recorder(native.library("_forward_avx2"))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(native, "library", lambda name: recorder)
        patched.setitem(native.BLOCK_BITS, "AVX2", native.BLOCK_BITS["NEON"])  # ARM64 has no blocks of Q6_K
        decoder = native_decoder(directory, "AVX2", vocab, mlp_bits=BITS[request.param])
    ids, logits, start = [i % vocab for i in IDS], [], 0
    for width in (70, 1, 2, 3, 5, 8, 13, 16, 24, 1) if soak else (19, 1, 2, 3, 5, 8):
        logits.append(decoder.forward(ids[start : start + width]))
        start += width
    return Recording(request.param, recorder, np.concatenate(logits), {})


@pytest.mark.parametrize(
    ("path", "processor", "threads"),
    [
        *(("NEON", "cortex-a72", 1), ("NEON dotprod", "neoverse-n1", 2)),
        *in_soak(("NEON", "max", 2), ("NEON dotprod", "max", 1)),
    ],
)
def test_arm64_gives_the_bits_of_avx2(
    path: str,
    processor: str,
    threads: int,
    recorded: Recording,
    qemu_aarch64: Path,
    tmp_path_factory: pytest.TempPathFactory,
):
    program = emulated(qemu_aarch64, tmp_path_factory.getbasetemp(), processor)
    logits, expected = recorded.recorder.replayed(program, path, threads), recorded.logits
    if recorded.weights != "blocks":
        assert np.array_equal(logits, expected)
    assert distance(logits, expected) < 0.05
    assert np.array_equal(recorded.on_arm64.setdefault("logits", logits), logits), "on both paths"
