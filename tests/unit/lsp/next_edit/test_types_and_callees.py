"""Types and callees that were replaced: the next edit that each edit offers, silences, and placeholders on the wire."""

from __future__ import annotations

import pytest
from support.lsp.edited_document import EditDesk

from benchmarks.editor.edit_replay.replayed_file import replace
from benchmarks.quality import edits
from speclsp.lsp.documents.document import Documents
from speclsp.lsp.next_edit import wire
from speclsp.lsp.next_edit.changes.callees import CALLEE
from speclsp.lsp.next_edit.changes.calls.arguments import ARGUMENT
from speclsp.lsp.next_edit.changes.replaced_types import TYPE
from speclsp.lsp.next_edit.changes.substitutions import Evidence, Place, Substitution
from speclsp.lsp.next_edit.offers import Offers
from speclsp.lsp.next_edit.producer import Found, minimal
from speclsp.lsp.reasons import Reason

URI = "file:///project/app"


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


LIST_PARAMETERS = "def load(a: List[int]) -> List[str]:\n    return str(a)\n"
LISTS = LIST_PARAMETERS.replace("List", "list")
LIST_LATER = "\n\ndef store(b: List[bytes]) -> None:\n    keep(b)\n"
OPTIONAL = "def load(a: Optional[int]) -> Optional[str]:\n    return a\n"
NO_OPTIONAL = "def load(a: int | None) -> str | None:\n    return a\n"

OFFERED = [
    ("python", LIST_PARAMETERS + LIST_LATER, ("List", "list", 2), TYPE),
    ("typescript", "let a: Item[], b: Item;\nlet c: Item;\n", ("Item", "Product", 2), TYPE),
    ("rust", "fn load(a: Rc<u8>) -> Rc<u8> { a }\nfn store(b: Rc<i8>) {}\n", ("Rc", "Arc", 2), TYPE),
    ("python", "from tools import warn\r\n" + "print(1)\r\n" * 2, ("print(", "warn(", 1), CALLEE),
    ("python", "def f(a):\r\n    b = 1\r\n    g(f(a))\r\n", ("f(a", "f(a, b", 1), ARGUMENT),
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


def test_a_placeholder_is_a_range_of_the_document_after_the_edit():
    document, new = Documents().open(URI, "python", 1, "a\nb\nf(𐐀)\n"), "f(\n 𐐀, size)"
    place = Place(4, 8, new, Substitution(CALLEE, "", "size"), Evidence(1), (7, 11))
    for placeholders, reason in ((False, Reason.UNKNOWN_ARGUMENT), (True, "")):
        assert Offers(lambda outcome: None, placeholders).declined(document, 0, place) == reason
    offer = Offers(lambda outcome: None).add(Found(document, minimal(place, document.text)))
    for encoding, column in (("utf-16", 5), ("utf-8", 7)):
        (edit,) = wire.answer(document, offer, 0, encoding)["edits"]
        ends = [{"line": 3, "character": column + more} for more in (0, 4)]
        assert edit["placeholder"] == dict(zip(("start", "end"), ends, strict=True))
