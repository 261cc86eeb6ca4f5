"""Port of llama.vscode's policy: its ring of chunks, its prompt and its cut of an answer."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks import model_options
from benchmarks.quality.llama_vscode import policy
from benchmarks.quality.llama_vscode.policy import Ask, InfillPrompter, Ring
from benchmarks.quality.tasks.tasks import Task
from speclsp.config import Config, EngineConfig
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion


def numbered(count: int, word: str = "line") -> list[str]:
    return [f"{word} {number}" for number in range(count)]


def ring() -> Ring:
    return Ring(random.Random(1))


def test_few_lines_give_no_chunk_and_many_give_half_a_chunk_from_a_random_line():
    made = ring()
    made.pick(numbered(2), "a", evict=False)
    assert made.queued == []
    made.pick(numbered(62), "a", evict=False)
    made.pick(numbered(500), "a", evict=False)
    whole, cut = made.queued
    assert len(whole.lines) == 62
    assert len(cut.lines) == 32
    at = numbered(500).index(cut.lines[0])
    assert list(cut.lines) == numbered(500)[at : at + 32]


def test_around_picks_half_a_chunk_above_and_below_a_line():
    made = ring()
    made.around(numbered(20), 3, "a")
    assert made.queued[0].lines == tuple(numbered(20))
    assert made.queued[0].text == "\n".join(numbered(20)) + "\n"


def test_an_equal_chunk_is_skipped_and_a_similar_one_is_replaced():
    made = ring()
    made.pick(numbered(40), "a", evict=True)
    made.pick(numbered(40), "a", evict=True)
    assert len(made.queued) == 1
    made.rest()
    made.pick([*numbered(40)[:-1], "changed"], "a", evict=True)
    assert made.chunks == [], "38 of 41 lines are the same"
    assert [chunk.lines[-1] for chunk in made.queued] == ["changed"]
    made.pick(numbered(40, "other"), "b", evict=True)
    assert len(made.queued) == 2


def test_the_ring_keeps_the_last_sixteen():
    made = ring()
    for number in range(20):
        made.pick(numbered(5, f"word{number}"), f"{number}", evict=True)
        made.rest()
    assert [chunk.filename for chunk in made.chunks] == [str(number) for number in range(4, 20)]
    for number in range(20):
        made.pick(numbered(5, f"late{number}"), f"late {number}", evict=True)
    assert len(made.queued) == 16


def task(folder: Path, document: str) -> Task:
    """At the `|`, with two files open."""
    cursor = document.index("|")
    (folder / "newer.py").write_text("\n".join(numbered(10, "newer")), encoding="utf-8")
    (folder / "older.py").write_text("\n".join(numbered(300, "older")), encoding="utf-8")
    return Task(
        id="7", package="shapes", root=folder, path="shapes.py", language="python",
        text=document[:cursor] + document[cursor + 1 :], cursor=cursor, truth="x", kind="operator", below="kept",
        crosses=(), seen=False, open_paths=("newer.py", "older.py"),
    )  # fmt: skip


def test_open_files_come_oldest_first_and_the_current_file_last(tmp_path: Path):
    made = policy.ask(task(tmp_path, "\n".join([*numbered(400), "    here|", *numbered(200, "below")])))
    names = [chunk.filename.rpartition("/")[2] for chunk in made.chunks]
    assert names == ["older.py", "older.py", "newer.py", "shapes.py", "shapes.py", "shapes.py"]
    assert made == policy.ask(task(tmp_path, "\n".join([*numbered(400), "    here|", *numbered(200, "below")])))
    assert made.prefix.split("\n")[0] == "line 144", "256 lines above"
    assert made.suffix.split("\n")[64] == "below 63", "64 below, after the rest of the line"
    assert (made.prompt, made.indent) == ("    here", 4)
    assert str(tmp_path) not in str(made.request()), "the same on every machine"


def question_at(document: str) -> Ask:
    """A question at the `|` of a document, without chunks of other files."""
    cursor = document.index("|")
    lines = document.replace("|", "").split("\n")
    before = document[:cursor].split("\n")
    return Ask(document=lines, line=len(before) - 1, column=len(before[-1]), cursor=cursor, end_of_line="\n", chunks=())


@pytest.mark.parametrize(
    ("document", "output", "shown"),
    [
        ("a = |\nb = 2\n", "1\n\n", "1"),
        ("a = |\nb = 2\n", " \n", None),
        ("|\nb = 2\n", "b = 2", None),
        ("|\nb = 2\nc = 3\n", "b = 2\nc", None),
        ("|\nb = 2\nc = 3\n", "b = 2\nd", "b = 2\nd"),
        ("f(|)\n\nz\n", "a)", "a"),
        ("f(|)\n\nz\n", "a\nb", "a"),
        ("f(|)\n\nz\n", ")", None),
        ("if a:\n    |\nz\n", "    b\n    c", "b\n    c"),
        ("if a:\n    b|\nz\n", "(1)\n    c\nd", "(1)\n    c"),
        ("a = 1\n|", "b\nc", "b\nc"),
        ("a|\nb\n", "\nb\n\nz", None),
    ],
)
def test_an_answer_is_cut_as_in_the_extension(document: str, output: str, shown: str | None):
    wanted = question_at(document)
    found = wanted.to_suggestion(output)
    assert (
        isinstance(found, NoSuggestion) if shown is None else found == Suggestion(shown, wanted.cursor, wanted.cursor)
    )


def test_a_line_with_less_indent_ends_the_answer():
    wanted = question_at("if a:\n    b|\n")
    assert not wanted.finished("(1)\n   ")
    assert wanted.finished("(1)\n   c")
    assert not question_at("b|\n").finished("\nc\nd"), "without an indentation nothing ends it"


def test_the_prompt_equals_the_servers_prompt(tmp_path: Path):
    engine = model_options.engine(Config(model="tiny", engine=EngineConfig(context_tokens=1024)))
    ours, fim = engine.prompter, engine.card.fim
    writes = InfillPrompter(ours.card, ours.tokenizer, ours.vocabulary, policy.CONTEXT_TOKENS)
    wanted = policy.ask(task(tmp_path, "import os\nprint(|)\nexit()\n"))
    text = ours.tokenizer.decode(writes.build(wanted.request()).ids, skip_special_tokens=False)
    files = "".join(f"{fim.file_sep}{chunk.filename}\n{chunk.text}" for chunk in wanted.chunks)
    around = f"{fim.prefix}import os\nprint({fim.suffix})\nexit()\n\n{fim.middle}"
    assert text == f"{fim.repo}myproject\n{files}{fim.file_sep}filename\n{around}"
