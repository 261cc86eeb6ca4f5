"""Examples to learn from: their answers are the text that stood there, and the product would ask the same way."""

from __future__ import annotations

import ast
import json
import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.editor.edit_replay.half_typed import half_typed
from benchmarks.editor.edit_replay.replay_states import HALF_TYPED, QUIET, STATE, ReplayState, states
from benchmarks.editor.edit_replay.replayed_file import Rules
from benchmarks.quality.edits import Hunk
from benchmarks.quality.tasks import packages as corpus
from models.training import data, edit_examples, fill_examples, function_examples, releases
from models.training.edit_examples import DERIVABLE, OTHER, UNCHANGED, EditCase
from speclsp.engine.api import Extra
from speclsp.lsp.backend.edit_prompt import expected_answer, format_window
from speclsp.lsp.postprocess.edit_answer import first_hunk

BODY = """def use_{n}(key):
    first = {n}
    second = first + 1
    third = second * 2
    print(third)
    return fetch_value(key)


"""
OLD = "import os\n\n\n" + "".join(BODY.format(n=n) for n in range(12))
NEW = OLD.replace("fetch_value(key)", "fetch_value(key, default)")
UNKNOWN = OLD.replace("first = 0", "first = zero").replace("first = 1\n", "first = un\n")
PARTS = st.text("ab_(), ./", max_size=12)
LINES = st.lists(st.sampled_from(["a = 1", "b = 2", "  call(a)", "", "return b", "x"]), min_size=12, max_size=60)
CHOICES = ("keep", "keep", "keep", "drop", "twice", "changed")


def state_of(kind: str, new: str = NEW) -> ReplayState:
    """The first state of a kind."""
    return next(state for state in states("f.py", OLD, new, Rules(budget_ms=10_000)) if state.kind == kind)


def case_at_cursor(state: ReplayState, below: int = 0) -> EditCase | None:
    """The case at the cursor, or some lines below it."""
    line = state.file.document.position(state.cursor, "utf-32")["line"] + below
    return edit_examples.case_at(state, edit_examples.to_come(state), line)


# ── next edits ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_state_whose_next_difference_follows():
    case = case_at_cursor(state_of(STATE), below=4)
    assert case is not None and case.kind == DERIVABLE and not case.has_end
    assert (
        format_window(case.edit)
        == """<|file_sep|>f.py


def use_0(key):
    first = 0
    second = first + 1
    third = second * 2
    print(third)
    return fetch_value(key, default)


<|file_sep|>edit
original:
    print(third)
    return fetch_value(key)

updated:
    print(third)
    return fetch_value(key, default)

<|file_sep|>current
def use_1(key):
    first = 1
    second = first + 1
    third = second * 2
    print(third)
    return fetch_value(key)


def use_2(key):
    first = 2
<|file_sep|>updated
"""
    )
    assert (
        expected_answer(case.answer)
        == """def use_1(key):
    first = 1
    second = first + 1
    third = second * 2
    print(third)
    return fetch_value(key, default)


def use_2(key):
"""
    )


def test_a_change_of_the_last_line_has_an_answer_with_an_end():
    case = case_at_cursor(state_of(STATE))
    assert case is not None and case.kind == DERIVABLE and case.has_end
    assert (case.edit.window[-1], case.answer[-1]) == tuple(
        f"    return fetch_value({arguments})" for arguments in ("key", "key, default")
    )


def test_a_state_whose_next_difference_does_not_follow():
    case = case_at_cursor(state_of(STATE, UNKNOWN))
    assert case is not None and (case.kind, case.change, case.has_end) == (OTHER, None, True)
    assert case.answer == case.edit.window and "    first = 1" in case.answer
    assert [hunk.new[1] for hunk in case.edit.hunks] == ["    first = zero"]


def test_a_state_with_a_half_typed_line():
    state = state_of(HALF_TYPED)
    case = case_at_cursor(state)
    assert case is not None and case.kind == HALF_TYPED and case.change is not None
    row = case.change.first
    typed = case.edit.window[row]
    assert typed not in (OLD + NEW).split("\n")
    assert case.change.lines == ("    return fetch_value(key, default)",)
    assert typed in case.edit.hunks[-1].new, "the line being typed is the newest edit"
    assert not case.has_end and case.answer[row + 1 :] == case.edit.window[row + 1 : len(case.answer)]
    assert any(map(str.isalnum, case.answer[-1])) and len(case.answer) > row + 1


