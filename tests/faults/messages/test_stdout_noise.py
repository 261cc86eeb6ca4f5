"""Stdout protection: other writers in the server's process never put bytes between two messages."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from support.lsp.editor_client import Editor, Page

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1

# Loaded into the server's process at its start through PYTHONPATH. It writes to stdout in each way: while every library
# is imported, continuously from a thread, inside each completion and at exit.
SITECUSTOMIZE = """
import atexit, builtins, ctypes, logging, os, subprocess, sys, threading, time

libc = ctypes.CDLL(None)
libc.printf.argtypes = [ctypes.c_char_p]


def by_print(where): print(f"noise by print {where}", flush=True)
def by_buffer(where): sys.__stdout__.buffer.write(f"noise by buffer {where}\\n".encode()); sys.__stdout__.buffer.flush()
def by_write(where): os.write(1, f"noise by write {where}\\n".encode())
def by_printf(where): libc.printf(f"noise by printf {where}\\n".encode()); libc.fflush(None)
def by_logging(where): chatty.warning("noise by logging %s", where)
def by_child(where): subprocess.run(["echo", f"noise by child {where}"], close_fds=False)
def by_a_frame(where): os.write(1, b'Content-Length: 2\\r\\n\\r\\n{}noise by frame ' + where.encode() + b"\\n")


WAYS = [by_print, by_buffer, by_write, by_printf, by_logging, by_a_frame]


def noise(where):
    for way in [*WAYS, by_child]:
        way(where)


def always():
    while True:
        for way in WAYS:
            way("always")
        time.sleep(0.001)


def begin():
    global chatty, importing
    chatty = logging.Logger("chatty")
    chatty.addHandler(logging.StreamHandler(sys.stdout))
    plain, seen = builtins.__import__, set()

    def importing(name, *rest, **named):
        made = plain(name, *rest, **named)
        root = name.partition(".")[0]
        if root not in seen and root in ("pygls", "lsprotocol", "cattrs", "httpx", "tree_sitter"):
            seen.add(root)
            noise("importing")
        session = sys.modules.get("speclsp.lsp.completion.session")
        if "session" not in seen and hasattr(session, "Session"):
            seen.add("session")
            plain_complete = session.Session.complete

            async def complete(*given, **named):
                noise("completing")
                return await plain_complete(*given, **named)

            session.Session.complete = complete
            threading.Thread(target=always, daemon=True).start()
            atexit.register(noise, "leaving")
        return made

    builtins.__import__ = importing


if b"lsp" in open("/proc/self/cmdline", "rb").read().split(b"\\0"):
    begin()
"""


class Noisy(Editor):
    """An editor whose server loads a directory's `sitecustomize.py`."""

    def __init__(self, directory: Path) -> None:
        self.over = False
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PYTHONPATH", str(directory))
            super().__init__()

    def _read(self) -> None:
        super()._read()
        with self._heard:
            self.over = True
            self._heard.notify_all()


WAYS = ("print", "buffer", "write", "printf", "logging", "child", "frame")
WHEN = ("importing", "completing", "leaving")


@pytest.mark.promise(7)
def test_only_messages_arrive_whatever_else_writes_to_stdout(tmp_path: Path, soak: bool, promise):
    (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
    with Noisy(tmp_path) as editor:
        page = Page(editor.begin(), SOURCE)
        until = time.monotonic() + (20 if soak else 1.5)
        completions, cursor = 0, CURSOR
        while time.monotonic() < until or not completions:
            if cursor - CURSOR > 1000:  # the model sees only the end of a longer line, and echo hashes only that
                page.edit(CURSOR, cursor, "")
                cursor = CURSOR
            cursor = page.type(cursor, "x")
            assert editor.text(page.ask(cursor)) == page.expected(cursor)
            completions += 1
        editor.call("shutdown")
        editor.notify("exit")
        assert editor.ended(20) == 0
        assert editor.wait_for(lambda: editor.over, 10)
        stray, log = editor.stray, editor.stderr()
    assert stray == b""
    missing = [(way, when) for way in WAYS for when in WHEN if f"noise by {way} {when}" not in log]
    assert missing == [], "noise that was never made proves nothing"
    promise.measured(
        f"{log.count('noise by'):,} writes to stdout by print, a library's log, C's printf, fd 1 and a"
        f" child, while importing, completing and leaving: {len(stray)} stray bytes",
        holds=True,
    )
