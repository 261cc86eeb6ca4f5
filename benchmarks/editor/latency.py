"""Latency in real editors: from a key to ghost text on the screen, divided into editor, server and engine.

    python -m benchmarks editor-latency [--model NAME] [--times N] [EDITOR ...]

Types the same lines into each editor, five keys a second with a pause after every few words, and joins the times from
one clock (CLOCK_MONOTONIC) of three sources: the screen's frames, the messages between editor and server
(tests/support/editors/lsp_tap.py) and the server's own log (`speclsp lsp --trace`). For a key that brought a new
suggestion:

    editor   from the key to the request, and from the answer to the frame that shows it
    server   from the request to the answer, without the engine's time
    engine   the time that the server waited for the model

Keys that type through a suggestion show its rest at once and are counted separately. The editors are those of
tests/support/editors/install.py; one that is not installed is skipped, with a message.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.editors import install
from support.editors.nvim_session import SPECLSP, TAP, NvimSession

from benchmarks import results_file
from benchmarks.keystrokes.lines.figures import quantile
from benchmarks.results_file import CHECKOUT
from speclsp.errors import InputError

PAIR = "qwen2.5-coder-0.5b-instruct"
PACE_MS = 180.0  # not 200: Neovim's own client waits that long after a key, and chance would decide
SAME_MS = 100.0  # two notes of one question's coming lie closer together than two questions
OWN = "vim.opt.runtimepath:prepend(plugin)\nvim.o.autoindent = false\nrequire('speclsp').setup({ cmd = cmd })"
BUILTIN = OWN.replace("cmd = cmd", "cmd = cmd, ui = 'builtin'")
PLAIN_KEYS = {"editor.autoIndent": "none", "editor.autoClosingBrackets": "never", "editor.autoClosingQuotes": "never"}
BEFORE = '''class Account:
    """Money of one owner."""

    def __init__(self, owner, balance=0):
        self.owner = owner
        self.balance = balance

    def deposit(self, amount):
        """Add money."""
        if amount <= 0:
            raise ValueError("amount must be positive")
        self.balance += amount
        return self.balance

'''
TYPED = (  # the chunks, with a pause after each
    "    def withdraw",
    "(self, am",
    "ount):\n        if am",
    "ount > self.",
    "\n            raise Val",
    "\n        self.bal",
    "ance -= am",
    "ount\n        ret",
    "\n\n    def trans",
    "fer(self, other",
    ", amount):\n        self.with",
    "draw(amount)\n        other.",
    "\n\n    def __re",
    "pr__(self):\n        return f",
    "\n\n\ndef total(acc",
    "ounts):\n    return sum(",
    "\n\n\ndef rich",
    "est(accounts):\n    best = ",
    "\n    for account in acc",
    "ounts:\n        if account.",
)


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and the suggestion that it brought."""

    ms: float
    ghost_ms: float | None  # first on the screen; None: nothing came, or the next key came first
    request_ms: float = 0.0
    answered_ms: float = 0.0
    along: bool = False  # it typed through a suggestion


def neovim(name: str, setup: str, model: str, times: int) -> tuple[list[Key], list[dict[str, float]]]:
    """Type into Neovim; the keys, and the server's log."""
    keys: list[Key] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        home = Path(folder) / "n"
        with NvimSession(install.install(name), home, setup, "--model", model, "--trace", lawful=False) as seat:
            for time_number in range(times):
                seat.open("account.py", BEFORE)
                seat.ready()
                seat.keys("Go<C-U>")
                for chunk in TYPED:
                    keys += typed(seat, chunk, warm=time_number > 0 or chunk != TYPED[0])
            traces = read_traces(home / "state/speclsp/log/lsp.log")
    return keys, traces


def typed(seat: NvimSession, text: str, warm: bool) -> list[Key]:
    """Type a chunk at the pace, wait for the answer to its last key, and record the times of the answers."""
    length, since = len(seat.text()), len(seat.frames)
    start = time.monotonic_ns() / 1e6
    pressed = []
    for number, character in enumerate(text):
        time.sleep(max(0.0, start + number * PACE_MS - time.monotonic_ns() / 1e6) / 1e3)
        pressed.append(time.monotonic_ns() / 1e6)
        seat.keys({"\n": "<CR>", "<": "<LT>"}.get(character, character))
    if seat.answered().texts:
        seat.suggestion()
    frames, answers = seat.frames[since - 1 :], seat.wire.answers
    keys = []
    for number, (character, ms, till) in enumerate(zip(text, pressed, [*pressed[1:], float("inf")], strict=True)):
        before = [frame for frame in frames if frame.ms < ms]
        along = bool(before and before[-1].ghost and "".join(before[-1].ghost).startswith(character))
        candidates = (
            reply for reply in answers if reply.request_ms >= ms and len(reply.document) == length + number + 1
        )
        # about the text with this key and no further one
        answer = next((reply for reply in candidates if reply.texts), None)
        after = ms if along else answer.ms if answer else till
        ghost_ms = next((frame.ms for frame in frames if after <= frame.ms < till and frame.ghost), None)
        keys.append(Key(ms, ghost_ms, answer.request_ms if answer else 0.0, answer.ms if answer else 0.0, along))
    return keys if warm else []  # the first suggestion of all has a cold model


