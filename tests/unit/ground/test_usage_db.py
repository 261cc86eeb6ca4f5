"""Usage counts: several writers add, no writable count is lost, and sums equal the counts."""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cli.terminal import Run, runner

from speclsp import config as settings
from speclsp.observability import usage_db
from speclsp.observability.metrics import BUCKETS_MS
from speclsp.observability.usage_db import SLOWER, Figures, Row, Tally

SHOWN = {"shown": 1, "accepted": 1, "accepted_characters": 12}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "speclsp" / "stats.db"


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(logging.getLogger("speclsp"), "propagate", True)
    return caplog


def kept(path: Path) -> Counter[tuple[str, str, str, str]]:
    return Counter({(week, language, model, name): n for week, language, model, name, n in usage_db.read(path)})


def total(path: Path, name: str = "shown") -> int:
    return usage_db.summed(usage_db.read(path)).whole[name]


# ── storing ────────────────────────────────────────────────────────────────────────────────────────────────────────

KEY = st.tuples(
    st.sampled_from(["2026-W01", "2026-W02"]), st.sampled_from(["python", "lua"]), st.just("p"), st.sampled_from("abc")
)
ROWS = st.lists(st.tuples(KEY, st.integers(-5, 50)), max_size=30)


@given(st.lists(ROWS, max_size=4))
def test_sums_are_exact_for_any_writers_and_batches(batches: list[list[tuple[tuple[str, ...], int]]]):
    expected: Counter[tuple[str, ...]] = Counter()
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "stats.db"
        for batch in batches:
            assert usage_db.write(path, [(*key, n) for key, n in batch]) == ""
            for key, n in batch:
                expected[key] += n
        sums = kept(path)
    assert {key: n for key, n in sums.items() if n} == {key: n for key, n in expected.items() if n}


def test_closing_writes_pending_counts_and_ignores_later_ones(path: Path):
    tally = Tally(path, write_every_s=3600)
    tally.add("python", "tiny", SHOWN)
    tally.close(wait_s=60)
    tally.add("python", "tiny", SHOWN)
    assert total(path) == 1


def test_without_counts_no_file_and_no_thread_is_created(path: Path):
    threads = threading.active_count()
    tally = Tally(path)
    assert threading.active_count() == threads
    tally.close()
    assert not path.parent.exists()


def test_unknown_names_from_an_editor_are_not_stored(path: Path):
    tally = Tally(path)
    for language in ("python", "objective-c++", "/home/me/secret.py", "a b", "x" * 1000, ""):
        tally.add(language, "tiny", {"shown": 1})
    tally.close(wait_s=60)
    assert set(usage_db.summed(usage_db.read(path)).languages) == {"python", "objective-c++", "other"}


