"""Database of usage statistics: counters by week that stay on this machine.

    server ─► Tally.add ─► a thread, every few seconds and at the end ─► stats.db ─► read ─► Summary

One row is one number: (ISO week, language, model, name) -> how many. Numbers are only added to, so servers of several
editors write to the same file. Latencies are counted in buckets, from which quantiles are estimated. The file holds no
text, no path and no time finer than a week. Where it cannot be written, the log says so once and nothing else happens.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp.errors import SpeclspError
from speclsp.observability.metrics import BUCKETS_MS, rounded
from speclsp.private_files import os_errors, remove

if TYPE_CHECKING:
    import sqlite3

WRITE_EVERY_S = 3.0
PATIENCE_S = 1.0  # wait for another server that is writing; a failed write is retried with the next one
MAX_PENDING = 10_000  # counters in memory while nothing can be written; a server makes a few hundred a day
SCHEMA = 1
CREATE = (
    "CREATE TABLE IF NOT EXISTS counts (week TEXT, language TEXT, pair TEXT, name TEXT, n INTEGER NOT NULL,"
    " PRIMARY KEY (week, language, pair, name)) WITHOUT ROWID"
)
ADD = (
    "INSERT INTO counts VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (week, language, pair, name) DO UPDATE SET n = n + excluded.n"
)
SLOWER = "inf"  # the bucket of latencies above all of BUCKETS_MS
NAME = re.compile(r"[\w.+#-]{1,60}")  # a valid language or model; editors may send anything

Counts = Mapping[str, int]
Row = tuple[str, str, str, str, int]  # week, language, model, name, how many

log = logging.getLogger("speclsp.stats")


# ── counting ──


def of_request(
    outcome: str,
    latency_ms: float | None,
    reused: bool,
    tokens: int,
    rounds: int,
    by_source: Mapping[str, Mapping[str, int]],
) -> dict[str, int]:
    """The counters of one request; `latency_ms` is None for an answer that the model did not compute."""
    counts = {f"outcome.{outcome}": 1, "reused": int(reused), "tokens": tokens, "rounds": rounds}
    if latency_ms is not None:
        place = bisect_left(BUCKETS_MS, latency_ms)
        counts[f"latency.{BUCKETS_MS[place] if place < len(BUCKETS_MS) else SLOWER}"] = 1
    for source, of in by_source.items():
        counts[f"drafted.{source}"], counts[f"agreed.{source}"] = of.get("drafted", 0), of.get("accepted", 0)
    return counts


class Tally:
    """Adds up in memory and writes from a thread of its own, so that no key waits for a disk."""

    def __init__(self, path: Path, write_every_s: float = WRITE_EVERY_S) -> None:
        self.path = path
        self._every_s = write_every_s
        self._pending: Counter[tuple[str, str, str, str]] = Counter()
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._reported: set[str] = set()

    def add(self, language: str, model: str, counts: Counts) -> None:
        """Add to the numbers of this week. From any thread; takes microseconds."""
        week = week_of(date.today())
        language, model = (name if NAME.fullmatch(name) else "other" for name in (language, model))
        with self._changed:
            if self._closing.is_set():
                return
            for name, count in counts.items():
                if count:
                    self._pending[week, language, model, name] += count
            if self._thread is None:
                self._thread = threading.Thread(target=self._write_now_and_then, name="stats", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self, wait_s: float = 0.5) -> None:
        """Write the remaining counters; returns after `wait_s` at the latest."""
        with self._changed:
            self._closing.set()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(wait_s)

    def _write_now_and_then(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing.is_set())
            self._closing.wait(self._every_s)
            closing = self._closing.is_set()
            self._write()
            if closing:
                return

    def _write(self) -> None:
        with self._changed:
            pending, self._pending = self._pending, Counter()
        problem = write(self.path, [(*key, count) for key, count in pending.items() if count])
        if not problem:
            return
        if problem not in self._reported:
            self._reported.add(problem)
            log.warning("%s", problem)
        with self._changed:
            self._pending.update(pending)  # adds; what came meanwhile stays
            if len(self._pending) > MAX_PENDING:
                self._pending.clear()


def week_of(day: date) -> str:
    """ "2026-W47": the ISO week."""
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02}"


# ── the file ──


def write(path: Path, rows: Iterable[Row]) -> str:
    """Add all rows to the file or none; an error sentence or "". A damaged file is moved away. Never raises."""
    rows = list(rows)
    if not rows:
        return ""
    try:
        import sqlite3
    except ImportError:
        return "no statistics for `speclsp stats`: this Python was built without sqlite3."
    for _ in range(2):
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
            file = path.stat().st_ino
            with contextlib.closing(connect(path)) as database, database:
                if database.execute("PRAGMA user_version").fetchone()[0] > SCHEMA:
                    return f"no statistics for `speclsp stats`: {path} is from a newer speclsp."
                database.execute(CREATE)
                database.executemany(ADD, rows)
                database.execute(f"PRAGMA user_version = {SCHEMA}")
            return ""
        except (sqlite3.OperationalError, OSError) as error:  # locked, full, read-only
            fix = "Set XDG_STATE_HOME to a writable directory, or stats.enabled = false."
            return f"cannot count for `speclsp stats` in {path}: {os_errors.reason(error)}. {fix}"
        except sqlite3.DatabaseError:
            put_aside(path, file)
        except Exception as error:
            return f"cannot count for `speclsp stats` in {path}: {type(error).__name__}."
    return f"cannot count for `speclsp stats`: {path} is damaged repeatedly."


def connect(path: Path) -> sqlite3.Connection:
    """The database, for as long as one transaction takes."""
    import sqlite3

    database = sqlite3.connect(path, timeout=PATIENCE_S)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        database.close()
        raise
    return database


def put_aside(path: Path, file: int) -> None:
    """Move a damaged database out of the way, unless another server did and `path` is a new one by now."""
    aside = damaged(path)
    with contextlib.suppress(OSError):
        if path.stat().st_ino == file:
            path.replace(aside)
            for beside in beside_database(path):
                beside.unlink(missing_ok=True)
            log.warning("%s was damaged: it is saved as %s, and counting starts again.", path, aside.name)


def damaged(path: Path) -> Path:
    """The path to which a damaged database is moved."""
    return path.with_name(path.name + ".damaged")


def beside_database(path: Path) -> list[Path]:
    """The files sqlite keeps beside a database."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm")]


