"""Remote completion servers over the wire: the requests they get, their faults, and the destination of the API key."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from promises import Measured
from support.lsp.editor_client import Editor, Page
from support.lsp.faulty_http_server import (
    WORDS,
    Behaviour,
    FaultyServer,
    body_of,
    cut,
    drips,
    one_long_line,
    raw,
    refuses,
    says_when,
    silent,
)
from windows.harness.program import program

from speclsp.config import api_keys

SOURCE = "def add(a, b):\n    return \n"
CURSOR = len(SOURCE) - 1
ANSWER = "a + b"


def pointed_at(server: FaultyServer, *more: str, **how: Any) -> Editor:
    return Editor("--set", f"remote.url={server.url}", *more, **{"model": "auto", **how})


def own_settings(text: str) -> None:
    """Write the user's config.toml."""
    path = Path(os.environ["XDG_CONFIG_HOME"]) / "speclsp" / "config.toml"
    path.parent.mkdir(exist_ok=True)
    path.touch(0o600)
    path.write_text(text)


def all_output(editor: Editor) -> str:
    """Everything that the language server has written: messages, stderr, logs."""
    logs = [path.read_text(errors="replace") for path in editor.logs.parent.rglob("*") if path.is_file()]
    messages = [editor.notifications, editor.requests, list(editor.replies.values())]
    return json.dumps(messages) + editor.stderr() + "".join(logs)


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[Editor, FaultyServer]]:
    """One editor and one server for many faults. Each test leaves both working."""
    with FaultyServer() as server, pointed_at(server, "--set", "completion.timeout_ms=10000") as editor:
        yield editor.begin(), server
        assert editor.popups() == []
        assert editor.engines() == [], "no engine runs beside a server"


def test_a_request_has_the_markers_of_the_servers_model_and_the_status_its_address(both: tuple[Editor, FaultyServer]):
    editor, server = both
    assert editor.text(Page(editor, SOURCE, uri="file:///good.py").ask(CURSOR)) == ANSWER
    status = editor.statuses()[-1]
    assert status["remote"] == f"127.0.0.1:{server.port}"
    assert (status["model"], status["target"]) == ("qwen2.5-coder-7b", "Qwen/Qwen2.5-Coder-7B")
    (request,) = server.completions()
    assert request.path == "/v1/completions"
    before, after = SOURCE[:CURSOR], SOURCE[CURSOR:]
    assert request.body["prompt"].endswith(f"<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>")
    assert "<|endoftext|>" in request.body["stop"]
    assert not {"session", "previous"} & set(request.body), "what only our own engine knows is not sent"
    assert "authorization" not in request.headers


FAULTS: dict[str, tuple[Behaviour, str]] = {
    "401": (refuses(401, "no such key"), "speclsp key set"),
    "403": (refuses(403), "what your key may do"),
    "404": (refuses(404), "correct remote.url"),
    "429": (refuses(429, "slow down", retry_after="0"), "no more requests"),
    "503": (refuses(503, "overloaded"), "overloaded"),
    "a redirect": (refuses(302, location="https://elsewhere.example/v1?token=x"), "no redirect is followed"),
    "a page for signing in": (body_of("text/html", b"<html>Sign in"), "text/html and not JSON"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "connection was lost"),
    "half an answer": (cut, "connection was lost"),
    "nothing at all": (raw(b""), "connection was lost"),
    "a line without end": (one_long_line, "no end"),
    "compressed": (body_of("text/event-stream", b"\x1f\x8b", content_encoding="gzip"), "compresses"),
    "no JSON": (body_of("text/event-stream", b"data: {oops\n\n"), "not a JSON object"),
    "an error in the stream": (body_of("text/event-stream", b'data: {"error": {"message": "OOM"}}\n\n'), "OOM"),
}


