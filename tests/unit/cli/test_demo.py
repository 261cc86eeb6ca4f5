"""Demo: plain and speculative runs in turn, compared by token ids, and the numbers computed from them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator

import pytest

from speclsp.cli import measure
from speclsp.cli.complete import answers, own_model, positions
from speclsp.cli.first_run import demo
from speclsp.config import Config
from speclsp.engine.api import Piece, Request, Result
from speclsp.errors import InputError

ANSWER = "if key not in self.values:\n            return default\n        return float(self.values[key])\n"


class Scripted:
    """Completer that generates ANSWER, one character per token. A speculative round yields up to four tokens."""

    model, target, draft, device = "scripted", "scripted (fp32)", "", "paper"

    def __init__(self, says: str = ANSWER, says_when_drafting: str | None = None, ms: float = 10.0) -> None:
        self.says = {False: says, True: says if says_when_drafting is None else says_when_drafting}
        self.ms = ms
        self.requests: list[Request] = []

    def complete(self, request: Request, cancel: threading.Event) -> ScriptedCompletion:
        self.requests.append(request)
        return ScriptedCompletion(self, request)


class ScriptedCompletion:
    def __init__(self, completer: Scripted, request: Request) -> None:
        self.completer, self.request = completer, request
        self.result = Result(prompt_tokens=7, prompt_ms=100.0, ttft_ms=110.0)

    def __iter__(self) -> Iterator[Piece]:
        text = self.completer.says[self.request.speculate][: self.request.max_tokens]
        width = 4 if self.request.speculate else 1
        result = self.result
        for start in range(0, len(text), width):
            part = text[start : start + width]
            tokens = tuple(map(ord, part))
            result.tokens += tokens
            result.text += part
            result.rounds += 1
            result.decode_ms += self.completer.ms
            drafted = width if width > 1 else 0
            result.drafted += drafted
            result.accepted += len(part) - 1
            yield Piece(
                text=part,
                tokens=tokens,
                source="ngram" if drafted else "",
                drafted=drafted,
                accepted=len(part) - 1,
                ms=self.completer.ms,
            )


def test_runs_alternate_from_a_cold_prompt_and_the_numbers_are_computed_from_them():
    completer = Scripted()
    results = measure.compare(completer, Request(prefix="x", max_tokens=64), repeats=3, tokens=20)
    assert [request.speculate for request in completer.requests] == [False, True, True, False, False, True]
    assert all(not request.cache_prompt and request.max_tokens == 20 for request in completer.requests)
    assert len({request.session for request in completer.requests}) == 6
    numbers = measure.facts(results)
    plain, fast = numbers["plain"], numbers["speculative"]
    assert (numbers["identical"], numbers["new_tokens"], numbers["repeats"]) == (True, 20, 3)
    assert (plain["rounds"], fast["rounds"], fast["drafted_tokens"], fast["accepted_tokens"]) == (20, 5, 20, 15)
    assert (fast["tokens_per_round"], fast["ms_per_token"], plain["ms_per_token"]) == (4.0, 2.5, 10.0)
    assert (fast["decode_ms"], plain["decode_ms"], numbers["decode_speed_up"]) == (50.0, 200.0, 4.0)
    assert (fast["total_ms"], plain["total_ms"], numbers["total_speed_up"]) == (150.0, 300.0, 2.0)


@pytest.mark.parametrize(("tokens", "identical"), [(20, False), (10, True)])
def test_a_single_different_token_is_detected(tokens: int, identical: bool):
    changed = ANSWER[:10] + "!" + ANSWER[11:]
    results = measure.compare(Scripted(says_when_drafting=changed), Request(), repeats=1, tokens=tokens)
    assert measure.facts(results)["identical"] is identical


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    completer = Scripted()
    monkeypatch.setattr(own_model, "open_engine", lambda config, bar: (completer, "as asked"))
    return completer


def test_the_demo_shows_the_code_then_the_comparison_and_ends_with_json(
    scripted: Scripted, capsys: pytest.CaptureFixture[str]
):
    assert demo.main(Config(), repeats=1) == 0
    out = capsys.readouterr().out
    *shown, last = out.splitlines()
    numbers = json.loads(last)
    assert numbers["identical"] is True
    assert numbers["suggestion"].startswith("if key not in self.values:")
    assert {"target", "draft", "device", "prompt_tokens", "new_tokens", "plain", "speculative"} <= set(numbers)
    page = "\n".join(shown)
    assert '          """A setting as a number."""\n|         if key not in self.values:' in page
    assert "# <cursor>" not in page
    assert "text and tokens: identical" in page
    assert re.search(r"speed-up: decoding 3\.\d\d x", page)


def test_the_demo_fails_when_the_texts_differ(scripted: Scripted, capsys: pytest.CaptureFixture[str]):
    scripted.says[True] = ANSWER.replace("values", "Values")
    assert demo.main(Config(), repeats=1) == 1
    out = capsys.readouterr().out
    assert "DIFFERENT" in out
    assert json.loads(out.splitlines()[-1])["identical"] is False


def test_an_empty_suggestion_is_an_error_and_no_division_by_zero(scripted: Scripted):
    scripted.says = {False: "", True: ""}
    with pytest.raises(InputError, match="scripted suggests nothing at the mark"):
        demo.main(Config(), repeats=1)


def test_every_example_has_a_mark_and_can_be_completed(scripted: Scripted):
    files = sorted(demo.EXAMPLES.glob("*.py"))
    assert len(files) >= 3
    for path in files:
        assert isinstance(answers.prepare(positions.at_mark(path, 10**6), Config()), answers.CompletionPoint), path
