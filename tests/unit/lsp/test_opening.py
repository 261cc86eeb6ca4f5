"""First messages, before the server is imported: the answer of pygls to `initialize`, and the start of the engine."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import Config
from speclsp.lsp.protocol import opening
from speclsp.lsp.protocol.framing import MessageReader, framed
from speclsp.lsp.protocol.initialize_answer import is_plain
from speclsp.lsp.protocol.language_server import SpecLanguageServer
from speclsp.lsp.protocol.opening import COPILOT_SETTINGS, Opening
from speclsp.lsp.server.app import compose

PATIENCE_S = 60.0
NOT_STARTED_S = 0.3
PLAIN: dict[str, Any] = {"processId": None, "rootUri": None, "capabilities": {}}
MENU = {"completion": {"show_in_menu": True}}
COPILOT = {"editorPluginInfo": {"name": "copilot.lua", "version": "1"}}
WRONG = st.sampled_from([None, True, 1, 1.5, "x", [], ["x"], {}, {"name": 1}, [{"uri": "file:///a"}]])
SYNCHRONIZATION = st.fixed_dictionaries({}, optional={"willSave": st.booleans(), "willSaveWaitUntil": st.booleans()})
ENCODINGS = st.lists(st.sampled_from(["utf-8", "utf-16", "utf-32", "utf-7"]), max_size=3)
CAPABILITIES = st.fixed_dictionaries(
    {},
    optional={
        "general": st.fixed_dictionaries({}, optional={"positionEncodings": ENCODINGS | WRONG}) | WRONG,
        "textDocument": st.fixed_dictionaries({}, optional={"synchronization": SYNCHRONIZATION | WRONG}) | WRONG,
        "notebookDocument": st.fixed_dictionaries({}, optional={"synchronization": st.just({}) | WRONG}) | WRONG,
        "window": WRONG,
        "somethingNew": WRONG,
    },
)
CLIENT = st.fixed_dictionaries({"name": st.just("editor")}, optional={"version": st.just("1")})
FOLDER = st.fixed_dictionaries({"uri": st.just("file:///a"), "name": st.just("a")})
VALID = st.fixed_dictionaries(
    {"processId": st.none(), "rootUri": st.none() | st.just("file:///a"), "capabilities": CAPABILITIES},
    optional={
        "clientInfo": CLIENT | st.none(),
        "locale": st.just("en"),
        "rootPath": st.none() | st.just("/a"),
        "trace": st.sampled_from(["off", "messages", "verbose"]),
        "initializationOptions": st.sampled_from([MENU, COPILOT, {**MENU, **COPILOT}, {"speclsp": MENU}, [], None]),
        "workspaceFolders": st.lists(FOLDER, max_size=2) | st.none(),
        "workDoneToken": st.just("t") | st.just(1),
    },
)
FIELDS = ("processId", "rootUri", "capabilities", "clientInfo", "locale", "rootPath", "trace", "workspaceFolders")
ONE_WRONG = st.dictionaries(st.sampled_from([*FIELDS, "workDoneToken", "somethingNew"]), WRONG, max_size=1)
PARAMS = st.builds(lambda params, wrong: params | wrong, VALID, ONE_WRONG)


class Recorder:
    """A MessageWriter that keeps the messages."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []

    def write(self, body: bytes, droppable: bool = False) -> None:
        self.messages.append(json.loads(body))


def answer_of_pygls(params: dict[str, Any], config: Config, copilot: bool) -> dict[str, Any]:
    """The reply of the whole server to `initialize`."""

    async def start(app: object) -> None:
        """No session: it plays no part in the answer."""

    async def receive() -> dict[str, Any]:
        app = compose(config, [])
        app.start, server, writer = start, app.server, Recorder()
        assert isinstance(server, SpecLanguageServer)
        server.protocol.writer, server.protocol.utf16_only = writer, copilot  # type: ignore[assignment]
        server.protocol.receive({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
        await asyncio.sleep(0)
        return next(message for message in writer.messages if message.get("id") == 1)

    return asyncio.run(receive())


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


@given(PARAMS, st.booleans())
def test_params_that_count_as_plain_have_the_answer_of_pygls(params: dict[str, Any], copilot: bool):
    if not is_plain(params):
        return
    with pytest.MonkeyPatch.context() as patch:
        editor = Editor(patch, {**(COPILOT_SETTINGS if copilot else {})}, copilot)
        try:
            editor.send("initialize", params, id=1)
            assert next(editor.answers) == answer_of_pygls(params, editor.opening.own_config, copilot)
        finally:
            editor.opening.end()
            os.close(editor.in_end)


def test_the_answer_of_our_editors_is_early():
    client = {"name": "Visual Studio Code", "version": "1.1"}
    folders = [{"uri": "file:///a", "name": "a"}]
    options = {"model": "echo", "completion": {"enabled": True}}
    params = {"processId": 1, "clientInfo": client, "locale": "en", "trace": "off", "rootPath": "/a"}
    params |= {"rootUri": "file:///a", "capabilities": {"window": {}}, "workspaceFolders": folders}
    assert is_plain(params | {"initializationOptions": options, "workDoneToken": "1"})


def test_only_the_first_request_can_have_an_early_answer(begin: Callable[..., Editor]):
    editor, received = begin(), SimpleQueue[Any]()
    editor.send("initialize", PLAIN | {"somethingNew": 1}, id=1)
    editor.send("initialize", PLAIN, id=2)
    editor.send("initialized", {})
    editor.opening.input.attach(received.put)
    assert [received.get(timeout=PATIENCE_S)[0].get("id") for _ in range(3)] == [1, 2, None]
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
    editor, received = begin(), SimpleQueue[Any]()
    editor.initialize()
    editor.send("initialized", {})
    editor.opening.input.attach(received.put)
    editor.send("exit", None)
    methods = [received.get(timeout=PATIENCE_S)[0]["method"] for _ in range(3)]
    assert methods == ["initialize", "initialized", "exit"]
