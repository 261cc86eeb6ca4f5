"""Recent edits of one user, for the next edit: lines changed a moment ago, before and after.

    didChange ─► pending edit, in whole lines ─► an edit elsewhere ─► Edit: the lines before, the lines after

Edits a few lines apart are merged into one pending edit. It is committed when the next edit is made elsewhere or its
document is closed. An edit that is undone leaves no record. An edit that continues an older one is merged with it.
A change of layout, as a formatter makes it, is no edit. Neither is a reload from disk: the text then equals a file that
another program wrote, after the last didSave or didOpen and before the change. After it, the edits of the document are
forgotten. After a return to the saved text, as by undo, only edits are forgotten that this text does not have.

Edits are kept in memory only, a few of them and for one hour. Edits in files that were closed since are kept. Files
that no model may see are never recorded, and neither is a line that looks like a key or a password.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from speclsp.errors import error_site
from speclsp.lsp.documents.document import Document
from speclsp.lsp.documents.uri_paths import file_path, system_path
from speclsp.lsp.next_edit.changes.substitutions import Edit, whole_lines
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.text_windows import common_ends, normal_newlines
from speclsp.lsp.visibility import secret_text

APART_LINES = 6  # edits this near each other are merged
MAX_LINES = 40  # of an edit, before and after: a paste, a formatter run or a branch switch is no edit
MAX_CHARACTERS = 2000
MAX_RAW_CHARACTERS = 4 * MAX_CHARACTERS  # more is not even cleaned: a line may have 10 MB
MAX_EDITS = 8
FORGET_AFTER_S = 3600.0
MAX_FILE_BYTES = 1 << 20  # of a file that is compared with its document
LAYOUT_LINES = 3  # of a didChange that may be of layout alone: fewer are typed
LAYOUT = re.compile(r"[\s,;()\"'`]+")
MIN_JOINED = 8  # characters that must be the same for an edit to continue an older one

log = logging.getLogger("speclsp.activity")


@dataclass(slots=True)
class PendingEdit:
    """Lines that are being edited, and their earlier text."""

    document: Document
    first: int  # first line, in the document as it is now
    count: int  # lines, in the document as it is now
    before: list[str]


@dataclass(slots=True)
class RecentActivity:
    """Recent edits of one user.

    `kept_back(uri)` is True for a document that no model may see.
    """

    kept_back: Callable[[str], bool]
    clock: Callable[[], float] = time.monotonic
    edits: list[Edit] = field(default_factory=list)  # oldest first
    _pending: PendingEdit | None = None
    _unsaved_s: dict[str, float] = field(default_factory=dict)  # URI -> time of the last change, since the epoch
    _saved_s: dict[str, float] = field(default_factory=dict)  # URI -> time of the last didSave or didOpen, likewise

    def edited(self, document: Document, first: int, removed: Sequence[str], inserted_lines: int) -> None:
        """Record that `inserted_lines` lines at line `first` have replaced the lines `removed`.

        Never raises: an error must not leave the document out of step with the editor.
        """
        self._unsaved_s[document.uri] = time.time()
        try:
            self._merge_edit(document, first, removed, inserted_lines)
        except Exception as error:  # its message may quote the document
            log.error("an edit is not recorded: %s", error_site(error))
            self._pending = None

    def opened(self, document: Document) -> None:
        """Drop the edits of a document that its text has no more: they were not saved, or the file has changed."""
        self.saved(document.uri)
        self._forget_undone(document)

    def saved(self, uri: str) -> None:
        self._unsaved_s.pop(uri, None)
        self._saved_s[uri] = time.time()

    async def forget_reload(self, document: Document) -> None:
        """Forget the edits of a document that was reloaded after the newest edit, and those that it has undone."""
        uri, version, recent = document.uri, document.version, self.recent()
        changed_s = self._unsaved_s.get(uri) if recent and recent[-1].uri == uri else None
        written_s = await asyncio.to_thread(written, uri, document.text) if changed_s is not None else None
        if changed_s is None or written_s is None or written_s > changed_s:
            return
        if document.version == version and uri in self._unsaved_s:
            if written_s > self._saved_s.get(uri, 0.0):
                self.edits = [edit for edit in self.edits if edit.uri != uri]
                self._pending = None
                return
            undone, pending = self._forget_undone(document), self._pending_edit()
            if pending and any(edit.after in pending.before and edit.before in pending.after for edit in undone):
                self._pending = None

    def closed(self, uri: str) -> None:
        """Commit the pending edit if its document was closed."""
        self._unsaved_s.pop(uri, None)
        self._saved_s.pop(uri, None)
        if self._pending is not None and self._pending.document.uri == uri:
            self._commit_edit()

    def recent(self) -> list[Edit]:
        """All edits in files that a model may see, the oldest first, and the pending one as it is now."""
        since_s = self.clock() - FORGET_AFTER_S
        self.edits = [edit for edit in self.edits if edit.committed_s > since_s]
        pending = self._pending_edit()
        edits = [*self.edits, *([pending] if pending is not None and _is_worth_keeping(pending) else [])]
        return [edit for edit in edits if not self.kept_back(edit.uri)]

    def _forget_undone(self, document: Document) -> list[Edit]:
        """Forget the committed edits that a document's text does not have, and return them."""
        edits = [edit for edit in self.edits if edit.uri == document.uri]
        text = clean(document.text) if edits else ""
        text += "" if text.endswith("\n") else "\n"
        undone = [edit for edit in edits if edit.after not in text]
        self.edits = [edit for edit in self.edits if edit not in undone]
        return undone

    def _merge_edit(self, document: Document, first: int, removed: Sequence[str], inserted_lines: int) -> None:
        """Add a change to the pending edit, or commit that and start another one."""
        head, tail = common_ends(removed, document.lines(first, first + inserted_lines))
        first, removed = first + head, removed[head : len(removed) - tail]
        inserted_lines -= head + tail
        if not removed and not inserted_lines:
            return
        pending, end, growth = self._pending, first + len(removed), inserted_lines - len(removed)
        is_at_once = max(len(removed), inserted_lines, document.lines_at_once) >= LAYOUT_LINES
        is_layout = is_at_once and _is_layout(removed, document.lines(first, first + inserted_lines))
        if pending is not None and pending.document is document:
            pending_end, is_above = pending.first + pending.count, end <= pending.first
            is_large = max(pending_end, end) - min(pending.first, first) > MAX_LINES or inserted_lines > MAX_LINES
            if not is_above and first < pending_end and (is_layout or is_large):
                self._commit_edit(_earlier(document, first, removed, growth, pending.first, pending_end))
                pending = None
            elif is_layout and is_above:
                pending.first += growth
        if is_layout:
            return
        if pending is not None and not _is_near(pending, document, first, end):
            if pending.document is document and end <= pending.first:
                pending.first += growth
            self._commit_edit()
            pending = None
        if pending is None:
            if self.kept_back(document.uri):
                return
            pending = PendingEdit(document, first, inserted_lines, list(removed))
        else:
            _extend(pending, first, removed, growth)
        too_many_lines = max(pending.count, len(pending.before)) > MAX_LINES
        self._pending = None if too_many_lines or sum(map(len, pending.before)) > MAX_CHARACTERS else pending

    def _commit_edit(self, lines: list[str] | None = None) -> None:
        """Turn the pending edit into an Edit, merged with the older ones that it continues.

        `lines`: those of the edit; without them, the lines that the document has.
        """
        edit = self._pending_edit(lines)
        self._pending = None
        if edit is None:
            return
        others = []
        for other in self.edits:
            merged = joined(other, edit)
            if merged is None:
                others.append(other)
            else:
                edit = merged
        if _is_worth_keeping(edit):
            same = [other for other in others if (other.before, other.after) == (edit.before, edit.after)]
            others = [other for other in others if other not in same]
            times = edit.times + sum(other.times for other in same)
            others.append(replace(edit, times=times))
        self.edits = others[-MAX_EDITS:]

    def _pending_edit(self, lines: list[str] | None = None) -> Edit | None:
        """The pending edit as an Edit; None if there is none, or no model may see it."""
        pending = self._pending
        if pending is None or self.kept_back(pending.document.uri):
            return None
        if lines is None:
            lines = pending.document.lines(pending.first, pending.first + pending.count)
        if sum(map(len, lines)) > MAX_RAW_CHARACTERS:
            return None
        before, after = whole_lines(clean("".join(pending.before))), whole_lines(clean("".join(lines)))
        edit = Edit(pending.document.uri, pending.document.language, *trimmed(before, after), self.clock())
        if edit.after:
            return edit
        context = whole_lines(clean("".join(pending.document.lines(pending.first - 1, pending.first)))) or [""]
        return replace(edit, above=[*context[-1:], *after][common_ends(before, after)[0]])