def vscode(model: str, times: int) -> tuple[list[Key], list[dict[str, float]]]:
    """Type into VS Code; the keys, and the server's log."""
    from support.editors import vscode_screen as editor

    programs = {name: install.install(name) for name in ("node", "code-server", "chromium")}
    cache = os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))
    keys: list[Key] = []
    with (
        editor.browsing(programs["chromium"]) as browser,
        editor.running(programs, CHECKOUT / "build/speclsp.vsix", browser, XDG_CACHE_HOME=cache) as studio,
    ):
        server = studio.server
        server.settings({**server.ours, "speclsp.model": model}, PLAIN_KEYS)
        tap = f'"{sys.executable}" "{TAP}" "{server.logs}/$$.jsonl" "{SPECLSP}"'
        server.tapped.write_text(f'#!/bin/sh\nif [ "$1" = lsp ]; then exec {tap} "$@" --trace; fi\nexec {tap} "$@"\n')
        for time_number in range(times):
            with studio.window(studio.folder(account_py=BEFORE), "account.py", size=(1200, 1600)) as window:
                window.says("ready", patience_s=300)
                window.focus()
                window.press("Control+End")
                for chunk in TYPED:
                    ghost = window.screen().ghost
                    strokes = window.type_timed(chunk, PACE_MS)
                    questions = window.wire.replay()[1]
                    for stroke, after in itertools.zip_longest(strokes, strokes[1:]):
                        till = after.ms if after else float("inf")
                        requests = [
                            question for question in questions if stroke.ms <= question.ms < till and question.items
                        ]
                        request = next((entry for entry in requests if entry.answered_ms), None)
                        request_ms, answered_ms = (request.ms, request.answered_ms) if request else (0.0, 0.0)
                        along = bool(ghost) and ghost.startswith(stroke.key)
                        if time_number or chunk != TYPED[0]:
                            keys.append(Key(stroke.ms, stroke.ghost_ms, request_ms, answered_ms, along))
                        ghost = stroke.ghost
        traces = read_traces(server.root / "home/.local/state/speclsp/log/lsp.log")
    return keys, traces


def read_traces(log: Path) -> list[dict[str, float]]:
    """The server's trace of each request."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [json.loads(line[line.index("{") :]) for line in lines if " trace: {" in line]


def figures(keys: list[Key], traces: list[dict[str, float]]) -> dict[str, object]:
    """The times of the keys that brought something new, in parts, and of those typed along."""
    new = [
        key for key in keys if key.ghost_ms and key.answered_ms and not key.along and key.ghost_ms >= key.answered_ms
    ]
    parts: dict[str, list[float]] = {"whole": [], "editor": [], "server": [], "engine": []}
    for key in new:
        near = min(traces, key=lambda trace: abs(trace["at_ms"] - key.request_ms), default=None)
        if near is None or abs(near["at_ms"] - key.request_ms) > SAME_MS:
            continue
        assert key.ghost_ms is not None
        between = key.answered_ms - key.request_ms
        engine = min(near["engine_ms"], between)
        parts["whole"].append(key.ghost_ms - key.ms)
        parts["editor"].append(key.ghost_ms - key.ms - between)
        parts["server"].append(between - engine)
        parts["engine"].append(engine)
    along = [key.ghost_ms - key.ms for key in keys if key.along and key.ghost_ms]
    return {
        "keys": len(keys),
        "new_suggestions": len(parts["whole"]),
        **{f"{name}_ms": spread(values) for name, values in parts.items()},
        "typed_along": len(along),
        "typed_along_ms": spread(along),
    }


def spread(values: list[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {"p50": round(quantile(values, 0.5) or 0.0, 1), "p95": round(quantile(values, 0.95) or 0.0, 1)}


EDITORS: dict[str, Callable[[str, int], tuple[list[Key], list[dict[str, float]]]]] = {
    "nvim-0.11": lambda model, times: neovim("nvim-0.11", OWN, model, times),
    "nvim-0.12": lambda model, times: neovim("nvim-0.12", OWN, model, times),
    "nvim-0.12-builtin": lambda model, times: neovim("nvim-0.12", BUILTIN, model, times),
    "vscode": vscode,
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks editor-latency`."""
    parser.add_argument("editors", nargs="*", metavar="EDITOR", help=f"of {', '.join(EDITORS)}; default: all")
    parser.add_argument("--model", default=PAIR, metavar="NAME")
    parser.add_argument("--times", type=int, default=2, metavar="N", help="type the lines so often (default: 2)")


def main(options: argparse.Namespace) -> int:
    """Exit code 1 when an editor is not installed."""
    if unknown := [name for name in options.editors if name not in EDITORS]:
        raise InputError(f"no editor is called {unknown[0]!r}: there are {', '.join(EDITORS)}.")
    figures_by_editor: dict[str, object] = {}
    left_out: dict[str, str] = {}
    heads = "".join(f"{head:>16}" for head in ("whole", "editor", "server", "engine", "typed along"))
    print(f"{'key to ghost text, ms':<22}{heads}    keys")
    for name in options.editors or EDITORS:
        try:
            figures_by_editor[name] = figure = figures(*EDITORS[name](options.model, options.times))
        except (install.CannotInstall, KeyError) as error:
            left_out[name] = str(error)
            print(f"{name:<22}NOT MEASURED: {error}", flush=True)
            continue
        cells = [figure[f"{part}_ms"] for part in ("whole", "editor", "server", "engine", "typed_along")]
        row = "".join(
            f"{cell['p50']:>8.1f}{cell['p95']:>8.1f}" if isinstance(cell, dict) else f"{'-':>16}" for cell in cells
        )
        print(f"{name:<22}{row}    {figure['new_suggestions']} new, {figure['typed_along']} along", flush=True)
    print("(each: median, 95th percentile)")
    where = results_file.write(
        "editors",
        {
            "pair": options.model,
            "pace_ms": PACE_MS,
            "times": options.times,
            "editors": figures_by_editor,
            "left_out": left_out,
        },
        name=f"editors-{options.model}",
    )
    print(where)
    return 1 if left_out else 0
