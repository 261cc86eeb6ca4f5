"""The model producer of next edits: a model that declares an edit format writes a window again; the first hunk counts.

    recent edits, window ─► prompt ─► engine, idle priority ─► answer, round by round ─► first hunk ─► filters ─► gate

    windows    at the cursor, then below the last edit
    gate       the joint probability of the changed tokens; copied tokens are no evidence
    filters    those of the deterministic producer

The request has the priority of prepared work: the engine runs it while it has nothing else to do, and any other request
ends it. Its stream is closed as soon as the first hunk is known.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace

from speclsp.errors import EngineError
from speclsp.lsp.backend import edit_prompt
from speclsp.lsp.backend.edit_prompt import EditInput, Hunk
from speclsp.lsp.backend.engine_http import ResponseTimeout
from speclsp.lsp.backend.types import FimRequest, StreamPiece
from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.changes.places import REACH_CHARACTERS, Place
from speclsp.lsp.next_edit.changes.substitutions import Evidence, RecentEdit, Substitution
from speclsp.lsp.next_edit.producer import Declined, Found, minimal, text_problem
from speclsp.lsp.next_edit.recent_activity import Edit, same_grammar, whole_lines
from speclsp.lsp.postprocess.edit_answer import AnswerHunk, first_hunk, joint_logprob
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.visibility.secret_text import FORBIDDEN

MODEL = "model"  # the kind of its edits
# Of the changed tokens together, for a model that was not calibrated. With an adapter of an experiment, 23 of the 45
# hunks above it were right, of all 126 hunks 40.
MIN_PROBABILITY = 0.61
DEADLINE_MS = 2000
CHECK_MS = 20.0  # of the processor, for the syntax
MAX_WINDOW_CHARACTERS = 1500
NEAR_LINES = 300  # on either side of the window, in which the last edits are located
SPARE_TOKENS = 64  # of an answer, beyond the window's own


@dataclass(frozen=True, slots=True)
class EditEngine:
    """The engine, as this producer uses it.

    `predicts_edits()`: the loaded model has an edit format, and the engine can be used. `session(uri)`: the document's
    name at the engine. `path(uri)`: its name in the prompt.
    """

    predicts_edits: Callable[[], Awaitable[bool]]
    stream: Callable[[FimRequest], AsyncGenerator[StreamPiece, None]]
    session: Callable[[str], str]
    path: Callable[[str], str]


class ModelProducer:
    """Requests edits from the engine."""

    def __init__(self, engine: EditEngine) -> None:
        self._engine = engine
        self._parser = SyntaxParser()

    async def is_available(self) -> bool:
        """True if the loaded model has an edit format."""
        return await self._engine.predicts_edits()

    async def propose(self, document: Document, cursor: int, edits: Sequence[Edit], declined: Declined) -> Found | str:
        """The first edit that passes gate and filters, or the reason for none.

        `cursor` is an offset in the document. `edits`: the oldest first. Cancel the task to give up: the engine stops
        within its round.
        """
        recent = [edit for edit in edits if same_grammar(edit.language, document.language)]
        is_available = await self.is_available()
        if not recent or not is_available:
            return Reason.NO_RECENT_EDIT if is_available else Reason.ENGINE_LOST
        reason: str = Reason.UNCHANGED
        at = document.position(cursor, "utf-32")
        for first, end in windows(document, at["line"], recent):
            edit = edit_input(document, first, end, recent, self._engine.path, (at["line"] - first, at["character"]))
            if not edit_prompt.holds_marker(edit.window) and 0 < sum(map(len, edit.window)) <= MAX_WINDOW_CHARACTERS:
                hunk, outcome = await self._ask(document.uri, edit)
                if hunk is None:
                    reason = str(outcome)
                    if reason != Reason.UNCHANGED:
                        return reason
                    continue
                place = place_of(document, first, hunk)
                reason = self._problem(document, place, recent, declined)
                if not reason:
                    is_sure = float(outcome) >= MIN_PROBABILITY
                    return found_edit(document, place, float(outcome)) if is_sure else Reason.MODEL_UNSURE
        return reason

    async def _ask(self, uri: str, edit: EditInput) -> tuple[AnswerHunk | None, float | str]:
        """(the hunk of the model's answer, its probability), or (None, the reason for none)."""
        window = edit_prompt.expected_answer(edit.window)
        request = FimRequest(
            raw_prompt=edit_prompt.format_sweep(edit),
            draft_window=window,
            max_tokens=len(window) // 2 + SPARE_TOKENS,
            deadline_ms=DEADLINE_MS,
            session=self._engine.session(uri),
            idle=True,
        )
        answer, tokens, stop = "", list[tuple[int, float]](), ""
        hunk: AnswerHunk | None = None
        try:
            async with aclosing(self._engine.stream(request)) as pieces:
                async for piece in pieces:
                    answer += piece.text
                    tokens += piece.logprobs
                    stop = piece.cost.stop_type if piece.cost is not None else ""
                    hunk = first_hunk(edit.window, answer, ended=stop in ("eos", "word"))
                    if hunk is not None:
                        break
        except ResponseTimeout:
            return None, Reason.DEADLINE
        except EngineError:
            return None, Reason.ENGINE_LOST
        if hunk is None:
            ends = dict.fromkeys(("eos", "word"), Reason.UNCHANGED)
            ends |= dict.fromkeys(("cancelled", "busy"), Reason.ENGINE_BUSY)
            return None, ends.get(stop, Reason.DEADLINE)
        logprob = joint_logprob(tokens, hunk.answer_start, hunk.answer_end)
        return hunk, math.exp(min(logprob, 0.0))

    def _problem(self, document: Document, place: Place, recent: Sequence[Edit], declined: Declined) -> str:
        """The reason not to show an edit; "" for none. `place`: offsets of the document."""
        old = document.piece(place.start, place.end)
        if problem := text_problem(old, place.new):
            return problem
        if any(line not in old and FORBIDDEN.search(line) for line in place.new.split("\n")):
            return Reason.FORBIDDEN
        if reverts(place.substitution, recent):
            return Reason.REVERTS
        if problem := declined(place):
            return problem
        base = max(0, place.start - REACH_CHARACTERS)
        text = document.piece(base, min(document.characters, place.end + REACH_CHARACTERS))
        tree = self._parser.parse(document.language, text, CHECK_MS, near=place.start - base)
        if tree is None:  # without a grammar nothing can be checked
            return Reason.BREAKS if grammar(document.language) else ""
        errors = tree.count_errors_with(place.start - base, place.end - base, place.new, CHECK_MS)
        return "" if errors is not None and errors <= tree.count_errors() else Reason.BREAKS


def windows(document: Document, line: int, recent: Sequence[Edit]) -> Iterator[tuple[int, int]]:
    """The windows to ask about, as (first line, line after the last one): at the cursor, then below the last edit."""
    count = line_count(document)
    first, end = edit_prompt.window_around(min(line, count - 1), count)
    yield first, end
    last = recent[-1]
    at = locate(document, last, line) if last.uri == document.uri else None
    if at is not None:
        below = at + len(whole_lines(last.after))
        if below < count and not first <= below < end:
            yield edit_prompt.window_around(min(below + edit_prompt.LINES_ABOVE, count - 1), count)


def edit_input(
    document: Document,
    first: int,
    end: int,
    recent: Sequence[Edit],
    path: Callable[[str], str],
    cursor: tuple[int, int] | None = None,
) -> EditInput:
    """The prompt's input for a window of a document. `cursor`: its line from the window's first one, and character."""
    window = stripped(document.lines(first, end))
    earlier, newest = None, recent[-1]
    at = locate(document, newest, first) if newest.uri == document.uri else None
    after = whole_lines(newest.after)
    if at is not None and first <= at and at + len(after) <= end:
        earlier = (*window[: at - first], *whole_lines(newest.before), *window[at - first + len(after) :])
    return EditInput(
        path=path(document.uri),
        before=stripped(document.lines(max(0, first - edit_prompt.FILE_LINES), first)),
        window=window,
        after=stripped(document.lines(end, end + edit_prompt.FILE_LINES)),
        first=first + 1,
        earlier=earlier,
        cursor=cursor if cursor is not None and 0 <= cursor[0] < len(window) else None,
        hunks=tuple(hunk_of(document, edit, first, path) for edit in recent[-edit_prompt.MAX_HUNKS :]),
    )


def hunk_of(document: Document, edit: Edit, near: int, path: Callable[[str], str]) -> Hunk:
    """A recent edit with a line of context on each side, where it is located in the document."""
    before, after = whole_lines(edit.before), whole_lines(edit.after)
    at = locate(document, edit, near) if edit.uri == document.uri else None
    if at is None:
        return Hunk(old=tuple(before), new=tuple(after), path=path(edit.uri))
    above = stripped(document.lines(at - 1, at)) if at else ()
    below = stripped(document.lines(at + len(after), at + len(after) + 1))
    return Hunk(
        old=(*above, *before, *below), new=(*above, *after, *below), path=path(edit.uri), first=at + 1 - len(above)
    )


def locate(document: Document, edit: Edit, near: int) -> int | None:
    """The first line that an edit left, if its lines stand near line `near`."""
    after = tuple(whole_lines(edit.after))
    if not after:
        return None
    base = max(0, near - NEAR_LINES)
    lines = stripped(document.lines(base, near + NEAR_LINES))
    starts = [at for at in range(len(lines) - len(after) + 1) if lines[at : at + len(after)] == after]
    return base + min(starts, key=lambda at: abs(base + at - near)) if starts else None


def stripped(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines without their line ends."""
    return tuple(line.rstrip("\r\n") for line in lines)


def line_count(document: Document) -> int:
    """The number of lines; the text after the last newline is one unless it is empty."""
    last = document.position(document.characters, "utf-32")
    return max(1, last["line"] + (last["character"] > 0))


def place_of(document: Document, first: int, hunk: AnswerHunk) -> Place:
    """The place of a hunk of the window that begins at line `first`; offsets are the document's."""

    def start_of(line: int) -> int:
        return document.offset({"line": line, "character": 0}, "utf-32")

    old = stripped(document.lines(first + hunk.first, first + hunk.end))
    start, new = start_of(first + hunk.first), "\n".join(hunk.lines)
    if not hunk.lines or not old:  # whole lines go or come: their line ends go with them
        end, new = start_of(first + hunk.end), "".join(line + "\n" for line in hunk.lines)
        if not old and start == document.characters and not document.piece(start - 1, start).endswith("\n"):
            new = "\n" + new[:-1]  # below a last line without a line end
    else:
        end = start_of(first + hunk.end - 1) + len(old[-1])
    return Place(start, end, new, Substitution(MODEL, "\n".join(old), "\n".join(hunk.lines)), Evidence(times=1))


def found_edit(document: Document, place: Place, probability: float) -> Found:
    """The edit, without the equal tokens at its ends."""
    old = document.piece(place.start, place.end)
    local = Place(0, len(old), place.new, place.substitution, place.evidence)
    return Found(document, replace(minimal(local, old), probability=probability), place.start)


def reverts(change: Substitution, recent: Sequence[Edit]) -> bool:
    """True if a change brings back lines that a recent edit has replaced."""
    now = RecentEdit("", tuple(change.old.split("\n")), tuple(change.new.split("\n")))
    pairs = {(old.strip(), new.strip()) for old, new in now.changed_lines}
    for edit in recent:
        before, after = tuple(whole_lines(edit.before)), tuple(whole_lines(edit.after))
        done = {(new.strip(), old.strip()) for old, new in RecentEdit("", before, after).changed_lines}
        if pairs & done or (added(now.before, now.after), added(now.after, now.before)) == (
            added(after, before),
            added(before, after),
        ):
            return True
    return False


def added(old: Sequence[str], new: Sequence[str]) -> list[str]:
    """Lines with a word that are new."""
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [
        line.strip() for kind, _, _, start, end in codes if kind != "equal" for line in new[start:end] if line.strip()
    ]
