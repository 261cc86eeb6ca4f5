"""A look around a document has a few milliseconds: what it finds in them, and what is found out before it."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclsp.config import ContextConfig
from speclsp.lsp.context import build, cross_file, definitions, selection, similar_code, warm_up
from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.context.warm_up import IndexWarmUp
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index import file_cache
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax.parser import SyntaxParser

LONG_S = 1e9  # in the clock of time.perf_counter


@pytest.fixture(autouse=True)
def _nothing_is_known():
    similar_code.READ.clear()
    similar_code.OWN.clear()


# ── what is like the code at the cursor ───────────────────────────────────────────────────────────────────────────────

LINES = st.lists(
    st.lists(
        st.sampled_from(["order", "price", "total", "client", "def", "x1", "(", "=", "\r", "\u200b", "²ab"]), max_size=5
    ),
    max_size=60,
).map(lambda lines: "\n".join(" ".join(words) for words in lines))


def by_definition(place: ChunkPlace, files: Sequence[similar_code.File]) -> list[tuple[str, str, float]]:
    """Every piece of every file compared with the place, word by word."""
    wanted = similar_code.words_around(place)
    pieces = []  # (file, start, end, words)
    for number, file in enumerate(files):
        lines = similar_code.normal_newlines(file.text).split("\n")
        for start in range(0, max(1, -(-len(lines) // 3) * 3 - 9), 3):
            found = similar_code.words("\n".join(lines[start : start + 12]))
            if found:
                pieces.append((number, start, min(len(lines), start + 15), found))
    common = Counter(word for *_, found in pieces for word in found)
    rare = {word: weight * math.log(1 + len(pieces) / (1 + common[word])) for word, weight in wanted.items()}
    scored = [
        (-sum(weight for word, weight in rare.items() if word in found) / (sum(rare.values()) or 1), number, start, end)
        for number, start, end, found in pieces
    ]
    chosen = []
    for number, file in enumerate(files):
        taken: list[tuple[int, int]] = []
        for score, _, start, end in sorted(one for one in scored if one[1] == number):
            if -score < similar_code.LEAST or len(taken) == similar_code.A_FILE:
                break
            if all(end <= low or high <= start for low, high in taken):
                taken.append((start, end))
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
def test_the_likest_pieces_are_those_that_comparing_every_piece_finds(above: str, below: str, texts: list[str]):
    place = ChunkPlace("file:///a.py", "a.py", None, "python", above, below)
    files = [similar_code.File("a.py" if n == 0 else f"{n}.py", text) for n, text in enumerate(texts)]
    found, why_not = similar_code.candidates(place, files, LONG_S)
    if not similar_code.words_around(place):
        assert found == [] and set(why_not.values()) <= {similar_code.NOTHING_TO_COMPARE}
        return
    assert [(chunk.path, chunk.text, chunk.score) for chunk in found] == by_definition(place, files)
    assert similar_code.candidates(place, files, LONG_S) == (found, why_not), "the same from what is known"


@given(LINES, LINES, st.lists(LINES, min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_without_time_only_what_is_known_is_compared(above: str, below: str, texts: list[str]):
    place = ChunkPlace("file:///a.py", "a.py", None, "python", above + "\norder", below)
    files = [similar_code.File(f"{n}.py", f"{n}\n{text}") for n, text in enumerate(texts)]
    similar_code.READ.clear()
    found, why_not = similar_code.candidates(place, files, 0.0)
    assert found == [] and set(why_not.values()) == {similar_code.NO_TIME}
    in_time = similar_code.candidates(place, files, LONG_S)
    assert similar_code.candidates(place, files, 0.0) == in_time


def test_the_files_whose_words_are_known_are_bounded():
    known = similar_code.Read(lambda lines: similar_code.words("\n".join(lines)), 1000)
    texts = [f"name_{n} = other_{n}\n" * 20 for n in range(10)]
    assert all(known.words(text, LONG_S) is not None for text in texts)
    assert known.words(texts[-1], 0.0) is not None and known.words(texts[0], 0.0) is None
    assert known.words("x" * 5000, LONG_S) is not None, "one file is looked at, however long"


@given(st.text(st.sampled_from("abcXY_019.:->( \n²é٣"), max_size=60))
@settings(max_examples=500, deadline=None)
def test_receivers_and_members_are_found_as_when_every_start_is_tried(text: str):
    plainly = re.compile(r"([^\W\d]\w*(?:\.\w+)?)(?:\.|->|::)([^\W\d]\w*)")
    found = [definitions.of_line(line)[1] for line in text.split("\n")]
    assert [pair for pairs in found for pair in pairs] == plainly.findall(text)


# ── what is found out before ──────────────────────────────────────────────────────────────────────────────────────────

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
    IndexReader.build(root, tmp_path / "index.sqlite").close()
    return root


@pytest.fixture
def index(root: Path, tmp_path: Path) -> IndexReader:
    index = IndexReader(str(root), tmp_path / "index.sqlite")
    index.outline("main.py")  # the database is open
    return index


def shown(
    root: Path, index: IndexReader, shelf: selection.Selection | None = None, patience_ms: float = 0.0
) -> set[str]:
    """The files of which something is shown at the end of main.py, without time to look unless some is given."""
    uri = (root / "main.py").as_uri()
    snapshot = Snapshot(uri, "python", 1, MAIN, len(MAIN) - 1)
    tree = SyntaxParser().parse("python", MAIN, 2000, near=snapshot.cursor)
    shelves = {uri: shelf} if shelf is not None else {}
    made = build.build(
        snapshot, tree, ContextConfig(parse_budget_ms=2000), root.as_uri(), shelves=shelves,
        sources=CrossFileSources(index=index, patience_ms=patience_ms),
    )  # fmt: skip
    return {chunk.path for chunk in made.extra}


def finish(asking: IndexWarmUp) -> None:
    while asking.slice():
        pass


def test_what_was_asked_beforehand_is_there_when_there_is_no_time(root: Path, index: IndexReader, monkeypatch):
    monkeypatch.setattr(warm_up, "STEP_S", 60.0)
    assert shown(root, index) == set()
    asking = IndexWarmUp(index, lambda _seconds, _slice: None)
    asking.want("main.py")
    finish(asking)
    assert "near.py" in shown(root, index)
    similar_code.READ.clear()
    index.forget_answers()
    assert shown(root, index) == set()


def test_a_look_without_time_has_the_rest_asked_and_is_repeated_at_the_next_line(root: Path, index: IndexReader):
    wanted: list[str] = []
    index.hurried = wanted.append
    shelf = selection.Selection(chosen=(Chunk("near.py", "old()\n", 1.0, "similar"),))
    shown(root, index, shelf)
    assert wanted == ["main.py"] and shelf.step is None
    shelf.place = None
    shown(root, index, shelf)
    assert shelf.step is not None, "but not at every line"
    shown(root, index, shelf := selection.Selection(), patience_ms=60_000)
    assert wanted == ["main.py"] * 2 and shelf.step is not None


def test_what_was_found_is_not_lost_for_want_of_time(root: Path, index: IndexReader):
    shelf = selection.Selection()
    found = shown(root, index, shelf, patience_ms=60_000)
    similar_code.READ.clear()
    index.forget_answers()
    shelf.place = shelf.step = None
    assert "near.py" in found and shown(root, index, shelf) == found


def test_asking_beforehand_comes_to_an_end_and_asks_nothing_more_once_ended(
    root: Path, index: IndexReader, monkeypatch
):
    monkeypatch.setattr(warm_up, "STEP_S", 0.0)  # nothing is ever answered in time
    later: list[object] = []
    asking = IndexWarmUp(index, lambda _seconds, again: later.append(again))
    for n in range(100):
        asking.want(f"{n}.py")
    assert len(later) == 1, "one timer for all"
    finish(asking)
    asking.want("main.py")
    asking.end()
    assert not asking.slice()
    asking.want("main.py")
    assert not asking.slice()


def test_what_fails_beforehand_fails_nobody(root: Path, index: IndexReader, monkeypatch, caplog):
    def fails(path: str, index: IndexReader):
        raise ValueError("quoting the secret text")
        yield

    monkeypatch.setattr(cross_file, "beforehand", fails)
    timers: list = []
    asking = IndexWarmUp(index, lambda _seconds, again: timers.append(again))
    asking.want("main.py")
    timers.pop()()
    assert not timers and "ValueError" in caplog.text and "secret" not in caplog.text


def test_in_a_look_questions_get_what_is_left_of_its_time(root: Path, index: IndexReader):
    with index.look(time.perf_counter() - 1):
        assert index.symbols(["connect"]) == [] and index.text("near.py") == ""
    index.budget_ms = 60_000
    assert [symbol.path for symbol in index.symbols(["connect"])] == ["shop/client.py"]
    assert index.text("near.py") == NEAR
    with index.look(time.perf_counter() - 1):
        assert [symbol.path for symbol in index.symbols(["connect"])] == ["shop/client.py"]
        assert index.text("near.py") == NEAR
    index.hidden = lambda path: True
    with index.look(LONG_S):
        assert index.symbols(["connect"]) == [] and index.text("near.py") == ""


def test_who_cannot_wait_gets_a_text_as_it_was_and_has_it_looked_at_again(root: Path, index: IndexReader, monkeypatch):
    monkeypatch.setattr(file_cache, "RECHECK_S", 0.0)
    index.budget_ms = 60_000
    assert index.text("near.py") == NEAR
    (root / "near.py").write_text("now = 'something else'\n")
    with index.look(LONG_S):
        assert index.text("near.py") == NEAR
    until = time.monotonic() + 30
    gone = ""
    while time.monotonic() < until:
        with index.look(LONG_S):
            gone = index.text("near.py")
        if not gone:
            break
        time.sleep(0.01)
    assert gone == ""


def test_a_look_nobody_came_for_is_as_old_as_it_is(tmp_path: Path, monkeypatch):
    clock_s = 0.0
    monkeypatch.setattr(file_cache, "time", SimpleNamespace(monotonic=lambda: clock_s))
    (tmp_path / "a.py").write_text("was")
    found = (tmp_path / "a.py").stat()
    texts, state = file_cache.FileCache(str(tmp_path)), (found.st_mtime_ns, found.st_size)
    assert texts.text("a.py", state, 60.0) == "was"
    clock_s = file_cache.RECHECK_S + 1
    assert texts.text("a.py", state, 60.0, at_once=True) == "was", "and it is looked at again"
    texts._under_way["a.py"][1].result(60)
    (tmp_path / "a.py").write_text("something else")
    clock_s += file_cache.AT_ONCE_S + 1
    assert texts.text("a.py", state, 60.0, at_once=True) is None


def test_the_texts_kept_of_files_are_bounded(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(file_cache, "MOST_KEPT_BYTES", 2000)
    monkeypatch.setattr(file_cache, "RECHECK_S", 60.0)
    texts = file_cache.FileCache(str(tmp_path))
    for n in range(10):
        (tmp_path / f"{n}.py").write_text("x" * 500)
        state = (tmp_path / f"{n}.py").stat()
        assert texts.text(f"{n}.py", (state.st_mtime_ns, state.st_size), 60.0) == "x" * 500
    assert 1 <= len(texts._kept) <= 4 and texts._bytes <= 2000
