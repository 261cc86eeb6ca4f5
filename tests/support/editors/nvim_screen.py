"""A real Neovim and its screen: `nvim --embed` with this process as its user interface.

Neovim sends a user interface draw events and marks a complete picture with `flush`. Each complete picture is kept as a
Frame with the machine's monotonic clock, so a test can prove that a text was never shown, not even for one frame. A
cell has its highlight group, which separates the user's text from a suggestion.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import msgpack
import psutil

PATIENCE_S = 240.0  # limit of any wait, on a busy machine
MEANING = {  # the meaning of each highlight group of suggestions
    "ComplHint": "ghost",
    "SpeclspSuggestion": "ghost",
    "ComplHintMore": "count",  # "2/3"
    "SpeclspHint": "count",
    "SpeclspReplaced": "goes",  # the user's text replaced by the suggestion
    "SpeclspEditAdd": "edit",
    "SpeclspEditDelete": "removed",
    "SpeclspEditHint": "hint",
}
Cell = tuple[str, int]  # text ("" right of a wide character), highlight id


@dataclass(frozen=True, slots=True)
class Frame:
    """One complete picture."""

    ms: float  # CLOCK_MONOTONIC at its completion
    rows: tuple[tuple[Cell, ...], ...]
    cursor: tuple[int, int]  # row, column
    mode: str  # "normal", "insert", ...
    meaning: dict[int, str]  # by highlight id

    def row(self, number: int, without: tuple[str, ...] = ()) -> str:
        """A row as the user sees it, or without the cells of the given meanings."""
        return "".join(text for text, group in self.rows[number] if self.meaning.get(group) not in without).rstrip()

    def own(self, number: int) -> str:
        """A row without suggested text."""
        return self.row(number, without=("ghost", "count", "edit", "hint"))

    @property
    def left(self) -> str:
        """The user's text left of the cursor, on its row."""
        return "".join(text for text, _ in self.rows[self.cursor[0]][: self.cursor[1]])

    @property
    def ghost(self) -> list[str]:
        """The lines of the suggestion, from the cursor's row on; [] when none is shown."""
        lines = ["".join(text for text, group in row if self.meaning.get(group) == "ghost") for row in self.rows]
        marked = [number for number, line in enumerate(lines) if line.strip()]
        first = min([self.cursor[0], *marked])
        return [line.rstrip() for line in lines[first : marked[-1] + 1]] if marked else []

    @property
    def edit(self) -> list[str]:
        """The new text of a next edit, one item for each row that has some."""
        lines = ["".join(text for text, group in row if self.meaning.get(group) == "edit") for row in self.rows]
        return [line for line in lines if line]

    @property
    def promised(self) -> list[str]:
        """The lines from the cursor's on as they will be after accepting; [] when no suggestion is shown."""
        first = self.cursor[0]
        return [self.row(first + number, without=("count", "goes")) for number in range(len(self.ghost))]

    @property
    def text(self) -> str:
        """The whole screen, for error messages."""
        return "\n".join(self.row(number) for number in range(len(self.rows)))


