"""Syntax check: no suggestion breaks code that parses now, and existing unfinished code does not count against it."""

from __future__ import annotations

import functools
import random
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.lsp.suggested import DEFAULT as CONFIG
from support.lsp.suggested import PARSER, outcome, plan_at, plan_for, suggest
from support.lsp.syntax_samples import PLACES
from support.rows import rows

from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess import syntax_check
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import incremental_parse, lexical_rules
from speclsp.lsp.syntax.incremental_parse import parse_clock_s

ROWS = rows(__file__)

ROOT = Path(__file__).parents[4]
LIBRARY = Path(sysconfig.get_path("stdlib"))
SOURCES = {
    "python": [LIBRARY / f"{name}.py" for name in ("argparse", "textwrap", "shlex", "queue", "string", "heapq")],
    "c": sorted((ROOT / "speclsp" / "engine").rglob("*.[ch]")),
    "typescript": sorted((ROOT / "editors" / "vscode" / "src").glob("*.ts")),
    "lua": sorted((ROOT / "editors" / "nvim" / "lua").rglob("*.lua")),
}


@pytest.fixture(autouse=True, scope="module")
def time_for_long_texts() -> Iterator[None]:
    """Give the quick check of a long text enough time on a slow machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(syntax_check, "QUICK_MS", 10_000.0)
        yield


@pytest.mark.parametrize(("language", "opener"), [("javascript", "f("), ("java", "f("), ("terraform", "f([")])
def test_a_brace_closes_its_block_below_a_bracket_that_is_open(language: str, opener: str):
    marked = f"a {{\n  b {{\n    {opener}1\n  ¦\n}}\n"
    assert outcome(marked, plan_at(marked, language).to_suggestion("}\n}\n")) == marked.replace("¦", "}")


@given(language=st.sampled_from(sorted(PLACES)), data=st.data())
def test_an_error_elsewhere_hides_no_text_that_adds_none(language: str, data: st.DataObject):
    source = PLACES[language][0].replace("¦", "")
    line = data.draw(st.sampled_from([line for line in source.splitlines() if len(line.strip()) > 1]))
    start = source.index(line) + data.draw(st.integers(len(line) - len(line.lstrip()), len(line) - 1))
    text, document = (
        source[start : source.index(line) + len(line)],
        source[:start] + source[source.index(line) + len(line) :],
    )
    shown = plan_for(document, start, language)
    brackets = [at for at, character in enumerate(document) if character in ")]}" and abs(at - start) > 3]
    assume(brackets and isinstance(shown, SuggestionPlan) and isinstance(shown.to_suggestion(text), Suggestion))
    removed = data.draw(st.sampled_from(brackets))
    document, start = document[:removed] + document[removed + 1 :], start - (removed < start)
    plan = plan_for(document, start, language)
    errors = [
        PARSER.parse(language, code, 10_000).count_errors()
        for code in (document, document[:start] + text + document[start:])
    ]
    if isinstance(plan, SuggestionPlan) and errors[1] <= errors[0]:
        result = plan.to_suggestion(text)
        assert isinstance(result, Suggestion) or result.reason is not Reason.BREAKS


def breaks(marked: str, output: str, language: str = "python", *, limit_s: float = 10, torn: bool = False) -> bool:
    check = plan_at(marked, language).check
    assert check is not None
    return (
        check.check(output, marked.index("¦"), parse_clock_s() + limit_s, truncated=torn) is syntax_check.Verdict.BREAKS
    )


# ── broken syntax ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    ROWS["a_text_that_later_lines_can_complete_does_not_break_the_syntax"],
)
def test_a_text_that_later_lines_can_complete_does_not_break_the_syntax(language: str, marked: str, output: str):
    assert not breaks(marked, output, language)


@pytest.mark.parametrize(("language", "marked", "output"), ROWS["a_text_that_nothing_can_complete_breaks_the_syntax"])
def test_a_text_that_nothing_can_complete_breaks_the_syntax(language: str, marked: str, output: str):
    assert breaks(marked, output, language)


def test_errors_elsewhere_do_not_count_against_a_suggestion():
    assert not breaks("def g(:\n    )\n\nx = ¦\n", "f(1)")
    assert not breaks("foo(a b, ¦)\n", "c")


def test_only_a_truncated_text_may_end_in_an_open_string():
    assert not breaks("x = ¦\n", '"some wor', torn=True)
    assert breaks("x = ¦\n", '"some wor')
    assert not breaks('x = f("SELECT ¦\n', "a FROM"), "the person has begun it, and will end it"


def test_an_unfinished_check_lets_the_suggestion_pass():
    assert not breaks("x = ¦\n", "f(1))", limit_s=0)
    assert breaks("x = ¦\n", "f(1))")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows counts processor time in steps of 16 ms")
def test_a_busy_machine_leaves_no_suggestion_unchecked(monkeypatch: pytest.MonkeyPatch):
    def interrupted(*arguments: Any) -> Any:
        time.sleep(0.03)  # another program has the processor for longer than the whole budget
        return run(*arguments)

    run = incremental_parse.run
    monkeypatch.setattr(incremental_parse, "run", interrupted)
    monkeypatch.setattr(postprocess, "CHECK_MS", 20.0)
    assert suggest("x = ¦\n", "f(a b)") is Reason.BREAKS


def test_in_a_long_file_only_a_window_is_checked(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(syntax_check, "LONG_CHARACTERS", 4_000)
    monkeypatch.setattr(syntax_check, "NEAR_CHARACTERS", 2_000)
    text = "def f(x):\n    return x\n\n\n" * 400
    offset = text.index("    return", 5_000)
    check = plan_at(text[:offset] + "    ¦\n" + text[offset:]).check
    assert check is not None
    assert check.check("y = )", offset + 4, parse_clock_s() + 10) is syntax_check.Verdict.BREAKS
    assert len(check.tree.view_without(offset, offset)[0]) < 4_000
    assert check.check("y = 1", offset + 4, parse_clock_s() + 10) is not syntax_check.Verdict.BREAKS


# ── shortened suggestions ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    ROWS["a_breaking_suggestion_is_shortened_or_not_shown"],
)
def test_a_breaking_suggestion_is_shortened_or_not_shown(language: str, marked: str, output: str, result: str | Reason):
    assert outcome(marked, plan_at(marked, language).to_suggestion(output)) == result


# ── properties over real files and possible model outputs ───────────────────────────────────────────────────────────


@functools.cache
def source(file: Path) -> str:
    return file.read_text("utf-8")


def generation(kind: str, truth: str, below: str, text: str, chance: random.Random) -> str:
    indices = [index for index, character in enumerate(truth) if character in "()[]{}\"'"] or [0]
    index = chance.choice(indices)
    return {
        "truth": truth,
        "cut": truth[: chance.randrange(1, len(truth) + 1)],
        "and on": truth + below[: chance.randrange(len(below) + 1)],
        "doubled": f"{truth[:index]}{truth[index]}{truth[index:]}\n",
        "dropped": f"{truth[:index]}{truth[index + 1 :]}\n",
        "repeated": f"{truth}\n" * 5,
        "elsewhere": text[(start := chance.randrange(len(text))) : start + 200],
        "fenced": f"{truth}\n```\n",
        "foreign": truth + below[:200].replace("    ", "\t").replace("\n  ", "\n\t"),
    }[kind]


KINDS = ("truth", "cut", "and on", "doubled", "dropped", "repeated", "elsewhere", "fenced", "foreign")


def hole(language: str, kind: str, seed: int, kept: bool) -> tuple[Snapshot, str]:
    """A real file with a hole in it, and a possible output of a model there; `kept`: the next lines exist already."""
    rng = random.Random(seed)
    text = source(rng.choice(SOURCES[language]))
    rows = [row for row in text.split("\n") if len(row.strip()) > 3]
    row = rng.choice(rows)
    start = text.index(row) + rng.randrange(len(row) - len(row.lstrip()), len(row) - 1)
    end = text.index("\n", start)
    truth, below = text[start:end], text[end:][:400]
    if not kept:
        end = (text + "\n\n").index("\n\n", start)
    snapshot = Snapshot("file:///p/a", language, 1, text[:start] + text[end:], start)
    return snapshot, generation(kind, truth, below, text, rng)


@settings(max_examples=150)
@given(st.sampled_from(sorted(SOURCES)), st.sampled_from(KINDS), st.integers(0, 2**32), st.booleans())
def test_no_shown_suggestion_breaks_the_syntax_of_a_real_file(language: str, kind: str, seed: int, kept: bool):
    snapshot, output = hole(language, kind, seed, kept)
    tree = PARSER.parse(language, snapshot.text, 10_000)
    plan = postprocess.plan(snapshot, tree, CONFIG)
    if tree is None or isinstance(plan, NoSuggestion):
        return
    suggestion = plan.to_suggestion(output)
    if isinstance(suggestion, NoSuggestion):
        assert kind != "truth" or suggestion.reason is not Reason.BREAKS
        return
    check = syntax_check.SyntaxCheck(tree, plan.around)
    assert check.check(suggestion.text, suggestion.end, parse_clock_s() + 10) is not syntax_check.Verdict.BREAKS
    assert plan.to_suggestion(suggestion.text + "\n\n") == suggestion, "cleaning what is clean changes nothing"
    assert isinstance(suggestion, Suggestion)
    style, _step = lexical_rules.indent_style(plan.around.before + plan.around.after)
    indents = {line[:1] for line in suggestion.text.split("\n")[1:] if line[:1] in ("\t", " ")}
    assert not style or "*" in suggestion.text or indents <= {"\t" if style == "tabs" else " ", " "}