def _is_worth_keeping(edit: Edit) -> bool:
    """True if an edit changes words, is short, and has nothing in it that looks like a key or a password."""
    changes_words = edit.before.split() != edit.after.split() and len(edit.after) <= MAX_CHARACTERS
    return changes_words and not secret_text.holds_secret(edit.before) and not secret_text.holds_secret(edit.after)


def _is_near(pending: PendingEdit, document: Document, first: int, end: int) -> bool:
    """True if a change of the lines from `first` to before `end` belongs to the pending edit."""
    return (
        pending.document is document
        and first <= pending.first + pending.count + APART_LINES
        and end >= pending.first - APART_LINES
    )


def _extend(pending: PendingEdit, first: int, removed: Sequence[str], growth: int) -> None:
    """Widen a pending edit to a change that is in its document already: `removed` is `growth` lines longer now."""
    change = pending.document, first, removed, growth
    pending_end = pending.first + pending.count
    low, high = min(pending.first, first), max(pending_end, first + len(removed))
    pending.before = [*_earlier(*change, low, pending.first), *pending.before, *_earlier(*change, pending_end, high)]
    pending.first, pending.count = low, high - low + growth


def _earlier(document: Document, first: int, removed: Sequence[str], growth: int, start: int, stop: int) -> list[str]:
    """The lines `[start, stop)` before a change of a document, by their numbers then."""
    end = first + len(removed)
    return [
        *document.lines(min(start, first), min(stop, first)),
        *removed[max(0, start - first) : max(0, stop - first)],
        *document.lines(max(start, end) + growth, max(stop, end) + growth),
    ]


