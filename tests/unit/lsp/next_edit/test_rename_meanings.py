"""Laws of renames onto a name in use: no accepted edit changes the definition that a use means."""

from __future__ import annotations

import ast
import re
import symtable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.lsp.next_edit.test_renames import Desk

from benchmarks.editor.edit_replay.rename_truth.python_places import Walk
from speclsp.lsp.next_edit.producer import Proposal
from speclsp.lsp.reasons import Reason

IN_USE = [
    ("javascript", "function area(<width|height>, height) {\n  return width * height;\n}\n"),
    ("javascript", "const <a|b> = 1;\nfunction f(b) { return { a, b }; }\n"),
    ("javascript", "class A { constructor() { this.<a|b> = 1; }\n  c() { return this.a + this.b; } }\n"),
    ("javascript", "class A { constructor() { this.<a|b> = 1; }\n  b() { return this.a; } }\n"),
    ("javascript", "function f(<a|undefined>) { return a === undefined; }\n"),
    ("typescript", "function f(<width|class>: number) {\n  return width;\n}\n"),
    ("python", "def f(rows):\n    best = 0\n    <total|best> = 1\n    return total + best\n"),
    ("python", "import math\n\ndef f(<x|math>):\n    return math.sqrt(x)\n"),
    ("python", "def f(<x|len>):\n    return len(x)\n"),
    ("python", "def f(<x|y>):\n    def g(y):\n        return x + y\n    return g(x)\n"),
    ("python", "def run(<rows|items>):\n    pick = lambda items: rows\n    return rows\n"),
    ("python", "def f(<x|y>):\n    return [x for y in range(3)]\n"),
    ("python", "y = 1\n\ndef f(<x|y>):\n    def g():\n        global y\n        y = x\n    return x\n"),
    ("python", "def f(<x|y>, **more):\n    return x\n\nf(x=1, y=2)\n"),
    ("python", "class A:\n    def __init__(self):\n        self.<a|b> = 1\n        self.b = self.a\n"),
    ("python", "def f(<x|class>):\n    return x\n"),
    ("rust", "fn f() {\n    let height = 2;\n    let <width|height> = 3;\n    g(height, width);\n}\n"),
    ("rust", "fn f() {\n    let <width|height> = 3;\n    let height = 2;\n    g(height, width);\n}\n"),
    ("rust", 'fn f(<width|height>: u8, height: u8) {\n    println!("{height} {width}");\n}\n'),
    ("rust", "fn f(<width|match>: u8) -> u8 {\n    width\n}\n"),
    ("go", "package a\n\nfunc f(<width|len> int, a []int) int {\n\treturn width + len(a)\n}\n"),
    ("java", "class A {\n  int name;\n  int f(int <width|name>) { return width + name; }\n}\n"),
    ("java", "class A {\n  int <name|width>;\n  int f(int width) { return width + name; }\n}\n"),
    ("c", "int f(int <width|int>) {\n  return width;\n}\n"),
    ("csharp", "class A {\n  int F(int <width|int>) {\n    return width;\n  }\n}\n"),
    ("kotlin", 'fun f(<width|height>: Int, height: Int) = "$width $height"\n'),
]
FREE = [  # the new name stands in the file, and no use would mean another definition
    ("javascript", "function f(height) { return height; }\nfunction g(<width|height>) { return width¹; }\n"),
    ("python", "import math\n\ndef f(<x|math>):\n    return x¹\n"),
    ("python", "def f(<x|y>):\n    return x¹, [y for y in range(3)], other.y, call(y=1)\n"),
    ("rust", "fn f() {\n    let height = 2;\n    let <width|height> = height;\n    g(width¹);\n}\n"),
    ("java", "class A {\n  int <name|width>;\n  int f(int width) {\n    return this.name¹;\n  }\n}\n"),
    *(  # keywords in other contexts
        ("csharp", f"class A {{\n  int F(int <width|{name}>) {{\n    return width¹;\n  }}\n}}\n")
        for name in ["from", "file", "group", "on", "where", "by", "alias", "let", "select"]
    ),
    *(("swift", f"func f(<width|{name}>: Int) -> Int {{\n  return width¹\n}}\n") for name in ("actor", "lazy")),
    ("scala", "def f(<width|extension>: Int) = {\n  width¹\n}\n"),
]


@pytest.mark.parametrize(("language", "marked"), IN_USE)
def test_nothing_is_offered_for_a_name_in_use_and_the_reason_says_so(language: str, marked: str):
    assert Desk(marked, language).walk() == [Reason.NAME_IN_USE]


@pytest.mark.parametrize(("language", "marked"), FREE)
def test_a_name_in_use_elsewhere_is_free(language: str, marked: str):
    desk = Desk(marked, language)
    assert desk.walk()[-1] == Reason.NO_REPEAT
    assert desk.document.text == re.sub(r"<(\w+)\|(\w+)>|\w+¹", lambda match: match[2] or desk.new, marked)