def read(path: Path, since: str = "") -> list[Row]:
    """All rows from the week `since` on; none where there is no file. Raises SpeclspError when it cannot be read."""
    if not path.exists():
        return []
    try:
        import sqlite3
    except ImportError:
        raise SpeclspError("This Python was built without sqlite3: `speclsp stats` needs it.") from None
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=5)) as database:
            if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'counts'").fetchone():
                return []
            order = "SELECT week, language, pair, name, n FROM counts WHERE week >= ? ORDER BY week, language, pair"
            return [
                (week, language, model, name, int(n))
                for week, language, model, name, n in database.execute(order, (since,))
            ]
    except (sqlite3.Error, ValueError, TypeError) as error:
        raise SpeclspError(
            f"{path} cannot be read: {error}. `speclsp stats --forget` deletes it, and counting starts again."
        ) from None


def forget(path: Path) -> bool:
    """Delete all of it; False when there was nothing. Raises PermissionError: another program has it open (Windows)."""
    files = [file for file in (path, *beside_database(path), damaged(path)) if file.exists()]
    for file in files:
        remove(file)
    return bool(files)


# ── sums ──


@dataclass(slots=True)
class Figures:
    """The sums of some rows, by name, and the ratios derived from them."""

    counts: Counter[str] = field(default_factory=Counter)

    def __getitem__(self, name: str) -> int:
        return self.counts[name]

    def of(self, kind: str) -> dict[str, int]:
        """{"ngram": 80} for the kind "drafted" and a number named "drafted.ngram"."""
        return {
            name.partition(".")[2]: count for name, count in sorted(self.counts.items()) if name.startswith(f"{kind}.")
        }

    @property
    def requests(self) -> int:
        return sum(self.of("outcome").values())

    @property
    def acceptance(self) -> float | None:
        """The share of the suggestions shown that were accepted, wholly or in part."""
        return (self["accepted"] + self["partly"]) / self["shown"] if self["shown"] else None

    @property
    def tokens_per_round(self) -> float | None:
        return self["tokens"] / self["rounds"] if self["rounds"] else None

    def latency_ms(self, share: float) -> float | None:
        """The latency that this share of the suggestions did not exceed, interpolated linearly within its bucket."""
        buckets = self.of("latency")
        wanted, below, low = share * sum(buckets.values()), 0, 0.0
        for high in BUCKETS_MS:
            here = buckets.get(str(high), 0)
            if here and below + here >= wanted:
                return low + (high - low) * (wanted - below) / here
            below, low = below + here, float(high)
        return low if buckets else None  # slower than all buckets: at least the last bound

    @property
    def drafts(self) -> dict[str, tuple[int, int, float]]:
        """{drafter: (tokens drafted, tokens the model agreed with, their share)}."""
        agreed = self.of("agreed")
        drafted = {source: count for source, count in self.of("drafted").items() if count}
        return {
            source: (count, agreed.get(source, 0), agreed.get(source, 0) / count) for source, count in drafted.items()
        }

    def as_json(self) -> dict[str, object]:
        """The figures as in `speclsp stats --json`."""
        drafts = {
            source: {"drafted": drafted, "accepted": agreed, "acceptance": round(share, 3)}
            for source, (drafted, agreed, share) in self.drafts.items()
        }
        return {
            **{name: self[name] for name in ("shown", "accepted", "partly", "typed", "ignored", "undone")},
            "acceptance": rounded(self.acceptance, 3),
            **{name: self[name] for name in ("shown_characters", "accepted_characters", "typed_characters")},
            "requests": {
                "total": self.requests,
                "reused": self["reused"],
                "prepared": self["prepared"],
                "by_outcome": self.of("outcome"),
            },
            "latency_ms": {"p50": rounded(self.latency_ms(0.5), 1), "p95": rounded(self.latency_ms(0.95), 1)},
            "tokens": self["tokens"],
            "rounds": self["rounds"],
            "tokens_per_round": rounded(self.tokens_per_round, 2),
            "drafts": drafts,
            "next_edits": {name: self[f"next_edit.{name}"] for name in ("shown", "accepted", "rejected")},
        }


