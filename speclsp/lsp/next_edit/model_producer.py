"""The model producer of next edits: a model that declares an edit format writes a window again; the first hunk counts.

    recent edits, window ─► prompt ─► engine, idle priority ─► answer, round by round ─► first hunk ─► filters ─► gate

    gate       the joint probability of the changed tokens; copied tokens are no evidence
    filters    those of the deterministic producer

The request has the priority of prepared work: the engine runs it while it has nothing else to do, and any other request
ends it. Its stream is closed as soon as the first hunk is known.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from speclsp.errors import EngineError
from speclsp.lsp.backend import edit_prompt
from speclsp.lsp.backend.edit_prompt import EditInput, Hunk
from speclsp.lsp.backend.engine_http import ResponseTimeout
from speclsp.lsp.backend.types import FimRequest, StreamPiece
from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.changes.recent_changes import REACH_CHARACTERS
from speclsp.lsp.next_edit.changes.substitutions import Edit, Evidence, Place, Substitution
from speclsp.lsp.next_edit.producer import Declined, Found, error_problem, minimal, text_problem
from speclsp.lsp.next_edit.recent_activity import same_grammar
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
STOPS = {"eos": Reason.UNCHANGED, "word": Reason.UNCHANGED, "cancelled": Reason.ENGINE_BUSY, "busy": Reason.ENGINE_BUSY}
SPARE_TOKENS = 64  # of an answer, beyond the window's own


@dataclass(eq=False, repr=False)
class ModelProducer:
    """Requests edits from the engine.

    `is_available()`: the loaded model has an edit format, and the engine can be used. `session(uri)`: the document's
    name at the engine. `path(uri)`: its name in the prompt.
    """

    is_available: Callable[[], Awaitable[bool]]
    stream: Callable[[FimRequest], AsyncGenerator[StreamPiece, None]]
    session: Callable[[str], str]
    path: Callable[[str], str]
    _parser: SyntaxParser = field(default_factory=SyntaxParser)

    async def propose(self, document: Document, cursor: int, edits: Sequence[Edit], declined: Declined) -> Found | str:
        """The edit that passes gate and filters, or the reason for none. `edits`: the oldest first."""
        recent = [edit for edit in edits if same_grammar(edit.language, document.language)]
        if not recent:
            return Reason.NO_RECENT_EDIT
        at, last = (document.position(offset, "utf-32") for offset in (cursor, document.characters))
        first, end = edit_prompt.window_around(at["line"], last["line"] + (last["character"] > 0))
        edit = edit_input(document, first, end, recent, self.path, (at["line"] - first, at["character"]))
        text = "".join(edit.window)
        if not text or len(text) > MAX_WINDOW_CHARACTERS or edit_prompt.plain(text) != text:
            return Reason.UNCHANGED
        answer = await self._ask(document.uri, edit)
        if isinstance(answer, str):
            return answer
        hunk, probability = answer
        place = place_of(document, first, hunk)
        if problem := self._problem(document, place, recent, declined):
            return problem
        if probability < MIN_PROBABILITY:
            return Reason.MODEL_UNSURE
        old = document.piece(place.start, place.end)
        proposal = minimal(replace(place, start=0, end=len(old)), old)
        return Found(document, replace(proposal, probability=probability), place.start)

    async def _ask(self, uri: str, edit: EditInput) -> tuple[AnswerHunk, float] | str:
        """(the hunk of the model's answer, its probability), or the reason for none."""
        window = "".join(line + "\n" for line in edit.window)  # the answer for a window that stays as it is
        request = FimRequest(
            raw_prompt=edit_prompt.format_sweep(edit),
            previous=window,
            max_tokens=len(window) // 2 + SPARE_TOKENS,
            deadline_ms=DEADLINE_MS,
            session=self.session(uri),
            idle=True,
        )
        answer, tokens, stop, hunk = "", list[tuple[int, float]](), "", None
        try:
            async with aclosing(self.stream(request)) as pieces:
                async for piece in pieces:
                    answer += piece.text
                    tokens += piece.logprobs
                    stop = piece.cost.stop_type if piece.cost is not None else ""
                    hunk = first_hunk(edit.window, answer, ended=stop in ("eos", "word"))
                    if hunk is not None:
                        break
        except ResponseTimeout:
            return Reason.DEADLINE
        except EngineError:
            return Reason.ENGINE_LOST
        if hunk is None:
            return STOPS.get(stop, Reason.DEADLINE)
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
        local = replace(place, start=place.start - base, end=place.end - base)
        return error_problem(tree, local, lambda: CHECK_MS)


def edit_input(
    document: Document,
    first: int,
    end: int,
    recent: Sequence[Edit],
    path: Callable[[str], str],
    cursor: tuple[int, int],
) -> EditInput:
    """The prompt's input for a window of a document. `cursor`: its line from the window's first one, and character."""
    window = stripped(document.lines(first, end))
    earlier, newest = window, recent[-1]
    at, after = locate(document, newest, first), newest.new_lines
    if at is not None and first <= at and at + len(after) <= end:
        earlier = (*window[: at - first], *newest.old_lines, *window[at - first + len(after) :])
    return EditInput(
        path=path(document.uri),
        before=stripped(document.lines(max(0, first - edit_prompt.FILE_LINES), first)),
        window=window,
        after=stripped(document.lines(end, end + edit_prompt.FILE_LINES)),
        first=first + 1,
        earlier=earlier,
        cursor=cursor,
        hunks=tuple(
            Hunk(
                old=edit.old_lines,
                new=edit.new_lines,
                path=path(edit.uri),
                first=(locate(document, edit, first) or 0) + 1,
            )
            for edit in recent[-edit_prompt.MAX_HUNKS :]
        ),
    )


def locate(document: Document, edit: Edit, near: int) -> int | None:
    """The first line that an edit of the document left, if its lines stand near line `near`."""
    after = edit.new_lines
    if not after or edit.uri != document.uri:
        return None
    base = max(0, near - NEAR_LINES)
    lines = stripped(document.lines(base, near + NEAR_LINES))
    starts = [at for at in range(len(lines) - len(after) + 1) if lines[at : at + len(after)] == after]
    return base + min(starts, key=lambda at: abs(base + at - near)) if starts else None


def stripped(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines without their line ends."""
    return tuple(line.rstrip("\r\n") for line in lines)


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


def reverts(change: Substitution, recent: Sequence[Edit]) -> bool:
    """True if a change brings back lines that a recent edit has removed, or removes lines that it has written."""
    old, new = change.old.split("\n"), change.new.split("\n")
    removed, written = added(new, old), added(old, new)
    return any(
        removed <= added(edit.old_lines, edit.new_lines) and written <= added(edit.new_lines, edit.old_lines)
        for edit in recent
    )


def added(old: Sequence[str], new: Sequence[str]) -> set[str]:
    """The lines with a word that only the new lines have."""
    return {line.strip() for line in new if line.strip()} - {line.strip() for line in old}
