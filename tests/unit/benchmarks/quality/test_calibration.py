"""Calibration of the confidence gate: the fit recovers known weights, and thresholds keep their limits."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.quality.calibration import calibration, examples, fit, thresholds
from benchmarks.quality.calibration.examples import Example, Place
from speclsp.cli import html_page
from speclsp.errors import InputError
from speclsp.lsp.completion import confidence


def made_up(count: int, weight: float = 1.5, seed: int = 3) -> list[Example]:
    """Lines whose chance of being right is that of these log-odds: 1 + `weight` x the sum of log-probabilities."""
    dice, examples = random.Random(seed), []
    for number in range(count):
        logprobs = tuple(-dice.expovariate(2.0) for _ in range(dice.randint(1, 6)))
        p = confidence.sigmoid(1.0 + weight * sum(logprobs))
        place = Place(dice.random() < 0.5, dice.random() < 0.5, dice.random() < 0.5)
        right = dice.random() < p
        thoughts = tuple((dice.randint(1, 8), logprob) for logprob in logprobs)
        made = Example(package=f"p{number % 20}", language="go", thoughts=thoughts, place=place, right=right)
        examples.append(made)
    return examples


def test_the_fit_finds_the_weights_that_made_the_data():
    table = fit.fit(made_up(4000), ("total",))
    assert table["intercept"] == pytest.approx(1.0, abs=0.25)
    assert table["total"] == pytest.approx(1.5, abs=0.25)


def test_a_weight_of_probabilities_is_never_negative():
    table = fit.fit(made_up(1000, weight=-1.0), fit.TRIED["all"])
    assert all(table.get(name, 0.0) >= 0 for name in fit.GROWS)
    assert set(table) < {"intercept", *fit.TRIED["all"]}, "those that would be are left out"


def test_confidences_of_packages_outside_the_fit_are_calibrated():
    examples = made_up(4000)
    sure = fit.crossed(examples, ("total",))  # which they are made by
    right = [example.right for example in examples]
    for one in fit.reliability(sure, right, bins=5):
        assert one["said"] == pytest.approx(one["true"], abs=0.08)
    assert fit.quality(sure, right)["area"] > 0.75
    shuffled = [*reversed(right)]
    assert abs(fit.quality(sure, shuffled)["area"] - 0.5) < 0.05


SURE = st.lists(st.tuples(st.floats(0.001, 0.999), st.booleans()), min_size=1, max_size=60)


@given(SURE, st.data())
def test_medium_hides_at_most_one_percent_of_right_suggestions_and_low_more(
    predictions: list[tuple[float, bool]], data: st.DataObject
):
    sure, right = [p for p, _ in predictions], [hit for _, hit in predictions]
    saved = data.draw(st.lists(st.integers(0, 30), min_size=len(predictions), max_size=len(predictions)))
    followed = data.draw(st.lists(st.tuples(st.floats(0, 1), st.integers(0, 30)), max_size=20))
    wanted = thresholds.thresholds(sure, right, saved, followed)
    assert 0 == wanted["high"] <= wanted["medium"] < wanted["low"] < 1
    hidden = [(hit, one) for (p, hit), one in zip(predictions, saved, strict=True) if p < wanted["medium"]]
    assert sum(hit for hit, _ in hidden) <= thresholds.MOST_LOST * sum(right)
    assert sum(one for _, one in hidden) <= thresholds.MOST_SAVED_LOST * sum(saved)
    assert wanted["medium"] <= thresholds.WRONG / (1 + thresholds.WRONG)
    lost = sum(keys for p, keys in followed if p < wanted["medium"])
    assert lost <= thresholds.MOST_TYPED_LOST * sum(keys for _, keys in followed)


@given(SURE, st.floats(0, 1), st.floats(0, 1))
def test_a_higher_threshold_shows_no_more(predictions: list[tuple[float, bool]], one: float, other: float):
    sure, right = [p for p, _ in predictions], [hit for _, hit in predictions]
    low, high = (thresholds.at_threshold(sure, right, bar, len(predictions)) for bar in sorted((one, other)))
    assert high["shown"] <= low["shown"] <= 1
    if any(right):
        assert high["right_kept"] <= low["right_kept"]


def rows(path: Path, count: int = 400) -> Path:
    """Rows in the format of `python -m benchmarks quality`: the model's output and its score."""
    lines = []
    for number, one in enumerate(made_up(count)):
        output = "x" * sum(characters for characters, _ in one.thoughts) + ("\n    y" if number % 4 == 0 else "")
        logprobs = [*(thought for _, thought in one.thoughts), *[-1.0] * (2 if number % 4 == 0 else 0)]
        row = {
            "task": str(number),
            "judged": {"shown": number % 10 != 3, "exact": one.right and number % 10 != 3, "saved": 5 * one.right},
            "said": output, "text": output, "written": output, "logprobs": logprobs,
            "characters": [size for size, _ in one.thoughts] + [5, 1] * (number % 4 == 0),
            "package": one.package, "language": one.language, "line": "    ", "rest": "",
        }  # fmt: skip
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.slow
def test_rows_become_figures_a_table_and_words(tmp_path: Path):
    found = examples.read(rows(tmp_path / "full.jsonl"))
    assert (found.tasks, len(found.examples)) == (400, 360)
    assert found.exact == sum(example.right for example in found.examples)
    assert all(len(example.later) == len(example.later_right) <= 1 for example in found.examples)
    figures = calibration.figures(found)
    assert figures["at"]["high"]["shown"] == pytest.approx(0.9)
    assert figures["at"]["medium"]["right_kept"] >= 0.99
    assert [one["shown"] for one in figures["curve"]] == sorted(
        (one["shown"] for one in figures["curve"]), reverse=True
    )
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    curves = eval(
        "{" + calibration.source(figures, "tiny", "quick") + "}", {"Curve": confidence.Curve}
    )  # as in the source
    assert curves["tiny"].weights == figures["weights"] and curves["tiny"].wanted == figures["wanted"]
    assert "medium" in calibration.in_words(figures)
    assert html_page.draw(lambda figure: calibration.draw(figure, figures), (9, 4), "light").startswith(b"\x89PNG")


