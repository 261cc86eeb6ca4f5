"""Documents under edits, with the producers of next edits or over the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.next_edit import wire
from speclsp.lsp.next_edit.next_edits import NextEditOutcome, NextEdits
from speclsp.lsp.next_edit.offers import Offer, Offers
from speclsp.lsp.next_edit.producer import Declined, Producer, Proposal, first_edit
from speclsp.lsp.next_edit.recent_activity import RecentActivity
from speclsp.lsp.protocol.initialize_answer import REJECT_COMMAND
from speclsp.lsp.syntax.grammars import known_id
from support.lsp.editor_client import Editor, Page, units
from support.waiting import wait_until

FOLDER = "file:///project/"
ABILITY = {"experimental": {"speclsp": {wire.ELSEWHERE: True}}}
ROOT = {"workspaceFolders": [{"uri": FOLDER.rstrip("/"), "name": "project"}]}
AMPLE_MS = 10_000.0


async def is_eligible(document: Document) -> str:
    return ""


class EditDesk:
    """A document, its recent edits, the cursor behind the last one, and a producer with ample time."""

    def __init__(self, text: str, language: str = "python", uri: str = "file:///project/app.py") -> None:
        self.activity: RecentActivity | None = RecentActivity(lambda uri: False, clock=lambda: 0.0)
        self.documents = Documents()
        self.documents.follow_edits(self.activity.edited)
        self.document = self.documents.open(uri, language, 1, text)
        self.producer, self.cursor = Producer(clock_s=lambda: 0.0), 0

    def replace(self, start: int, end: int, text: str) -> None:
        """Replace a range of offsets."""
        span = {name: self.document.position(at, "utf-32") for name, at in (("start", start), ("end", end))}
        self.document.apply([{"range": span, "text": text}], "utf-32")
        self.document.version += 1
        self.cursor = start + len(text)

    def offset(self, line: int, column: int = 0) -> int:
        return self.document.offset({"line": line, "character": column}, "utf-32")

    def propose(self, declined: Declined = lambda place: "", budget_ms: float = AMPLE_MS) -> Proposal | str:
        """The edit that would be shown now, or the reason that there is none."""
        document, recent = self.document, self.activity.recent() if self.activity is not None else []
        return first_edit(
            self.producer.outcomes(
                document.text, document.language, document.uri, self.cursor, recent, declined, budget_ms=budget_ms
            )
        )

    def applied(self, edit: Proposal | Offer) -> str:
        """The text after an edit."""
        text = self.document.text
        return text[: edit.start] + edit.text + text[edit.end :]

    def next_edits(
        self,
        model: Any = None,
        eligible: Callable[[Document], Any] = is_eligible,
        ended: Callable[[NextEditOutcome], None] = lambda outcome: None,
    ) -> NextEdits:
        """The next edits of the server, with this producer."""
        offers, is_busy = Offers(lambda outcome: None, placeholders=True), lambda: False
        return NextEdits(offers, eligible, is_busy, ended, lambda: self.activity, model, producer=self.producer)


class EditPage(Page):
    """A page in the language of its file; its ignore files have been read."""

    def __init__(self, editor: Editor, text: str, file: str, encoding: str = "utf-16") -> None:
        self.editor, self.text, self.encoding, self.version = editor, text, encoding, 1
        self.uri = file if ":" in file else FOLDER + file
        editor.open(self.uri, text, language=known_id(file))
        self.offer(0)

    def params(self, cursor: int) -> dict[str, Any]:
        """The params of a request at an offset."""
        return {"textDocument": {"uri": self.uri, "version": self.version}, "position": self.place(cursor)}

    def offer(self, cursor: int, **changes: Any) -> dict[str, Any] | None:
        """The edit that is offered at an offset; None for none. An edit of this document has its version."""
        edits = self.editor.call(wire.INLINE_EDIT, {**self.params(cursor), **changes})["edits"]
        assert len(edits) <= 1
        for edit in edits:
            assert edit["textDocument"]["uri"] != self.uri or edit["textDocument"]["version"] == self.version
        return edits[0] if edits else None

    def span(self, edit: dict[str, Any]) -> tuple[int, int]:
        """The offsets that an edit of this document replaces."""
        start, end = (self.offset(edit["range"][name]) for name in ("start", "end"))
        return start, end

    def offset(self, place: dict[str, int]) -> int:
        lines = self.text.splitlines(keepends=True)
        line = lines[place["line"]] if place["line"] < len(lines) else ""
        column = next(n for n in range(len(line) + 1) if units(line[:n], self.encoding) == place["character"])
        return sum(map(len, lines[: place["line"]])) + column

    def accept(self, edit: dict[str, Any]) -> int:
        """Show, apply and accept an edit, as clients do. Returns the offset behind the new text."""
        start, end = self.span(edit)
        self.editor.notify(wire.DID_SHOW, {"item": {"command": edit["command"]}})
        self.edit(start, end, edit["text"])
        self.editor.notify("workspace/executeCommand", edit["command"])
        return start + len(edit["text"])

    def reject(self, edit: dict[str, Any]) -> None:
        arguments = edit["command"]["arguments"]
        self.editor.notify("workspace/executeCommand", {"command": REJECT_COMMAND, "arguments": arguments})

    def replace(self, old: str, new: str, after: str = "") -> int:
        """Replace the first `old` behind a text. Returns the offset behind `new`."""
        at = self.text.index(old, self.text.index(after))
        self.edit(at, at + len(old), new)
        return at + len(new)

    def replace_all(self, text: str) -> None:
        """The client sends the whole text, as after a formatter or a change on the disk."""
        self.text, self.version = text, self.version + 1
        self.editor.change(self.uri, self.version, {"text": text})

    def change_many(self, *spans: tuple[int, int, str]) -> None:
        """Several changes in one didChange, the last in the text first."""
        changes = []
        for start, end, new in sorted(spans, reverse=True):
            changes.append({"range": {"start": self.place(start), "end": self.place(end)}, "text": new})
            self.text = self.text[:start] + new + self.text[end:]
        self.version += 1
        self.editor.change(self.uri, self.version, *changes)

    def outcome(self) -> dict[str, Any]:
        """The explanation of the last request."""
        record = self.editor.call("speclsp/explain", {})
        return record.get("next_edit", {})

    def close(self) -> None:
        self.editor.notify("textDocument/didClose", {"textDocument": {"uri": self.uri}})


def edit_server(*arguments: str, capabilities: dict[str, Any] | None = None, **params: Any) -> Editor:
    """A server without completion, once requests for next edits reach the producers."""
    editor = Editor("--set", "completion.enabled=false", *arguments)
    editor.initialize(capabilities or {}, **(ROOT | params))
    until_answering(editor)
    return editor


def until_answering(editor: Editor) -> None:
    """Wait until requests reach the producers: they start after `initialize`."""
    page = EditPage(editor, "x = 1\n", "first.py")
    wait_until(lambda: page.offer(0) is None and page.outcome())
    page.close()
