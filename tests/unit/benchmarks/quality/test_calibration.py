"""Calibration of the confidence gate: the fit recovers known weights, and judges packages that it was not fit to."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import Keyboard
from benchmarks.keystrokes.economy.recording import Recording
from benchmarks.quality.calibration import calibration, fit
from benchmarks.quality.calibration.examples import Example
from speclsp.errors import InputError
from speclsp.lsp.completion import confidence


def made_up(count: int, weight: float = 1.5, seed: int = 3) -> list[Example]:
    """Lines whose chance of being right is that of these log-odds: 1 + `weight` x the log-probability."""
    dice, examples = random.Random(seed), []
    for number in range(count):
        total = -sum(dice.expovariate(2.0) for _ in range(dice.randint(1, 6)))
        right = dice.random() < confidence.sigmoid(1.0 + weight * total)
        examples.append(Example(package=f"p{number % 20}", language="go", total=total, right=right))
    return examples


def test_the_fit_finds_the_weights_that_made_the_data():
    table = fit.fit(made_up(4000))
    assert table["intercept"] == pytest.approx(1.0, abs=0.25)
    assert table["total"] == pytest.approx(1.5, abs=0.25)


def test_confidences_of_packages_outside_the_fit_are_calibrated():
    examples = made_up(4000)
    sure = fit.crossed(examples)
    right = [example.right for example in examples]
    for one in fit.reliability(sure, right, bins=5):
        assert one["said"] == pytest.approx(one["true"], abs=0.08)
    assert fit.quality(sure, right)["area"] > 0.75
    shuffled = [*reversed(right)]
    assert abs(fit.quality(sure, shuffled)["area"] - 0.5) < 0.05


TEXT = "\n    first(line)\n    second(line)\n    third(line)"


def candidate(rest: str, dice: random.Random) -> dict[str, Any]:
    """A row for the rest of a text: its next lines, each of them right by the chance of its log-probability."""
    logprobs = [-dice.expovariate(1.5) for _ in rest.split("\n")]
    right = [dice.random() < confidence.sigmoid(1 + 2 * logprob) for logprob in logprobs]
    written = [
        line if hit or not line.strip() else f"{line}?" for line, hit in zip(rest.split("\n"), right, strict=True)
    ]
    text = "\n".join(written)
    ends = [line.end for line in confidence.lines(text, [])]
    place = {"kind": "code", "line": "    ", "above": [], "opens": False, "typed": 0}
    return place | {"text": text, "lines": [[end, [p], end] for end, p in zip(ends, logprobs, strict=False)]}


def recordings(bodies: int) -> list[Recording]:
    """Recordings with several lines at each position."""
    dice, result = random.Random(5), []
    for number in range(bodies):
        body = Body(
            id=f"b{number}", package=f"p{number}", root="/", path="a.py", language="python", group="python",
            above="def f():", text=TEXT, below="\n", open_paths=(),
        )  # fmt: skip
        rows = [candidate(TEXT[end:], dice) for end in Keyboard.of(TEXT).ends]
        result.append(Recording(body, tuple(rows), 1.0))
    return result


@pytest.mark.slow
def test_recordings_become_weights_figures_and_words():
    figures = calibration.calibrate(recordings(12))
    assert figures["bodies"] == figures["packages"] == 12
    assert figures["first"]["total"] > 0 < figures["later"]["total"]
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures
    curves = eval("{" + calibration.source(figures, "tiny") + "}", {"Curve": confidence.Curve})  # as in the source
    assert curves["tiny"].first == figures["first"] and curves["tiny"].later == figures["later"]


def test_too_few_lines_are_reported():
    with pytest.raises(InputError, match="more bodies"):
        calibration.calibrate([])