@pytest.mark.promise(36)
@pytest.mark.parametrize("name", FAULTS)
def test_a_failure_gives_an_empty_answer_and_a_status_until_it_is_over(
    name: str, both: tuple[Editor, FaultyServer], promise: Measured
):
    (editor, server), (fault, words) = both, FAULTS[name]
    page = Page(editor, SOURCE, uri=f"file:///{name.replace(' ', '-')}.py")
    statuses_before, requests_before = len(editor.statuses()), len(server.completions())
    server.then.append(fault)
    # The text received before the fault may be shown.
    assert [item["insertText"] for item in editor.items(page.ask(CURSOR))] in ([], ["a"])
    assert len(server.completions()) == requests_before + 1
    reports = lambda: [status for status in editor.statuses()[statuses_before:] if words in status["message"]]  # noqa: E731
    assert editor.wait_for(reports, 20), f"{words!r} was not said: {editor.statuses()[statuses_before:]}"
    assert "127.0.0.1" in reports()[0]["message"] and "token=x" not in reports()[0]["message"]
    after = len(editor.statuses()) - 1
    editor.until("ready", after=after)
    page.type(0, "#\n")
    assert editor.text(page.ask(CURSOR + 2)) == ANSWER
    assert editor.wait_for(lambda: editor.statuses()[-1]["message"] == "", 20)
    promise.measured(f"{len(FAULTS)} kinds of fault: each an empty answer and a sentence", holds=True)


@pytest.mark.promise(36)
def test_a_slow_server_is_cancelled_at_the_deadline(both: tuple[Editor, FaultyServer]):
    editor, server = both
    editor.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"timeout_ms": 600}}})
    page = Page(editor, SOURCE, uri="file:///slow.py")
    server.then.append(silent)
    assert editor.items(page.ask(CURSOR)) == []
    assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "deadline", 20)
    server.wait(lambda: server.completions()[-1].closed_at is not None)
    assert editor.wait_for(lambda: "said nothing within" in editor.statuses()[-1]["message"], 20)
    page.type(0, "#\n")
    server.then.append(drips(0.02))
    shown = editor.text(page.ask(CURSOR + 2))
    assert shown is not None and shown.startswith(" w1(); w2();"), "what came by the deadline is shown"
    server.wait(lambda: server.completions()[-1].closed_at is not None)
    editor.notify("workspace/didChangeConfiguration", {"settings": {"completion": {"timeout_ms": 10_000}}})


@pytest.mark.promise(36)
@pytest.mark.parametrize("how", ["cancelled", "superseded", "typed over", "closed"])
def test_a_cancelled_request_is_closed_at_the_server_and_others_continue(how: str, both: tuple[Editor, FaultyServer]):
    editor, server = both
    page, other = (Page(editor, SOURCE, uri=f"file:///{name}-{how[:5]}.py") for name in ("mine", "other"))
    resume, before = threading.Event(), len(server.completions())
    server.then += [says_when(resume, *WORDS), drips(0.02)]
    other_id = other.ask(CURSOR)
    server.wait(lambda: len(server.completions()) == before + 1)
    request_id = page.ask(CURSOR)
    server.wait(lambda: len(server.completions()) == before + 2)
    other_request, request = server.completions()[-2:]
    if how == "cancelled":
        editor.notify("$/cancelRequest", {"id": request_id})
    elif how == "superseded":
        editor.items(page.ask(page.type(CURSOR, "zz ")))
    elif how == "typed over":
        page.type(CURSOR, "zz ")
        editor.notify("$/cancelRequest", {"id": request_id})
    else:
        editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    server.wait(lambda: request.closed_at is not None)
    assert other_request.closed_at is None
    resume.set()
    assert editor.text(other_id) == ANSWER


def test_an_open_breaker_answers_at_once_and_sends_nothing():
    with FaultyServer() as server, pointed_at(server) as editor:
        page = Page(editor.begin(), SOURCE)
        server.then.append(refuses(429, "later", retry_after="3600"))
        assert editor.items(page.ask(CURSOR)) == []
        editor.until("error")
        assert "Next try at" in editor.statuses()[-1]["message"]
        cursor, requests_before = CURSOR, len(server.requests)
        for letter in "typing":
            cursor = page.type(cursor, letter)
            assert editor.items(page.ask(cursor)) == []
        assert editor.wait_for(lambda: editor.statuses()[-1]["last_reason"] == "server_away", 20)
        assert len(server.requests) == requests_before


