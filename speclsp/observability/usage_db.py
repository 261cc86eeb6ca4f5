"""Database of usage statistics: outcomes of suggestions by week, which stay on this machine.

One row is a week and the model that suggested, or NEXT_EDITS. Its numbers are only added to, so the servers of several
editors write to the same file. It holds no text, no path and no time finer than a week.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from speclsp.errors import SpeclspError
from speclsp.private_files import os_errors, remove

if TYPE_CHECKING:
    import sqlite3

PATIENCE_S = 1.0  # wait for another server that is writing
NEXT_EDITS = "next edits"
CREATE = (
    "CREATE TABLE IF NOT EXISTS outcomes (week TEXT, model TEXT, shown INTEGER NOT NULL, accepted INTEGER NOT NULL,"
    " partly INTEGER NOT NULL, characters INTEGER NOT NULL, PRIMARY KEY (week, model)) WITHOUT ROWID"
)
ADD = (
    "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (week, model) DO UPDATE SET"
    " shown = shown + excluded.shown, accepted = accepted + excluded.accepted,"
    " partly = partly + excluded.partly, characters = characters + excluded.characters"
)
FIX = "`speclsp stats --forget` deletes it, and XDG_STATE_HOME chooses another directory."
NAME = re.compile(r"[\w .+#-]{1,60}")  # a valid model; a server may send anything


class Row(NamedTuple):
    """The outcomes of one model's suggestions in one week."""

    week: str
    model: str
    shown: int = 0
    accepted: int = 0  # wholly
    partly: int = 0  # times that a beginning was accepted
    characters: int = 0  # inserted by accepting


def rows_of(counts: Mapping[tuple[str, str], Mapping[str, int]]) -> list[Row]:
    """The rows of counts by week and model, named as the fields of Row."""
    return [
        Row(week, model if NAME.fullmatch(model) else "other", **numbers) for (week, model), numbers in counts.items()
    ]


def week_of(day: date) -> str:
    """ "2026-W47": the ISO week."""
    year, week, _ = day.isocalendar()
    return f"{year}-W{week:02}"


def first_of(weeks: int, today: date) -> str:
    """The first of the last so many weeks, this one included."""
    return week_of(today - timedelta(weeks=weeks - 1))


def add(path: Path, rows: list[Row]) -> None:
    """Add all rows to the file or none. Raises SpeclspError."""
    with _transaction(path) as database:
        database.executemany(ADD, rows)


def read(path: Path, since: str = "") -> list[Row]:
    """All rows from the week `since` on; none where there is no file. Raises SpeclspError."""
    if not path.exists():
        return []
    with _transaction(path) as database:
        order = "SELECT * FROM outcomes WHERE week >= ? ORDER BY week, model"
        return [Row(*values) for values in database.execute(order, (since,))]


def forget(path: Path) -> bool:
    """Delete all of it; False when there was nothing. Raises PermissionError: another program has it open (Windows)."""
    files = list(path.parent.glob(f"{path.name}*"))
    for file in files:
        remove(file)
    return bool(files)


@contextlib.contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    """The database, for one transaction. Raises SpeclspError."""
    try:
        import sqlite3
    except ImportError:
        raise SpeclspError("This Python was built without sqlite3, which `speclsp stats` needs.") from None
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        with contextlib.closing(sqlite3.connect(path, timeout=PATIENCE_S)) as database, database:
            database.execute(CREATE)
            yield database
    except OSError as error:
        raise SpeclspError(os_errors.sentence(error, path, "count suggestions")) from None
    except sqlite3.Error as error:  # locked, damaged, or on a full disk
        raise SpeclspError(f"{path} cannot count suggestions: {error}. {FIX}") from None
