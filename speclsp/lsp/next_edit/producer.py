"""The deterministic producer of next edits: applies a substitution of the last edits where the same thing stands.

    recent edits ─► learn ─► places ─► gate ─► role ─► filters ─► Proposal, or the reason for none

    gate       the change was made in the newest edit, and no place between was left as it was; after one time the
               cursor has left the line; edit_likelihood.py finds the edit likely
    role       tokens around it agree; the same kind of text (code, string, comment); an identifier in its scope
    filters    nothing of the last edits is undone; more than whitespace changes; the syntax gets no worse; no secret;
               at most 20 lines more

Precision comes first: a suggestion elsewhere in the file interrupts. benchmarks/editor/next_edit.py measures the gate.
The work is bounded, and ends when its budget of processor time is spent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, groupby, islice, takewhile
from typing import NamedTuple

from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit import edit_likelihood as gate
from speclsp.lsp.next_edit.changes.callees import callee_places
from speclsp.lsp.next_edit.changes.calls.arguments import argument_places
from speclsp.lsp.next_edit.changes.places import Place, occurrences, place_at, places
from speclsp.lsp.next_edit.changes.recent_changes import NotOffered, Recent
from speclsp.lsp.next_edit.changes.renamed_names import Rename, renamed
from speclsp.lsp.next_edit.changes.replaced_types import type_places
from speclsp.lsp.next_edit.changes.substitutions import PHRASE, RENAME, Edit, Evidence, Substitution, learn
from speclsp.lsp.next_edit.edit_likelihood import FeatureReader
from speclsp.lsp.next_edit.recent_activity import same_grammar
from speclsp.lsp.next_edit.renames.name_conflicts import FreeName
from speclsp.lsp.next_edit.renames.rename_places import Renames, renames
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.incremental_parse import parse_clock_s
from speclsp.lsp.syntax.languages import BY_NAME, record
from speclsp.lsp.syntax.languages.keywords import definition, statement_words
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.text_windows import common_ends, line_at
from speclsp.lsp.syntax.tree import SyntaxTree, load_query, query_sections
from speclsp.lsp.visibility import secret_text
from speclsp.plain_text import is_inside_word

PRODUCER = "rules"  # its name in explanations
BUDGET_MS = 10.0  # of the processor; the last step may overrun it by a little
WARM_UP_MS = 1000.0
PREPARE_MS = 50.0
MIN_TEXT = 8  # characters of a phrase in a comment or a string: short ones are words of a language
MAX_ADDED_LINES = 20
MEMBER_CHARACTERS = 15_000  # searched for definitions on either side of a place
MIN_NAME_TIMES = 2
MAX_JUDGED, MAX_CHECKED = 48, 6  # places whose probability is computed, and that are parsed
PAIRED = ("()", "[]", "{}", '""', "''", "``")


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
                if not problem and not place.is_proven:
                    problem = role_problem(parse(place.start), place, text, uri)
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
    yield from repeated_places(recent, renamed)


def by_scope(recent: Recent, uri: str, declined: Declined, free: set[FreeName]) -> Renames:
    """The renames of the newest edit. A rename has no places after the user has undone one of them."""
    listed, newest = renamed(recent.edits), len(recent.edits) - 1
    tree = recent.parse(recent.cursor) if listed else None
    if tree is None or not bindings.has_bindings(tree):
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
            is_unresolved = left > 0 and (rename.old, rename.new) not in result.resolved
            reason = Reason.UNRESOLVED if is_unresolved and result.reason == Reason.NO_REPEAT else result.reason
            detail = f"places with the old name{'' if is_unresolved else ', not the same definition'}: {left}"
            if is_unresolved and errors:
                detail += f"; syntax errors that may hide the definition: {errors}"
            recent.report(RENAME, reason, detail=detail if left else "")


def repeated_places(recent: Recent, renamed: Renames) -> Iterator[Place]:
    """The places of learned substitutions that pass the gate, without those that renames by scope have decided."""
    learned, text = learn(recent.edits, recent.is_late), recent.text
    kept = {key: evidence for key, evidence in learned.substitutions.items() if not renamed.explains(key)}
    learned.substitutions, newest, cursor_line = kept, len(recent.edits) - 1, line_at(text, recent.cursor)
    skipped: dict[Substitution, bool] = {}
    statements = statement_words(recent.language.keywords)
    listed = places(learned, text, recent.cursor, lambda place: is_wanted(place, newest, statements), recent.is_late)
    for place in chain.from_iterable(whole(at_line) for _, at_line in groupby(listed, lambda place: place.start)):
        if place.evidence.times > 1 or is_left(place, cursor_line):
            if place.substitution not in skipped:
                skipped[place.substitution] = is_skipped(place.substitution, place.evidence, text)
            if not skipped[place.substitution]:
                yield place


def whole(at_line: Iterable[Place]) -> Iterator[Place]:
    """The places of one line without those that make a part of another one's change, made as often as that."""
    listed = list(at_line)
    for place in sorted(listed, key=lambda place: -len(place.substitution.old)):
        old, times = place.substitution.old, place.evidence.times
        wider = (other for other in listed if other.substitution.kind == PHRASE and other.substitution.old != old)
        if not any(old in other.substitution.old and other.evidence.times >= times for other in wider):
            yield place


