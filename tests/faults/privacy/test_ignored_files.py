"""Ignore files over the wire: an ignored file is shown to no model, and hostile ignore files block no request."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from promises import Measured
from support.faults.scripted_server import Talker, editor_of, words
from support.lsp.editor_client import Editor
from support.waiting import becomes_true, wait_until
from windows.harness.program import IS_FOREIGN

TEXT = words()
LINE = TEXT.count("\n") - 1
IGNORED = {  # by the ignore file that lists it
    ".gitignore": ("gen.py", "gen.py\n"),
    ".ignore": ("deep/data.py", "deep/d*.py\n"),
    ".git/info/exclude": ("mine.py", "/mine.py\n"),
    "deep/.gitignore": ("deep/sub/out.py", "sub/\n!sub/out.py\n"),
    ".aiexclude": ("hush.py", "hush*\n"),
    ".cursorignore": ("deep/quiet.py", "**/quiet.py\n"),
    "deep/.continueignore": ("deep/still.py", "still.py\n"),
}
OFF = ("aiexclude", "cursorignore", "continueignore")


def lay(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def ask(editor: Editor, uri: str, kind: int = 1) -> list[dict[str, object]]:
    return editor.items(editor.complete(uri, LINE, 4, kind))


def here_in(editor: Editor, uri: str) -> dict[str, Any]:
    reply: dict[str, Any] = editor.call("speclsp/here", {"textDocument": {"uri": uri}})
    return reply


@pytest.mark.promise(32)
def test_an_ignored_file_is_no_context_and_one_excluded_from_ai_tools_gets_no_suggestion(
    promise: Measured, tmp_path: Path
):
    root = tmp_path.as_uri()
    lay(tmp_path, {where: pattern for where, (_, pattern) in IGNORED.items()})
    with Talker(lambda request: "return ledger.post(entry)\n") as server, editor_of(server) as editor:
        editor.begin(rootUri=root)
        editor.open(f"{root}/app.py", TEXT)
        lay(tmp_path, {"plain.py": ""})
        version, shown = 1, list[str]()
        for number, (where, name) in enumerate(
            [("", "plain.py"), *((where, name) for where, (name, _) in IGNORED.items())]
        ):
            lay(tmp_path, {name: ""})
            editor.open(f"{root}/{name}", words(f"zq8Ignored{number}" if where else "zq8harmless"))
            off = where.endswith(OFF)
            # a slow disk: while the ignore files are not read, no suggestion is shown
            wait_until(lambda name=name, off=off: here_in(editor, f"{root}/{name}")["on"] is not off)
            before = len(server.completions())
            if IS_FOREIGN and not off:  # Wine's disk takes longer than a request waits for the ignore files
                wait_until(lambda name=name: bool(ask(editor, f"{root}/{name}")))
            suggested = bool(ask(editor, f"{root}/{name}"))
            assert suggested is not off, (where, editor.call("speclsp/explain", {}))
            assert (len(server.completions()) > before) is not off
            here = here_in(editor, f"{root}/{name}")
            assert (here["on"], here["reason"]) == ((False, "excluded") if off else (True, "")), where
            assert not off or where in here["message"]
            before = len(server.completions())
            for _ in range(2):
                version += 1
                editor.change(f"{root}/app.py", version, {"text": f"n = {version}\n{TEXT}"})
                assert editor.items(editor.complete(f"{root}/app.py", LINE + 1, 4))
            shown += [str(request.body) for request in server.completions()[before:]]
            assert number > 3 or "zq8harmless" in shown[-1], "an ordinary neighbour is shown"
    leaks = [text for text in shown if "zq8Ignored" in text]
    promise.measured(
        f"{len(IGNORED)} ignored files open beside one that is not: context in {len(leaks)} of {len(shown)} requests",
        holds=not leaks,
    )
    assert leaks == []


@pytest.mark.promise(32)
def test_an_ignore_file_created_while_typing_takes_effect_within_seconds(promise: Measured, tmp_path: Path):
    root = tmp_path.as_uri()
    with Talker(lambda request: "return ledger.post(entry)\n") as server, editor_of(server) as editor:
        editor.begin(rootUri=root)
        editor.open(f"{root}/app.py", TEXT)
        assert ask(editor, f"{root}/app.py")
        lay(tmp_path, {".cursorignore": "app.py\n"})
        created_s, version, off = time.monotonic(), 1, False
        while not off and time.monotonic() - created_s < 30:
            version += 1
            editor.change(f"{root}/app.py", version, {"text": f"n = {version}\n{TEXT}"})
            off = not editor.items(editor.complete(f"{root}/app.py", LINE + 1, 4))
            time.sleep(0.05)
        seconds = time.monotonic() - created_s
        assert off and editor.statuses()[-1]["last_reason"] == "excluded"
    promise.measured(f"an ignore file made while somebody types counts after {seconds:.1f} s", holds=seconds < 5)


@pytest.mark.promise(32)
def test_hostile_ignore_files_delay_no_key(promise: Measured, tmp_path: Path):
    root, quick = tmp_path.as_uri(), list[float]()
    long = "/".join(["a" * 120] * 6)
    lay(tmp_path, {f"{long}/app.py": "", f"{long}/.gitignore": ("*a" * 120 + "b\n") * 1500})
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / ".ignore").symlink_to("/dev/zero")
    (tmp_path / ".aiexclude").symlink_to("/dev/stdin")
    (tmp_path / ".cursorignore").mkdir()
    lay(tmp_path, {".git/info/exclude": "**/a*a*a*a*a*a*a*a*b/**/a*a*a*b/**/c\n" * 1900})
    uri = f"{root}/{long}/app.py"
    with Talker(lambda request: "return ledger.post(entry)\n") as server, editor_of(server) as editor:
        editor.begin(rootUri=root)
        editor.open(uri, TEXT)
        # A busy machine needs longer than WAIT_S for its first verdict, and shows nothing until then.
        assert becomes_true(lambda: editor.items(editor.complete(uri, LINE, 4))), "they name nothing for AI tools"
        for version in range(2, 30):
            editor.change(uri, version, {"text": f"n = {version}\n{TEXT}"})
            began_s = time.monotonic()
            assert editor.items(editor.complete(uri, LINE + 1, 4)), "they name nothing for AI tools"
            quick.append(time.monotonic() - began_s)
    promise.measured(
        f"pipes, devices and patterns without end as ignore files: 28 keys answered, the slowest after "
        f"{max(quick) * 1000:.0f} ms",
        holds=max(quick) < 1,
    )
    assert max(quick) < 10