def test_a_server_that_starts_later_is_used():
    with FaultyServer() as server:
        server.stop()
        with pointed_at(server) as editor:
            editor.initialize()
            editor.until("error")
            assert "start the server" in editor.statuses()[-1]["message"]
            page = Page(editor, SOURCE)
            assert editor.items(page.ask(CURSOR)) == []
            server.listen()
            editor.until("ready")
            page.type(0, "#\n")
            assert editor.text(page.ask(CURSOR + 2)) == ANSWER
            assert editor.popups() == []


@pytest.fixture(scope="module")
def port_engine() -> Iterator[tuple[str, str]]:
    """The address and the token of a `speclsp engine --port 0` with directories of its own, as another user's has."""
    with tempfile.TemporaryDirectory(prefix="spec-") as root:
        directories = {
            f"XDG_{name}": f"{root}/{name[:3].lower()}" for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR")
        }
        Path(directories["XDG_RUNTIME_DIR"]).mkdir(mode=0o700)
        command = program("engine", "--model", "echo", "--port", "0")
        engine = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=os.environ | directories
        )
        try:
            url = next(match[0] for line in engine.stdout if (match := re.search(r"http://127\.0\.0\.1:\d+", line)))
            yield url, Path(f"{directories['XDG_STATE_HOME']}/speclsp/token").read_text().strip()
        finally:
            engine.terminate()
            engine.communicate()


@pytest.mark.parametrize("style", ["auto", "suffix"])
def test_a_remote_speclsp_engine_answers_like_a_local_one(style: str, port_engine: tuple[str, str]):
    url, token = port_engine
    api_keys.store(url, token)
    with Editor("--set", f"remote.url={url}", "--set", f"remote.api={style}", model="auto") as editor:
        page = Page(editor.begin(), "x = 'é𝒙\u2028'\r\ndef f():\n    return \n\n# the end\n")
        assert editor.statuses()[-1]["target"] == "echo"
        for cursor in (page.text.index("return ") + 7, page.type(page.text.index("return ") + 7, "[")):
            assert editor.text(page.ask(cursor)) == page.expected(cursor)
        assert token not in all_output(editor)


# ── the key ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(36)
def test_the_key_goes_to_the_users_own_server_and_nowhere_else(monkeypatch: pytest.MonkeyPatch):
    key = "sk-very-secret-0123456789"
    monkeypatch.setenv("SPECLSP_API_KEY", key)
    with FaultyServer() as server, FaultyServer() as elsewhere:
        own_settings(f'[remote]\nurl = "{server.url}"\n')
        with Editor(model="auto", settings=None) as editor:
            page = Page(editor.begin(), SOURCE)
            server.then += [refuses(307, location=f"{elsewhere.url}/v1/completions"), refuses(401, f"bad key {key}")]
            assert editor.items(page.ask(CURSOR)) == []
            editor.until("ready", after=len(editor.statuses()) - 1)
            page.type(0, "#\n")
            assert editor.items(page.ask(CURSOR + 2)) == []
            assert editor.wait_for(lambda: any("bad key ***" in status["message"] for status in editor.statuses()), 20)
            assert {request.headers.get("authorization") for request in server.requests} == {f"Bearer {key}"}
            assert elsewhere.requests == []
            assert key not in " ".join(editor.server.cmdline())
            assert key not in all_output(editor)
        with Editor(model="auto") as editor:  # an editor that names another server, as settings of a repository may
            editor.begin(initializationOptions={"remote": {"url": elsewhere.url}})
            assert editor.text(Page(editor, SOURCE).ask(CURSOR)) == ANSWER
            assert len(elsewhere.requests) >= 2
            assert all("authorization" not in request.headers for request in elsewhere.requests)
