"""A document with its acceptance tracker. Edits are described in the ways of several editors."""

from __future__ import annotations

from collections import Counter

from speclsp.lsp.completion.acceptance import AcceptanceTracker, SentItem
from speclsp.lsp.documents.document import Document

WAYS = ("literal", "whole", "lines", "rightmost")


class EditedDocument:
    """An edited document, the counts reported so far, and a clock that the test advances."""

    def __init__(self, text: str, encoding: str = "utf-16", way: str = "literal") -> None:
        self.document, self.encoding, self.way = Document("file:///a.py", "python", 1, text), encoding, way
        self.counts: Counter[str] = Counter()
        self.now = 0.0
        self.tracker = AcceptanceTracker(self.report, lambda: self.now)

    def report(self, language: str, model: str, counts: dict[str, int]) -> None:
        self.counts.update(counts)

    def show(self, cursor: int, text: str, start: int | None = None, end: int | None = None, wait_s: float = 1) -> None:
        sent = (text, cursor if start is None else start, cursor if end is None else end)
        self.offer(cursor, sent, wait_s=wait_s)

    def offer(self, cursor: int, *sent: SentItem, wait_s: float = 1) -> None:
        self.tracker.answered(self.document, cursor, sent, "echo")
        self.now += wait_s

    def edit(self, start: int, end: int, new: str) -> None:
        """Replace text[start:end], described in this editor's way."""
        text = self.document.text
        after = text[:start] + new + text[end:]
        if self.way == "whole":
            self.document.apply([{"text": after}], self.encoding)
            return
        if self.way == "lines":  # from the start of the first changed line to the end of the text
            start, new = 0, after
            end = len(text)
            while text[start : start + 1] and text[: start + 1] == after[: start + 1]:
                start += 1
            start = text.rfind("\n", 0, start) + 1
            new = after[start:]
        elif self.way == "rightmost":  # Neovim: the edit starts at the first character that differs
            while start < len(text) and text[: start + 1] == after[: start + 1]:
                start += 1
            end = max(end, start)
            new = after[start : len(after) - (len(text) - end)]
        span = {
            "start": self.document.position(start, self.encoding),
            "end": self.document.position(end, self.encoding),
        }
        self.document.apply([{"range": span, "text": new}], self.encoding)
        assert self.document.text == after

    def type(self, at: int, keys: str, between_s: float = 0.2) -> int:
        for key in keys:
            self.edit(at, at, key)
            at += 1
            self.now += between_s
        return at

    def counted(self) -> dict[str, int]:
        """The counts that are not zero, after the document is closed."""
        self.tracker.close()
        return {name: count for name, count in self.counts.items() if count}
