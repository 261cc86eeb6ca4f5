"""Choice of the prompt order by measurement: the same 40 lines each time, and a margin that chance does not pass."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp import config
from speclsp.cli import complete, entry, terminal
from speclsp.cli.first_run import prompt_trial
from speclsp.config import Config
from speclsp.config.schema import EngineConfig
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.prompt import PromptStyle
from speclsp.engine.loading import loading, prompt_choice
from speclsp.engine.loading.prompt_choice import PromptChoice
from speclsp.weights import auto_choice, cards

TINY = cards.load("tiny")
STYLES = [PromptStyle(order, heal) for order in prompt_choice.ORDERS for heal in (True, False)]
DEFAULT = STYLES[0]
CHOICE = PromptChoice(order="spm", heal=False, exact=21, default_exact=9, places=40)


def test_the_places_are_40_lines_of_our_own_files_and_never_change_between_runs():
    places = prompt_trial.places()
    assert len(places) == len({place.request.filename for place in places}) == prompt_trial.PLACES
    assert places == prompt_trial.places()
    for place in places:
        assert place.answer and "\n" not in place.answer and place.answer == place.answer.rstrip()
        assert place.request.suffix.startswith("\n")
        assert place.request.filename.startswith("speclsp/")
    begun = [place for place in places if place.request.line_prefix.strip()]
    assert len(begun) == prompt_trial.PLACES // 2, "the other half are whole lines"


def recorded_scores(won: int, lost: int, both: int) -> dict[PromptStyle, list[bool]]:
    """Scores: suffix-first restores `won` lines that the default does not, and misses `lost` of the default's."""
    rest = [False] * (prompt_trial.PLACES - won - lost - both)
    scores = {style: [False] * prompt_trial.PLACES for style in STYLES}
    scores[DEFAULT] = [False] * won + [True] * (lost + both) + rest
    scores[PromptStyle("spm")] = [True] * won + [False] * lost + [True] * both + rest
    return scores


@pytest.mark.parametrize(
    ("won", "lost", "replaces"),
    [(0, 0, False), (3, 0, False), (6, 0, False), (7, 0, True), (9, 2, False), (12, 2, True), (20, 14, False)],
)
def test_only_a_lead_beyond_chance_replaces_the_default(won: int, lost: int, replaces: bool):
    scores = recorded_scores(won, lost, both=5)
    assert prompt_trial.choose(scores) == (PromptStyle("spm") if replaces else DEFAULT)


@given(st.lists(st.lists(st.booleans(), min_size=len(STYLES), max_size=len(STYLES)), min_size=1, max_size=40))
def test_a_chosen_style_restores_more_lines_than_the_default_and_no_fewer_than_any_other(rows: list[list[bool]]):
    scores = dict(zip(STYLES, map(list, zip(*rows, strict=True)), strict=True))
    chosen = prompt_trial.choose(scores)
    if chosen != DEFAULT:
        assert sum(scores[chosen]) >= sum(scores[DEFAULT]) + 7, "seven lines of 40 are the least that chance leaves"
        assert sum(scores[chosen]) == max(map(sum, scores.values()))


@given(st.integers(0, 30), st.integers(0, 30))
def test_the_two_tails_of_the_sign_test_are_complements(won: int, lost: int):
    assert prompt_trial.chance(won, lost) + prompt_trial.chance(lost + 1, won - 1) == pytest.approx(1) if won else True


def test_a_choice_is_kept_for_these_weights_on_this_machine():
    assert prompt_choice.recorded(TINY) is None
    assert prompt_choice.style(TINY) == PromptStyle("lines", True), "the model definition's own order"
    assert prompt_choice.style(cards.load("mellum-4b")) == PromptStyle("spm", True)
    prompt_choice.record(TINY, CHOICE)
    assert prompt_choice.recorded(TINY) == CHOICE and prompt_choice.style(TINY) == PromptStyle("spm", False)
    assert "order spm, token healing off: 21 of 40 lines exact" in prompt_trial.report(TINY)
    other = replace(TINY, target=replace(TINY.target, revision="f" * 40))
    assert prompt_choice.recorded(other) is None, "other weights under the same name"
    prompt_choice.record(other, replace(CHOICE, order="standard"))
    assert prompt_choice.recorded(TINY) == CHOICE, "one measurement does not replace another's"
    content = json.loads(prompt_choice.path().read_text())
    prompt_choice.path().write_text(json.dumps(content | {"machine": "another"}))
    assert prompt_choice.recorded(TINY) is None
    assert "not measured (`speclsp tune` measures it)" in prompt_trial.report(TINY)


