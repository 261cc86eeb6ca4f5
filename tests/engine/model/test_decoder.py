"""The forward pass equals transformers' for every family, and no row depends on the other rows."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engine.random_models import FAMILIES, IDS, NATIVE, native_decoder, reference_of, save_random

from speclsp import process_resources
from speclsp.config import Config, EngineConfig
from speclsp.engine.loading import checkpoint, load_plan, nf4_linear
from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.cpu_linears import FloatLinear, Int8Linear, int8_is_exact
from speclsp.engine.model.decoder import BLOCK
from speclsp.engine.model.int8 import native
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.model.model_shape import PREFILL_TOKENS, ROWS
from speclsp.errors import WeightsError
from speclsp.process_resources import Cpus


def read(directory: Path, number_format: str = "fp32", vocab: int = 97) -> CachedModel:
    if number_format in NATIVE:
        return native_decoder(directory, number_format, vocab)
    if number_format == "int8":  # as on a machine without the library
        with patch.object(native, "supports", lambda shape, inner: False):
            return checkpoint.read_decoder(directory, "int8", "cpu", 512, vocab)
    if number_format == "as on a GPU":
        return checkpoint.read_decoder(directory, "bf16", "cpu", 512, vocab, dtype=torch.bfloat16)
    return checkpoint.read_decoder(directory, number_format, "cpu", 512, vocab)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_forward_pass_equals_that_of_transformers(family: str, tmp_path: Path):
    model = save_random(family, tmp_path)
    decoder = read(tmp_path)
    ids = torch.randint(0, 97, (BLOCK + 40,), generator=torch.Generator().manual_seed(1)).tolist()
    with torch.inference_mode():
        wanted = model(torch.tensor([ids])).logits[0]
    logits = np.concatenate([decoder.forward(ids[:100]), decoder.forward(ids[100:103]), decoder.forward(ids[103:])])
    assert np.allclose(logits, wanted.numpy(), atol=2e-4, rtol=2e-4), np.abs(logits - wanted.numpy()).max()


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Qwen2, wide enough that its kernels are split between threads and blocks."""
    from transformers import AutoConfig, AutoModelForCausalLM

    directory = tmp_path_factory.mktemp("wide")
    torch.manual_seed(3)
    config = AutoConfig.for_model(
        "qwen2",
        hidden_size=448,
        intermediate_size=1216,
        num_hidden_layers=3,
        num_attention_heads=7,
        num_key_value_heads=1,
        vocab_size=1000,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)
    return directory


FORMATS = ["fp32", "bf16", "nf4", "as on a GPU", *(["int8"] if int8_is_exact() else []), *NATIVE]


@pytest.fixture(scope="module", params=FORMATS)
def decoder(request: pytest.FixtureRequest, wide: Path) -> CachedModel:
    return read(wide, request.param, vocab=1000)


@settings(max_examples=6, deadline=None)
@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_token_gets_the_same_logits_bit_for_bit_in_any_pass(decoder: CachedModel, soak: bool, cuts: list[int]):
    """A pass of one row or of forty, at any position in it, on either side of a key block's boundary."""
    whole, tokens = reference(decoder), 300 if soak else BLOCK + 22
    decoder.rewind(0)
    start, rows = 0, []
    while start < tokens:
        width = cuts[len(rows) % len(cuts)]
        rows.append(decoder.forward(IDS[start : start + width]))
        start += width
    assert np.array_equal(np.concatenate(rows)[:tokens], whole[:tokens])


KNOWN: WeakKeyDictionary[CachedModel, Floats] = WeakKeyDictionary()  # an id() would outlive its decoder


def reference(decoder: CachedModel) -> Floats:
    """The logits of IDS, in passes of PREFILL_TOKENS."""
    if decoder not in KNOWN:
        decoder.rewind(0)
        steps = range(0, len(IDS), PREFILL_TOKENS)
        KNOWN[decoder] = np.concatenate([decoder.forward(IDS[i : i + PREFILL_TOKENS]) for i in steps])
    return KNOWN[decoder]


def test_the_last_prefill_step_and_the_first_round_may_share_a_pass(decoder: CachedModel):
    apart = reference_of(decoder, IDS[:200])[-4:]
    decoder.forget()
    decoder.acquire_slot(IDS[:196])
    while len(decoder.ids) + decoder.tail_tokens < 196:
        decoder.step(IDS[:196])
    assert len(decoder.ids) <= 196
    assert np.array_equal(decoder.forward_with_tail(IDS[len(decoder.ids) : 200], 4), apart)
    assert decoder.ids == IDS[:200]


