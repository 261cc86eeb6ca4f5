"""The trainer: it can be killed at any step and ends as if it had not been, and its adapter has a card."""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.source_tree import ROOT

from models.training import export, lora, train
from models.training.learning import Learner
from models.training.lora import LoraShape
from speclsp.errors import InputError
from speclsp.weights.adapters import read_file, sum_of_weights

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TINY = ROOT / "models" / "tiny" / "target"
SHAPE = LoraShape(rank=4, scale=2.0, first_layer=2)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


class Killed(BaseException):
    """The process dies here: nothing after it runs."""


def examples() -> list[dict[str, object]]:
    draw = random.Random(3)
    rows = []
    for number in range(40):
        prompt, answer = (draw.sample(range(2000), count) for count in (12, 5))
        split = "held-out" if number % 8 == 0 else "train"
        kind = "line" if number % 2 else "function"
        rows.append({"split": split, "kind": kind, "prompt": prompt, "answer": answer, "weights": [1.0] * 5})
    return rows


def training(
    work: Path,
    steps: int = 6,
    seed: int = 0,
    skipped: int = 0,
    held_out: int = 32,
    step_examples: int = train.STEP_EXAMPLES,
) -> train.Training:
    model = train.read_model(TINY, "cpu")
    plan = train.Plan(
        data_sha256="0" * 64, weights="tiny", rank=4, scale=2.0, first_layer=2, peak_rate=1e-2, steps=steps,
        budget_s=0.0, seed=seed, skipped=skipped, step_examples=step_examples,
    )  # fmt: skip
    work.mkdir(exist_ok=True)
    return train.Training(Learner(model, lora.attach(model, SHAPE), 1e-2), examples(), plan, work, held_out)


def log_of(work: Path) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in (work / "log.jsonl").read_text("utf-8").splitlines()]
    return [{key: line[key] for key in ("step", "loss", "tokens", "held_out_loss") if key in line} for line in lines]


def test_a_killed_training_ends_as_one_that_was_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert training(tmp_path / "whole").run(1e9)
    monkeypatch.setattr(train, "SAVE_EVERY_S", 0.0)  # a state after each step
    killed = training(tmp_path / "killed")
    save = train.training_state.save

    def save_until_the_third(learner: Learner, *words: object) -> None:
        if learner.step_count == 3:
            raise Killed
        save(learner, *words)

    monkeypatch.setattr(train.training_state, "save", save_until_the_third)
    with pytest.raises(Killed):
        killed.run(1e9)
    monkeypatch.setattr(train.training_state, "save", save)
    with (tmp_path / "killed" / "log.jsonl").open("a") as log:
        log.write('{"step": 4, "lo')  # the log's last line is half written
    again = training(tmp_path / "killed")
    assert again.learner.step_count == 2 and [line["step"] for line in log_of(tmp_path / "killed")] == [1, 2]
    assert not again.run(0.0)  # no time: nothing is done, nothing is lost
    assert again.run(1e9)
    assert log_of(tmp_path / "killed") == log_of(tmp_path / "whole")
    whole = training(tmp_path / "whole").learner.tensors
    assert all(torch.equal(tensor, whole[name]) for name, tensor in again.learner.tensors.items())
    assert log_of(tmp_path / "whole")[-1]["held_out_loss"] > 0


def test_a_state_of_another_training_is_refused(tmp_path: Path):
    training(tmp_path / "work", steps=6)
    with pytest.raises(InputError, match=r"belongs to another training \(steps, seed differ\)"):
        training(tmp_path / "work", steps=7, seed=1)


@given(st.lists(st.integers(1, 900), min_size=8, max_size=200), st.integers(0, 3))
def test_every_example_is_seen_once_before_any_is_seen_again(lengths: list[int], seed: int):
    steps = train.order(lengths, seed)
    first, second = ([next(steps) for _ in range(len(lengths) // 8)] for _ in range(2))
    for epoch in (first, second):
        seen = [number for step in epoch for number in step]
        assert len(set(seen)) == len(seen) == len(lengths) // 8 * 8
    assert [step for step, _ in zip(train.order(lengths, seed), first, strict=False)] == first


def test_an_adapter_is_exported_with_a_card_that_names_its_weights(tmp_path: Path):
    training(tmp_path / "work", steps=1).run(1e9)
    file = export.export("tiny-test", tmp_path / "work", tmp_path / "adapters", directory=TINY)
    card = tomllib.loads((tmp_path / "adapters" / "tiny-test.toml").read_text("utf-8"))
    assert card.pop("data")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert card == {"weights": "tiny", "sha256": digest, "licence": "Apache-2.0"}
    assert read_file(file).weights_sha256 == sum_of_weights(TINY)
    with pytest.raises(InputError, match="no name of an adapter"):
        export.export("../x", tmp_path / "work", tmp_path, directory=TINY)
    with pytest.raises(InputError, match="no training state"):
        export.export("x", tmp_path / "nothing", tmp_path, directory=TINY)


def test_an_adapter_is_trained_further_on_the_examples_after_those_it_has_seen(tmp_path: Path):
    first = training(tmp_path / "first", steps=2)
    first.run(1e9)
    file = export.export("first", tmp_path / "first", tmp_path / "adapters", directory=TINY)
    second = training(tmp_path / "second", skipped=16)
    assert [example.prompt for example in second.learned] == [example.prompt for example in first.learned[16:]]
    assert (
        train.start(second.learner, file, SHAPE, sum_of_weights(TINY)) == hashlib.sha256(file.read_bytes()).hexdigest()
    )
    for name, tensor in second.learner.tensors.items():
        rounding = first.learner.tensors[name].abs().amax(dim=1, keepdim=True) / 254 + 1e-9  # half a step of int8
        assert ((tensor - first.learner.tensors[name]).abs() <= rounding * 1.001).all()