class Neovim:
    """One Neovim process. `frames` are all pictures so far; `frames[-1]` is the present screen."""

    def __init__(
        self, command: list[str], cwd: Path, environment: Mapping[str, str], columns: int = 300, lines: int = 50
    ) -> None:
        self.process = subprocess.Popen(
            [*command[:1], "--embed", *command[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=cwd,
            env={**os.environ, **environment},
        )
        self.frames: list[Frame] = []
        self._seen = threading.Condition()
        self._answers: dict[int, Future[Any]] = {}
        self._asked = 0
        self._writing = threading.Lock()
        self._rows: list[list[Cell]] = []
        self._cursor, self._mode = (0, 0), "normal"
        self._meaning: dict[int, str] = {}
        self._reader = threading.Thread(target=self._read, name="nvim-screen", daemon=True)
        self._reader.start()
        self.call("nvim_ui_attach", columns, lines, {"rgb": True, "ext_linegrid": True, "ext_hlstate": True})

    def __enter__(self) -> Neovim:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Ends it and all processes it started, in any state."""
        family = self.family()
        self.process.kill()
        self.process.wait()
        _, alive = psutil.wait_procs(family, timeout=10)
        for process in alive:
            process.kill()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    # Actions and view of a user.

    @property
    def screen(self) -> Frame:
        return self.frames[-1]

    def keys(self, text: str) -> int:
        """Types as a keyboard would; returns the number of frames before."""
        before = len(self.frames)
        self.call("nvim_input", text)
        return before

    def wait(self, condition: Callable[[Frame], object], what: str, since: int | None = None) -> Frame:
        """The first frame from number `since` (default: the newest) that fulfils the condition."""
        looked = len(self.frames) - 1 if since is None else since
        end = time.monotonic() + PATIENCE_S
        while True:
            with self._seen:
                while looked >= len(self.frames):
                    if not self._seen.wait(end - time.monotonic()) and time.monotonic() >= end:
                        raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}; the screen:\n{self.screen.text}")
            if condition(frame := self.frames[max(looked, 0)]):
                return frame
            looked += 1

    # Actions of tests only.

    def call(self, method: str, *arguments: object) -> Any:
        """Calls a function of Neovim's own interface."""
        answer: Future[Any] = Future()
        with self._writing:
            self._asked += 1
            self._answers[self._asked] = answer
            assert self.process.stdin is not None
            self.process.stdin.write(
                msgpack.packb([0, self._asked, method, arguments], unicode_errors="surrogateescape")
            )
            self.process.stdin.flush()
        try:
            return answer.result(timeout=PATIENCE_S)
        except TimeoutError:
            raise AssertionError(f"Neovim does not answer {method}; the screen:\n{self.screen.text}") from None

    def lua(self, code: str, *arguments: object) -> Any:
        return self.call("nvim_exec_lua", code, arguments)

    def until(self, code: str, what: str, *arguments: object) -> Any:
        """Evaluates a Lua expression until it is true; returns its value."""
        end = time.monotonic() + PATIENCE_S
        while not (value := self.lua(f"return {code}", *arguments)):
            if time.monotonic() > end:
                raise AssertionError(f"waited {PATIENCE_S:.0f} s for {what}; the screen:\n{self.screen.text}")
            time.sleep(0.02)
        return value

    def buffer(self) -> list[str]:
        return self.call("nvim_buf_get_lines", 0, 0, -1, False)  # type: ignore[no-any-return]

    def messages(self) -> str:
        """The content of :messages."""
        return self.call("nvim_exec2", "messages", {"output": True})["output"]  # type: ignore[no-any-return]

    def family(self) -> list[psutil.Process]:
        """Every process under this one."""
        try:
            return psutil.Process(self.process.pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return []

    def running(self, *words: str) -> list[psutil.Process]:
        """Its processes whose command line contains all these words."""
        processes = []
        for process in self.family():
            try:
                if set(words) <= set(process.cmdline()):
                    processes.append(process)
            except psutil.Error:
                continue
        return processes

    # Messages of Neovim.

    def _read(self) -> None:
        unpacker = msgpack.Unpacker(
            raw=False,
            strict_map_key=False,
            unicode_errors="surrogateescape",
            ext_hook=lambda _, data: msgpack.unpackb(data),
        )
        assert self.process.stdout is not None
        while got := os.read(self.process.stdout.fileno(), 1 << 16):
            unpacker.feed(got)
            for message in unpacker:
                if message[0] == 1:
                    _, number, error, result = message
                    answer = self._answers.pop(number)
                    if error is None:
                        answer.set_result(result)
                    else:
                        answer.set_exception(RuntimeError(error[1]))
                elif message[0] == 2 and message[1] == "redraw":
                    for event, *calls in message[2]:
                        for call in calls:
                            self._draw(event, call)
        for answer in self._answers.values():
            answer.set_exception(ConnectionError("Neovim has ended"))

    def _draw(self, event: str, call: list[Any]) -> None:
        if event == "grid_line":
            self._line(*call[1:4])
        elif event == "grid_scroll":
            self._scroll(*call[1:6])
        elif event == "grid_resize":
            _, width, height = call
            self._rows = [[(" ", 0)] * width for _ in range(height)]
        elif event == "grid_clear":
            self._rows = [[(" ", 0)] * len(row) for row in self._rows]
        elif event == "grid_cursor_goto":
            self._cursor = (call[1], call[2])
        elif event == "mode_change":
            self._mode = call[0]
        elif event == "hl_attr_define":
            meanings = [MEANING[name] for part in call[3] if (name := part.get("hi_name")) in MEANING]
            self._meaning = {**self._meaning, call[0]: meanings[-1] if meanings else ""}
        elif event == "flush":
            rows = tuple(map(tuple, self._rows))
            with self._seen:
                self.frames.append(Frame(time.monotonic_ns() / 1e6, rows, self._cursor, self._mode, self._meaning))
                self._seen.notify_all()

    def _line(self, row: int, column: int, cells: list[list[Any]]) -> None:
        group = 0
        for text, *rest in cells:
            group = rest[0] if rest else group
            for _ in range(rest[1] if len(rest) > 1 else 1):
                self._rows[row][column] = (text, group)
                column += 1

    def _scroll(self, top: int, bottom: int, left: int, right: int, by: int) -> None:
        moved = [row[left:right] for row in self._rows]
        for row in range(top, bottom):
            if top <= row + by < bottom:
                self._rows[row][left:right] = moved[row + by]