def test_a_state_in_which_nothing_is_left_to_change():
    case = case_at_cursor(state_of(QUIET))
    assert case is not None and (case.kind, case.change, case.has_end) == (UNCHANGED, None, True)
    assert case.answer == case.edit.window and 0 < len(case.edit.hunks) <= 6


@given(LINES, st.data())
def test_an_answer_is_a_part_of_the_newer_release_and_the_product_reads_its_change(
    lines: list[str], data: st.DataObject
):
    choices = data.draw(st.lists(st.sampled_from(CHOICES), min_size=len(lines)))
    new = [
        line.replace("a", "value") if choice == "changed" else line
        for line, choice in zip(lines, choices, strict=False)
        for _ in range({"keep": 1, "drop": 0, "twice": 2, "changed": 1}[choice])
    ]
    old_text, new_text = ("".join(line + "\n" for line in side) for side in (lines, new))
    for case in edit_examples.cases("f.py", old_text, new_text, random.Random(1)):
        assert first_hunk(case.edit.window, expected_answer(case.answer), case.has_end) == case.change
        if case.kind in (OTHER, UNCHANGED):
            assert (case.answer, case.has_end) == (case.edit.window, True)
        if case.kind != OTHER:
            size = len(case.answer)
            assert any(tuple(new[at : at + size]) == case.answer for at in range(len(new) - size + 1))


def test_a_file_gives_the_same_cases_again_and_a_few_of_each_kind():
    several = [list(edit_examples.cases("f.py", OLD, NEW, random.Random(7))) for _ in range(2)]
    assert several[0] == several[1]
    kinds = [case.kind for case in several[0]]
    assert {DERIVABLE, HALF_TYPED, UNCHANGED} == set(kinds)
    assert all(kinds.count(kind) <= most for kind, most in edit_examples.PER_FILE.items())
    assert kinds.count(DERIVABLE) == edit_examples.PER_FILE[DERIVABLE]


@given(PARTS, PARTS, PARTS, PARTS, st.integers(0, 99))
def test_a_half_typed_line_is_a_beginning_of_the_new_line_and_an_end_of_the_old_one(
    head: str, went: str, came: str, tail: str, seed: int
):
    old, new = head + went + tail, head + came + tail
    typed = half_typed([old], Hunk(0, 1, (new,)), random.Random(seed))
    if typed is not None:
        assert typed not in (old, new)
        assert typed.startswith(head)
        cuts = range(len(head) + 1, len(typed) + 1)
        assert any(new.startswith(typed[:cut]) and old.endswith(typed[cut:]) for cut in cuts)


@given(LINES, st.integers(0, 999))
def test_a_cut_takes_its_answer_out_of_the_text_and_nothing_else(lines: list[str], seed: int):
    text = "\n".join(lines)
    for cut in fill_examples.cuts(text, "python", random.Random(seed)):
        above, below = cut.text[: cut.cursor], cut.text[cut.cursor :]
        assert text.startswith(above + cut.answer) and text.endswith(below)
        between = text[len(above + cut.answer) : len(text) - len(below)]
        assert not cut.is_whole or not between.strip()


STATEMENTS = st.sampled_from(
    [
        "total = first % 3 + 'a, b'.count(name)",
        'if name == "it\'s" and first >= 2:\n        return (first, name)',
        "rows = [row * 2 ** 3 for row in [1, 2] if row]",
        'return f"{name} + {first}"',
        "while first > 0:\n        first -= 1  # a % b, 'c'",
        'text = """a + b, \'c\'\n    d % e"""',
        "call(name, *rows, key=1, other={'a': -1, 'b': not first})",
    ]
)


@given(st.lists(STATEMENTS, min_size=1, max_size=6), st.integers(0, 999))
def test_another_style_is_the_same_program_in_as_many_lines(statements: list[str], seed: int):
    text = "def run(name, first=0, *rows):\n" + "".join(f"    {statement}\n" for statement in statements)
    other = function_examples.restyled(text, random.Random(seed))
    assert ast.dump(ast.parse(other)) == ast.dump(ast.parse(text))
    assert len(other.split("\n")) == len(text.split("\n"))
    assert [line.lstrip()[:3] for line in other.split("\n")] == [line.lstrip()[:3] for line in text.split("\n")]


