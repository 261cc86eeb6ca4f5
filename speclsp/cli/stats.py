"""`speclsp stats`: outcomes of suggestions by week and model, as a table or as JSON.

The numbers are from observability/usage_db.py. Nothing is measured here and nothing leaves the machine.
"""

from __future__ import annotations

import json
from datetime import date

from speclsp import config as settings
from speclsp.cli import terminal
from speclsp.errors import SpeclspError
from speclsp.observability import usage_db
from speclsp.observability.usage_db import Row
from speclsp.private_files.os_errors import sentence

HEAD = ("week", "model", "shown", "accepted", "in part", "rate", "characters")
MEANING = (
    "Accepted: in full, as far as the editor reports it. In part: times that a beginning was accepted. Rate: share of "
    "shown suggestions accepted in full. Characters: inserted by accepting."
)
WEEKS = 12


def main(config: settings.Config, as_json: bool = False) -> int:
    """Show the last WEEKS weeks."""
    path = settings.stats_path()
    since = usage_db.first_of(WEEKS, date.today())
    rows = usage_db.read(path, since)
    if as_json:
        print(json.dumps({"since": since, "rows": [row._asdict() for row in rows]}))
    elif not rows:
        print(no_rows(config))
    else:
        print(terminal.aligned([HEAD, *map(cells, rows)], right=range(2, len(HEAD))))
        print(f"\n{MEANING}\nCounted and stored on this machine in {path}; nothing is sent anywhere.")
    return 0


def forget() -> int:
    """Delete all that was counted. Raises SpeclspError: no right to, or on Windows an editor that has the file open."""
    path = settings.stats_path()
    try:
        deleted = usage_db.forget(path)
    except OSError as error:
        raise SpeclspError(sentence(error, path, "be deleted")) from error
    print(f"deleted {path}" if deleted else "nothing to delete")
    return 0


def no_rows(config: settings.Config) -> str:
    """The reason why there are no figures, and the fix."""
    if not config.stats.enabled:
        return "No statistics: stats.enabled is false. Set it to true to count suggestions."
    return f"No statistics for the last {WEEKS} weeks. `speclsp lsp` counts suggestions in an editor."


def cells(row: Row) -> list[str]:
    """A row as HEAD has it."""
    rate = f"{row.accepted / row.shown:.0%}" if row.shown else "-"
    return [row.week, row.model, f"{row.shown}", f"{row.accepted}", f"{row.partly}", rate, f"{row.characters}"]
