"""Replay of edits: deltaChrF, undone edits, half-typed lines, and the scenarios of cursortab.nvim."""

from __future__ import annotations

import base64
import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.editor.edit_replay import cursortab, edit_scores
from benchmarks.editor.edit_replay.edit_counts import Count
from benchmarks.editor.edit_replay.half_typed import cut_line
from benchmarks.editor.edit_replay.replayed_file import Rules
from benchmarks.editor.next_edit import replay
from benchmarks.quality.edits import Hunk
from speclsp.errors import InputError

LINES = st.lists(st.text("ab (\n".replace("\n", ""), max_size=6), max_size=5)


# ── scores ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@given(before=LINES, after=LINES)
def test_the_expected_edit_scores_100_and_every_score_is_within_0_and_100(before: list[str], after: list[str]):
    assert edit_scores.delta_chrf(before, after, after) == 100
    assert 0 <= edit_scores.delta_chrf(before, before, after) <= 100


@given(before=LINES, after=LINES)
def test_a_delta_lies_between_the_lines_that_both_texts_share(before: list[str], after: list[str]):
    changed = edit_scores.delta(before, after)
    assert changed in "\n".join(after) and edit_scores.delta(before, before) == ""


def test_no_edit_where_one_is_expected_scores_0_and_shared_n_grams_count():
    assert edit_scores.delta_chrf(["a"], ["a"], ["bcd"]) == 0
    assert 0 < edit_scores.chrf("abcx", "abcd") < 100
    assert edit_scores.chrf("abcd", "abcdefgh") < edit_scores.chrf("abcdefgh", "abcd"), "recall counts for more"


@pytest.mark.parametrize(
    ("proposed", "is_undone"),
    [(["a = 1", "b"], True), (["a = 2", "b", "c"], False), (["a = 2", "b"], False), (["b"], True)],
)
def test_an_edit_undoes_the_newest_one_if_most_of_its_lines_go_back(proposed: list[str], is_undone: bool):
    assert edit_scores.undoes(["a = 1", "b"], ["a = 2", "b"], proposed) is is_undone


def test_a_half_typed_line_ends_behind_its_cursor_as_the_old_line_does():
    typed, column = cut_line(["call(a)"], Hunk(0, 1, ("call(a, b=1)",)), random.Random(1)) or ("", 0)
    assert typed.startswith("call(a,"[:column]) and typed.endswith(")") and 6 < column < len("call(a, b=1)")


def patient() -> Rules:
    """The rules with time enough on any machine."""
    return Rules(budget_ms=10_000)


def test_counts_of_languages_add_up():
    code = "".join(f"value_{n} = lib.read(open_file, {n})\n" for n in range(6))
    counts = {"python": Count(), "rust": Count()}
    for count in counts.values():
        spread = code.replace("\n", "\n\n")
        list(replay("app.py", spread, spread.replace("open_file", "shared.file"), patient(), count))
    total = Count.sum(counts.values())
    assert total.states == 10 and total.shown == 2 * counts["rust"].shown > 0
    assert total.right == total.shown and total.undoing == 0
    assert len(total.ms) == len(counts["python"].ms) * 2
    assert total.figures()["precision"] == 1.0


# ── cursortab.nvim ───────────────────────────────────────────────────────────────────────────────────────────────────

BUFFER = ["one = lib.read(shared.file, 1)", "two = lib.read(shared.file, 2)", "three = lib.read(open_file, 3)"]
EXPECTED = [*BUFFER[:2], "three = lib.read(shared.file, 3)"]
HEAD = "A text.\nid: {name}\nlanguage: python\nfile: app.py\nrow: 2\ncol: 0\n"
HISTORY = "".join(
    f"<|file|> app.py\n<|old|>\n{line.replace('shared.file', 'open_file')}\n<|new|>\n{line}\n" for line in BUFFER[:2]
)


