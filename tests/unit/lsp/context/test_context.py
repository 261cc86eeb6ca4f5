"""Context of a completion: the whole document if it fits, else a window that typing does not move."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from speclsp.config import ContextConfig
from speclsp.lsp.context import build as context
from speclsp.lsp.context import selection
from speclsp.lsp.context.build import Context
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.tree import SyntaxTree

CONFIG = ContextConfig(parse_budget_ms=2000)  # a busy machine would run out of less
ROOM = int((CONFIG.prefix_tokens + CONFIG.suffix_tokens) * selection.CHARACTERS_PER_TOKEN)
ARGPARSE = Path(argparse.__file__).read_text("utf-8")
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
    assume(text[cursor - 1 : cursor + 1] != "\r\n")  # no editor puts the cursor there
    seen = build(snapshot(text, cursor), None, CONFIG)
    normal = text.replace("\r\n", "\n").replace("\r", "\n")
    assert seen.prefix + seen.line_prefix + seen.suffix == normal
    assert seen.suffix == text[cursor:].replace("\r\n", "\n").replace("\r", "\n")
    assert seen.prefix == "" or seen.prefix.endswith("\n")
    assert "\n" not in seen.line_prefix


@settings(max_examples=25)
@given(st.data())
def test_typing_on_a_line_changes_nothing_but_the_line(data: st.DataObject):
    """Real code, every key of a real line: otherwise the engine would prefill all of it at each key."""
    rows = ARGPARSE.split("\n")
    row = data.draw(st.integers(0, len(rows) - 1))
    start = sum(len(line) + 1 for line in rows[:row])
    end = start + len(rows[row])
    parser = SyntaxParser()
    seen = set()
    for typed in range(start, end + 1):
        text = ARGPARSE[:typed] + ARGPARSE[end:]
        tree = parser.parse("python", text, 2000, near=typed)
        made = build(snapshot(text, typed), tree, ContextConfig(parse_budget_ms=2000))
        assert made.line_prefix == ARGPARSE[start:typed]
        seen.add((made.prefix, made.suffix))
    assert len(seen) == 1


@settings(max_examples=30)
@given(st.integers(0, len(ARGPARSE)), st.sampled_from([64, 640, 3000]), st.sampled_from([0, 128, 1000]))
def test_a_window_stays_within_its_budget_and_is_cut_at_lines(cursor: int, prefix_tokens: int, suffix_tokens: int):
    config = ContextConfig(prefix_tokens=prefix_tokens, suffix_tokens=suffix_tokens)
    seen = see(ARGPARSE, cursor, config=config)
    assert len(seen.prefix) <= prefix_tokens * selection.CHARACTERS_PER_TOKEN
    assert len(seen.suffix) <= suffix_tokens * selection.CHARACTERS_PER_TOKEN
    assert ARGPARSE[cursor:].startswith(seen.suffix)
    assert seen.prefix == "" or seen.prefix.endswith("\n")
    window = seen.prefix.rpartition("\n\n")[2]  # what is above it ends with a blank line
    assert (window + seen.line_prefix) in ARGPARSE[:cursor]


def test_the_window_moves_down_in_steps():
    starts = set()
    for row in range(1200, 1300):
        cursor = sum(len(line) + 1 for line in ARGPARSE.split("\n")[:row])
        starts.add(build(snapshot(ARGPARSE, cursor), None, CONFIG).prefix[:40])
    assert 2 <= len(starts) <= 8, "about every 20 lines, not at each one"


def test_what_the_window_cuts_off_is_there_in_short():
    text, cursor = at(
        "import os\nfrom a import (\n    b,\n)\n\n\nclass Store(Base):\n    limit = 3\n\n"
        "    def open(self, path: str) -> int:\n        return 1\n\n"
        "    def copy(self):\n        pass\n\n"
        "    async def run(\n        self,\n        *args,\n    ):\n"
        + "        self.step(1)\n" * 400
        + "        ¦\n\n    def close(self):\n        pass\n\n\ndef main():\n    pass\n"
    )
    seen = see(text, cursor)
    assert seen.prefix.startswith(
        "import os\nfrom a import (\n    b,\n)\n\nclass Store(Base):\n"
        "    def open(self, path: str) -> int: ...\n    def copy(self): ...\n"
        "    async def run(\n        self,\n        *args,\n    ):\n\n        self.step(1)\n"
    )
    assert seen.line_prefix == "        "
    assert seen.suffix.endswith("def main():\n    pass\n")


@pytest.mark.parametrize(
    ("language", "marked", "head"),
    [
        (
            "typescript",
            'import { a } from "b";\nexport class A {\n  open(x: number): void {\n    a();\n  }\n  run() {\n'
            + "    this.step(1);\n" * 400
            + "    ¦\n  }\n}\n",
            'import { a } from "b";\n\nexport class A {\n  open(x: number): void;\n  run() {\n\n    this.step(1);\n',
        ),
        (
            "go",
            'package m\n\nimport "fmt"\n\nfunc open(x int) int {\n\treturn x\n}\n\nfunc run() {\n'
            + "\tstep(1)\n" * 600
            + "\t¦\n}\n",
            'package m\nimport "fmt"\n\nfunc open(x int) int\nfunc run() {\n\n\tstep(1)\n',
        ),
        (
            "ruby",
            'require "a"\nclass A\n  def open(x)\n    x\n  end\n  def run\n'
            + "    step(1)\n" * 600
            + "    ¦\n  end\nend\n",
            'require "a"\n\nclass A\n  def open(x); end\n  def run\n\n    step(1)\n',
        ),
        (
            "yaml",
            "jobs:\n  build:\n    steps:\n" + "      - run: step 1\n" * 400 + "      - ¦\n",
            "jobs:\n  build:\n    steps:\n\n      - run: step 1\n",
        ),
    ],
)
def test_the_lines_in_short_look_like_the_language(language: str, marked: str, head: str):
    text, cursor = at(marked)
    assert see(text, cursor, language).prefix.startswith(head)


def test_the_suffix_ends_a_few_lines_below_the_function():
    text, cursor = at(
        "x = 1\n" * 400 + "def f():\n    a = 1\n    ¦\n    return a\n\n\ndef g():\n    pass\n\n" + "y = 2\n" * 400
    )
    assert see(text, cursor).suffix == "\n    return a\n\n\ndef g():\n"


def test_a_line_of_a_megabyte_is_cut_and_typing_seldom_moves_the_cut():
    text = "x = [" + "1, " * 350_000 + "]\n"
    starts = set()
    for typed in range(100):
        now = text[:500_000] + "7" * typed + text[500_000:]
        seen = build(snapshot(now, 500_000 + typed), None, CONFIG)
        assert len(seen.line_prefix) <= ROOM
        assert len(seen.suffix) <= CONFIG.suffix_tokens * selection.CHARACTERS_PER_TOKEN
        assert seen.prefix == ""
        starts.add(seen.line_prefix[:200] + str(len(seen.line_prefix) - typed))
    assert len(starts) <= 2


@settings(max_examples=20)
@given(st.integers(0, len(ARGPARSE)))
def test_the_same_file_with_other_newlines_is_shown_the_same(cursor: int):
    twin = ARGPARSE.replace("\n", "\r\n")
    moved = cursor + ARGPARSE.count("\n", 0, cursor)
    config = ContextConfig(parse_budget_ms=2000)
    trees = [
        SyntaxParser().parse("python", text, 2000, near=here) for text, here in ((ARGPARSE, cursor), (twin, moved))
    ]
    made = (
        build(snapshot(text, here), tree, config)
        for text, here, tree in ((ARGPARSE, cursor, trees[0]), (twin, moved, trees[1]))
    )
    assert next(made) == next(made)


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
def test_a_path_is_relative_or_a_name_and_never_a_home_directory(uri: str, root: str | None, path: str):
    assert build(snapshot("", 0, uri=uri), None, CONFIG, root=root).path == path


def others(*texts: str, language: str = "python") -> list[Snapshot]:
    return [snapshot(text, 0, language, f"file:///p/o{i}.py") for i, text in enumerate(texts)]


def test_the_most_similar_code_of_other_documents_comes_along():
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    near = "def store_config(path, settings):\n    dump_settings(settings, path)\n    load_config(path)\n"
    far = "class Circle:\n    def area(self):\n        return math.pi * self.radius ** 2\n"
    made = build(snapshot(text, len(text)), None, CONFIG, root="/p", others=others(far, near))
    assert [(chunk.path, chunk.source) for chunk in made.extra] == [("o1.py", "similar")]
    assert "store_config" in made.extra[0].text
    assert 0 < made.extra[0].score <= 1


def test_other_languages_and_the_document_itself_are_no_neighbours():
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    itself = snapshot(text, 3)
    foreign = others(text, language="ruby")
    assert build(snapshot(text, len(text)), None, CONFIG, others=[itself, *foreign]).extra == ()


def test_invisible_characters_are_taken_out_of_other_documents_and_stay_in_the_document():
    text = "def load_config(path):\n    settings = 'a\u200bb\u202e'\n    return settings\n\n" * 30
    other = "def save_config(path, settings):\n    dump_('a\u200bb\u202e', path)\n    return load_config(path)\n"
    made = build(snapshot(text, len(text)), None, CONFIG, others=others(other))
    assert made.extra and "\u200b" not in made.extra[0].text and "\u202e" not in made.extra[0].text
    assert "'a\u200bb\u202e'" in made.prefix


def test_typing_does_not_change_what_is_shown_of_others():
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    other = others("def store_config(path, settings):\n    load_config(path)\n    return settings\n")
    made = {build(snapshot(text + "x" * n, len(text) + n), None, CONFIG, others=other).extra for n in range(50)}
    assert len(made) == 1


def test_a_context_is_made_in_milliseconds():
    big = ARGPARSE * 90  # 9 MB
    cursor = len(big) // 2
    other = others(*[ARGPARSE + "#" * i for i in range(8)])
    took = []
    for turn in range(5):
        now = snapshot(big[:cursor] + "x" * turn + big[cursor:], cursor + turn)
        tree = PARSER.parse("python", now.text, 10, near=now.cursor)
        started = time.perf_counter()
        context.build(now, tree, CONFIG, others=other)
        took.append((time.perf_counter() - started) * 1000)
    assert min(took) < 300


def test_while_somebody_types_on_a_line_the_window_stays_whether_or_not_there_is_time_to_parse():
    start = ARGPARSE.index("        self.", len(ARGPARSE) * 2 // 3)
    end = ARGPARSE.index("\n", start)
    windows = context.Windows()
    seen = []
    for cursor in range(start, end + 1):
        text = ARGPARSE[:cursor] + ARGPARSE[end:]
        tree = PARSER.parse("python", text, 1000, near=cursor) if cursor % 2 else None
        seen.append(build(snapshot(text, cursor), tree, CONFIG, windows=windows))
    assert len({(made.prefix, made.suffix) for made in seen}) == 1
    assert [made.line_prefix for made in seen] == [ARGPARSE[start:cursor] for cursor in range(start, end + 1)]
    elsewhere = build(snapshot(ARGPARSE, 20), None, CONFIG, windows=windows)
    assert elsewhere == build(snapshot(ARGPARSE, 20), None, CONFIG), "another line has its own"


@settings(max_examples=25, deadline=None)
@given(st.integers(40, 1500), st.text("abcdef .(=_", max_size=30), st.sampled_from([64, 384]))
def test_typing_on_a_line_changes_nothing_of_what_is_shown_of_others(row: int, typed: str, extra_tokens: int):
    start = sum(len(line) + 1 for line in ARGPARSE.split("\n")[:row])
    config = ContextConfig(parse_budget_ms=2000, extra_tokens=extra_tokens)
    parts = ARGPARSE.split("\n\nclass ")
    beside = others(*("class " + part for part in parts[1:6]))
    made = []
    for now in ("", typed):
        text = ARGPARSE[:start] + now + ARGPARSE[start:]
        tree = SyntaxParser().parse("python", text, 2000, near=start + len(now))
        made.append(build(snapshot(text, start + len(now)), tree, config, others=beside))
    assert (made[0].extra, made[0].prefix) == (made[1].extra, made[1].prefix)
    assert sum(map(selection.size_tokens, made[0].extra)) <= extra_tokens


def test_a_shelf_keeps_what_is_shown_while_somebody_types_whatever_the_time_allows():
    selections = selection.Selections()
    beside = others("def store_config(path, settings):\n    load_config(path)\n    return settings\n")
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    seen = []
    for typed in range(6):
        now = snapshot(text + "x" * typed, len(text) + typed)
        tree = PARSER.parse("python", now.text, 1000, near=now.cursor) if typed % 2 else None
        seen.append(build(now, tree, CONFIG, others=beside, selections=selections).extra)
    assert len(set(seen)) == 1 and seen[0]


def test_a_document_that_may_not_be_shown_any_more_leaves_the_shelf_at_once():
    selections = selection.Selections()
    beside = others("def store_config(path, settings):\n    load_config(path)\n    return settings\n")
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    assert build(snapshot(text, len(text)), None, CONFIG, others=beside, selections=selections).extra
    assert not build(snapshot(text, len(text)), None, CONFIG, others=[], selections=selections).extra


def test_nothing_of_others_is_shown_where_no_tokens_are_given_for_it():
    text = "def load_config(path):\n    settings = parse_settings(path)\n    return settings\n\n" * 30
    beside = others("def store_config(path, settings):\n    load_config(path)\n    return settings\n")
    for config in (ContextConfig(extra_tokens=0), ContextConfig(sources=())):
        assert build(snapshot(text, len(text)), None, config, others=beside).extra == ()


def test_text_of_the_document_outside_the_window_is_a_source_of_similar_code():
    like = (
        "def store_config(path, settings):\n    open_config(path)\n    dump_settings(settings)\n    sync_config(path)\n"
    )
    text = like + "\n\n" + "x = 1\n" * 600 + "def load_config(path, settings):\n    open_config(path)\n"
    made = build(snapshot(text, len(text)), None, CONFIG)
    assert [chunk.path for chunk in made.extra] == ["a.py"]
    assert "sync_config(path)" in made.extra[0].text
