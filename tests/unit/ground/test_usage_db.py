"""Usage counts: several writers add, sums equal the counts, and `speclsp stats` shows them."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.terminal import Run, runner

from speclsp import config as settings
from speclsp.errors import SpeclspError
from speclsp.observability import usage_db
from speclsp.observability.usage_db import NEXT_EDITS, Row

THIS_WEEK = usage_db.week_of(date.today())
ROWS = st.lists(
    st.builds(
        Row, st.sampled_from(("2026-W01", "2026-W02")), st.sampled_from(("tiny", "large")), *[st.integers(0, 50)] * 4
    ),
    max_size=30,
)


@given(st.lists(ROWS, max_size=4))
def test_sums_are_exact_for_any_writers_and_batches(batches: list[list[Row]]):
    expected: Counter[tuple[str, str, int]] = Counter()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "stats.db"
        for batch in batches:
            usage_db.add(path, batch)
            for week, model, *numbers in batch:
                expected.update({(week, model, column): number for column, number in enumerate(numbers)})
        rows = usage_db.read(path)
    assert rows == sorted(rows)
    sums = {(week, model, column): n for week, model, *numbers in rows for column, n in enumerate(numbers)}
    assert sums == dict(expected)


@pytest.mark.parametrize("name", ["tiny", NEXT_EDITS, "qwen2.5-coder"])
def test_a_model_name_is_stored_unless_it_may_be_a_path_or_a_text(name: str):
    others = ("/home/me/secret.gguf", "x" * 1000, "", "a\nb")
    rows = usage_db.rows_of({("2026-W01", model): {"shown": 1} for model in (name, *others)})
    assert [row.model for row in rows] == [name, *["other"] * len(others)]


def test_while_another_server_writes_too_long_there_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(usage_db, "PATIENCE_S", 0.01)
    path = tmp_path / "stats.db"
    usage_db.add(path, [Row("2026-W01", "tiny", 1)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(SpeclspError, match=r"stats\.db cannot count suggestions: database is locked"):
        usage_db.add(path, [Row("2026-W01", "tiny", 1)])
    other.close()


def test_weeks_follow_the_iso_calendar():
    assert usage_db.week_of(date(2026, 1, 1)) == "2026-W01"
    assert usage_db.week_of(date(2027, 1, 1)) == "2026-W53"
    assert usage_db.first_of(2, date(2027, 1, 5)) == "2026-W53"
    assert usage_db.first_of(1, date(2026, 11, 21)) == usage_db.week_of(date(2026, 11, 21))


# ── output ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "stats")


def test_without_counts_the_message_names_the_fix(run: Run):
    code, out, _ = run()
    assert (code, out.count("\n")) == (0, 1)
    assert "speclsp lsp" in out
    assert json.loads(run("--json")[1])["rows"] == []
    settings.config_path().parent.mkdir(parents=True, exist_ok=True)
    settings.config_path().write_text("[stats]\nenabled = false\n")
    assert "stats.enabled is false" in run()[1]


def test_the_table_and_the_json_have_the_last_twelve_weeks(run: Run):
    earlier = usage_db.week_of(date.today() - timedelta(weeks=3))
    rows = [Row(earlier, "tiny", 8, 2, 1, 40), Row(THIS_WEEK, NEXT_EDITS), Row(THIS_WEEK, "tiny", 3, 3, 0, 21)]
    older = usage_db.week_of(date.today() - timedelta(weeks=12))
    usage_db.add(settings.stats_path(), [Row(older, "tiny", 1), *rows])
    code, out, err = run()
    assert (code, err) == (0, "") and "\x1b" not in out
    assert [line.rsplit(maxsplit=5)[1:] for line in out.splitlines()[1:4]] == [
        ["8", "2", "1", "25%", "40"],
        ["0", "0", "0", "-", "0"],
        ["3", "3", "0", "100%", "21"],
    ]
    assert json.loads(run("--json")[1])["rows"] == [row._asdict() for row in rows]


def test_forget_deletes_all_counts(run: Run):
    usage_db.add(settings.stats_path(), [Row(THIS_WEEK, "tiny", 1)])
    assert run("--forget")[1].startswith("deleted")
    assert list(settings.stats_path().parent.glob("stats.db*")) == []
    assert run("--forget")[:2] == (0, "nothing to delete\n")
