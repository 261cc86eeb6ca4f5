"""Similar code within a deadline, and the index of near files that makes the deadline enough."""

from __future__ import annotations

import asyncio
import math
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclsp.config import ContextConfig
from speclsp.lsp.context import build, cross_file, selection, similar_code
from speclsp.lsp.context.chunk import ChunkPlace
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index import file_cache, folder_reader
from speclsp.lsp.index.deadline import NEVER, Deadline
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.syntax.parser import SyntaxParser

PASSED = Deadline(-1.0, lambda: 0.0)


@pytest.fixture(autouse=True)
def _without_cached_files() -> None:
    empty_cache()


def empty_cache() -> None:
    similar_code.FILE_WORDS = similar_code.WordIndexCache(similar_code.MAX_CHARACTERS)


# ── similar code ──────────────────────────────────────────────────────────────────────────────────────────────────────

LINES = st.lists(
    st.lists(
        st.sampled_from(["order", "price", "total", "client", "def", "x1", "(", "=", "\r", "\u200b", "²ab"]), max_size=5
    ),
    max_size=60,
).map(lambda lines: "\n".join(" ".join(words) for words in lines))


def brute_force(place: ChunkPlace, files: Sequence[similar_code.SourceFile]) -> list[tuple[str, str, float]]:
    """Expected result: every piece of every file compared with the place, word by word."""
    cursor_words = similar_code.words_around(place)
    pieces = []  # (file, start, end, words)
    for number, file in enumerate(files):
        lines = similar_code.normal_newlines(file.text).split("\n")
        for start in range(0, max(1, -(-len(lines) // 3) * 3 - 9), 3):
            words = similar_code.words("\n".join(lines[start : start + 12]))
            if words:
                pieces.append((number, start, min(len(lines), start + 15), words))
    common = Counter(word for *_, words in pieces for word in words)
    weights = {word: weight * math.log(1 + len(pieces) / (1 + common[word])) for word, weight in cursor_words.items()}
    total = sum(weights.values()) or 1
    scored = [
        (-sum(weight for word, weight in weights.items() if word in words) / total, number, start, end)
        for number, start, end, words in pieces
    ]
    chosen = []
    for number, file in enumerate(files):
        ranges: list[tuple[int, int]] = []
        for score, _, start, end in sorted(piece for piece in scored if piece[1] == number):
            if -score < similar_code.LEAST or len(ranges) == similar_code.A_FILE:
                break
            if all(end <= low or high <= start for low, high in ranges):
                ranges.append((start, end))
                lines = similar_code.normal_newlines(file.text).split("\n")[start:end]
                chosen.append(
                    (
                        file.path,
                        similar_code.hidden_characters.visible("\n".join(lines)).strip("\n") + "\n",
                        round(-score, 4),
                    )
                )
    return chosen


@given(above=LINES, below=LINES, texts=st.lists(LINES, max_size=4))
@settings(max_examples=150, deadline=None)
def test_the_most_similar_pieces_are_those_of_a_brute_force_search(above: str, below: str, texts: list[str]):
    place = ChunkPlace("file:///a.py", "a.py", None, "python", above, below)
    files = [similar_code.SourceFile("a.py" if n == 0 else f"{n}.py", text) for n, text in enumerate(texts)]
    chunks, is_complete = similar_code.candidates(place, files, NEVER)
    expected = brute_force(place, files) if similar_code.words_around(place) else []
    assert [(chunk.path, chunk.text, chunk.score) for chunk in chunks] == expected and is_complete
    assert similar_code.candidates(place, files, NEVER) == (chunks, True), "the same from the cache"


@given(LINES, LINES, st.lists(LINES, min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_after_the_deadline_only_cached_files_are_compared(above: str, below: str, texts: list[str]):
    place = ChunkPlace("file:///a.py", "a.py", None, "python", above + "\norder", below)
    files = [similar_code.SourceFile(f"{n}.py", f"{n}\n{text}") for n, text in enumerate(texts)]
    empty_cache()
    assert similar_code.candidates(place, files, PASSED) == ([], False)
    in_time = similar_code.candidates(place, files, NEVER)
    assert similar_code.candidates(place, files, PASSED) == in_time


def test_the_cache_of_word_indexes_is_bounded_and_has_one_for_each_file():
    cache = similar_code.WordIndexCache(1000)
    texts = [f"name_{n} = other_{n}\n" * 20 for n in range(10)]
    assert all(cache.get(text, NEVER, f"{n}.py") is not None for n, text in enumerate(texts))
    assert cache.get(texts[-1], PASSED, "9.py") is not None and cache.get(texts[0], PASSED, "0.py") is None
    assert all(cache.get(text, NEVER, "typed.py") is not None for text in texts)
    assert cache.get(texts[-1], PASSED, "9.py") is not None, "its index was not pushed out by one that is typed into"
    index = cache.get(texts[-1], PASSED, "typed.py")
    assert index is not None and "name_9" in index.steps and "name_8" not in index.steps
    assert cache.get(texts[0], PASSED, "typed.py") is None, "an earlier text has no index any more"
    assert cache.get("x" * 5000, NEVER, "long.py") is not None, "one file is indexed, however long"


# ── near files ────────────────────────────────────────────────────────────────────────────────────────────────────────

MAIN = "from shop.client import connect\n\n\ndef main(address):\n    client = connect(address)\n    \n"
NEAR = "from shop.client import connect\n\n\ndef other(address):\n    client = connect(address)\n    client.order()\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "__init__.py").write_text("")
    (root / "shop" / "client.py").write_text("def connect(address: str) -> str: ...\n")
    (root / "near.py").write_text(NEAR)
    (root / "main.py").write_text(MAIN)
    return root


@pytest.fixture
def index(root: Path) -> WorkspaceIndex:
    return folder_reader.build(root)


def shown(
    root: Path,
    index: WorkspaceIndex,
    current: selection.Selection | None = None,
    *,
    in_time: bool = False,
    better: bool = False,
) -> set[str]:
    """Files with a chunk in the context at the end of main.py; without `in_time`, the deadline has passed."""
    uri = (root / "main.py").as_uri()
    snapshot = Snapshot(uri, "python", 1, MAIN, len(MAIN) - 1)
    tree = SyntaxParser().parse("python", MAIN, 2000, near=snapshot.cursor)
    selections = {uri: current} if current is not None else {}
    sources = CrossFileSources(index=index, patience_ms=60_000 if in_time else -1.0, clock=lambda: 0.0)
    context = build.build(
        snapshot,
        tree,
        ContextConfig(parse_budget_ms=2000),
        root.as_uri(),
        selections=selections,
        sources=sources,
        better=better,
    )
    return {chunk.path for chunk in context.extra}


def test_near_files_that_are_indexed_are_shown_when_there_is_no_time(root: Path, index: WorkspaceIndex, monkeypatch):
    monkeypatch.setattr(cross_file, "READS", NEVER)
    assert shown(root, index) == set()
    asyncio.run(cross_file.index_near("main.py", index, pause_s=0.0))
    assert "near.py" in shown(root, index)
    empty_cache()
    assert shown(root, index) == set()


def test_a_late_context_is_repeated_at_the_next_rest(root: Path, index: WorkspaceIndex):
    current = selection.Selection()
    shown(root, index, current)
    assert current.place is None
    shown(root, index, current, in_time=True)
    assert current.place is None, "a request does not search again"
    shown(root, index, current, better=True)
    assert current.place is None
    shown(root, index, current, in_time=True, better=True)
    assert current.place is not None


def test_a_checked_text_counts_from_its_check_not_from_its_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    clock_s, both_queued, second_begun, read = 0.0, threading.Event(), threading.Event(), file_cache.read

    def read_in_turn(folder: str, path: str, *arguments: Any) -> str | None:
        if path == "b.py":
            second_begun.set()  # the result of the read before it is set
        elif clock_s:
            both_queued.wait(60)
        return read(folder, path, *arguments)

    monkeypatch.setattr(file_cache, "read", read_in_turn)
    (tmp_path / "a.py").write_text("was")
    info = (tmp_path / "a.py").stat()
    texts, state = file_cache.FileCache(str(tmp_path), clock=lambda: clock_s), (info.st_mtime_ns, info.st_size)
    assert texts.text("a.py", state, 60.0) == "was"
    clock_s = file_cache.RECHECK_S + 1
    assert texts.text("a.py", state, 60.0, at_once=True) == "was", "and it is checked again"
    assert texts.text("b.py", state, 0.0) == "", "read after that check"
    both_queued.set()
    assert second_begun.wait(60)
    (tmp_path / "a.py").write_text("something else")
    clock_s += file_cache.AT_ONCE_S + 1
    assert texts.text("a.py", state, 60.0, at_once=True) is None


def test_the_cache_of_file_texts_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    reads, read = list[str](), file_cache.read
    monkeypatch.setattr(file_cache, "read", lambda folder, path, state: reads.append(path) or read(folder, path, state))
    monkeypatch.setattr(file_cache, "MAX_FILES", 4)
    texts = file_cache.FileCache(str(tmp_path), clock=lambda: 0.0)
    names = [f"{n}.py" for n in range(10)]
    for name in names:
        (tmp_path / name).write_text("x = 1\n" * 20_000)
    for name in (*names, *reversed(names)):  # the newest ones are still cached
        state = (tmp_path / name).stat()
        assert len(texts.text(name, (state.st_mtime_ns, state.st_size), 60.0)) == file_cache.FILE_CHARACTERS
    assert reads == [*names, *reversed(names[:6])]