@pytest.mark.parametrize("changed", [{"order": "psm"}, {"heal": "yes"}, {"places": None}, {"more": 1}])
def test_a_file_that_a_person_has_edited_counts_as_none(changed: dict[str, object]):
    prompt_choice.record(TINY, CHOICE)
    content = json.loads(prompt_choice.path().read_text())
    (key,) = content["weights"]
    content["weights"][key] |= changed
    prompt_choice.path().write_text(json.dumps(content))
    assert prompt_choice.style(TINY) == PromptStyle("lines", True)
    prompt_choice.path().write_text("[]")
    assert prompt_choice.style(TINY) == PromptStyle("lines", True)


@pytest.mark.slow
def test_the_tiny_model_is_measured_with_every_style_and_loads_with_the_choice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prompt_trial, "PLACES", 2)
    settings = Config(model="tiny", device="cpu", engine=EngineConfig(context_tokens=1024))
    with terminal.progress() as bar:
        engine, _ = complete.open_engine(settings, bar)
        assert isinstance(engine, CompletionEngine)
        own = engine.prompter
        scores = prompt_trial.measure(engine, bar)
        assert engine.prompter is own, "the engine is left as it was"
        assert list(scores) == STYLES and {len(lines) for lines in scores.values()} == {2}
        monkeypatch.setattr(prompt_trial, "PLACES", 40)
        monkeypatch.setattr(prompt_trial, "measure", lambda engine, bar: recorded_scores(won=12, lost=1, both=3))
        measured, sentence = prompt_trial.remember(engine, bar)
        assert measured and engine.prompter.style == PromptStyle("spm")
    assert "15 of 40 lines exact; the model definition's own style restores 4" in sentence
    next_start = loading.prepare(settings, TINY, lambda *_: None)
    assert next_start.prompter.style == PromptStyle("spm")
    assert auto_choice.path().parent == prompt_choice.path().parent


def test_too_few_places_in_the_time_are_no_measurement_and_the_exit_code_is_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    few = {style: [True] * (prompt_trial.MIN_PLACES - 1) for style in STYLES}
    monkeypatch.setattr(prompt_trial, "measure", lambda engine, bar: few)
    assert entry.main(["tune", "tiny", "--device", "cpu"]) == 1
    assert "Prompt:  The prompt order was not measured: 19 places took 240 s.\n" in capsys.readouterr().out
    assert prompt_choice.recorded(TINY) is None


@pytest.mark.slow
def test_tune_prints_and_records_the_order_and_leaves_config_toml_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(prompt_trial, "PLACES", 2)
    monkeypatch.setattr(prompt_trial, "MIN_PLACES", 2)
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text('model = "tiny"  # mine\n')
    assert entry.main(["tune", "--device", "cpu"]) == 0
    choice = prompt_choice.recorded(TINY)
    assert choice is not None and choice.places == 2
    assert capsys.readouterr().out.splitlines()[1].startswith(f"Prompt:  {prompt_trial.style_in_words(choice.style)}: ")
    assert path.read_text() == 'model = "tiny"  # mine\n'


def test_a_model_without_fill_in_the_middle_tokens_has_no_order_to_record(monkeypatch: pytest.MonkeyPatch):
    loaded = SimpleNamespace(card=cards.load("llama-3.2-1b"), target="llama-3.2-1b (int8)", device="cpu")
    monkeypatch.setattr(complete, "open_engine", lambda *_: (loaded, ""))
    assert entry.main(["tune", "llama-3.2-1b"]) == 1
    assert not prompt_choice.path().exists()


@pytest.mark.parametrize(("model", "error"), [("echo", '"echo" has no prompt order'), (".", "unknown model")])
def test_a_name_without_weights_to_measure_is_one_error(model: str, error: str, capsys: pytest.CaptureFixture[str]):
    assert entry.main(["tune", model]) == 2
    output = capsys.readouterr()
    assert output.out == "" and error in output.err and output.err.count("\n") == 1
