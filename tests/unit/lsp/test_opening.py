"""First messages, before the server is imported: the early answer to `initialize`, and the start of the engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from speclsp.config import Config
from speclsp.lsp.protocol import opening
from speclsp.lsp.protocol.framing import MessageReader, framed
from speclsp.lsp.protocol.initialize_answer import params_problem
from speclsp.lsp.protocol.opening import Opening

PATIENCE_S = 60.0
NOT_STARTED_S = 0.3
PLAIN: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}


class Editor:
    """An Opening on pipes, and the configurations with which it has launched an engine."""

    def __init__(self, patch: pytest.MonkeyPatch, flags: dict[str, object], copilot: bool = False) -> None:
        (in_fd, self.in_end), (out_end, out_fd) = os.pipe(), os.pipe()
        self.launched: SimpleQueue[Config] = SimpleQueue()
        patch.setattr(opening, "redirect_stdio", lambda: (in_fd, out_fd))
        patch.setattr(opening.launch, "start", self.launched.put)
        self.answers = iter(MessageReader(lambda size: os.read(out_end, size)))
        self.opening = Opening(flags, copilot)

    def send(self, method: str, params: object, **fields: object) -> None:
        body = {"jsonrpc": "2.0", "method": method, "params": params, **fields}
        os.write(self.in_end, framed(json.dumps(body).encode()))

    def initialize(self, **params: object) -> Any:
        self.send("initialize", PLAIN | params, id=7)
        return next(self.answers)

    def open(self, uri: str, language: str = "python", text: str = "x = 1\n") -> None:
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.send("textDocument/didOpen", {"textDocument": document})

    def received(self, count: int) -> list[Any]:
        """The first messages that the server gets, each with its bytes."""
        notified: SimpleQueue[Any] = SimpleQueue()
        self.opening.input.follow(notified.put)
        for _ in range(count):
            notified.get(timeout=PATIENCE_S)
        return [self.opening.input.next() for _ in range(count)]

    def launches(self, timeout_s: float) -> Config | None:
        """The configuration of the next launch; None if there is none in time."""
        try:
            return self.launched.get(timeout=timeout_s)
        except Empty:
            return None


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Editor]]:
    editors: list[Editor] = []

    def begin(copilot: bool = False, **flags: object) -> Editor:
        editors.append(Editor(monkeypatch, {"model": "echo", **flags}, copilot))
        return editors[-1]

    yield begin
    for editor in editors:
        editor.opening.end()
        os.close(editor.in_end)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"processId": "7"}, {"clientInfo": 5}, {"rootUri": 1}, {"capabilities": None}, {"workspaceFolders": {}}),
        *({"workspaceFolders": [{"name": "a"}]}, {"workspaceFolders": ["file:///a"]}),
    ],
)
def test_wrong_params_are_left_to_the_server(begin: Callable[..., Editor], wrong: dict[str, object]):
    assert params_problem(PLAIN | wrong) and not params_problem(PLAIN | {"somethingNew": 1, "capabilities": []})
    editor = begin()
    editor.send("initialize", PLAIN | wrong, id=1)
    editor.send("initialized", {})
    assert [entry[0].get("id") for entry in editor.received(2)] == [1, None]
    assert not editor.opening.has_answered(1)


def test_only_the_first_request_can_have_an_early_answer(begin: Callable[..., Editor]):
    editor = begin()
    editor.send("initialize", PLAIN | {"processId": "x"}, id=1)
    editor.send("initialize", PLAIN, id=2)
    assert [entry[0].get("id") for entry in editor.received(2)] == [1, 2]
    assert not any(map(editor.opening.has_answered, (1, 2)))


def test_the_first_eligible_document_launches_the_engine_once(begin: Callable[..., Editor], tmp_path: Path):
    (tmp_path / ".aiexclude").write_text("hidden.py\n")
    editor = begin()
    reply = editor.initialize(
        workspaceFolders=[{"uri": tmp_path.as_uri(), "name": "a"}],
        initializationOptions={"echo": {"round_ms": 3}, "completion": {"disabled_languages": ["ruby"]}},
    )
    assert reply["id"] == 7 and editor.opening.has_answered(7)
    editor.open((tmp_path / "hidden.py").as_uri())
    editor.open((tmp_path / ".env").as_uri(), "dotenv")
    editor.open((tmp_path / "a.rb").as_uri(), "ruby")
    assert editor.launches(NOT_STARTED_S) is None
    editor.open((tmp_path / "a.py").as_uri())
    config = editor.launches(PATIENCE_S)
    assert config is not None and config.echo.round_ms == 3
    editor.open((tmp_path / "b.py").as_uri())
    assert editor.launches(NOT_STARTED_S) is None


@pytest.mark.parametrize(
    "settings",
    [
        {"completion.enabled": False},
        {"remote.url": "http://127.0.0.1:9"},
    ],
    ids=lambda settings: next(iter(settings)),
)
def test_these_settings_launch_no_engine_early(begin: Callable[..., Editor], settings: dict[str, object]):
    for flags, options in ((settings, None), ({}, settings)):
        editor = begin(**flags)
        editor.initialize(initializationOptions=options)
        editor.open("file:///a.py")
        assert editor.launches(NOT_STARTED_S) is None


def test_the_server_gets_the_first_messages_too(begin: Callable[..., Editor]):
    editor = begin()
    editor.initialize()
    editor.send("initialized", {})
    editor.send("exit", None)
    assert [entry[0]["method"] for entry in editor.received(3)] == ["initialize", "initialized", "exit"]