# ── gate ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def is_wanted(place: Place, newest: int, statements: re.Pattern[str]) -> bool:
    """True if the user made this change just now, and it is complete in itself. A name needs a second time.

    After one time, a name that no scope explains is one of another object: `print(a)` is not `log.print(a)`.
    """
    substitution, evidence = place.substitution, place.evidence
    if evidence.newest != newest or (substitution.kind == RENAME and evidence.times < MIN_NAME_TIMES):
        return False
    if not is_balanced(substitution.old) or not is_balanced(substitution.new):
        return False
    return substitution.kind != PHRASE or is_expression(substitution.old, substitution.new, statements)


def is_left(place: Place, cursor_line: str) -> bool:
    """True if the cursor has left the lines of the change: before, the user may still be typing them."""
    lines = chain(place.substitution.new.split("\n"), (origin.line for origin in place.evidence.origins))
    return cursor_line not in map(str.strip, lines)


def is_expression(old: str, new: str, statements: re.Pattern[str]) -> bool:
    """True if a phrase stands for another one in an expression, and does not turn one statement into another."""
    old, new = old.strip(), new.strip()
    cut = not new or old[0] in ",=" or old[-1] in ",=:" or new[-1] in "=:"
    return not cut and statements.findall(old) == statements.findall(new)


def is_balanced(piece: str) -> bool:
    """True if a piece of code closes as many brackets and quotes as it opens."""
    return all(
        piece.count(pair[0]) == piece.count(pair[1]) if pair[0] != pair[1] else piece.count(pair[0]) % 2 == 0
        for pair in PAIRED
    )


def is_skipped(substitution: Substitution, evidence: Evidence, text: str) -> bool:
    """True if a place of a substitution was left as it was, between the first such change and the last one."""
    lines = dict.fromkeys(origin.line for origin in evidence.origins)
    changed = [offset for line in lines if (offset := text.find(line)) >= 0]
    if not changed:
        return False
    high = max(text.rfind(line) for line in lines)
    low = text.rfind("\n", 0, min(changed)) + 1
    return any(
        place_at(substitution, evidence, text, start) is not None
        for start in occurrences(substitution, text, low, high)
    )


# ── filters ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def text_problem(old: str, new: str) -> str:
    """The reason why new lines must not replace the old ones, whatever is around them; "" for none."""
    if old.split() == new.split() or new.count("\n") - old.count("\n") > MAX_ADDED_LINES:
        return Reason.UNFIT
    if any(line not in old and secret_text.holds_secret(line) for line in new.split("\n")):
        return secret_text.SECRET
    return ""


def role_problem(tree: SyntaxTree | None, place: Place, text: str, uri: str) -> str:
    """The reason why the same text means something else at a place; "" where it does not. Without a tree it does."""
    if tree is None:
        return Reason.NO_REPEAT
    substitution = place.substitution
    changed = [  # (start of the line, start of the new tokens) wherever the user made the change in this document
        (offset, offset + max(origin.line.find(substitution.new), 0))
        for origin in place.evidence.origins
        if origin.uri == uri and (offset := text.find(origin.line)) >= 0
    ]
    kind, kinds = tree.kind_at(place.changed_at(text) + 1), {tree.kind_at(at + 1) for _, at in changed}
    if substitution.kind in (RENAME, PHRASE) and kinds and kind not in kinds:
        return Reason.NO_REPEAT
    if substitution.kind == PHRASE and kind != "code" and len(substitution.old) < MIN_TEXT:
        return Reason.NO_REPEAT
    if substitution.kind == RENAME and not is_renamed(tree, place, text, [line for line, _ in changed]):
        return Reason.NO_REPEAT
    return ""


def error_problem(tree: SyntaxTree | None, place: Place, left_ms: Callable[[], float]) -> str:
    """The reason why an edit breaks the syntax at its place; "" where it does not. Without a tree nothing fits."""
    if tree is None or left_ms() <= 0:
        return Reason.NO_REPEAT
    errors = tree.count_errors_with(place.start, place.end, place.new, left_ms())
    if errors is None:  # no time is left
        return Reason.NO_REPEAT
    return "" if errors <= tree.count_errors() else Reason.BREAKS


def is_renamed(tree: SyntaxTree, place: Place, text: str, changed: Sequence[int]) -> bool:
    """True if the identifier was renamed, and means the same here as at the changed places.

    Its definition has the new name, and none has the old one: in the scope that all changes are in, or for a member
    (`x.name`) in the text around the place. With the definition in another file, a rename looks like another call.
    """
    old, new = place.substitution.old, place.substitution.new
    low, high = max(0, place.start - MEMBER_CHARACTERS), place.start + MEMBER_CHARACTERS
    if changed and f".{old}" not in text[place.start : place.end]:
        scopes = [[(scope.start, scope.end) for scope in tree.enclosing(offset)] for offset in changed]
        shared = [levels[0] for levels in takewhile(lambda levels: len({*levels}) == 1, zip(*scopes, strict=False))]
        if shared:
            low, high = max(low, shared[-1][0]), min(high, shared[-1][1])
        if not low <= place.start < high:
            return False
    if text.find(new, low, high) < 0:
        return False
    words = BY_NAME[tree.grammar].keywords
    defines_old, defines_new = (definition(words, name).search(text, low, high) for name in (old, new))
    return defines_new is not None and defines_old is None


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
