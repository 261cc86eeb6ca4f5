"""One completion without an editor: takes a position in a file, returns the suggestion that an editor would show.

    FILE:LINE:COL ─► Snapshot ─► context ─► the engine, in this process ─► postprocess ─► PrintedAnswer

`speclsp complete`, `demo`, `tune` and `doctor` share it. Elsewhere language server and engine are separate processes;
here both run in one, and still meet only in the types of speclsp/engine/api.py, as over the socket.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp.config import Config
from speclsp.engine.api import Completer, Extra, Piece, Request, Result
from speclsp.errors import InputError, nearest
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax import language_ids

if TYPE_CHECKING:
    from speclsp.cli.terminal import ProgressLine
    from speclsp.lsp.postprocess.plan import NoSuggestion, SuggestionPlan
    from speclsp.lsp.reasons import Reason
    from speclsp.weights.cards import Card, Weights
    from speclsp.weights.store import Progress

CURSOR = re.compile(r"[^\S\r\n]*# <cursor>")  # with the blanks before it; see `at_mark`
PARSE_MS = 1000  # budget of a parse: longer than in an editor, because nobody is typing


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionPoint:
    """A position to complete, ready for the engine."""

    snapshot: Snapshot
    request: Request
    plan: SuggestionPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class PrintedAnswer:
    """The suggestion that an editor would show, and its cost."""

    text: str = ""  # inserted at the cursor; "" when there is nothing to show
    replaces: int = 0  # characters after the cursor that `text` takes the place of
    reason: Reason | None = None  # why nothing is shown
    raw: str = ""  # the model's text, before it was cut
    from_draft: tuple[bool, ...] = ()  # for each character of `raw`: an accepted guess, not the target's own token
    result: Result = field(default_factory=Result)


# ── the position ──


def read_text(path: Path, max_bytes: int) -> str:
    """A source file's text. Raises InputError for anything else."""
    try:
        if not path.exists():
            raise InputError(f"{path}: no such file.")
        if path.is_dir():
            raise InputError(f"{path} is a directory; name a file in it.")
        if not path.is_file():
            raise InputError(f"{path} is not a regular file.")
        size = path.stat().st_size
        if size > max_bytes:
            raise InputError(f"{path} has {size} bytes, more than context.max_file_bytes = {max_bytes}.")
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    return decoded(data, str(path), "a binary file")


def decoded(data: bytes, name: str, binary: str) -> str:
    """The text of UTF-8 bytes. Raises InputError for other bytes; `binary` is the noun of its message."""
    if b"\0" in data:
        raise InputError(f"{name} is {binary} (it holds a NUL byte); only text can be completed.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{name} is not UTF-8 text (byte {error.start} is 0x{data[error.start]:02x}).") from error


def from_pipe(data: bytes, language: str, at: str, max_bytes: int) -> Snapshot:
    """The text of a pipe with the cursor at `at` (LINE:COL), or at its end. Raises InputError."""
    language_id = language_ids.canonical_id(language)
    if not language_id:
        near = nearest(language, language_ids.LANGUAGE_IDS)
        hint = f"did you mean {near!r}?" if near else f"known are {', '.join(language_ids.LANGUAGE_IDS)}."
        raise InputError(f"unknown language {language!r}: {hint}")
    if len(data) > max_bytes:
        raise InputError(f"stdin has more bytes than context.max_file_bytes = {max_bytes}.")
    text = decoded(data, "stdin", "binary")
    match = re.fullmatch(r"(-?\d+):(-?\d+)", at) if at else None
    if at and not match:
        raise InputError(f"--at {at!r} is not a position: expected LINE:COL, as in 12:5.")
    cursor = offset(text, int(match[1][:12]), int(match[2][:12]), "stdin") if match else len(text)
    return snapshot_of(Path(language_ids.file_name(language_id, "stdin")), text, cursor)


def snapshot_of(path: Path, text: str, cursor: int) -> Snapshot:
    """The snapshot of an editor that has `path` open with this text."""
    language = language_ids.language_id(path.name)
    return Snapshot(uri=path.resolve().as_uri(), language=language, version=1, text=text, cursor=cursor)