def test_more_tokens_than_the_cache_can_hold_are_refused_without_loss(wide: Path):
    decoder = read(wide, vocab=1000)
    decoder.catch_up(IDS)
    with pytest.raises(ValueError, match="do not fit a KV cache of 512"):
        decoder.forward([1] * 200)
    assert decoder.ids == IDS


def test_padding_rows_of_the_head_are_never_tokens(tmp_path: Path):
    save_random("qwen2", tmp_path)
    assert read(tmp_path, vocab=90).forward([1, 2]).shape == (2, 90)


@pytest.mark.skipif(not int8_is_exact(), reason="this CPU has no exact int8 product; bf16 is used there")
@settings(max_examples=25, deadline=None)
@given(rows=st.integers(1, 70), seed=st.integers(0, 99))
def test_an_int8_row_does_not_depend_on_its_neighbours(rows: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(96, 64, generator=generator)
    linear, x = Int8Linear(weight, torch.randn(96, generator=generator)), torch.randn(rows, 64, generator=generator)
    together = linear(x)
    assert torch.equal(together, torch.cat([linear(x[i : i + 1]) for i in range(rows)]))
    exact = x @ weight.T + linear.bias
    assert (together - exact).abs().max() < 0.05 * exact.abs().max() + 0.1


def test_a_row_of_zeros_is_not_divided_by_zero():
    assert torch.equal(FloatLinear(torch.ones(4, 8))(torch.zeros(3, 8)), torch.zeros(3, 4))
    if int8_is_exact():
        assert torch.equal(Int8Linear(torch.ones(4, 8))(torch.zeros(3, 8)), torch.zeros(3, 4))


@pytest.mark.parametrize("slice_rows", [0, ROWS])
def test_a_4_bit_linear_is_near_its_weights_in_narrow_and_in_wide_passes(slice_rows: int):
    generator = torch.Generator().manual_seed(0)
    weight, bias = torch.randn(128, 192, generator=generator), torch.randn(128, generator=generator)
    linear, x = nf4_linear.Nf4Linear(weight, bias, "cpu", slice_rows), torch.randn(40, 192, generator=generator)
    exact = x @ weight.T + bias
    with torch.inference_mode():
        for y, wanted in ((linear(x), exact), (linear(x[:1]), exact[:1])):
            assert (y - wanted).norm() / wanted.norm() < 0.15


@pytest.mark.parametrize("path", [*native.PATHS, ""])
def test_int4_is_chosen_for_models_that_prefer_it_where_it_is_faster(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(native, "best_path", lambda: path)
    has_4_bits, is_faster = path not in ("AMX", ""), path.startswith("AVX")
    assert load_plan.pick_format("auto", "cpu", prefers_int4=True) == ("int4" if is_faster else "int8")
    for prefers_int4 in (True, False):
        assert load_plan.pick_format("int4", "cpu", prefers_int4) == ("int4" if has_4_bits else "int8")
        assert load_plan.pick_format("int8", "cpu", prefers_int4) == "int8"
    assert load_plan.pick_format("auto", "cpu") == "int8"
    assert load_plan.pick_format("auto", "cuda", prefers_int4=True) == "bf16"


def test_a_number_format_that_a_device_cannot_run_is_named():
    for number_format in ("int8", "int4"):
        with pytest.raises(WeightsError, match=f'"{number_format}" runs on a CPU only'):
            load_plan.pick_format(number_format, "cuda")


@given(cores=st.integers(1, 256), threads=st.integers(0, 64), parameters=st.sampled_from([0, 10**6, 10**9]))
def test_threads_are_a_power_of_two_of_the_cores_one_for_a_tiny_model_and_otherwise_as_set(
    cores: int, threads: int, parameters: int
):
    config = Config(engine=EngineConfig(threads=threads))
    with patch.object(process_resources, "cpus", lambda: Cpus(2 * cores, cores)):
        chosen = load_plan.cpu_threads(config, parameters)
    if threads or parameters == 10**6:
        assert chosen == (threads or 1)
    else:
        assert chosen <= cores < 2 * chosen and chosen & (chosen - 1) == 0