def test_while_the_file_is_locked_counts_wait_and_one_line_is_logged(
    path: Path, log: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(usage_db, "PATIENCE_S", 0.01)
    usage_db.write(path, [("2026-W01", "python", "tiny", "shown", 1)])
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    tally = Tally(path, write_every_s=0.01)
    for _ in range(5):
        tally.add("python", "tiny", SHOWN)
        time.sleep(0.05)
    until = time.monotonic() + 30
    while "locked" not in log.text and time.monotonic() < until:
        time.sleep(0.01)
    other.execute("ROLLBACK")
    other.close()
    tally.close(wait_s=60)
    assert total(path) == 6
    assert log.text.count("cannot count") == 1


def test_a_file_that_another_server_has_replaced_is_not_moved_aside(path: Path):
    usage_db.write(path, [("2026-W01", "python", "tiny", "shown", 3)])
    usage_db.put_aside(path, file=path.stat().st_ino + 1)
    assert total(path) == 3


@pytest.mark.parametrize("what", ["no directory", "a directory", "a newer one"])
def test_a_directory_that_cannot_be_written_is_logged_once(path: Path, what: str, log: pytest.LogCaptureFixture):
    if what == "no directory":
        path.parent.write_text("a file")
    elif what == "a directory":
        path.mkdir(parents=True)
    else:
        usage_db.write(path, [("2026-W01", "python", "tiny", "shown", 1)])
        with sqlite3.connect(path) as database:
            database.execute("PRAGMA user_version = 99")
        database.close()
    tally = Tally(path, write_every_s=0.01)
    for _ in range(5):
        tally.add("python", "tiny", SHOWN)
        time.sleep(0.03)
    tally.close(wait_s=60)
    assert len(log.records) == 1
    assert "speclsp stats" in log.text


def test_a_full_disk_costs_only_the_counts(path: Path):
    """The limit on a file's size stands in for the disk's."""
    script = (
        "import resource, sys; from pathlib import Path; from speclsp.observability import usage_db as stats\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "print(stats.write(Path(sys.argv[1]), [('2026-W01', 'python', 'tiny', 'shown', 1)]))"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("cannot count for `speclsp stats`")


# ── sums ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_weeks_follow_the_iso_calendar():
    assert usage_db.week_of(date(2026, 1, 1)) == "2026-W01"
    assert usage_db.week_of(date(2027, 1, 1)) == "2026-W53"
    assert usage_db.first_of(2, date(2027, 1, 5)) == "2026-W53"
    assert usage_db.first_of(1, date(2026, 11, 21)) == usage_db.week_of(date(2026, 11, 21))


@given(st.lists(st.floats(0.01, 9999), min_size=1, max_size=60), st.sampled_from([0.5, 0.95]))
def test_a_quantile_lies_in_the_bucket_of_the_true_one(times_ms: list[float], share: float):
    figures = Figures()
    for ms in times_ms:
        figures.counts.update(usage_db.of_request("shown", ms, False, 0, 0, {}))
    exact = sorted(times_ms)[max(0, -int(-share * len(times_ms) // 1)) - 1]
    high = next(bound for bound in BUCKETS_MS if exact <= bound)
    low = max((bound for bound in BUCKETS_MS if bound < exact), default=0)
    estimate = figures.latency_ms(share)
    assert estimate is not None
    assert low <= estimate <= high


def test_a_latency_above_all_buckets_is_estimated_as_the_last_bound():
    figures = Figures()
    figures.counts.update(usage_db.of_request("shown", 60_000, False, 0, 0, {}))
    assert figures.of("latency") == {SLOWER: 1}
    assert figures.latency_ms(0.5) == BUCKETS_MS[-1]


def test_a_request_answered_from_the_cache_adds_no_latency():
    counts = usage_db.of_request("shown", None, True, 0, 0, {})
    assert {name: n for name, n in counts.items() if n} == {"outcome.shown": 1, "reused": 1}


def test_sums_by_week_language_and_pair_each_cover_all_counts():
    rows: list[Row] = [
        ("2026-W01", "python", "small", "shown", 10),
        ("2026-W01", "python", "small", "accepted", 3),
        ("2026-W01", "lua", "small", "shown", 2),
        ("2026-W02", "lua", "large", "shown", 8),
        ("2026-W02", "lua", "large", "partly", 2),
        ("2026-W02", "lua", "large", "drafted.ngram", 20),
        ("2026-W02", "lua", "large", "agreed.ngram", 5),
        ("2026-W02", "lua", "large", "tokens", 9),
        ("2026-W02", "lua", "large", "rounds", 4),
    ]
    summary = usage_db.summed(reversed(rows))
    assert summary.whole["shown"] == 20
    assert summary.whole.acceptance == 0.25
    assert list(summary.weeks) == ["2026-W01", "2026-W02"]
    assert list(summary.languages) == ["lua", "python"]
    assert list(summary.models) == ["small", "large"]
    for cut in (summary.weeks, summary.languages, summary.models, summary.cells):
        assert sum(figures["shown"] for figures in cut.values()) == 20
    assert summary.weeks["2026-W01"].acceptance == 0.25
    assert summary.whole.drafts == {"ngram": (20, 5, 0.25)}
    assert summary.whole.tokens_per_round == 2.25
    assert summary.cells["2026-W02", "lua"]["partly"] == 2


# ── output ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def some_weeks() -> None:
    """Three weeks of two languages, as a server would count them."""
    rows: Counter[tuple[str, str, str, str]] = Counter()
    for back in range(3):
        week = usage_db.week_of(date.today() - timedelta(weeks=back))
        for language, size in (("python", 30), ("lua", 10)):
            counts = Counter(shown=size, accepted=size // 2, partly=1, typed=2, undone=1, accepted_characters=size * 20)
            counts["ignored"] = size - size // 2 - 4
            for ms in range(40, 40 + size):
                drafts = {"ngram": {"drafted": 6, "accepted": 3}, "model": {"drafted": 4, "accepted": 3}}
                counts.update(usage_db.of_request("shown", ms * (back + 1), False, 12, 4, drafts))
            for name, count in counts.items():
                rows[week, language, "tiny", name] += count
    assert usage_db.write(settings.stats_path(), [(*key, count) for key, count in rows.items()]) == ""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys, "stats")


def test_without_counts_the_message_names_the_fix(run: Run):
    code, out, _ = run()
    assert (code, out.count("\n")) == (0, 1)
    assert "speclsp lsp" in out
    assert json.loads(run("--json")[1])["all"]["shown"] == 0
    settings.config_path().parent.mkdir(parents=True, exist_ok=True)
    settings.config_path().write_text("[stats]\nenabled = false\n")
    assert "stats.enabled is false" in run()[1]


def test_older_weeks_are_shown_with_the_weeks_flag(run: Run):
    usage_db.write(settings.stats_path(), [("2020-W01", "python", "tiny", "shown", 1)])
    assert "--weeks" in run()[1]
    assert "2020-W01" in run("--weeks", "1000")[1]


@pytest.mark.parametrize("weeks", ["0", "-3", "1000000"])
def test_an_invalid_number_of_weeks_gives_one_line(run: Run, weeks: str):
    code, out, err = run("--weeks", weeks)
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_in_a_pipe_it_is_plain_text_in_columns(run: Run):
    some_weeks()
    code, out, err = run()
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    weeks = out.split("\n\n")[0].splitlines()
    assert weeks[0].split()[:3] == ["week", "shown", "accepted"]
    assert len({len(line) for line in weeks}) == 1
    assert weeks[-1].split()[:3] == ["all", "120", "60"]
    assert weeks[1].split()[0] < weeks[2].split()[0] < weeks[3].split()[0]
    python = next(line for line in out.splitlines() if line.startswith("python"))
    assert python.split()[1:8] == ["90", "45", "3", "6", "36", "53%", "1800"]
    assert next(line for line in out.splitlines() if line.startswith("ngram")).split() == ["ngram", "720", "360", "50%"]


def test_next_edits_have_a_row_for_each_language_that_has_some(run: Run):
    some_weeks()
    assert "next edits" not in run()[1]
    week = usage_db.week_of(date.today())
    counts = {("python", "shown"): 8, ("python", "accepted"): 6, ("python", "rejected"): 1, ("go", "shown"): 2}
    rows = [(week, language, "tiny", f"next_edit.{name}", count) for (language, name), count in counts.items()]
    assert usage_db.write(settings.stats_path(), rows) == ""
    table = next(part for part in run()[1].split("\n\n") if part.startswith("next edits"))
    assert [line.split()[-5:] for line in table.splitlines()[1:]] == [
        ["python", "8", "6", "1", "75%"],
        ["go", "2", "0", "0", "0%"],
        ["all", "10", "6", "1", "60%"],
    ]
    report = json.loads(run("--json")[1])
    assert report["languages"]["python"]["next_edits"] == {"shown": 8, "accepted": 6, "rejected": 1}


def test_json_contains_the_numbers_of_the_table(run: Run):
    some_weeks()
    report = json.loads(run("--json", "--weeks", "1")[1])
    assert list(report["weeks"]) == [usage_db.week_of(date.today())] == [report["since"]]
    assert report["all"]["shown"] == 40
    assert report["languages"]["python"]["acceptance"] == 0.533
    assert report["all"]["drafts"]["model"] == {"drafted": 160, "accepted": 120, "acceptance": 0.75}
    assert report["all"]["requests"] == {"total": 40, "reused": 0, "prepared": 0, "by_outcome": {"shown": 40}}
    assert 40 <= report["languages"]["python"]["latency_ms"]["p50"] <= 60


def test_the_tables_work_with_very_few_counts(run: Run):
    week = usage_db.week_of(date.today())
    usage_db.write(settings.stats_path(), [(week, "python", "tiny", "outcome.inside_word", 1)])
    assert run()[0] == 0


def test_forget_deletes_all_counts(run: Run):
    some_weeks()
    assert run("--forget")[1].startswith("deleted")
    assert list(settings.stats_path().parent.glob("stats.db*")) == []
    assert run("--forget")[:2] == (0, "nothing to delete\n")


def test_an_unreadable_file_gives_one_line_with_the_fix(run: Run):
    settings.stats_path().parent.mkdir(parents=True)
    settings.stats_path().write_bytes(b"no database at all " * 100)
    code, out, err = run()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "--forget" in err