def test_every_change_of_style_occurs():
    text = 'def run(a, b):\n    if a % 2 == 0:\n        return "x"\n    return f(a, b)\n'
    others = "\n".join(function_examples.restyled(text, random.Random(seed)) for seed in range(200))
    for written in ("a%2==0", "a%2 == 0", "(a,b)", "return 'x'", "if (a % 2 == 0):", "return (f(a, b))"):
        assert written in others


def test_a_function_alone_has_the_imports_it_uses_and_is_cut_below_its_docstring():
    body = '    """Run."""\n    b = system.argv[a]\n    return b\n'
    text = f"import os\nimport sys as system\n\nX = 1\n\n\ndef run(a):\n{body}"
    assert [name for name, _ in function_examples.functions(text)] == ["run"]
    for seed in range(30):
        for path, cut in function_examples.cuts("p/use.py", text, random.Random(seed)):
            assert path in ("run.py", "main.py", "script.py", "use.py")
            assert cut.text.startswith('import sys as system\n\n\ndef run(a):\n    """Run.')
            assert "import os" not in cut.text and cut.cursor > cut.text.index("Run.") and cut.answer.strip()


@pytest.mark.parametrize("text", ["def broken(:\n", "x = 1\n", "def short():\n    pass\n", "\0"])
def test_a_file_without_a_function_to_learn_from_gives_none(text: str):
    assert not list(function_examples.cuts("p/use.py", text, random.Random(0)))


@pytest.fixture
def package(tmp_path: Path) -> releases.Learned:
    return package_in(tmp_path / "here")


def package_in(root: Path) -> releases.Learned:
    archives = tuple(
        corpus.Archive(ecosystem="pypi-wheel", name="p", version=v, file=f"p-{v}.whl", bytes=1, sha256="0" * 64)
        for v in ("1.0", "1.1")
    )
    for archive, text in zip(archives, (OLD, NEW), strict=True):
        folder = root / archive.folder / "p"
        folder.mkdir(parents=True)
        (folder / "use.py").write_text(text, "utf-8")
        (folder / "other.py").write_text("def fetch_value(key, default):\n    return default\n" * 10, "utf-8")
    roots = tuple(root / archive.folder for archive in archives)
    names = {"name": "p", "licence": "MIT", "languages": ("python",)}
    return releases.Learned(**names, folders=(), skip=(), archives=archives, roots=roots)


def rows_of(package: releases.Learned, encoder: data.Encoder) -> list[data.Row]:
    fills, edits = data.fill_rows(package, encoder), data.edit_rows(package, encoder)
    return data.mixed([*fills, *islice(data.function_rows(package, encoder), 9), *edits])


def test_examples_are_the_same_anywhere_and_in_the_models_own_tokens(package: releases.Learned, tmp_path: Path):
    encoder = data.Encoder("tiny")
    rows = rows_of(package, encoder)
    kinds = {row["kind"] for row in rows}
    assert kinds >= {DERIVABLE, UNCHANGED} and kinds & {"line", "end", "block"}
    assert sum(row["kind"] == "function" for row in rows) == 9
    assert json.dumps(rows) == json.dumps(rows_of(package_in(tmp_path / "there"), encoder))
    for row in rows:
        assert len(row["answer"]) == len(row["weights"]) and any(row["weights"])
        assert row["answer"][-1] == encoder.end or row["kind"] not in (OTHER, UNCHANGED)
        assert encoder.end not in row["prompt"] + row["answer"][:-1]


@pytest.mark.parametrize(
    "flag", ["--fill-per-package", "--edits-per-package", "--fill-per-file", "--functions-per-package"]
)
def test_a_number_of_examples_below_zero_is_one_sentence(flag: str, capsys: pytest.CaptureFixture[str]):
    assert data.main([flag, "-1"]) == 1
    assert capsys.readouterr().err == f"{flag} -1: expected 0 or more.\n"