def see_that_it_may_be_shown(path: Path) -> None:
    """Raise InputError for a file that holds secrets: no model may read one."""
    from speclsp.lsp.visibility import secret_files

    pattern = secret_files.pattern_of(path.absolute().as_posix())
    if pattern:
        raise InputError(f"{path} is a kind of file that holds secrets ({pattern}); no model reads it.")


def at_position(spot: str, max_bytes: int) -> Snapshot:
    """The position FILE:LINE:COL; both count from 1, columns in characters. Raises InputError."""
    match = re.fullmatch(r"(?s)(.+?):(-?\d+):(-?\d+)", spot)
    if not match:
        raise InputError(f"{spot!r} is not a position: expected FILE:LINE:COL, as in src/app.py:12:5.")
    path, line, column = Path(match[1]), int(match[2][:12]), int(match[3][:12])
    see_that_it_may_be_shown(path)
    text = read_text(path, max_bytes)
    return snapshot_of(path, text, offset(text, line, column, str(path)))


def offset(text: str, line: int, column: int, name: str) -> int:
    """The index of a position in `text`; both count from 1, columns in characters. Raises InputError."""
    lines = re.split(r"\r\n|\n|\r", text)
    if not 1 <= line <= len(lines):
        raise InputError(f"{name} has no line {line}: it has {len(lines)}, counted from 1.")
    last = len(lines[line - 1]) + 1
    if not 1 <= column <= last:
        raise InputError(f"line {line} of {name} has no column {column}: it has 1 to {last}, counted in characters.")
    starts = [0] + [end.end() for end in re.finditer(r"\r\n|\n|\r", text)]
    return starts[line - 1] + column - 1


def at_mark(path: Path, max_bytes: int) -> Snapshot:
    """The position of the comment `# <cursor>`, which is removed; the blanks before it stay. Raises InputError."""
    see_that_it_may_be_shown(path)
    text = read_text(path, max_bytes)
    mark = CURSOR.search(text)
    if mark is None:
        raise InputError(f"{path} has no `# <cursor>` mark; give a position as FILE:LINE:COL.")
    cursor = mark.end() - len("# <cursor>")
    return snapshot_of(path, text[:cursor] + text[mark.end() :], cursor)


def prepare(snapshot: Snapshot, config: Config) -> CompletionPoint | NoSuggestion:
    """The prompt's parts and the rules for the end of the suggestion; NoSuggestion where no model is needed."""
    from speclsp.lsp.context import build
    from speclsp.lsp.postprocess import plan as postprocess
    from speclsp.lsp.syntax.parser import SyntaxParser

    budget_ms = max(PARSE_MS, config.context.parse_budget_ms)
    tree = SyntaxParser().parse(snapshot.language, snapshot.text, budget_ms, near=snapshot.cursor)
    plan = postprocess.plan(snapshot, tree, config.completion, verbatim=config.model == "echo")
    if isinstance(plan, postprocess.NoSuggestion):
        return plan
    context = build.build(snapshot, tree, config.context, root=Path.cwd().as_uri())
    request = Request(
        prefix=context.prefix,
        line_prefix=context.line_prefix,
        suffix=context.suffix,
        filename=context.path,
        extra=tuple(Extra(filename=chunk.path, text=chunk.text) for chunk in context.extra),
        max_tokens=plan.max_tokens,
        temperature=config.completion.temperature,
        speculate=config.engine.speculative_decoding,
    )
    return CompletionPoint(snapshot=snapshot, request=request, plan=plan)


# ── the model ──


def needed(config: Config, card: Card) -> list[Weights]:
    """The weights that a completion with `card` uses."""
    draft = card.draft if config.engine.draft else None
    return [card.target] if draft is None else [card.target, draft]


def fetch(config: Config, card: Card, bar: ProgressLine, repair: bool = False) -> None:
    """Fetch missing weights and show size, rate and time left. `repair` hashes the weights that are here.

    Raises WeightsError.
    """
    from speclsp.weights import store

    for weights in needed(config, card):
        store.ensure(
            weights,
            models_dir=config.models_dir,
            offline=config.engine.offline,
            progress=lambda step: draw(bar, step),
            repair=repair,
        )


STAGES = {"fetch": "fetching", "check": "checking", "convert": "converting"}