def test_replayed_typing_counts_only_for_its_own_weights(tmp_path: Path):
    found = examples.read(rows(tmp_path / "full.jsonl"))
    alone = calibration.figures(found)
    file = tmp_path / "keystrokes-high-tiny.json"
    assert examples.Typing.read(file) is None
    followed = [[0.0015, 9], [0.9, 1], [0.9, 0]]
    for weights, known in ((alone["weights"], True), ({"intercept": 1.0}, False)):
        file.write_text(json.dumps({"confidence": {"weights": weights, "followed": followed}}))
        figures = calibration.figures(found, examples.Typing.read(file))
        assert (figures["typed_along"] is not None) is known
        assert ("not known for these weights" in calibration.in_words(figures)) is not known
        assert figures["wanted"]["medium"] == (0.001 if known else alone["wanted"]["medium"])
    file.write_text(json.dumps({"confidence": {"weights": alone["weights"], "followed": followed}}))
    along = calibration.figures(found, examples.Typing.read(file))["typed_along"]
    assert along["medium"] == {
        "suggestions": 3, "hidden": 0.0, "keys": 10, "keys_lost": 0.0, "hidden_and_never_typed": 0.0,
    }  # fmt: skip
    assert along["low"]["keys_lost"] == 0.9 and along["low"]["hidden"] == 0.3333


def test_missing_rows_are_reported_with_the_command_to_run(tmp_path: Path):
    with pytest.raises(InputError, match="python -m benchmarks quality"):
        examples.read(tmp_path / "full.jsonl")


def test_the_gate_uses_only_features_of_the_fit():
    for curve in confidence.CURVES.values():
        assert set(curve.weights) <= {"intercept", *fit.USED}
    assert set(fit.TRIED["all"]) < set(fit.features([(1, -1.0)], Place()))