@pytest.mark.parametrize("wanted", [2, 60])
def test_in_half_of_the_edits_or_more_the_newer_release_changes_nothing(package: releases.Learned, wanted: int):
    kinds = [row["kind"] for row in data.edit_rows(package, data.Encoder("tiny"), wanted)]
    assert 0 < sum(kind in (DERIVABLE, HALF_TYPED) for kind in kinds) <= wanted
    assert kinds.count(UNCHANGED) * 2 >= len(kinds)


def test_a_run_that_was_stopped_makes_no_package_again(
    package: releases.Learned, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(data, "MODEL", "tiny")
    counts = data.Counts(fill=2, edits=2, functions=0)
    part = data.part_of((package, counts, tmp_path))
    rows = [json.loads(line) for line in part.read_text("utf-8").splitlines()]
    assert rows == data.rows_of(package, counts) and {row["split"] for row in rows} < {"train", "held-out"}
    monkeypatch.setattr(data, "rows_of", lambda *_: [])
    assert data.part_of((package, counts, tmp_path)) == part
    assert len(part.read_bytes().splitlines()) == len(rows) > 3
    assert data.part_of((package, replace(counts, edits=3), tmp_path)) != part, "another number of examples"


def test_the_answer_of_a_fill_in_begins_with_the_half_typed_word_which_has_no_weight(package: releases.Learned):
    encoder = data.Encoder("tiny")
    at = OLD.index("fetch_value(key)") + len("fetch_v")
    cut = fill_examples.Cut("end", OLD[:at] + OLD[at + 4 :], at, "alue", True)
    request = fill_examples.request_of(cut, package.roots[0], "p/use.py", (), (256, 96, 128))
    assert request is not None and request.line_prefix == "    return fetch_v"
    row = encoder.fill(cut, request)
    spelled = [encoder.prompter.vocabulary.bytes[token].decode() for token in row["answer"][:-1]]
    assert "".join(spelled) == " fetch_value" or "".join(spelled) == "fetch_value"
    heal = len("".join(spelled)) - len("alue")
    ends = [len("".join(spelled[: n + 1])) for n in range(len(spelled))]
    assert row["weights"] == [*(1.0 if end > heal else 0.0 for end in ends), 1.0]


def test_an_example_needs_another_file_if_its_answer_has_a_name_that_only_that_file_shows():
    def needs(answer: str, line: str = "    return ", suffix: str = "") -> bool:
        extra = (Extra(filename="p/other.py", text="def fetch_value(key): ..."),)
        request = fill_examples.Request(prefix="import os\n", line_prefix=line, suffix=suffix, extra=extra)
        return fill_examples.has_name_of_other_files(fill_examples.Cut("end", "", 0, answer, True), request)

    assert needs("fetch_value(3)")
    assert needs("tch_value(3)", line="    return fe")  # half-typed
    assert not needs("fetch_values(3)")
    assert not needs("key")  # too short to tell
    assert not needs("fetch_value(3)", suffix="fetch_value(4)")


def test_tokens_of_the_change_weigh_four_times_in_the_answer_of_an_edit():
    encoder, case = data.Encoder("tiny"), case_at_cursor(state_of(STATE), below=4)
    assert case is not None
    row = encoder.edit(case)
    pieces = [encoder.prompter.vocabulary.bytes[token].decode() for token in row["answer"]]
    assert "".join(pieces) == expected_answer(case.answer)
    assert set(row["weights"]) == {1.0, data.CHANGED_WEIGHT} == {1.0, 4.0}
    heavy = "".join(piece for piece, weight in zip(pieces, row["weights"], strict=True) if weight == 4.0)
    assert ", default" in heavy and "return" not in heavy


def test_the_end_of_text_weighs_four_times_where_the_last_lines_go():
    encoder = data.Encoder("tiny")
    window = tuple(f"line_{n} = {n}" for n in range(10))
    kept = edit_examples.EditInput(path="f.py", before=(), window=window, hunks=())
    case = edit_examples.answered(DERIVABLE, kept, window[:8])
    assert case is not None and case.has_end
    assert encoder.edit(case)["weights"][-1] == 4.0
    unchanged = edit_examples.answered(UNCHANGED, kept, window)
    assert unchanged is not None and set(encoder.edit(unchanged)["weights"]) == {1.0}