@dataclass(slots=True)
class Summary:
    """All of the rows, and the same cut by week, language and model."""

    whole: Figures = field(default_factory=Figures)
    weeks: dict[str, Figures] = field(default_factory=dict)
    languages: dict[str, Figures] = field(default_factory=dict)  # the most shown first
    models: dict[str, Figures] = field(default_factory=dict)
    cells: dict[tuple[str, str], Figures] = field(default_factory=dict)  # by week and language

    def as_json(self) -> dict[str, object]:
        """The object that `speclsp stats --json` prints, without its date."""
        return {
            "all": self.whole.as_json(),
            "weeks": {
                week: figures.as_json()
                | {"languages": {name: cell.as_json() for (at, name), cell in self.cells.items() if at == week}}
                for week, figures in self.weeks.items()
            },
            "languages": {name: figures.as_json() for name, figures in self.languages.items()},
            "pairs": {name: figures.as_json() for name, figures in self.models.items()},
        }


def summed(rows: Iterable[Row]) -> Summary:
    """The sums of the rows."""
    summary = Summary()
    for week, language, model, name, count in rows:
        cuts = (
            summary.whole,
            summary.weeks.setdefault(week, Figures()),
            summary.languages.setdefault(language, Figures()),
            summary.models.setdefault(model, Figures()),
            summary.cells.setdefault((week, language), Figures()),
        )
        for figures in cuts:
            figures.counts[name] += count
    summary.weeks = dict(sorted(summary.weeks.items()))
    summary.languages = dict(sorted(summary.languages.items(), key=lambda item: (-item[1]["shown"], item[0])))
    summary.models = dict(sorted(summary.models.items(), key=lambda item: (-item[1]["shown"], item[0])))
    return summary


def first_of(weeks: int, today: date) -> str:
    """The first of the last so many weeks, this one included."""
    return week_of(today - timedelta(weeks=weeks - 1))
