"""Typing of a body over LSP, key by key, in a language server process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.language_server import Server
from benchmarks.keystrokes.replay_editor import AUTOMATIC, Editor, position
from speclsp.errors import EngineError
from speclsp.lsp.syntax.grammars import language_id

PATIENCE_S = 600.0  # for an answer
SETTINGS: dict[str, object] = {  # a busy machine changes no text
    "completion.timeout_ms": 600_000,
    "completion.prefetch_next": False,
    "context.index_workspace": False,
    "context.parse_budget_ms": 1000,
    "next_edit.enabled": False,
    "stats.enabled": False,
}


class TypingEditor:
    """An editor with one body's document in front, and its open files beside."""

    def __init__(self, server: Server, body: Body) -> None:
        root = Path(body.root)
        self.server, self.body = server, body
        added = [{"uri": root.as_uri(), "name": body.package}]
        event = {"added": added, "removed": []}
        server.send({"method": "workspace/didChangeWorkspaceFolders", "params": {"event": event}})
        self.uris = [(root / path).as_uri() for path in body.open_paths]
        for path, uri in zip(body.open_paths, self.uris, strict=True):
            text = (root / path).read_text(encoding="utf-8", errors="replace")
            server.open(uri, language_id(Path(path).name), text)
        self.editor = Editor(server, (root / body.path).as_uri(), body.language, body.above + body.below)
        self.editor.cursor = len(body.above)

    def type(self, text: str) -> None:
        """Insert `text` at the cursor."""
        editor = self.editor
        here = position(editor.text, editor.cursor)
        editor.version += 1
        document = {"uri": editor.uri, "version": editor.version}
        changes = [{"range": {"start": here, "end": here}, "text": text}]
        params = {"textDocument": document, "contentChanges": changes}
        self.server.send({"method": "textDocument/didChange", "params": params})
        editor.text = editor.text[: editor.cursor] + text + editor.text[editor.cursor :]
        editor.cursor += len(text)

    def request(self) -> str:
        """The text that is shown at the cursor; "" for none. Raises EngineError."""
        editor, number = self.editor, self.server.number()
        params: dict[str, Any] = {"textDocument": {"uri": editor.uri}}
        params |= {"position": position(editor.text, editor.cursor), "context": {"triggerKind": AUTOMATIC}}
        self.server.send({"id": number, "method": "textDocument/inlineCompletion", "params": params})
        if not self.server.answered(number, PATIENCE_S):
            raise EngineError(f"no answer at offset {editor.cursor} of {self.body.path} within {PATIENCE_S:.0f} s.")
        answer = self.server.answers.pop(number)[1]
        if "error" in answer:
            raise EngineError(f"the language server answered {answer['error']}.")
        items: Sequence[dict[str, Any]] = (answer.get("result") or {}).get("items") or []
        shown = editor.fitted(items[0]) if items else None
        return shown[1] if shown is not None and shown[0] == editor.cursor else ""

    def close(self) -> None:
        """Close all its documents and the workspace folder."""
        for uri in (self.editor.uri, *self.uris):
            self.server.close(uri)
        removed = [{"uri": Path(self.body.root).as_uri(), "name": self.body.package}]
        event = {"added": [], "removed": removed}
        self.server.send({"method": "workspace/didChangeWorkspaceFolders", "params": {"event": event}})
