"""Context of a completion: the whole document if it fits, otherwise a window that typing does not move."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.rows import rows

from speclsp.config import ContextConfig
from speclsp.lsp.context import build as context
from speclsp.lsp.context.build import Context
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.context.token_count import CHARACTERS_PER_TOKEN
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.tree import SyntaxTree

ROWS = rows(__file__)

CONFIG = ContextConfig(parse_budget_ms=2000)  # enough on a busy machine
ROOM = int((CONFIG.prefix_tokens + CONFIG.suffix_tokens) * CHARACTERS_PER_TOKEN)
ARGPARSE = Path(sysconfig.get_path("stdlib"), "argparse.py").read_text("utf-8")
PARSER = SyntaxParser()
UNLIMITED = CrossFileSources(clock=lambda: 0.0)  # no deadline passes, however slow the machine is


def build(document: Snapshot, tree: SyntaxTree | None, config: ContextConfig, **options: Any) -> Context:
    return context.build(document, tree, config, sources=UNLIMITED, **options)


def snapshot(
    text: str, cursor: int, language: str = "python", uri: str = "file:///p/a.py", version: int = 1
) -> Snapshot:
    return Snapshot(uri, language, version, text, cursor)


def see(text: str, cursor: int, language: str = "python", config: ContextConfig = CONFIG) -> Context:
    tree = PARSER.parse(language, text, 1000, near=cursor)
    return build(snapshot(text, cursor, language), tree, config)


def at(marked: str) -> tuple[str, int]:
    return marked.replace("¦", ""), marked.index("¦")


pieces = st.sampled_from(
    ["x = 1", "def f():", "    ", "\t", "(", '"', "é", "\U0001f600", "日本", "\u2028", "\f", "#", ""]
)
lines = st.lists(st.lists(pieces, max_size=5).map("".join), max_size=25)


@given(lines, st.data(), st.sampled_from(["\n", "\r\n", "\r"]))
def test_a_document_within_the_budget_is_shown_whole(content: list[str], data: st.DataObject, end: str):
    text = end.join(content)
    assume(len(text) <= ROOM)
    cursor = data.draw(st.integers(0, len(text)))
    assume(text[cursor - 1 : cursor + 1] != "\r\n")  # no editor puts the cursor inside a line end
    context = build(snapshot(text, cursor), None, CONFIG)
    normalized = text.replace("\r\n", "\n").replace("\r", "\n")
    assert context.prefix + context.line_prefix + context.suffix == normalized
    assert context.suffix == text[cursor:].replace("\r\n", "\n").replace("\r", "\n")
    assert context.prefix == "" or context.prefix.endswith("\n")
    assert "\n" not in context.line_prefix


@settings(max_examples=25)
@given(st.data())
def test_typing_on_a_line_changes_nothing_but_the_line(data: st.DataObject):
    """Every key of a line of real code. With a changed context the engine would prefill all of it at each key."""
    rows = ARGPARSE.split("\n")
    row = data.draw(st.integers(0, len(rows) - 1))
    start = sum(len(line) + 1 for line in rows[:row])
    end = start + len(rows[row])
    parser = SyntaxParser()
    windows = set()
    for typed in range(start, end + 1):
        text = ARGPARSE[:typed] + ARGPARSE[end:]
        tree = parser.parse("python", text, 2000, near=typed)
        context = build(snapshot(text, typed), tree, ContextConfig(parse_budget_ms=2000))
        assert context.line_prefix == ARGPARSE[start:typed]
        windows.add((context.prefix, context.suffix))
    assert len(windows) == 1


@settings(max_examples=30)
@given(st.integers(0, len(ARGPARSE)), st.sampled_from([64, 640, 3000]), st.sampled_from([0, 128, 1000]))
def test_a_window_stays_within_its_budget_and_is_cut_at_lines(cursor: int, prefix_tokens: int, suffix_tokens: int):
    config = ContextConfig(prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens)
    context = see(ARGPARSE, cursor, config=config)
    assert len(context.prefix) <= prefix_tokens * CHARACTERS_PER_TOKEN
    assert len(context.suffix) <= suffix_tokens * CHARACTERS_PER_TOKEN
    assert ARGPARSE[cursor:].startswith(context.suffix)
    assert context.prefix == "" or context.prefix.endswith("\n")
    window = context.prefix.rpartition("\n\n")[2]  # the summary above the window ends with a blank line
    assert (window + context.line_prefix) in ARGPARSE[:cursor]


def test_code_above_the_window_is_summarized():
    text, cursor = at(
        "import os\nfrom a import (\n    b,\n)\n\n\nclass Store(Base):\n    limit = 3\n\n"
        "    def open(self, path: str) -> int:\n        return 1\n\n"
        "    def copy(self):\n        pass\n\n"
        "    async def run(\n        self,\n        *args,\n    ):\n"
        + "        self.step(1)\n" * 400
        + "        ¦\n\n    def close(self):\n        pass\n\n\ndef main():\n    pass\n"
    )
    context = see(text, cursor)
    assert context.prefix.startswith(
        "import os\nfrom a import (\n    b,\n)\n\nclass Store(Base):\n"
        "    def open(self, path: str) -> int: ...\n    def copy(self): ...\n"
        "    async def run(\n        self,\n        *args,\n    ):\n\n        self.step(1)\n"
    )
    assert context.line_prefix == "        "
    assert context.suffix.endswith("def main():\n    pass\n")


@pytest.mark.parametrize(("language", "marked", "head"), ROWS["the_summary_is_in_the_syntax_of_the_language"])
def test_the_summary_is_in_the_syntax_of_the_language(language: str, marked: str, head: str):
    text, cursor = at(marked)
    assert see(text, cursor, language).prefix.startswith(head)


def test_the_suffix_ends_a_few_lines_below_the_function():
    text, cursor = at(
        "x = 1\n" * 400 + "def f():\n    a = 1\n    ¦\n    return a\n\n\ndef g():\n    pass\n\n" + "y = 2\n" * 400
    )
    assert see(text, cursor).suffix == "\n    return a\n\n\ndef g():\n"


def test_a_line_of_a_megabyte_is_cut_and_typing_rarely_moves_the_cut():
    text = "x = [" + "1, " * 350_000 + "]\n"
    starts = set()
    for typed in range(100):
        typed_text = text[:500_000] + "7" * typed + text[500_000:]
        context = build(snapshot(typed_text, 500_000 + typed), None, CONFIG)
        assert len(context.line_prefix) <= ROOM
        assert len(context.suffix) <= CONFIG.suffix_tokens * CHARACTERS_PER_TOKEN
        assert context.prefix == ""
        starts.add(context.line_prefix[:200] + str(len(context.line_prefix) - typed))
    assert len(starts) <= 2


@settings(max_examples=20)
@given(st.integers(0, len(ARGPARSE)))
def test_the_same_file_with_other_newlines_gives_the_same_context(cursor: int):
    twin = ARGPARSE.replace("\n", "\r\n")
    twin_cursor = cursor + ARGPARSE.count("\n", 0, cursor)
    config = ContextConfig(parse_budget_ms=2000)
    trees = [
        SyntaxParser().parse("python", text, 2000, near=offset)
        for text, offset in ((ARGPARSE, cursor), (twin, twin_cursor))
    ]
    contexts = (
        build(snapshot(text, offset), tree, config)
        for text, offset, tree in ((ARGPARSE, cursor, trees[0]), (twin, twin_cursor, trees[1]))
    )
    assert next(contexts) == next(contexts)


@pytest.mark.parametrize(
    ("uri", "root", "path"),
    [
        ("file:///home/ann/work/pkg/a.py", "/home/ann/work", "pkg/a.py"),
        ("file:///home/ann/work/pkg/a.py", "file:///home/ann/work/", "pkg/a.py"),
        ("file:///home/ann/work/pkg/a.py", None, "a.py"),
        ("file:///home/ann/other/a.py", "/home/ann/work", "a.py"),
        ("file:///home/ann/workshop/a.py", "/home/ann/work", "a.py"),
        ("file:///home/ann/work/../secret/a.py", "/home/ann/work", "a.py"),
        ("file:///home/ann/work/a%20b/c%C3%A9.py", "/home/ann/work", "a b/cé.py"),
        ("file:///c%3A/Users/ann/work/src/a.cs", "C:\\Users\\ann\\work", "src/a.cs"),
        ("untitled:Untitled-1", None, "Untitled-1"),
        ("vscode-notebook-cell:/home/ann/n.ipynb#W0", None, "n.ipynb"),
        ("file:///p/a%0Ab%E2%80%AE.py", "/p", "a b.py"),
        ("http://[bad", None, "[bad"),
        ("", None, ""),
    ],
)
def test_a_path_is_relative_or_a_file_name_and_never_shows_a_home_directory(uri: str, root: str | None, path: str):
    assert build(snapshot("", 0, uri=uri), None, CONFIG, root=root).path == path


def others(*texts: str, language: str = "python") -> list[Snapshot]:
    return [snapshot(text, 0, language, f"file:///p/o{i}.py") for i, text in enumerate(texts)]


def test_documents_of_other_languages_and_the_document_itself_are_no_sources():
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    itself = snapshot(text, 3)
    foreign = others(text, language="ruby")
    assert build(snapshot(text, len(text)), None, CONFIG, others=[itself, *foreign]).extra == ()


def test_typing_on_a_line_keeps_the_window_with_and_without_a_syntax_tree():
    start = ARGPARSE.index("        self.", len(ARGPARSE) * 2 // 3)
    end = ARGPARSE.index("\n", start)
    windows = context.Windows()
    contexts = []
    for cursor in range(start, end + 1):
        text = ARGPARSE[:cursor] + ARGPARSE[end:]
        tree = PARSER.parse("python", text, 1000, near=cursor) if cursor % 2 else None
        contexts.append(build(snapshot(text, cursor), tree, CONFIG, windows=windows))
    assert len({(built.prefix, built.suffix) for built in contexts}) == 1
    assert [built.line_prefix for built in contexts] == [ARGPARSE[start:cursor] for cursor in range(start, end + 1)]
    elsewhere = build(snapshot(ARGPARSE, 20), None, CONFIG, windows=windows)
    assert elsewhere == build(snapshot(ARGPARSE, 20), None, CONFIG), "another line has its own"
    back = build(snapshot(text, cursor), None if tree else PARSER.parse("python", text, 1000), CONFIG, windows=windows)
    assert back == contexts[-1], "a prompt of another line leaves it as it is"


def test_without_tokens_no_other_document_is_shown():
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    documents = others("def store_config(path, settings):\n    load_config(path)\n    return settings\n")
    none, usual = ContextConfig(cross_file_tokens=0), ContextConfig()
    assert build(snapshot(text, len(text)), None, none, others=documents).extra == ()
    assert build(snapshot(text, len(text)), None, usual, others=documents).extra != ()
