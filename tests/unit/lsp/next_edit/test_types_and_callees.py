"""Types and callees that were replaced: a table of edits and the next edit that each offers, and its silences."""

from __future__ import annotations

import pytest
from support.lsp.edited_document import EditDesk

from benchmarks.editor.edit_replay.replayed_file import replace
from benchmarks.quality import edits
from speclsp.lsp.next_edit.changes.callees import CALLEE
from speclsp.lsp.next_edit.changes.replaced_types import TYPE

URI = "file:///work/app"


def offered(language: str, before: str, *versions: str) -> tuple[str, str] | None:
    """(kind, text after the next edit) below the last changed line, after the user has made each of the versions."""
    desk, line = EditDesk(before, language, URI), 0
    for version in versions:
        for hunk in reversed(edits.hunks(desk.document.text, version)):
            replace(desk.document, hunk.start, hunk.end, hunk.lines)
            line = max(line, hunk.start + len(hunk.lines))
    desk.cursor = desk.offset(line)
    proposal = desk.propose()
    return None if isinstance(proposal, str) else (proposal.kind, desk.applied(proposal))


WARNING = 'from tools import warn\n\nprint("a")\n'
WARN = WARNING.replace("print", "warn")
LIST_PARAMETERS = "def load(a: List[int]) -> List[str]:\n    return str(a)\n"
LISTS = LIST_PARAMETERS.replace("List", "list")
LIST_LATER = "\n\ndef store(b: List[bytes]) -> None:\n    keep(b)\n"
OPTIONAL = "def load(a: Optional[int]) -> Optional[str]:\n    return a\n"
NO_OPTIONAL = "def load(a: int | None) -> str | None:\n    return a\n"

OFFERED = [
    ("python", LIST_PARAMETERS + LIST_LATER, ("List", "list", 2), TYPE),
    ("typescript", "let a: Item[], b: Item;\nlet c: Item;\n", ("Item", "Product", 2), TYPE),
    ("rust", "fn load(a: Rc<u8>) -> Rc<u8> { a }\nfn store(b: Rc<i8>) {}\n", ("Rc", "Arc", 2), TYPE),
    ("python", WARNING + 'old(1)\nprint("b", 2)\n', ("print(", "warn(", 1), CALLEE),
    ("python", "import redos\n\n" + "a = compile_it(b)\n" * 2, ("compile_it(", "redos.compile(", 1), CALLEE),
    ("python", "from a import (\n    warn,\n)\n\nprint(1)\nprint(2)\n", ("print(", "warn(", 1), CALLEE),
    ("typescript", "function show(a) {}\nlog(1);\nlog(2, 3);\n", ("log(", "show(", 1), CALLEE),
    ("java", "class A {\n  Item copy(Item a) { return a; }\n  Item last;\n}\n", ("Item", "Product", 2), TYPE),
]


def edited(text: str, change: tuple[str, str, int], more: int = 0) -> str:
    """The text with its first occurrences replaced."""
    old, new, count = change
    return text.replace(old, new, count + more)


@pytest.mark.parametrize(("language", "before", "change", "kind"), OFFERED)
def test_the_next_place_of_a_change_is_offered(language: str, before: str, change: tuple[str, str, int], kind: str):
    assert offered(language, before, edited(before, change)) == (kind, edited(before, change, more=1))


def test_an_optional_type_is_offered_with_the_union_in_its_line():
    later = "\n\ndef store(b: Optional[dict[str, int]], c: Union[int, None]) -> None:\n    keep(b)\n"
    new = later.replace("Optional[dict[str, int]]", "dict[str, int] | None").replace("Union[int, None]", "int | None")
    assert offered("python", OPTIONAL + later, NO_OPTIONAL + later) == (TYPE, NO_OPTIONAL + new)


SILENT = {
    "callee: a comment": ("python", WARNING + "# print(1)\n", [WARN + "# print(1)\n"]),
    "callee: undone": ("python", WARNING + "print(1)\n", [WARN + "print(1)\n", WARNING + "print(1)\n"]),
    "callee: the new one is unknown": ("python", "print(1)\nprint(2)\n", ["warn(1)\nprint(2)\n"]),
    "callee: the old one is defined": (
        "python",
        "from tools import warn, note\n\nnote(1)\nnote(2)\n",
        ["from tools import warn, note\n\nwarn(1)\nnote(2)\n"],
    ),
    "callee: a method": ("python", WARNING + "a.print(1)\n", [WARN + "a.print(1)\n"]),
    "callee: another call": ("python", WARNING + "show(1)\n", [WARN + "show(1)\n"]),
    "type: once": ("python", "a: List[int] = f()\nb: List[int] = g()\n", ["a: list[int] = f()\nb: List[int] = g()\n"]),
    "type: no annotation": ("python", LIST_PARAMETERS + "b = List[int]\n", [LISTS + "b = List[int]\n"]),
    "type: a comment": ("python", LIST_PARAMETERS + "# b: List[int]\n", [LISTS + "# b: List[int]\n"]),
    "type: undone": ("python", LIST_PARAMETERS + LIST_LATER, [LISTS + LIST_LATER, LIST_PARAMETERS + LIST_LATER],
   ),
    "type: quoted": ("python", OPTIONAL + 'b: Optional["Node"]\n', [NO_OPTIONAL + 'b: Optional["Node"]\n']),
    "type: a primitive": (
        "typescript",
        "let a: number, b: number;\nlet c: number;\n",
        ["let a: bigint, b: bigint;\nlet c: number;\n"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("language", "before", "versions"), SILENT.values(), ids=SILENT)
def test_nothing_is_offered(language: str, before: str, versions: list[str]):
    assert offered(language, before, *versions) is None


def test_a_place_that_was_passed_means_that_a_type_is_no_rule():
    lines = [f"def f_{n}(a: Item, b: Item): ...\n" for n in range(4)]
    changed = [line.replace("Item", "Product") for line in lines]
    spread = "".join(line + "x = 1\n" * 8 for line in lines)
    first = spread.replace(lines[0], changed[0])
    assert offered("python", spread, first) == (TYPE, first.replace(lines[1], changed[1]))
    assert offered("python", spread, first, first.replace(lines[2], changed[2])) is None


def test_windows_line_ends_stay():
    before, after = ("from tools import warn\r\n" + call * 2 for call in ("print(1)\r\n", "warn(1)\r\n"))
    assert offered("python", before, before.replace("print", "warn", 1)) == (CALLEE, after)
