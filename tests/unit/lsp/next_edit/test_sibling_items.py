"""Items beside their siblings: a table of edits and the item that each kind offers, its silences, and a law."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from unit.lsp.next_edit.test_single_changes import offered

from speclsp.lsp.next_edit.changes.list_items import form_of, item_of, spellings
from speclsp.lsp.next_edit.changes.sibling_items import CASE, LISTED, PASSED

CALL = "def draw(width, height):\n    return paint(\n        width=width,\n        height=height,\n    )\n"
DRAW = CALL.replace("height):", "height, depth):")
DRAWN = DRAW.replace("        height=height,\n", "        height=height,\n        depth=depth,\n")
BOX = """class Box:
    def __init__(self, width, height):
        self.width = width
        self.height = 1

    def to_dict(self):
        return {
            "width": self.width,
            "height": self.height,
        }
"""
ENUM = "enum Shape {\n  Circle,\n  Square,\n}\n"
MORE_SHAPES = ENUM.replace("  Square,\n", "  Square,\n  Oval,\n")
SWITCH = """function name(shape: Shape) {
  switch (shape) {
    case Shape.Circle:
      // round
      return 'circle';
    case Shape.Square:
      // round
      return 'square';
    default:
      return '';
  }
}
"""
ARM = "    case Shape.Oval:\n      // round\n      return 'oval';\n"
IMPORTED = "from shapes import (\n    Box,\n    Circle,\n)\n\n__all__ = [\n    'Box',\n    'Circle'\n]\n"
MORE_IMPORTED = IMPORTED.replace("    Circle,\n", "    Circle,\n    Oval,\n")

OFFERED = [
    ("python", CALL, DRAW, DRAWN, PASSED),
    (
        "typescript",
        ENUM + SWITCH,
        MORE_SHAPES + SWITCH,
        MORE_SHAPES + SWITCH.replace("    default", f"{ARM}    default"),
        CASE,
    ),
    ("python", IMPORTED, MORE_IMPORTED, MORE_IMPORTED.replace("    'Circle'\n", "    'Circle',\n    'Oval'\n"), LISTED),
]
COLOURS = """class Color(Enum):
    RED = 1
    GREEN = 2


class Palette:
    def shade(self, color):
        match color:
            case Color.RED:
                return self.red
            case Color.GREEN:
                return self.green
"""
OTHER_FORM = SWITCH.replace("return 'square'", "return square(4)")
SILENT = {
    "a variable that the call does not see": (
        "python",
        "def paint(width, height):\n    pass\n\n\n" + CALL,
        "def paint(width, height, depth):\n    pass\n\n\n" + CALL,
    ),
    "a call that has it already": ("python", DRAWN.replace(", depth)", ")"), DRAWN),
    "a call with other values": (
        "python",
        CALL.replace("=width", "=1").replace("=height", "=2"),
        DRAW.replace("=width", "=1").replace("=height", "=2"),
    ),
    "a call with one sibling": (
        "python",
        CALL.replace("        width=width,\n", ""),
        DRAW.replace("        width=width,\n", ""),
    ),
    "a call with all arguments unpacked": (
        "python",
        "def draw(width, height):\n    paint(*width, **height)\n",
        "def draw(width, height, depth):\n    paint(*width, **height)\n",
    ),
    "a definition with an error": ("python", CALL, DRAW.replace("depth):", "depth = :")),
    "a field, whose siblings are compared": (
        "python",
        BOX,
        BOX.replace("height = 1\n", "height = 1\n        self.depth = 1\n"),
    ),
    "an arm with a field of its own": (
        "python",
        COLOURS,
        COLOURS.replace("    GREEN = 2\n", "    GREEN = 2\n    BLUE = 3\n"),
    ),
    "arms of two forms": ("typescript", ENUM + OTHER_FORM, MORE_SHAPES + OTHER_FORM),
    "an enum with an error": ("typescript", ENUM + SWITCH, MORE_SHAPES.replace("Oval,", "Oval = = ,(") + SWITCH),
    "a name of more words in another spelling": (
        "typescript",
        ENUM + SWITCH,
        MORE_SHAPES.replace("Oval", "FlatOval") + SWITCH,
    ),
    "a string in prose": (
        "python",
        IMPORTED.replace("'Circle'", "'Circle is round'"),
        MORE_IMPORTED.replace("'Circle'", "'Circle is round'"),
    ),
}


@pytest.mark.parametrize(
    ("language", "before", "edited", "expected", "kind"), OFFERED, ids=[row[4] + row[0] for row in OFFERED]
)
def test_the_item_is_written_beside_its_siblings_and_then_nothing(
    language: str, before: str, edited: str, expected: str, kind: str
):
    assert offered(language, before, edited) == (kind, expected)
    assert offered(language, before, edited, expected) is None


@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["lf", "crlf"])
@pytest.mark.parametrize("name", SILENT)
def test_nothing_is_offered_for(name: str, ending: str):
    language, before, edited = SILENT[name]
    assert offered(language, before.replace("\n", ending), edited.replace("\n", ending)) is None


def test_nothing_is_offered_while_the_name_is_typed():
    assert offered("python", CALL, DRAW, cursor=(0, len("def draw(width, height, depth"))) is None


@pytest.mark.parametrize(
    ("language", "before", "edited", "_", "kind"), OFFERED, ids=[row[4] + row[0] for row in OFFERED]
)
def test_the_kind_is_the_same_with_crlf(language: str, before: str, edited: str, _: str, kind: str):
    answer = offered(language, before.replace("\n", "\r\n"), edited.replace("\n", "\r\n"))
    assert answer is not None and answer[0] == kind


NAMES = st.lists(st.sampled_from(["red", "dark", "box", "line", "width"]), min_size=1, max_size=3).map("_".join)
PIECES = st.lists(st.sampled_from(["\0", " ", ": ", "self.", "(", '"', ", ", "other"]), min_size=1, max_size=8)


@given(name=NAMES, pieces=PIECES, spelling=st.integers(0, 6))
def test_a_form_is_written_as_it_was_read(name: str, pieces: list[str], spelling: int):
    text = "".join(pieces).replace("\0", f" {spellings(name)[spelling]} ")
    form = form_of(text, name)
    assert (form is None) == ("\0" not in pieces)
    assert form is None or item_of(form, name) == text