def test_a_rename_that_is_free_in_one_document_may_have_a_conflict_in_another():
    desk = Desk("<SIZE|LIMIT> = 1\nprint(SIZE¹)\n", "python")
    assert isinstance(desk.propose(), Proposal)
    text = "from a import *\nLIMIT = 2\nuse(LIMIT)\nrun(SIZE)\ncall(SIZE)\n"
    desk.document = desk.documents.open("file:///project/b.py", "python", 1, text)
    at = text.index("SIZE")
    desk.replace(at, at + len("SIZE"), "LIMIT")
    assert desk.propose() == Reason.NAME_IN_USE


@pytest.mark.parametrize("first", ["height", "other"])
@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("javascript", "function area(width,\n  height) {\n  return width - height;\n}\narea(width, height);\n"),
        ("javascript", "function area(width, height) {\n  return width - height;\n}\narea(width, height);\n"),
        ("python", "def area(width,\n         height):\n    return width - height\n\n\narea(width=1, height=2)\n"),
        ("python", "def area(width, height):\n    return width - height\n\n\narea(width=1, height=2)\n"),
    ],
)
def test_a_swap_of_two_names_gets_no_wrong_edit(language: str, text: str, first: str):
    """`width` becomes `height`, or `other` first, and then `height` becomes `width`."""
    marked = text.replace("width", f"<width|{first}>", 1)
    desk = Desk(marked, language)
    if first == "height":
        assert desk.propose() == Reason.NAME_IN_USE
    at = desk.document.text.index("height", desk.document.text.index(first) + len(first))
    desk.replace(at, at + len("height"), "width")
    swapped = text.replace("width", first).replace("height", "width")
    assert desk.walk() in ([Reason.NAME_IN_USE], [Reason.NO_REPEAT]) or desk.document.text == swapped


# ── every use means the definition that it meant ──────────────────────────────────────────────────────────────────────

NAME = st.sampled_from(["a", "b", "c", "len"])


def expression() -> st.SearchStrategy[str]:
    return st.one_of(
        NAME,
        st.builds("({} + {})".format, NAME, NAME),
        st.builds("[{} for {} in {}]".format, NAME, NAME, NAME),
        st.builds("(lambda {}: {})".format, NAME, NAME),
        st.builds('f"{{{}}}"'.format, NAME),
    )


def block(depth: int) -> st.SearchStrategy[list[str]]:
    """The lines of a block."""
    simple = st.one_of(
        st.builds(lambda name, value: [f"{name} = {value}"], NAME, expression()),
        st.builds(lambda value: [f"print({value})"], expression()),
        st.builds(lambda name, value: [f"for {name} in {value}: pass"], NAME, expression()),
    )
    if depth == 0:
        return st.lists(simple, min_size=1, max_size=3).map(lambda groups: sum(groups, []))
    inner = block(depth - 1).map(lambda lines: [f"    {line}" for line in lines])
    declared = st.sampled_from([[], ["    global b"], ["    global c"], ["    nonlocal a"]])
    nested = st.one_of(
        st.builds(
            lambda name, first, head, body: [f"def {name}({first}):", *(head if first != head[-1:] else []), *body],
            NAME, NAME, declared, inner,
        ),
        st.builds(lambda name, body: [f"class {name}:", *body], NAME, inner),
    )  # fmt: skip
    return st.lists(st.one_of(simple, nested), min_size=1, max_size=4).map(lambda groups: sum(groups, []))


def meanings(text: str) -> list[int] | None:
    """For each name of a Python text, in order, the first of the names with its meaning; None for no program."""
    try:
        tree, top = ast.parse(text), symtable.symtable(text, "a.py", "exec")
    except SyntaxError:
        return None
    walk = Walk(text, top)
    walk.visit(tree)
    places = sorted((start, key) for key, starts in walk.places.owned.items() for start in starts)
    first = dict[object, int]()
    return [first.setdefault(key, number) for number, (_, key) in enumerate(places)]


@given(block(2).map("\n".join), st.integers(0, 40), st.sampled_from(["a", "b", "c", "d", "len"]))
def test_accepted_edits_change_no_meaning_in_python(text: str, number: int, new: str):
    before = meanings(text)
    uses = [
        match for match in re.finditer(r"\b(?:a|b|c|len)\b", text) if not text.startswith("global ", match.start() - 7)
    ]
    if before is None or not uses:
        return
    use = uses[number % len(uses)]
    if use[0] == new:
        return
    desk = Desk(f"{text[: use.start()]}<{use[0]}|{new}>{text[use.end() :]}\n", "python")
    lines = desk.walk()
    assert len(lines) == 1 or meanings(desk.document.text) == before, desk.document.text