def _is_layout(removed: Sequence[str], inserted: Sequence[str]) -> bool:
    """True if a change is one of blanks, quotes, commas and parentheses only."""
    return bool(removed) and LAYOUT.sub("", "".join(removed)) == LAYOUT.sub("", "".join(inserted))


def written(uri: str, text: str) -> float | None:
    """The time when a document's file was written, in seconds since the epoch; None if it has another text."""
    if not uri.startswith("file:"):
        return None
    try:
        path = Path(system_path(file_path(uri)))
        status = path.stat()
        if status.st_size > MAX_FILE_BYTES:
            return None
        is_same = normal_newlines(path.read_bytes().decode("utf-8-sig")) == normal_newlines(text)
        return status.st_mtime if is_same else None
    except (OSError, ValueError):
        return None


def trimmed(before: list[str], after: list[str]) -> tuple[str, str]:
    """Both texts without the lines that are equal at the start and at the end."""
    head, tail = common_ends(before, after)
    changed = (lines[head : len(lines) - tail] for lines in (before, after))
    older, newer = ("".join(line + "\n" for line in lines) for lines in changed)
    return older, newer


def joined(older: Edit, newer: Edit) -> Edit | None:
    """Both edits as one, if the newer one changes lines that the older one left; else None."""
    if older.uri != newer.uri:
        return None
    if len(older.after.strip()) >= MIN_JOINED and older.after in newer.before:
        before, after = newer.before.replace(older.after, older.before, 1), newer.after
    elif len(newer.before.strip()) >= MIN_JOINED and newer.before in older.after:
        before, after = older.before, older.after.replace(newer.before, newer.after, 1)
    else:
        return None
    return Edit(newer.uri, newer.language, *trimmed(whole_lines(before), whole_lines(after)), newer.committed_s)


def same_grammar(language: str, other: str) -> bool:
    """True if two LSP language ids have the same grammar, or are the same id."""
    return (grammar(language) or language) == (grammar(other) or other)


def clean(text: str) -> str:
    """The text with newlines as \\n and without invisible characters."""
    return hidden_characters.visible(normal_newlines(text))


def ends_in_new_name(left: str, edit: Edit) -> bool:
    """True if the text left of the cursor ends in a word that the edit wrote, in a line where it removed another."""
    name = re.search(r"\w+\Z", left)
    if name is None or name[0] not in edit.after:
        return False
    for pair in zip(edit.before.split("\n"), edit.after.split("\n"), strict=False):
        before, after = (set(re.findall(r"\w+", line)) for line in pair)
        if name[0] in after - before and not before <= after:
            return True
    return False
