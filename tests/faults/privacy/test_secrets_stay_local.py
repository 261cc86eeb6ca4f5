"""Secrets stay local: no model is shown a file of secrets, and no generated secret is delivered.

Each kind of secret file is open beside an ordinary file with the same words; its canary must appear nowhere.
"""

from __future__ import annotations

import asyncio
import os
import random
import string
from collections.abc import Iterator
from pathlib import Path

import pytest
from promises import Measured
from support.faults.scripted_server import Talker, editor_of, words
from support.lsp.editor_client import Editor
from support.lsp.faulty_http_server import Connection, HttpRequest

from speclsp.lsp.visibility import secret_files

ROOT = Path(__file__).parents[3]
CANARY, HARMLESS = "zq8Canary", "zq8harmless"


def example_of(pattern: str) -> str:
    """A path that a pattern matches."""
    return f"conf/{pattern.replace('[0-9]', '0').replace('*', 'x')}".replace("conf/.git/", ".git/")


FILES = [example_of(pattern) for pattern in secret_files.ALL]


def written_anywhere() -> Iterator[tuple[str, bytes]]:
    """Text that the server and its engines have left on disk."""
    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR"):
        for path in sorted(Path(os.environ[name]).rglob("*")):
            if path.is_file() and not path.is_symlink():
                yield str(path), path.read_bytes()


def ask(editor: Editor, uri: str, text: str, line: int, kind: int = 2) -> list[dict[str, object]]:
    column = len(text.split("\n")[line])
    return editor.items(editor.complete(uri, line, column, kind))


@pytest.mark.promise(32)
@pytest.mark.promise(35)
def test_no_word_of_a_secret_file_leaves_the_editor(promise: Measured, tmp_path: Path):
    """Over the wire to a server that records each request. The control is a neighbour that is not secret."""
    root = tmp_path.as_uri()
    text = words()
    line, version = text.count("\n") - 1, 1
    with Talker(lambda request: "return ledger.post(entry)\n") as server, editor_of(server) as editor:
        editor.begin(rootUri=root)
        editor.open(f"{root}/app.py", text)
        completed, neighbour_shown = [], False
        for number, name in enumerate(["plain.py", *FILES]):
            uri, tag = f"{root}/{name}", f"{CANARY}_{number}" if number else HARMLESS
            secret = words(tag)
            editor.open(uri, secret)
            before = len(server.completions())
            if ask(editor, uri, secret, line) or len(server.completions()) > before:
                completed.append(name)
            where = editor.call("speclsp/here", {"textDocument": {"uri": uri}})
            assert (where["on"], where["reason"]) == ((False, "secret_file") if number else (True, "")), name
            assert CANARY not in str(where)
            version += 1
            editor.change(f"{root}/app.py", version, {"text": f"n = {version}\n{text}"})
            before = len(server.completions())
            assert ask(editor, f"{root}/app.py", f"n = {version}\n{text}", line + 1, kind=1 + version % 2)
            beside = str([request.body["input_extra"] for request in server.completions()[before:]])
            neighbour_shown |= HARMLESS in beside  # not in each request: the time for snippets is limited
        assert neighbour_shown
        assert completed.pop(0) == "plain.py"
        assert editor.call("speclsp/explain", {})["asked"]
        texts = {
            "requests": server.received_text(),
            "answers": str(list(editor.replies.values())),
            "notifications": str(editor.notifications),
            "stderr": editor.stderr(),
        }
    places = [name for name, output in texts.items() if CANARY in output]
    places += [name for name, data in written_anywhere() if CANARY.encode() in data]
    promise.measured(
        f"{len(secret_files.KINDS)} kinds of secret file, {len(FILES)} names: {len(completed)} completed in; "
        f"canaries in {len(places)} of requests, logs, traces, explanations and answers",
        holds=not completed and not places and len(secret_files.KINDS) >= 30,
    )
    assert completed == []
    assert places == []


@pytest.mark.promise(32)
def test_no_setting_and_no_pair_opens_a_secret_file(promise: Measured):
    names = (".env", ".ENV.Production", "id_rsa", ".env~", "keys/server.PEM", ".ssh/known_hosts")
    with Editor("--set", "completion.disabled_globs=", "--set", "completion.eagerness=high") as editor:
        editor.begin()
        items = []
        for name in names:
            editor.open(f"file:///p/{name}", "x = ")
            items += editor.items(editor.complete(f"file:///p/{name}", 0, 4, kind=1))
        for name in (".env.example", "environment.py", "id_rsa.pub"):
            editor.open(f"file:///p/{name}", "x = ")
            assert editor.items(editor.complete(f"file:///p/{name}", 0, 4)), name
    promise.measured(f"{len(names)} spellings of secret names asked by hand: {len(items)} answered", holds=not items)
    assert items == []


