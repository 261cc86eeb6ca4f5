"""What the user is doing: code changed a moment ago as before and after, regions looked at, text copied.

    didChange ─► the edit under way, in whole lines ─► the cursor is elsewhere ─► an Edit: the lines that were, and are
    speclsp/viewed ─► a Region        speclsp/copied ─► a Copy

What changes here changes the prompt near its start, and the engine reads all of it again. So nothing does while
somebody types: edits a few lines from one another are one, which counts from when the next one is made elsewhere or
the cursor has gone. An edit taken back leaves nothing, one that goes on where an older one was joins it.

Held in memory alone, a few of each and for an hour: files that were closed since count, files that no model may see
never do, and neither does a line with what looks like a key or a password.
"""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from speclsp.errors import error_site
from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.documents.document import Document
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.text_windows import normal_newlines
from speclsp.lsp.visibility import secret_text

APART_LINES = 6  # edits this near one another are one, and the cursor must be further away for it to count
MOST_LINES = 40  # of an edit, before and after: a paste, a formatter or another branch is no edit
MOST_CHARACTERS = 2000
MOST_RAW_CHARACTERS = 4 * MOST_CHARACTERS  # more is not even looked through: a line may have 10 MB
MOST_EDITS = 8
MOST_REGIONS = 4
MOST_COPIES = 2
REGION_LINES = 24
FORGET_AFTER_S = 3600.0
LEAST_JOINED = 8  # characters that must be the same for an edit to go on where another was

EDIT, VIEWED, COPIED = "edit", "viewed", "copied"  # a Chunk's source

log = logging.getLogger("speclsp.doing")


