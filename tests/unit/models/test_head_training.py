"""Draft heads from the first prompt to the engine: answers with states, training, file, use and judge."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from support.engine.random_models import NATIVE

from models.training.draft_head import features, judge, text_files, train
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.engine.model.int8.draft_head import STATES
from speclsp.errors import InputError
from speclsp.weights import cards

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not NATIVE, reason="heads run in forward.c"),
]
CODE = "class Stack:\n    def __init__(self):\n        self._items = []\n\n    def push(self, item):\n        "


def load(head: str = "") -> CompletionEngine:
    options = EngineConfig(context_tokens=512, threads=1, quantization="int8", draft=False, head=head)
    return loading.load(Config(model="tiny", engine=options), cards.load("tiny"))


@pytest.fixture(scope="module")
def engine() -> CompletionEngine:
    return load()


@pytest.fixture(scope="module")
def rows(engine: CompletionEngine) -> list[dict[str, Any]]:
    """Two held-out examples, then ten to learn from."""
    own = []
    for number in range(12):
        request = Request(prefix=CODE[: 40 + 4 * number], line_prefix="", suffix="\n", max_tokens=8)
        prompt, split = engine.prompter.build(request).ids, "held-out" if number < 2 else "train"
        own.append({"split": split, "package": "p", "prompt": prompt, "answer": [5, 6], "weights": [0.0, 1.0]})
    return own


def stored(work: Path) -> list[Any]:
    return [pair for path in text_files.files(work) for pair in text_files.read(path)]


def test_texts_go_on_after_the_last_whole_file(
    engine: CompletionEngine, rows: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The target's own greedy answer follows the prompt and its half word; each token but the last has its states."""
    monkeypatch.setattr(features, "FILE_TOKENS", 200)
    features.make(engine, rows, tmp_path / "whole", 10**6, "sum")
    features.make(engine, rows, tmp_path / "parts", 250, "sum")
    assert 0 < len(text_files.files(tmp_path / "parts")) < len(text_files.files(tmp_path / "whole"))
    features.make(engine, rows, tmp_path / "parts", 10**6, "sum")
    whole, parts = stored(tmp_path / "whole"), stored(tmp_path / "parts")
    assert len(whole) == len(parts) == len(rows)
    for (text, own), (other, _), row in zip(whole, parts, rows, strict=True):
        assert (text.ids, own["split"]) == (other.ids, row["split"]) and torch.equal(text.states, other.states)
        assert text.ids[: text.prompt] == [*row["prompt"], 5]
        assert len(text.ids) - len(text.states) in (0, 1)
        assert text.states.shape[1] == STATES * engine.target_decoder.shape.hidden
    assert sum(len(text.ids) > text.prompt for text, _ in whole) > len(rows) // 2, "an answer may be empty"
    with pytest.raises(InputError, match="of other data, or of another target"):
        features.make(engine, rows, tmp_path / "parts", 10**6, "another sum")


def test_a_trained_head_is_used_by_the_engine_and_changes_no_text(
    engine: CompletionEngine, rows: list[dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    data, head = tmp_path / "examples.jsonl", tmp_path / "mine.safetensors"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    features.make(engine, rows, tmp_path / "work", 10**6, "sum")
    words = ["--model", "tiny", "--data", str(data), "--features", str(tmp_path / "work"), "--steps", "6"]
    words += ["--work", str(tmp_path / "state"), "--inner", "160", "--vocabulary", "64", "--export", str(head)]
    assert train.main([*words, "--minutes", "0"]) == 3, "a part is left"
    assert train.main(words) == 0
    line = json.loads((tmp_path / "state" / "log.jsonl").read_text().splitlines()[-1])
    assert line["step"] == 6 and len(line["held_out"]) == train.GUESSES
    assert load_file(head)["fuse"].dtype == torch.uint8, "4 bits"
    with_head = load(str(head))
    assert with_head.head_problem == "" and "head mine" in with_head.target
    for number in range(3):
        texts = []
        for one_engine in (with_head, engine):
            request = Request(prefix=CODE[: 60 + number], line_prefix="", suffix="\n", max_tokens=24, gamma=3)
            completion = one_engine.complete(request, threading.Event())
            list(completion)
            texts.append(completion.result.text)
        assert texts[0] == texts[1]
    figures = judge.judged(with_head, rows[:2])
    assert set(figures["by_language"]["all"]) == {"places", *judge.WAYS}
    capsys.readouterr()


@given(st.lists(st.lists(st.integers(0, 99), max_size=30), max_size=5), st.sampled_from([64, 70, 1000]))
def test_a_vocabulary_has_the_common_tokens_and_a_number_that_the_kernels_take(texts: list[list[int]], count: int):
    rows = [{"split": "train", "package": "p", "prompt": text, "answer": []} for text in texts]
    tokens = train.common_tokens(rows, count, vocab=100).tolist()
    assert tokens == sorted(set(tokens)) and len(tokens) == {64: 64, 70: 64, 1000: 96}[count]
    used = {token for text in texts for token in text}
    assert used <= set(tokens) or len(used) > len(tokens)
    assert len(used) > len(tokens) or set(tokens) - used <= set(range(len(tokens)))


def test_a_model_without_hidden_states_makes_no_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    data = tmp_path / "examples.jsonl"
    data.write_text("")
    assert features.main(["--model", "tiny", "--data", str(data), "--work", str(tmp_path)]) == 1
    assert "does not run in forward.c, which alone gives hidden states" in capsys.readouterr().err
    assert train.main(["--features", str(tmp_path / "none"), "--work", str(tmp_path), "--steps", "1"]) == 1
    assert "`python -m models.training.draft_head.features` makes them" in capsys.readouterr().err
