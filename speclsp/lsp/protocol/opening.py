"""First messages of an editor, handled while pygls and LSP's types are imported, which takes 0.35 s.

    reader thread    initialize ─► answer      didOpen ─► is it eligible? ─► engine thread: launch the shared engine
    main thread      imports ───────────────────────────────────────────► the server handles the same messages again

The server sends no second answer to `initialize`, and finds the engine that was launched here. Both are optional: a
request with wrong params, or a remote server, is left to the server. No text of a document is
kept here.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from speclsp import config as settings
from speclsp.config import Config
from speclsp.daemon import launch
from speclsp.lsp.documents.uri_paths import containing_folder
from speclsp.lsp.protocol.framing import framed
from speclsp.lsp.protocol.initialize_answer import initialize_result, params_problem, workspace_folders
from speclsp.lsp.protocol.stdio import Input, redirect_stdio
from speclsp.lsp.visibility.eligibility import exclusion
from speclsp.lsp.visibility.ignore_files import IgnoreFiles

AT_START = "initializationOptions"  # written by the editor's user; later settings may come from a repository
SECTION = "speclsp"
COPILOT_SETTINGS: Mapping[str, object] = {  # next edits only: then no engine runs and nothing is indexed
    "completion.enabled": False,
    "context.index_workspace": False,
    "next_edit.enabled": True,
}
IMPORT_SWITCH_S = 0.0005  # between two threads: imports would hold the interpreter for 5 ms each time

log = logging.getLogger("speclsp.server")


class Opening:
    """The editor's pipes, and what is done with its first messages until the server takes over."""

    def __init__(self, flags: Mapping[str, object], copilot: bool = False) -> None:
        """Redirect stdin and stdout, and begin to read. `flags`: settings by key."""
        in_fd, self.out_fd = redirect_stdio()
        self.own_config, self.problems = settings.gather({**(COPILOT_SETTINGS if copilot else {}), **flags})
        self.config, self.copilot = self.own_config, copilot  # with the settings of `initialize`
        self._is_initialized = False
        self._answered: int | str | None = None  # the id of the request `initialize`, once it is answered
        self._folders: list[str] = []  # URIs of the workspace folders
        self._started = False
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(IMPORT_SWITCH_S)
        self.input = Input(in_fd, self._handle)

    def end(self) -> None:
        """The server takes over."""
        sys.setswitchinterval(self._switch_s)

    def has_answered(self, msg_id: object) -> bool:
        """True for the id of the request `initialize`, if it was answered here."""
        return self._answered is not None and msg_id == self._answered

    def _handle(self, message: object) -> None:
        """Handle a message that the server will handle again, in the reader thread."""
        if not isinstance(message, dict) or not isinstance(params := message.get("params"), dict):
            return
        method, msg_id = message.get("method"), message.get("id")
        if method == "initialize" and not self._is_initialized:  # the server refuses any but the first
            self._is_initialized = True
            if isinstance(msg_id, int | str) and not isinstance(msg_id, bool) and not params_problem(params):
                self._initialize(msg_id, params)
        elif method == "textDocument/didOpen" and self._answered is not None and not self._started:
            self._open(params["textDocument"])
        elif method == "workspace/didChangeConfiguration":
            self._started = True  # the settings of the engine are those that the server will read

    def _initialize(self, msg_id: int | str, params: Mapping[str, Any]) -> None:
        """Answer, and apply the settings in the params."""
        if (options := params.get(AT_START)) is not None:
            own_globs = self.own_config.completion.disabled_globs
            self.config, _ = with_settings(self.own_config, AT_START, options, own_globs)
        self._folders = workspace_folders(params)
        result = initialize_result(params, self.copilot, has_menu=self.config.completion.show_in_menu)
        frame = framed(json.dumps({"jsonrpc": "2.0", "id": msg_id, "result": result}).encode())
        self._answered = msg_id
        while frame:
            frame = frame[os.write(self.out_fd, frame) :]

    def _open(self, document: Mapping[str, Any]) -> None:
        """Launch the shared engine if the document is eligible for suggestions."""
        if self.config.remote.url or not self.config.completion.enabled:
            return
        facts = str(document["uri"]), str(document["languageId"]), len(document["text"])
        threading.Thread(target=self._launch_engine, args=facts, name="engine-start", daemon=True).start()

    def _launch_engine(self, uri: str, language: str, characters: int) -> None:
        root = containing_folder(uri, self._folders)
        excluded = IgnoreFiles().read_no_suggestions(uri, root)
        reason, _ = exclusion(uri, language, characters, self.config, root, excluded)
        if reason or self._started:
            return
        self._started = True
        try:
            launch.start(self.config)
        except Exception as error:  # the server tries again, and reports it
            log.info("no engine was launched early: %s", type(error).__name__)


def with_settings(
    config: Config, source: str, values: object, own_globs: Sequence[str], protected: tuple[str, ...] = ()
) -> tuple[Config, list[str]]:
    """`config` with an editor's settings, and a sentence for each invalid one.

    Args:
        source: their name in a sentence.
        values: settings, or an object that has them under "speclsp", beside those of other servers.
        own_globs: of the user's own completion.disabled_globs; an editor adds patterns and removes none.
        protected: prefixes of settings that cannot be changed here.
    """
    if isinstance(values, Mapping) and isinstance(values.get(SECTION), Mapping):
        values = values[SECTION]
    if not isinstance(values, Mapping):
        return config, [f"{source} is {type(values).__name__}: expected an object."]
    config, problems = settings.parse(values, config, protected)
    added = (glob for glob in config.completion.disabled_globs if glob not in own_globs)
    return replace(config, completion=replace(config.completion, disabled_globs=(*own_globs, *added))), problems
