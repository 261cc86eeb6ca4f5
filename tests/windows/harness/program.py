"""The program that tests start: this checkout with this interpreter, or the words in SPECLSP_TESTS_PROGRAM before it.

`make windows` names the launcher of a Windows Python. Then paths and file addresses are translated, because drive Z:
is Linux's root, and process ids, because Wine counts its own.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import time
from pathlib import Path
from typing import Any

import httpx

PREFIX = shlex.split(os.environ.get("SPECLSP_TESTS_PROGRAM", ""))
IS_FOREIGN = bool(PREFIX)  # the program has other paths and process ids than the tests
DRIVE = "Z:"
OUTGOING = re.compile(rb"file:///(?![A-Za-z](?::|%3A))")
PATHS = re.compile(rb"[zZ]:(?:\\\\[^\\\s\"',:;*?<>|]+)+")  # as JSON has their backslashes
PIDS = re.compile(rb'("engine_pid": ?)(\d+)')
INCOMING = re.compile(rb"file:///[zZ](?::|%3A)/")
EXIT_S = 30.0  # for processes of a test that has ended


def program(*words: str | Path) -> list[str]:
    """The command `speclsp WORDS...`. A word that is an absolute path becomes one that the program reads."""
    return [*(PREFIX or [sys.executable]), "-m", "speclsp", *map(translated, words)]


def translated(word: str | Path) -> str:
    """An argument for the program."""
    text = os.fspath(word)
    return f"{DRIVE}{text}" if IS_FOREIGN and text.startswith("/") else text


def outgoing(body: bytes) -> bytes:
    """A message's body with file addresses of the program's system."""
    return OUTGOING.sub(b"file:///z%3A/", body) if IS_FOREIGN else body


def incoming(body: bytes) -> bytes:
    """A message's body with file addresses, paths and process ids of this system."""
    if not IS_FOREIGN:
        return body
    body = PIDS.sub(lambda match: match[1] + b"%d" % linux_pid(int(match[2])), body)
    return PATHS.sub(lambda match: match[0].replace(b"\\\\", b"/")[2:], INCOMING.sub(b"file:///", body))


def linux_pid(pid: int) -> int:
    """The process id that this system has for one that the program reports; 0 if it has none."""
    if not IS_FOREIGN:
        return pid
    try:
        return int(Path(PREFIX[0]).with_name("pids").joinpath(str(pid)).read_text())
    except (OSError, ValueError):
        return 0


def engine_client(state: dict[str, Any], **options: Any) -> httpx.Client:
    """A client of the engine that wrote this discovery file: of its socket, or of its port with its token."""
    if state.get("socket"):
        transport = httpx.HTTPTransport(uds=state["socket"], limits=httpx.Limits(max_connections=64))
        return httpx.Client(transport=transport, base_url="http://engine", **options)
    headers = {"authorization": f"Bearer {state['token']}"}
    return httpx.Client(base_url=f"http://127.0.0.1:{state['port']}", headers=headers, **options)


def end_processes(processes: Any) -> list[str]:
    """Wait for the program's processes of a test to end, and kill the rest; returns what it killed.

    `processes()` gives their ids. Only for a foreign program, whose locks this system does not see.
    """
    until_s = time.monotonic() + EXIT_S
    while running := [pid for pid in processes() if b"speclsp" in command_line(pid)]:
        if time.monotonic() > until_s:
            break
        time.sleep(0.05)
    killed = []
    for pid in running:
        killed.append(command_line(pid).decode(errors="replace").replace("\0", " "))
        os.kill(pid, 9)
    return killed


def command_line(pid: int) -> bytes:
    """The words of a process, each with a zero byte after it; b"" if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
