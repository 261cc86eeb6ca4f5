"""Line ends: LF, CRLF and CR copies of a file get the same suggestion and keep their line ends."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from support.lsp.editor_client import Editor, Page
from support.soak import in_soak

ENDS = {"LF": "\n", "CRLF": "\r\n", "CR": "\r"}
LONE = {"LF": r"\r", "CRLF": r"(?<!\r)\n|\r(?!\n)", "CR": r"\n"}  # the line ends that such a file lacks
SHORT_ANSWERS = ("completion.max_tokens=24", "completion.max_tokens_single_line=12", "completion.timeout_ms=20000")
BLOCKS = ("--set", "completion.eagerness=high")  # suggestions of several lines on every blank line
UNHURRIED = ("--set", "context.parse_budget_ms=60000")  # the same syntax tree on a busy machine
SOURCE = '''import os


class Shapes:
    """Circles and the like: π r², 𝒙."""

    def __init__(self, scale):
        self.scale = scale
        self.names = []

    def area(self, radius):
        if radius < 0:
            raise ValueError("negative")

        return self.scale * radius ** 2

    def rename(self, names):
        for name in names:

            self.names.append(name)


def main():

    shapes = Shapes(2)
    print(shapes.area(os.getpid()))
'''


def with_ends(text: str, end: str) -> str:
    return text.replace("\n", end)


def only_lf(text: str) -> str:
    return re.sub(r"\r\n?", "\n", text)


def accepted(page: Page, item: dict[str, Any]) -> None:
    """Accepts an item as VS Code does: its text replaces its range in one edit."""
    start, end = (next(at for at in page.stops() if page.place(at) == item["range"][side]) for side in ("start", "end"))
    page.edit(start, end, item["insertText"])


def places(page: Page, count: int) -> Iterator[int]:
    """Completion points: ends of lines, blank lines with and without their indentation, and other places."""
    lines = [match.end() for match in re.finditer(r"[^\r\n]*", page.text) if match.end() in set(page.stops())]
    rng = random.Random(7)
    yield from rng.sample(sorted(set(lines)), min(count // 2, len(set(lines))))
    yield from rng.choices(page.stops(), k=count - count // 2)


@pytest.mark.promise(15)
@pytest.mark.parametrize("model", ["echo", *in_soak("tiny")])
def test_copies_with_other_line_ends_get_the_same_suggestion_and_keep_their_line_ends(model: str, promise, soak: bool):
    count = (400 if soak else 20) if model == "echo" else (30 if soak else 4)
    counts = Counter[str]()
    flags = [word for setting in SHORT_ANSWERS for word in ("--set", setting)]
    with Editor(*flags, *BLOCKS, *UNHURRIED, model=model) as editor:
        editor.begin()
        marks = [len(only_lf(SOURCE[:at])) for at in places(Page(editor, SOURCE, uri="file:///lf/marks.py"), count)]
        editor.notify("textDocument/didClose", {"textDocument": {"uri": "file:///lf/marks.py"}})
        for number, mark in enumerate(marks):
            suggested: dict[str, str | None] = {}
            for name, end in ENDS.items():
                page = Page(editor, with_ends(SOURCE, end), uri=f"file:///{name}/{number}/app.py")
                cursor = len(with_ends(SOURCE[:mark], end))
                items = editor.items(page.ask(cursor), timeout_s=60)
                suggested[name] = only_lf(items[0]["insertText"]) if items else None
                for item in items:
                    accepted(page, item)
                    counts["accepted"] += 1
                    counts["lines"] += item["insertText"].count(end)
                    counts["lone"] += len(re.findall(LONE[name], page.text))
                    after = only_lf(page.text)
                    assert only_lf(with_ends(SOURCE, end))[:mark] == after[:mark], "what stood before is as it was"
                editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
            counts["different"] += len(set(suggested.values())) > 1
    promise.measured(
        f"{model}: {len(marks)} places in a file and its CRLF and CR twins: {counts['different']} suggestions differ, "
        f"{counts['lone']} lone line ends after accepting {counts['accepted']}",
        holds=not counts["different"] and not counts["lone"],
    )
    assert counts["accepted"] >= len(marks), "most places get a suggestion"
    assert model == "echo" or counts["lines"], "none of them had a second line: nothing was shown"
    assert counts["different"] == counts["lone"] == 0
