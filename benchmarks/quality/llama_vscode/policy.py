"""llama.vscode as a peer: its prompt at a place, and its filters on the answer.

    opened files, saves, completions ─► ring of 16 chunks ─┐
    256 lines above, 64 below ─────────────────────────────┴─► /infill ─► its filters ─► shown

Written again after ggml-org/llama.vscode 3938fb3 (src/completion.ts, src/extra-context.ts, the defaults of its
package.json), and for the prompt after llama.cpp's format_prompt_infill with the server's own defaults. The extension
learns from the user's actions, and a task has only the open files, so the simulated actions are generous. Oldest first,
each file was opened at its top, edited and saved at a random place, and the task's own file had an earlier completion.
The request is a manual one, which it always answers, without a time limit; its chunks are never shortened.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.quality.tasks.tasks import Task
from speclsp.engine.api import Extra, Request
from speclsp.engine.decoding.prompt import Prompt, Prompter
from speclsp.lsp.documents.document import newline
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion
from speclsp.lsp.reasons import Reason

PREFIX_LINES, SUFFIX_LINES, MAX_TOKENS = 256, 64, 128
RING_CHUNKS, CHUNK_LINES, RING_SCOPE, QUEUED = 16, 64, 1024, 16
MIN_LINES, ALIKE = 3, 0.9
BATCH_TOKENS = 2048  # the server's default limit for the prompt's text around the cursor
CONTEXT_TOKENS = 16_384  # all of the above fits
LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some lines of a file."""

    filename: str
    lines: tuple[str, ...]

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