def text_of(*lines: str) -> str:
    return "".join(line + "\n" for line in lines)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Two scenarios: one to answer, and one with two cursors where nothing is right."""
    folder = tmp_path / "server/eval/scenarios"
    folder.mkdir(parents=True)
    (folder / "1-use.txtar").write_text(
        HEAD.format(name="use")
        + f"-- buffer.txt --\n{text_of(*BUFFER)}-- history --\n{HISTORY}-- steps --\nrequest-completion\n"
        + f"-- expected --\n{text_of(*EXPECTED)}"
    )
    quiet = HEAD.format(name="quiet") + "cursor-positions: 1:2\n"
    (folder / "2-quiet.txtar").write_text(
        f"{quiet}-- buffer.txt --\n{text_of(*BUFFER)}-- steps --\nrequest-completion\n  expect !shown\n"
    )
    published = {"score": 0.5, "deltaChrF": 50.0, "showRate": 1.0, "quietRate": 0.5}
    (tmp_path / "server/eval/baseline.json").write_text(json.dumps({"copilot": published, "zeta": published}))
    record(folder / "1-use", "copilot", {}, [{"range": span(2, 0, 2, len(BUFFER[2])), "text": EXPECTED[2]}])
    sweep = {"prompt": f"<|file_sep|>updated/app.py:2:3\n{BUFFER[1]}\n"}
    record(folder / "1-use", "sweep-next-edit-7B", sweep, {"choices": [{"text": EXPECTED[2] + "\n"}]})
    window = "\n".join([BUFFER[1], BUFFER[2].replace("lib", "<|user_cursor|>lib")])
    zeta = {"prompt": f"<<<<<<< CURRENT\n{window}\n=======\n"}
    record(folder / "1-use", "zeta-2", zeta, {"choices": [{"text": text_of(*EXPECTED[1:])}]})
    return tmp_path


def span(*places: int) -> dict[str, dict[str, int]]:
    first, start, last, end = places
    return {"start": {"line": first, "character": start}, "end": {"line": last, "character": end}}


def record(folder: Path, provider: str, request: object, response: object) -> None:
    folder.mkdir(exist_ok=True)
    bodies = {"request": request, "response": response}
    lines = [
        json.dumps({"kind": kind, "body_b64": base64.b64encode(json.dumps(body).encode()).decode()})
        for kind, body in bodies.items()
    ]
    (folder / f"{provider}.ndjson").write_text("\n".join(lines))


def test_the_history_of_a_scenario_is_made_before_the_edit_is_requested(checkout: Path):
    use, quiet = cursortab.scenarios(checkout)
    assert (use.lines, use.expected, quiet.expected) == (tuple(BUFFER), tuple(EXPECTED), ())
    assert len(use.history) == 2 and quiet.cursors == ((2, 0), (1, 2))
    assert cursortab.answer(use, use.cursors[0], patient())[0] == EXPECTED
    assert cursortab.answer(quiet, quiet.cursors[0], patient())[0] == BUFFER


def test_our_figures_are_scored_as_cursortab_scores_its_providers(checkout: Path):
    figures = cursortab.ours(cursortab.scenarios(checkout), patient)
    assert {key: figures[key] for key in ("score", "delta_chrf", "show_rate", "quiet_rate", "first_answer")} == {
        "score": 1.0,
        "delta_chrf": 100.0,
        "show_rate": 1.0,
        "quiet_rate": 1.0,
        "first_answer": [100.0, 1],
    }


@pytest.mark.parametrize("provider", ["copilot", "sweep-next-edit-7B", "zeta-2"])
def test_the_recorded_first_answer_of_each_known_format_is_read(checkout: Path, provider: str):
    assert cursortab.recorded(cursortab.scenarios(checkout)[0], provider) == EXPECTED


def test_a_provider_in_an_unknown_format_has_its_published_figures_alone(checkout: Path):
    rows = dict(cursortab.theirs(checkout, cursortab.scenarios(checkout)))
    assert rows["copilot"]["first_answer"] == [100.0, 1] and rows["zeta"]["first_answer"] is None
    assert "| copilot | 0.50 | 50.0 | 100 % | 50 % | 100.0, 1 |" in cursortab.table(rows)


def test_a_directory_without_scenarios_is_named(tmp_path: Path):
    with pytest.raises(InputError, match=r"has no server/eval/scenarios: name a checkout of cursortab\.nvim\."):
        cursortab.scenarios(tmp_path)
