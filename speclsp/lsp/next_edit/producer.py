"""The deterministic producer of next edits: applies a change of the last edits where the same thing stands.

    recent edits ─► places of each kind ─► gate ─► filters ─► Proposal, or the reason for none

    gate       the kind has proven the place, or edit_likelihood.py finds the edit likely
    filters    nothing of the last edits is undone; more than whitespace changes; the syntax gets no worse; no secret;
               at most 20 lines more

Precision comes first: a suggestion elsewhere in the file interrupts. benchmarks/editor/next_edit.py measures the gate.
The work is bounded, and ends when its budget of processor time is spent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit import edit_likelihood as gate
from speclsp.lsp.next_edit.changes.callees import callee_places
from speclsp.lsp.next_edit.changes.calls.arguments import ARGUMENT, argument_places
from speclsp.lsp.next_edit.changes.recent_changes import NotOffered, Recent
from speclsp.lsp.next_edit.changes.renamed_names import Rename, renamed
from speclsp.lsp.next_edit.changes.replaced_blocks import block_places
from speclsp.lsp.next_edit.changes.replaced_types import type_places
from speclsp.lsp.next_edit.changes.shapes.shape_places import shape_places
from speclsp.lsp.next_edit.changes.substitutions import RENAME, Edit, Place
from speclsp.lsp.next_edit.changes.visible_names import writes_unknown_name
from speclsp.lsp.next_edit.edit_likelihood import FeatureReader
from speclsp.lsp.next_edit.recent_activity import same_grammar
from speclsp.lsp.next_edit.renames.name_conflicts import FreeName
from speclsp.lsp.next_edit.renames.rename_places import Renames, renames
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.text_windows import common_ends
from speclsp.lsp.syntax.tree import SyntaxTree, load_query, query_sections
from speclsp.lsp.visibility import secret_text
from speclsp.plain_text import is_inside_word

PRODUCER = "rules"  # its name in explanations
BUDGET_MS = 10.0  # of the processor; the last step may overrun it by a little
WARM_UP_MS = 1000.0
PREPARE_MS = 50.0
MAX_ADDED_LINES = 20
MAX_JUDGED, MAX_CHECKED = 48, 6  # places whose probability is computed, and that are parsed


@dataclass(frozen=True, slots=True)
class Proposal:
    """A replacement of `[start, end)` of the text, as small as whole tokens allow."""

    start: int
    end: int
    text: str
    place: Place
    probability: float = 0.0  # that it is right
    features: gate.Features = field(default_factory=dict, compare=False)

    @property
    def kind(self) -> str:
        return self.place.substitution.kind


class Found(NamedTuple):
    """An edit of a document. `base`: the offset in it of the text that the proposal is about."""

    document: Document
    proposal: Proposal
    base: int = 0


Declined = Callable[[Place], str]  # the reason not to propose a place again; "": none


class Producer:
    """Proposes edits. Keeps a parser, whose last tree makes the next parse fast."""

    def __init__(self, clock_s: Callable[[], float] = parse_clock_s) -> None:
        self._parser = SyntaxParser()
        self._free: set[FreeName] = set()  # of the last request
        self.not_offered: list[NotOffered] = []  # of the last request
        self._clock_s = clock_s

    def warm_up(self, language: str) -> None:
        """Load a language's grammar and queries. That takes 20 to 300 ms, once, which no request's budget has."""
        tree = self._parser.parse(language, "x\n", WARM_UP_MS)
        if tree is not None:
            tree.count_errors_with(0, 0, "y", WARM_UP_MS)
            bindings.at(tree, 0, 1)
            for section in query_sections(tree.grammar):
                load_query(tree.grammar, section)

    def prepare(self, text: str, language: str) -> None:
        """Parse a document, so that the search parses nothing."""
        self._parser.parse(language, text, PREPARE_MS)

    def outcomes(
        self,
        text: str,
        language: str,
        uri: str,
        cursor: int,
        edits: Sequence[Edit],
        declined: Declined = lambda place: "",
        budget_ms: float = BUDGET_MS,
        chain_of: Callable[[Place], gate.Chain] = lambda place: gate.NO_CHAIN,
    ) -> Iterator[Proposal | str]:
        """The reason for no edit at all; then for each place, the nearest first, its edit or the reason for none.

        `edits`: the oldest first. `chain_of`: the user's answers to earlier offers of a place's substitution.
        """
        deadline_s = self._clock_s() + budget_ms / 1000

        def left_ms() -> float:
            return (deadline_s - self._clock_s()) * 1000

        def is_late() -> bool:
            return left_ms() <= 0

        recent = [edit for edit in edits if same_grammar(edit.language, language)]
        self.not_offered = []
        if reason := reason_without_search(recent, text):
            yield reason
            return
        tree = list[SyntaxTree | None]()

        def parse(near: int) -> SyntaxTree | None:
            if not tree:
                tree.append(self._parser.parse(language, text, left_ms(), near=near))
            return tree[0]

        state = Recent(recent, text, parse, cursor, record(language), is_late)
        state.is_answered = lambda change, evidence: any(chain_of(Place(0, 0, "", change, evidence))[:2])
        self.not_offered = state.not_offered
        renamed = by_scope(state, uri, declined, self._free)
        yield str(renamed.reason)
        reader, checked, problem = FeatureReader(text, cursor, recent[-1]), 0, str(renamed.reason)
        for place in islice(candidates(state, renamed), MAX_JUDGED):
            if is_late() or checked == MAX_CHECKED:
                break
            problem, features = declined(place), dict[str, float]()
            if not problem:
                features = reader.features(place, chain_of(place))
                problem = "" if self.is_shown(place, features) else Reason.UNLIKELY
            if not problem:
                checked += 1
                problem = text_problem(text[place.start : place.end], place.new)
                is_resolved = place.substitution.kind in (RENAME, ARGUMENT)
                if not problem and not is_resolved and writes_unknown_name(state, place):
                    problem = Reason.NOT_VISIBLE
                problem = problem or error_problem(parse(place.start), place, left_ms)
            if problem:
                state.report(place.substitution.kind, problem, place.start)
            yield problem or replace(minimal(place, text), probability=gate.probability(features), features=features)
        if is_late() and problem in ("", Reason.NO_REPEAT):
            yield Reason.OUT_OF_TIME

    def is_shown(self, place: Place, features: gate.Features) -> bool:
        """True if a place with these features is likely enough."""
        return gate.is_shown(place, features)


def reason_without_search(recent: Sequence[Edit], text: str) -> str:
    """The reason for no edit that needs no search; "" if there may be one."""
    if not recent:
        return Reason.NO_RECENT_EDIT
    return Reason.CONFLICT if "\n<<<<<<< " in text or "\n>>>>>>> " in text else ""


def first_edit(outcomes: Iterable[Proposal | str]) -> Proposal | str:
    """The first edit, or the last reason for none."""
    reason = ""
    for outcome in outcomes:
        if isinstance(outcome, Proposal):
            return outcome
        reason = outcome
    return reason


def candidates(recent: Recent, renamed: Renames) -> Iterator[Place]:
    """The places of all kinds of edits, a line each, in the order in which they are offered."""
    yield from renamed.places
    yield from argument_places(recent)
    yield from callee_places(recent)
    yield from type_places(recent)
    if not renamed.resolved or renamed.reason == Reason.NAME_IN_USE:  # also a keyword that became another
        yield from shape_places(recent)
    yield from block_places(recent, renamed.explains)


def by_scope(recent: Recent, uri: str, declined: Declined, free: set[FreeName]) -> Renames:
    """The renames of the newest edit. A rename has no places after the user has undone one of them."""
    listed, newest = renamed(recent.edits), len(recent.edits) - 1
    tree = recent.parse(recent.cursor) if listed else None
    if tree is None or not tree.has_section(bindings.SECTION):
        free.clear()
        return Renames()
    result = renames(listed, newest, uri, recent.text, tree, recent.cursor, recent.is_late, free)
    undone = {place.substitution for place in result.places if declined(place) == Reason.UNDOES}
    if undone:
        result.places = [place for place in result.places if place.substitution not in undone]
        result.reason = Reason.UNDOES
    report_renames(recent, listed, result, tree)
    return result


def report_renames(recent: Recent, listed: Sequence[Rename], result: Renames, tree: SyntaxTree) -> None:
    """Explain the renames without a place."""
    for rename in listed:
        if all((place.substitution.old, place.substitution.new) != (rename.old, rename.new) for place in result.places):
            old = re.compile(rf"(?<!\w){re.escape(rename.old)}(?!\w)")
            left, errors = len(old.findall(recent.text, recent.low, recent.high)), tree.count_errors()
            reason = Reason.UNRESOLVED if left and result.reason == Reason.NO_REPEAT else result.reason
            detail = f"places with the old name: {left}"
            if errors and (rename.old, rename.new) not in result.resolved:
                detail += f"; syntax errors that may hide the definition: {errors}"
            recent.report(RENAME, reason, detail=detail if left else "")


# ── filters ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def text_problem(old: str, new: str) -> str:
    """The reason why new lines must not replace the old ones, whatever is around them; "" for none."""
    if old.split() == new.split() or new.count("\n") - old.count("\n") > MAX_ADDED_LINES:
        return Reason.UNFIT
    if any(line not in old and secret_text.holds_secret(line) for line in new.split("\n")):
        return secret_text.SECRET
    return ""


def error_problem(tree: SyntaxTree | None, place: Place, left_ms: Callable[[], float]) -> str:
    """The reason why an edit breaks the syntax at its place; "" where it does not. Without a tree nothing fits."""
    if tree is None or left_ms() <= 0:
        return Reason.NO_REPEAT
    errors = tree.count_errors_with(place.start, place.end, place.new, left_ms())
    if errors is None:  # no time is left
        return Reason.NO_REPEAT
    return "" if errors <= tree.count_errors() else Reason.BREAKS


def minimal(place: Place, text: str) -> Proposal:
    """The edit without the equal tokens at its ends."""
    old, new = text[place.start : place.end].replace("\r\n", "\n"), place.new
    if len(old) != place.end - place.start:  # line ends of two characters: the offsets would not fit
        return Proposal(place.start, place.end, new, place)
    head = common_ends(old, new)[0]
    while head and is_inside_word(old, head) | is_inside_word(new, head):
        head -= 1
    tail = common_ends(old[head:][::-1], new[head:][::-1])[0]
    while tail and is_inside_word(old, len(old) - tail) | is_inside_word(new, len(new) - tail):
        tail -= 1
    return Proposal(place.start + head, place.end - tail, new[head : len(new) - tail], place)