@dataclass(slots=True)
class Ring:
    """Ring buffer of chunks, oldest first. New chunks wait in a queue until the editor has been idle for a while."""

    dice: random.Random
    chunks: list[Chunk] = field(default_factory=list)
    queued: list[Chunk] = field(default_factory=list)

    def pick(self, lines: Sequence[str], filename: str, *, evict: bool) -> None:
        """Half a chunk's size at random where there are more lines; `evict` drops those that are very like it."""
        if len(lines) < MIN_LINES:
            return
        if len(lines) + 1 >= CHUNK_LINES:
            start = int(self.dice.random() * max(0, len(lines) - CHUNK_LINES // 2 + 1))
            lines = lines[start : start + CHUNK_LINES // 2]
        chunk = Chunk(filename, tuple(lines))
        if evict:
            if any(other.text == chunk.text for other in (*self.chunks, *self.queued)):
                return
            self.chunks = [other for other in self.chunks if likeness(other, chunk) <= ALIKE]
            self.queued = [other for other in self.queued if likeness(other, chunk) <= ALIKE]
        self.queued = [*self.queued[max(0, len(self.queued) - QUEUED + 1) :], chunk]

    def around(self, lines: Sequence[str], number: int, filename: str) -> None:
        """As when a file is opened, left or saved with the cursor on a line."""
        half = CHUNK_LINES // 2
        self.pick(lines[max(0, number - half) : number + half + 1], filename, evict=True)

    def rest(self) -> None:
        """The editor is idle for as long as it takes."""
        self.chunks = [*self.chunks, *self.queued][-RING_CHUNKS:]
        self.queued = []


def likeness(one: Chunk, other: Chunk) -> float:
    """Jaccard's, of the sets of lines."""
    mine, theirs = set(one.lines), set(other.lines)
    return len(mine & theirs) / (len(mine | theirs) or 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """The extension's request, and its filters of the answer: the `Reader` of that answer."""

    document: Sequence[str]  # in lines
    line: int
    column: int
    cursor: int
    end_of_line: str
    chunks: tuple[Chunk, ...]
    max_tokens: int = MAX_TOKENS

    @property
    def head(self) -> str:
        return self.document[self.line][: self.column]

    @property
    def tail(self) -> str:
        return self.document[self.line][self.column :]

    @property
    def indent(self) -> int:
        """A line of the answer that is indented less ends it."""
        line = self.document[self.line]
        return len(line) - len(line.lstrip())

    @property
    def prefix(self) -> str:
        return "\n".join(self.document[max(0, self.line - PREFIX_LINES) : self.line]) + "\n"

    @property
    def prompt(self) -> str:
        return self.head if self.head.strip(" \t") else ""

    @property
    def suffix(self) -> str:
        below = self.document[self.line + 1 : self.line + 1 + SUFFIX_LINES]
        return self.tail + "\n" + "\n".join(below) + "\n"

    def request(self, speculate: bool = True) -> Request:
        """For our engine, greedy."""
        extra = tuple(Extra(filename=chunk.filename, text=chunk.text) for chunk in self.chunks)
        return Request(
            prefix=self.prefix,
            line_prefix=self.prompt,
            suffix=self.suffix,
            extra=extra,
            max_tokens=self.max_tokens,
            speculate=speculate,
            heal=False,
        )

    # ── shown suggestion ──────────────────────────────────────────────────────────────────────────────────────────────

    def finished(self, text: str) -> bool:
        """As the server's n_indent ends it."""
        return self._ends(text) >= 0

    def _ends(self, text: str) -> int:
        at = text.find("\n")
        while self.indent and at >= 0:
            line = text[at + 1 :].partition("\n")[0]
            blank = len(line) - len(line.lstrip(" \t"))
            if blank < len(line) and blank < self.indent:
                return at + 1 + blank
            at = text.find("\n", at + 1)
        return -1

    def to_suggestion(self, text: str, *, complete: bool = True) -> Suggestion | NoSuggestion:
        """The suggestion that is left of an answer, at the cursor."""
        end = self._ends(text)
        lines = re.split(r"\r?\n", text if end < 0 else text[:end])
        while lines and not lines[-1].strip():
            lines.pop()
        if not lines or self.discards(lines):
            return NoSuggestion(Reason.REPEATS_BELOW if lines else Reason.EMPTY)
        shown = "\n".join(lines)
        if self.tail.strip():
            if lines[0].endswith(self.tail):
                shown = lines[0][: -len(self.tail)]
            elif len(lines) > 1:
                shown = lines[0]
        if not self.prompt:
            shown = without_blanks(shown, len(self.head))
        if not shown.strip():
            return NoSuggestion(Reason.EMPTY)
        return Suggestion(shown.replace("\n", self.end_of_line), self.cursor, self.cursor)

    def discards(self, lines: Sequence[str]) -> bool:
        """True if the answer repeats the lines below."""
        try:
            return self._discards(lines)
        except IndexError:  # the extension asks for a line beyond the last one too, and then shows nothing
            return True

    def _discards(self, lines: Sequence[str]) -> bool:
        document, line = self.document, self.line
        if line == len(document) - 1:
            return False
        if (
            len(lines) > 1
            and (not lines[0].strip() or lines[0].strip() == self.tail.strip())
            and all(line_text == document[line + 1 + at] for at, line_text in enumerate(lines[1:]))
        ):
            return True
        if len(lines) == 1 and lines[0] == self.tail:
            return True
        below = next((at for at in range(line + 1, len(document)) if document[at].strip()), None)
        if below is None or self.head + lines[0] != document[below]:
            return False
        if len(lines) == 1:
            return True
        if len(lines) == 2 and lines[1] == document[below + 1][: len(lines[1])]:
            return True
        return len(lines) > 2 and all(line_text == document[below + 1 + at] for at, line_text in enumerate(lines[1:]))


def without_blanks(text: str, most: int) -> str:
    """Without the indentation that is typed already; any tabs go, as in the original."""
    at = 0
    while at < len(text) and ((at < most and text[at] == " ") or text[at] == "\t"):
        at += 1
    return text[at:]


def ask(task: Task) -> Ask:
    """The extension's request for a task, with chunks of the files that are open."""
    document = LINE_END.split(task.text)
    before = LINE_END.split(task.text[: task.cursor])
    line = len(before) - 1
    ring = Ring(random.Random(task.id))
    for path in reversed(task.open_paths):
        lines = LINE_END.split((task.root / path).read_text(encoding="utf-8", errors="replace"))
        ring.around(lines, 0, named(task, path))
        ring.around(lines, ring.dice.randrange(len(lines)), named(task, path))
        ring.rest()
    ring.around(document, 0, named(task, task.path))
    ring.rest()
    above = document[max(0, line - RING_SCOPE) : max(0, line - PREFIX_LINES) + 1]
    below = document[line + SUFFIX_LINES : line + SUFFIX_LINES + CHUNK_LINES + 1]
    for lines in (above, below):
        ring.pick(lines, named(task, task.path), evict=False)
    ring.rest()
    return Ask(
        document=document,
        line=line,
        column=len(before[-1]),
        cursor=task.cursor,
        end_of_line=newline(task.text),
        chunks=tuple(ring.chunks),
    )


def named(task: Task, path: str) -> str:
    """It names files by their whole path; this one is the same on every machine."""
    return f"/home/user/{task.package}/{path}"


class InfillPrompter(Prompter):
    """Writes the prompt of /infill as llama.cpp's server does."""

    def build(self, request: Request) -> Prompt:
        """Other files, then the prefix and the line, then the suffix, then the middle marker."""
        encode = self.encode_once
        ids = [*self.repo, *encode("myproject\n")]
        for extra in request.extra:
            ids += [*self.file_sep, *encode(f"{extra.filename}\n"), *encode(extra.text)]
        ids += [*self.file_sep, *encode("filename\n")]
        room = max(0, self.context_tokens - BATCH_TOKENS - 2 * request.max_tokens)
        ids = ids[max(0, len(ids) - room) :]
        prefix, line, suffix = encode(request.prefix), encode(request.line_prefix), encode(request.suffix)
        prefix = prefix[-(BATCH_TOKENS // 4 * 3) :]
        suffix = suffix[: max(0, BATCH_TOKENS // 4 - 2 - len(line))]
        ids += [*self.bos, *self.prefix, *prefix, *line, *self.suffix, *suffix, *self.middle]
        return self.finish(ids, "", request, [])