def draw(bar: ProgressLine, step: Progress) -> None:
    """Draw one step of fetching, checking or converting weights."""
    if step.total_bytes:
        bar.bytes(step.done_bytes, step.total_bytes, f"{STAGES.get(step.stage, step.stage)} {step.detail}")
    else:
        bar.show(step.detail, 0.0, "")


def choose_card(config: Config, ask_hub: bool = False, measure_again: bool = False) -> tuple[Card, str]:
    """The pair of these settings, and the reason. For "auto", the CPU's speed is measured if it is not known yet.

    `ask_hub`: see `auto_choice.auto`; `measure_again`: measure a known speed, too.
    """
    from speclsp.weights import auto_choice

    if config.model == "auto":
        from speclsp.engine.loading import cpu_speed

        cpu_speed.measure_if_needed(config, measure_again)
    return auto_choice.auto(config, ask_hub)


def open_engine(config: Config, bar: ProgressLine, card: Card | None = None) -> tuple[Completer, str]:
    """An engine in this process, and the reason for its pair. Fetches missing weights. Raises SpeclspError."""
    if config.model == "echo":
        from speclsp.engine.decoding.echo import EchoCompleter

        return EchoCompleter(config), "no model"
    chosen, why = (card, "") if card else choose_card(config)
    fetch(config, chosen, bar)
    bar.step(0.0, "starting torch")
    from speclsp.engine.loading import loading

    return loading.load(config, chosen, bar.step), why


def about(completer: Completer) -> dict[str, object]:
    """The names of pair, target, draft and device."""
    return {name: getattr(completer, name) for name in ("pair", "target", "draft", "device")}


def answer(
    completer: Completer,
    hole: CompletionPoint,
    shown: Callable[[PrintedAnswer], None] = lambda so_far: None,
    cancel: threading.Event | None = None,
) -> PrintedAnswer:
    """Complete `hole` as an editor would and call `shown` after each round; stops when the text is finished."""
    completion = completer.complete(hole.request, cancel or threading.Event())
    pieces = iter(completion)
    raw, marks = "", []
    for piece in pieces:
        raw += piece.text
        marks += marks_of(piece)
        shown(PrintedAnswer(raw=raw, from_draft=tuple(marks), result=completion.result))
        if hole.plan.finished(raw):
            break
    close = getattr(pieces, "close", None)
    if close is not None:
        close()
    return cleaned(hole, raw, tuple(marks), completion.result)


def marks_of(piece: Piece) -> list[bool]:
    """For each character of a piece: True where it is from an accepted guess."""
    return [i < piece.accepted_chars for i in range(len(piece.text))]


def cleaned(hole: CompletionPoint, raw: str, marks: tuple[bool, ...], result: Result) -> PrintedAnswer:
    """The model's text, cut as an editor would show it."""
    from speclsp.lsp.postprocess import plan as postprocess

    suggestion = hole.plan.to_suggestion(raw, complete=result.stop_type not in ("limit", "deadline"))
    so_far = PrintedAnswer(raw=raw, from_draft=marks, result=result)
    if isinstance(suggestion, postprocess.NoSuggestion):
        return replace(so_far, reason=suggestion.reason)
    typed = hole.snapshot.text[suggestion.start : hole.snapshot.cursor]
    return replace(
        so_far, text=suggestion.text.removeprefix(typed), replaces=max(0, suggestion.end - hole.snapshot.cursor)
    )


def draft_marks(answer: PrintedAnswer) -> list[bool]:
    """`from_draft` for the characters of the shown text, which is a part of the model's text."""
    marks, start = [], 0
    for char in answer.text:
        wanted = "\n" if char == "\r" else char
        position = answer.raw.find(wanted, start)
        marks.append(position >= 0 and answer.from_draft[position])
        start = position + 1 if position >= 0 and char != "\r" else start
    return marks


def show(completer: Completer, hole: CompletionPoint) -> PrintedAnswer:
    """As `answer`, drawn on stdout round by round; then the legend of the colours."""
    from speclsp.cli.terminal import Screen

    text, cursor = hole.snapshot.text, hole.snapshot.cursor
    with Screen(text[:cursor], text[cursor:]) as screen:
        screen.draw("", ())
        shown = answer(completer, hole, lambda so_far: screen.draw(so_far.raw, so_far.from_draft))
        screen.draw(shown.text, draft_marks(shown))
    screen.legend(draft_marks(shown))
    return shown
