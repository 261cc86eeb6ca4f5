"""Low-rank adapters: they start as nothing, learn in their layers only, stop and go on exactly, and become a file."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from models.training import adapter_file, learning, lora, training_state
from models.training.adapter_file import AdapterFacts
from models.training.learning import Diverged, Example, Learner
from models.training.lora import LoraShape
from speclsp.errors import WeightsError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TINY = Path(__file__).parents[3] / "models" / "tiny" / "target"
SHAPE = LoraShape(rank=4, scale=2.0, first_layer=2)
FACTS = AdapterFacts(name="test", rank=4, scale=2.0, weights_sha256="0" * 64)
IDS = torch.arange(5, 45)[None]

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def tiny() -> PreTrainedModel:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(TINY, dtype=torch.float32).eval()


def learner(rate: float = 1e-2, workers: int = 1, row_tokens: int = 0, dtype: torch.dtype = torch.float32) -> Learner:
    model = tiny().to(dtype)
    return Learner(model, lora.attach(model, SHAPE), rate, workers=workers, row_tokens=row_tokens)


def example(seed: int) -> Example:
    draw = random.Random(seed)
    prompt, answer = (draw.sample(range(2000), count) for count in (20, 6))
    return Example(prompt, answer, [0.0, 1.0, 4.0, 1.0, 1.0, 1.0])


def train(one: Learner, first: int, last: int) -> list[float]:
    return [one.step([example(2 * n), example(2 * n + 1)], n / 10) for n in range(first, last)]


def tensors(one: Learner) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in one.tensors.items()}


def test_an_adapter_starts_as_the_model_itself_and_has_pefts_names():
    model = tiny()
    expected = model(IDS).logits
    adapter = lora.attach(model, SHAPE)
    assert torch.equal(model(IDS).logits, expected)
    layers = range(SHAPE.first_layer, len(model.model.layers))
    assert len(adapter) == 7 * len(layers)
    b = lora.parameters(adapter)["base_model.model.model.layers.2.mlp.down_proj.lora_B.weight"]
    assert b.shape == (model.config.hidden_size, SHAPE.rank)
    assert all(f".layers.{n}." in " ".join(adapter) for n in layers) and ".layers.1." not in " ".join(adapter)


def test_the_loss_is_the_weighted_cross_entropy_of_the_answer():
    model, one = tiny(), example(1)
    ids = torch.tensor([[*one.prompt, *one.answer]])
    losses = F.cross_entropy(model(ids).logits[0, len(one.prompt) - 1 : -1], torch.tensor(one.answer), reduction="none")
    weights = torch.tensor(one.weights)
    expected = float(((losses * weights).sum() / weights.sum()).detach())
    assert float(learning.loss_of(model, one).detach()) == pytest.approx(expected, rel=1e-5)


def test_training_changes_the_adapter_only_and_merging_gives_the_same_model():
    one = learner()
    frozen = {name: weight.clone() for name, weight in one.model.named_parameters() if not weight.requires_grad}
    losses = [one.step([example(0)], 0.0) for _ in range(12)]
    assert losses[-1] < losses[0] - 0.5
    assert all(torch.equal(weight, frozen[name]) for name, weight in one.model.named_parameters() if name in frozen)
    adapted = one.model(IDS).logits
    adapter = dict(named_adapter(one))
    lora.merge(one.model, adapter)
    assert not any(isinstance(module, lora.LoraLinear) for module in one.model.modules())
    assert torch.allclose(one.model(IDS).logits, adapted, atol=1e-3)
    assert not torch.allclose(tiny()(IDS).logits, adapted, atol=1e-1)


def named_adapter(one: Learner):
    for name, module in one.model.named_modules():
        if isinstance(module, lora.LoraLinear):
            yield f"base_model.model.{name}", module


# ── packed rows ──────────────────────────────────────────────────────────────────────────────────────────────────────


def uneven(seed: int, sizes: Sequence[tuple[int, int]]) -> list[Example]:
    """Examples with these numbers of tokens in prompt and answer."""
    draw = random.Random(seed)
    return [
        Example(draw.choices(range(2000), k=prompt), draw.choices(range(2000), k=answer), [0.0, *[1.0] * (answer - 1)])
        for prompt, answer in sizes
    ]


SIZES = st.lists(st.tuples(st.integers(1, 40), st.integers(2, 20)), min_size=2, max_size=5)


@settings(max_examples=15)
@given(SIZES, st.integers(0, 99))
def test_a_packed_row_has_the_losses_and_the_gradient_of_its_examples_one_by_one(
    sizes: list[tuple[int, int]], seed: int
):
    """To a relative 1e-5 in float32: sums have another order."""
    trainer = learner()
    for tensor in trainer.tensors.values():  # B begins at zero, and A would have no gradient
        tensor.data.normal_(std=0.02, generator=torch.Generator().manual_seed(seed))
    examples, tensors = uneven(seed, sizes), list(trainer.tensors.values())
    alone = torch.stack([learning.loss_of(trainer.model, each) for each in examples])
    expected = torch.autograd.grad(alone.sum(), tensors)
    packed = learning.losses_of(trainer.model, examples)
    assert torch.allclose(packed, alone, rtol=1e-5)
    for ours, theirs in zip(torch.autograd.grad(packed.sum(), tensors), expected, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(theirs.norm()) + 1e-9


def test_a_state_is_never_half_written_and_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    one, path = learner(), tmp_path / "state"
    training_state.save(one, path, {}, 0.0)
    before = path.read_bytes()

    def no_space(_data: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(training_state.private_files.os, "fsync", no_space)
    with pytest.raises(WeightsError, match="the disk is full"):
        training_state.save(one, path, {"later": 1}, 0.0)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
    other = Learner(one.model, lora.attach(tiny(), LoraShape(rank=2)), 1e-3)
    with pytest.raises(WeightsError, match="another shape"):
        training_state.restore(other, path, {})
    path.write_bytes(before[:100])
    with pytest.raises(WeightsError, match="no training state"):
        training_state.restore(one, path, {})


def test_a_loss_that_is_no_number_ends_the_training_before_its_step():
    one = learner()
    train(one, 0, 2)
    next(iter(one.tensors.values())).data[0, 0] = float("nan")
    before = tensors(one)
    with pytest.raises(Diverged, match="step 3 has a loss of nan"):
        train(one, 2, 3)
    assert one.step_count == 2
    assert all(torch.equal(tensor.nan_to_num(), before[name].nan_to_num()) for name, tensor in one.tensors.items())


@given(st.integers(1, 5), st.integers(1, 40), st.floats(1e-6, 1e3), st.integers(0, 99))
def test_int8_keeps_each_value_within_half_a_step_of_its_row(rows: int, columns: int, size: float, seed: int):
    values = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    values[0] = 0
    steps, scale = adapter_file.quantized(values)
    assert steps.dtype == torch.int8 and scale.shape == (rows,)
    assert bool(((steps * scale[:, None] - values).abs() <= scale[:, None] * 0.5001).all())


def test_a_file_holds_int8_matrices_their_scales_and_the_facts(tmp_path: Path):
    one = learner()
    train(one, 0, 2)
    size = adapter_file.write(tensors(one), FACTS, tmp_path / "a" / "test.safetensors")
    assert size == (tmp_path / "a" / "test.safetensors").stat().st_size
    with safe_open(tmp_path / "a" / "test.safetensors", "pt") as file:
        assert file.metadata() == {
            "format": "speclsp-lora-1", "rank": "4", "scale": "2.0", "weights_sha256": "0" * 64,
        }  # fmt: skip
        assert set(file.keys()) == {name + end for name in one.tensors for end in ("", ".scale")}
        for name, tensor in one.tensors.items():
            restored = file.get_tensor(name).float() * file.get_tensor(f"{name}.scale")[:, None]
            assert float((restored - tensor.detach()).abs().max()) <= float(tensor.detach().abs().max()) / 250


def test_a_file_that_no_loader_could_take_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "test.safetensors"
    with pytest.raises(WeightsError, match="x of adapter test holds a value that is not a number"):
        adapter_file.write({"x": torch.tensor([[float("inf")]])}, FACTS, path)
    with pytest.raises(WeightsError, match="the most are 8000000"):
        adapter_file.write({"x": torch.zeros(2, 4_000_001)}, FACTS, path)
    assert not path.exists()
    assert json.loads(json.dumps(FACTS.metadata())) == FACTS.metadata()
