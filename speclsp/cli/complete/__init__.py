"""Completions without an editor: positions, the engine that answers, and the answer. Import names from here."""

from speclsp.cli.complete.answers import (
    CompletionPoint,
    PrintedAnswer,
    about,
    answer,
    drawn,
    engine_request,
    prepare,
)
from speclsp.cli.complete.own_model import draw, fetch, needed, open_engine
from speclsp.cli.complete.positions import (
    at_mark,
    at_position,
    offset,
    snapshot_of,
)
