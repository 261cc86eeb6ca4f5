"""Candidates for the gate of next edits: every edit that the filters pass, its features, and whether it was right.

    states of a package ─► producer whose gate shows everything ─► candidates ─► verdict ─► one row a state
          └─ the next one follows from the answer to the edit that the product's gate shows: accepted if it is right

A row is {"package", "path", "kind", "candidates"}; a candidate {"change", "times", "proven", "above", "right",
"features"}. `change` and `times` tell when the same edit was offered before. States without a candidate have a row too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from benchmarks.editor.edit_replay.release_edits import (
    MAX_PACKAGE_STATES,
    listed_packages,
    replayed,
)
from benchmarks.editor.edit_replay.replay_states import QUIET, STATE, ReplayState, states
from benchmarks.editor.edit_replay.replayed_file import ChainOf, Rules, no_chain
from benchmarks.quality.tasks import packages as corpus
from speclsp.cli import terminal
from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit import edit_likelihood as gate
from speclsp.lsp.next_edit.changes.substitutions import Place
from speclsp.lsp.next_edit.edit_likelihood import Features
from speclsp.lsp.next_edit.producer import Declined, Producer, Proposal
from speclsp.lsp.next_edit.recent_activity import RecentActivity

TRAINING = "training"  # the packages of models/training, each release beside the one before
BUDGET_MS = 150.0  # the product's limit of time would hide what the gate decides
MAX_CANDIDATES = 12  # of one state

Row = dict[str, Any]


class OpenProducer(Producer):
    """The deterministic producer with an open gate."""

    def is_shown(self, place: Place, features: Features) -> bool:
        return True


class Recorder(Rules):
    """Proposes what the product's gate shows, and keeps the candidates of the last request."""

    def __init__(self, producer: Producer | None = None) -> None:
        self._open = producer or OpenProducer()
        super().__init__(self._open, BUDGET_MS)
        self.candidates: list[Proposal] = []

    def propose(
        self, document: Document, activity: RecentActivity, cursor: int, declined: Declined, chain: ChainOf = no_chain
    ) -> Proposal | None:
        """The edit that the user answers. Keeps the candidates of one state."""
        of_document = document.text, document.language, document.uri, cursor, activity.recent()
        outcomes = self._open.outcomes(*of_document, declined, BUDGET_MS, chain)
        edits = (outcome for outcome in outcomes if isinstance(outcome, Proposal))
        self.candidates = list(islice(edits, MAX_CANDIDATES))
        return next((edit for edit in self.candidates if gate.is_shown(edit.place, edit.features)), None)


def rows_of(path: str, before: str, after: str, recorder: Recorder, package: str) -> Iterator[Row]:
    """The rows of one file, without those of quiet states: in them every edit is wrong."""
    for state in takewhile(lambda state: state.kind != QUIET, states(path, before, after, recorder)):
        proposal = state.file.propose(state.cursor, [])
        listed = [as_json(state, candidate) for candidate in recorder.candidates]
        if proposal is not None and state.kind == STATE:
            state.file.answer(proposal, state.verdict(proposal)[0])
        yield {"package": package, "path": path, "kind": state.kind, "candidates": listed}


def as_json(state: ReplayState, proposal: Proposal) -> Row:
    """One candidate of a row."""
    substitution = proposal.place.substitution
    return {
        "change": [substitution.kind, substitution.old, substitution.new],
        "times": proposal.place.evidence.times,
        "proven": proposal.place.is_proven,
        "above": proposal.place.end < state.cursor,
        "right": state.verdict(proposal)[0],
        "features": {name: round(value, 4) for name, value in proposal.features.items() if value},
    }


def packages_of(part: str, bar: terminal.ProgressLine) -> list[corpus.Package]:
    """The packages of a part."""
    if part == TRAINING:
        return training_packages()
    return [package for package, own in listed_packages(bar) if own == part]


def training_packages() -> list[corpus.Package]:
    """Each two successive releases of the packages of models/training, as a package."""
    from models.training import releases

    return [
        corpus.Package(
            archive=package.archives[-1],
            released="",
            first_release="",
            licence=package.licence,
            folders=package.folders,
            cursors=(),
            skip=package.skip,
            languages=package.languages,
            before=package.archives[-2],
            root=newer,
            before_root=older,
        )
        for package in releases.fetched(lambda done, total: None)
        for older, newer in zip(package.roots[:-1], package.roots[1:], strict=True)
    ]


def record(part: str, file: Path, share: int) -> None:
    """Write the rows of a part, or of one of `share` packages."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with terminal.progress() as bar, file.open("w", encoding="utf-8") as out:
        listed = packages_of(part, bar)[::share]
        for number, package in enumerate(listed):
            bar.show("replaying", number / len(listed), package.name)
            recorder, count = Recorder(), 0
            for path, before, after in replayed(package):
                if count >= MAX_PACKAGE_STATES or any(skipped in path for skipped in package.skip):
                    continue
                for row in rows_of(path, before, after, recorder, package.name):
                    count += row["kind"] == STATE
                    out.write(json.dumps(row) + "\n")