def test_the_documented_list_of_secret_files_is_the_products():
    table = (ROOT / "docs" / "privacy.md").read_text(encoding="utf-8")
    for kind, patterns in secret_files.KINDS.items():
        assert f"- {kind}: {' '.join(f'`{pattern}`' for pattern in patterns)}\n" in table
    assert " ".join(f"`{name}`" for name in secret_files.PASS) in table


# ── generated by a model ───────────────────────────────────────────────────────────────────────────────────────


def drawn(chance: random.Random, count: int, letters: str = string.ascii_letters + string.digits) -> str:
    return "".join(chance.choice(letters) for _ in range(count))


def keys(chance: random.Random) -> list[str]:
    """Lines that a model may have memorized."""
    upper, hexes = string.ascii_uppercase + string.digits, "0123456789abcdef"
    return [
        f'AWS_ID = "AKIA{drawn(chance, 16, upper)}"',
        f'client = Github("ghp_{drawn(chance, 36)}")',
        f"glpat-{drawn(chance, 20)}",
        f"xoxb-{drawn(chance, 11, string.digits)}-{drawn(chance, 24)}",
        f"stripe.api_key = 'sk_live_{drawn(chance, 24)}'",
        f"AIza{drawn(chance, 35)}",
        f'api_key = "sk-proj-{drawn(chance, 48)}"',
        f'password = "{drawn(chance, 40)}"',
        f'{{"client_secret": "{drawn(chance, 40, hexes)}"}}',
        f"postgres://app:{drawn(chance, 14)}@db/app",
        "-----BEGIN RSA PRIVATE KEY-----",
        f"eyJ{drawn(chance, 20)}.eyJ{drawn(chance, 40)}.{drawn(chance, 43)}",
        "# Copyright (c) 2017 Somebody Else",
        "# Licensed under the Apache License, Version 2.0",
        "# SPDX-License-Identifier: GPL-3.0-only",
    ]


@pytest.mark.promise(34)
def test_a_generated_key_or_licence_text_is_not_delivered(promise: Measured, soak: bool):
    count, chance = (2_000 if soak else 200), random.Random(34)
    saying: list[str] = [""]
    delivered, reasons = [], set[str]()
    with Talker(lambda request: saying[0]) as server, editor_of(server) as editor:
        editor.begin()
        editor.open("file:///p/a.py", "")
        kept = 0
        for number in range(count):
            line = chance.choice(keys(chance))
            block = chance.random() < 0.5
            text = f"n = {number}\ndef f(x):\n    " if block else f"n = {number}\n"
            at = chance.randrange(3) if block else 0
            rows = [f"first_{row} = x + {row}" for row in range(at)] + [line, "after = 2"]
            saying[0] = ("\n    " if block else "\n").join(rows) + "\n"
            editor.change("file:///p/a.py", number + 2, {"text": text})
            items = ask(editor, "file:///p/a.py", text, text.count("\n"))
            texts = [str(item["insertText"]) for item in items]
            delivered += [text for text in texts if line[-12:] in text or "after" in text]
            kept += bool(items)
            assert bool(items) == bool(at), "what stands before it is shown"
            if not items:
                reasons.add(editor.statuses()[-1]["last_reason"])
        known = keys(chance)
        saying[0] = known[0] + "\n"
        editor.open("file:///p/b.py", f"{known[0]}\n")
        editor.change("file:///p/a.py", count + 9, {"text": "k = 1\n"})
        assert ask(editor, "file:///p/a.py", "k = 1\n", 1), "it stands in another open file"
    promise.measured(
        f"{count} keys and licences said by a server: {len(delivered)} delivered, {kept} times what came before",
        holds=not delivered,
    )
    assert delivered == []
    assert {"secret", "licence"} <= reasons


@pytest.mark.promise(34)
def test_a_deadline_never_shows_the_first_half_of_a_key(promise: Measured):
    key = f"sk-proj-{drawn(random.Random(7), 60)}"

    async def hang(request: HttpRequest, connection: Connection) -> None:
        await connection.head()
        await connection.event({"content": f'api_key = "{key[:30]}', "stop": False})
        await asyncio.Event().wait()

    with Talker(lambda request: "") as server, editor_of(server, "completion.timeout_ms=300") as editor:
        editor.begin()
        server.always = hang
        editor.open("file:///p/a.py", "import os\n")
        shown = ask(editor, "file:///p/a.py", "import os\n", 1)
    promise.measured(f"half a key when the deadline came: {len(shown)} shown", holds=not shown)
    assert shown == []