@dataclass(slots=True)
class UnderWay:
    """Lines that are being edited, and what they were."""

    document: Document
    first: int  # of the lines, now
    count: int
    before: list[str]


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines that were changed. Newlines are \\n."""

    uri: str
    language: str
    before: str
    after: str
    at_s: float
    shown: str = ""  # to the model


@dataclass(frozen=True, slots=True)
class Region:
    """Lines that were looked at."""

    uri: str
    language: str
    first: int
    text: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Copy:
    """Text that was copied."""

    text: str
    at_s: float


@dataclass(slots=True)
class RecentActivity:
    """What one user is doing. `kept_back`: whether no model may see a document; `path`: how it is named to one."""

    kept_back: Callable[[str], bool]
    path: Callable[[str], str]
    clock: Callable[[], float] = time.monotonic
    edits: list[Edit] = field(default_factory=list)  # the newest last, as all of these
    regions: list[Region] = field(default_factory=list)
    copies: list[Copy] = field(default_factory=list)
    _under_way: UnderWay | None = None

    # ── told by the server ────────────────────────────────────────────────────────────────────────────────────────────

    def edited(self, document: Document, first: int, gone: Sequence[str], came: int) -> None:
        """`came` lines have taken the place of those `gone`. Never raises: the text must stay in step."""
        try:
            self._edited(document, first, gone, came)
        except Exception as error:  # its message may quote the document
            log.error("an edit was not noted: %s", error_site(error))
            self._under_way = None

    def at(self, uri: str, line: int) -> None:
        """The cursor is here."""
        now = self._under_way
        if now is None:
            return
        away = max(now.first - line, line - (now.first + now.count - 1))
        if now.document.uri != uri or away > APART_LINES:
            self._settle()

    def closed(self, uri: str) -> None:
        """A document was closed."""
        if self._under_way is not None and self._under_way.document.uri == uri:
            self._settle()

    def viewed(self, document: Document, first: int, end: int) -> None:
        """The lines from `first` to before `end` were looked at for a while."""
        if self.kept_back(document.uri):
            return
        spare = max(0, end - first - REGION_LINES) // 2
        first, end = first + spare, end - spare
        lines = document.lines(first, min(end, first + REGION_LINES))
        if sum(map(len, lines)) > MOST_RAW_CHARACTERS:
            return
        text = clean("".join(lines)).strip("\n")
        if not text.strip() or len(text) > MOST_CHARACTERS or secret_text.holds_secret(text):
            return
        others = [one for one in self.regions if one.uri != document.uri or abs(one.first - first) >= REGION_LINES]
        others.append(Region(document.uri, document.language, first, text + "\n", self.clock()))
        self.regions = others[-MOST_REGIONS:]

    def copied(self, text: str, uri: str = "") -> None:
        """Text was copied; from which document, where that is known."""
        if len(text) > MOST_RAW_CHARACTERS:
            return
        text = clean(text).strip("\n")
        lines = text.count("\n") + 1
        if len(text.strip()) < LEAST_JOINED or len(text) > MOST_CHARACTERS or lines > MOST_LINES:
            return
        if (uri and self.kept_back(uri)) or secret_text.holds_secret(text):
            return
        others = [one for one in self.copies if one.text != text + "\n"]
        self.copies = [*others, Copy(text + "\n", self.clock())][-MOST_COPIES:]

    def forget(self) -> None:
        """Nothing was done."""
        self._under_way = None
        self.edits, self.regions, self.copies = [], [], []

    # ── asked by the context ──────────────────────────────────────────────────────────────────────────────────────────

    def candidates(self, place: ChunkPlace) -> list[Chunk]:
        """What is worth showing at a place, the oldest first: what is new stands at the end."""
        since = self.clock() - FORGET_AFTER_S
        self.edits = [one for one in self.edits if one.at_s > since]
        self.regions = [one for one in self.regions if one.at_s > since]
        self.copies = [one for one in self.copies if one.at_s > since]

        def fits(one: Edit | Region) -> bool:
            return alike(one.language, place.language) and not self.kept_back(one.uri)

        edits = [one for one in self.edits if fits(one)]
        regions = [one for one in self.regions if fits(one) and one.uri != place.uri]
        return [
            *(Chunk(self.path(one.uri), one.shown, recency(edits, one), EDIT) for one in edits),
            *(Chunk(self.path(one.uri), one.text, recency(regions, one), VIEWED) for one in regions),
            *(Chunk("clipboard", one.text, recency(self.copies, one), COPIED) for one in self.copies),
        ]

    # ── edits ─────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _edited(self, document: Document, first: int, gone: Sequence[str], came: int) -> None:
        head, tail = same_ends(gone, document.lines(first, first + came))
        gone, came, first = gone[head : len(gone) - tail], came - head - tail, first + head
        if not gone and not came:
            return
        now, end, longer = self._under_way, first + len(gone), came - len(gone)
        near = now is not None and now.document is document
        if now is not None and near:
            near = first <= now.first + now.count + APART_LINES and end >= now.first - APART_LINES
        if now is not None and not near:
            if now.document is document and end <= now.first:
                now.first += longer
            self._settle()
            now = None
        if now is None:
            if self.kept_back(document.uri):
                return
            now = UnderWay(document, first, came, list(gone))
        else:

            def was(start: int, stop: int) -> list[str]:  # lines, counted before this edit
                return [
                    *document.lines(min(start, first), min(stop, first)),
                    *gone[max(0, start - first) : max(0, stop - first)],
                    *document.lines(max(start, end) + longer, max(stop, end) + longer),
                ]

            low, high = min(now.first, first), max(now.first + now.count, end)
            now.before = [*was(low, now.first), *now.before, *was(now.first + now.count, high)]
            now.first, now.count = low, high - low + longer
        too_much = max(now.count, len(now.before)) > MOST_LINES or sum(map(len, now.before)) > MOST_CHARACTERS
        self._under_way = None if too_much else now

    def _settle(self) -> None:
        """The edit under way is done."""
        now, self._under_way = self._under_way, None
        if now is None or self.kept_back(now.document.uri):
            return
        lines = now.document.lines(now.first, now.first + now.count)
        if sum(map(len, lines)) > MOST_RAW_CHARACTERS:
            return
        before, after = whole_lines(clean("".join(now.before))), whole_lines(clean("".join(lines)))
        edit = Edit(now.document.uri, now.document.language, *trimmed(before, after), self.clock())
        others = []
        for other in self.edits:
            whole = joined(other, edit)
            if whole is None:
                others.append(other)
            else:
                edit = whole
        said = edit.before.split() != edit.after.split() and len(edit.after) <= MOST_CHARACTERS
        if said and not secret_text.holds_secret(edit.before) and not secret_text.holds_secret(edit.after):
            others = [one for one in others if (one.before, one.after) != (edit.before, edit.after)]
            others.append(replace(edit, shown=diff(edit.before, edit.after)))
        self.edits = others[-MOST_EDITS:]


def trimmed(before: list[str], after: list[str]) -> tuple[str, str]:
    """The texts without the lines that are the same at the start and at the end."""
    head, tail = same_ends(before, after)
    changed = (lines[head : len(lines) - tail] for lines in (before, after))
    older, newer = ("".join(line + "\n" for line in lines) for lines in changed)
    return older, newer


def whole_lines(text: str) -> list[str]:
    """Its lines without their ends; what stands after the last newline is one if it is something."""
    lines = text.split("\n")
    return lines if lines[-1] else lines[:-1]


def same_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """How many lines two pieces begin with alike, and end with, each counted once."""
    least, head, tail = min(len(before), len(after)), 0, 0
    while head < least and before[head] == after[head]:
        head += 1
    while tail < least - head and before[-1 - tail] == after[-1 - tail]:
        tail += 1
    return head, tail


def joined(older: Edit, newer: Edit) -> Edit | None:
    """The two as one, where the newer goes on in lines that the older one left."""
    if older.uri != newer.uri:
        return None
    if len(older.after.strip()) >= LEAST_JOINED and older.after in newer.before:
        before, after = newer.before.replace(older.after, older.before, 1), newer.after
    elif len(newer.before.strip()) >= LEAST_JOINED and newer.before in older.after:
        before, after = older.before, older.after.replace(newer.before, newer.after, 1)
    else:
        return None
    return Edit(newer.uri, newer.language, *trimmed(whole_lines(before), whole_lines(after)), newer.at_s)


def diff(before: str, after: str) -> str:
    """An edit as the model is shown it: as `diff -U1` has it, without its headers."""
    old, new = whole_lines(before), whole_lines(after)
    lines: list[str] = []
    for group in difflib.SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(1):
        lines += [""] if lines else []
        for kind, low, high, start, end in group:
            if kind == "equal":
                lines += [" " + line for line in old[low:high]]
            else:
                lines += ["-" + line for line in old[low:high]] + ["+" + line for line in new[start:end]]
    return "\n".join(lines) + "\n"


def recency(listed: Sequence[object], one: object) -> float:
    """1 for the newest, less for each older one."""
    return 1.0 / (len(listed) - listed.index(one))


def alike(one: str, other: str) -> bool:
    """Whether two languages have one grammar, or one name."""
    return (grammar(one) or one) == (grammar(other) or other)


def clean(text: str) -> str:
    """Newlines as \\n, and nothing invisible."""
    return lexical_rules.visible(normal_newlines(text))
