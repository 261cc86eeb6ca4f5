"""Laws of renames by scope: after one edit the uses of the renamed definition are offered, and nothing else is.

A text has one edit, <old|new>. Uses that are offered for it have the mark ¹.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.lsp.edited_document import EditDesk
from support.source_tree import ROOT

from speclsp.lsp.next_edit.producer import Proposal
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import bindings
from speclsp.lsp.syntax.grammars import grammar
from speclsp.lsp.syntax.languages import LANGUAGES
from speclsp.lsp.syntax.tree import load_query

URI = "file:///project/app"
EDIT, MARK = re.compile(r"<(\w+)\|(\w+)>"), re.compile("¹")


class Desk(EditDesk):
    """A document with one edit, and the cursor `behind` characters after the start of the new name."""

    def __init__(self, marked: str, language: str, behind: int | None = None) -> None:
        text = MARK.sub("", marked)
        edit = EDIT.search(text)
        assert edit is not None
        self.old, self.new = edit.groups()
        super().__init__(EDIT.sub(self.old, text), language, URI)
        self.replace(edit.start(), edit.start() + len(self.old), self.new)
        if behind is not None:
            self.cursor = edit.start() + behind

    def walk(self) -> list[str]:
        """The lines that are changed by accepting edit after edit, and the reason for the end."""
        lines = list[str]()
        while isinstance(proposal := self.propose(), Proposal) and len(lines) < 20:
            self.replace(proposal.start, proposal.end, proposal.text)
            at = self.document.text.rfind("\n", 0, self.cursor) + 1
            lines.append(self.document.text[at:].split("\n")[0].strip())
        return [*lines, proposal if isinstance(proposal, str) else "no end"]


@pytest.mark.parametrize(
    ("marked", "reason"),
    [
        ("def first(a): return a\n\ndef <first|second>(a): return a\n\nfirst(1)\n", Reason.STILL_DEFINED),
        ("def <first|second>(a): return a\n\ndef first(a): return a\n\nfirst(1)\n", Reason.STILL_DEFINED),
        ("data = load()\n<data|parsed> = parse(data)\nprint(data)\n", Reason.STILL_DEFINED),
        ("one = 1\ntwo = 2\nprint(<one|two>)\nprint(one)\n", Reason.NO_REPEAT),
        ("from lib import one, two\n\nprint(<one|three>)\nprint(one)\n", Reason.NO_REPEAT),
        ("print(<first|second>)\nprint(first)\n", Reason.UNRESOLVED),
        ("# <first|second>\nfirst = 1\nprint(first)\n", Reason.NO_REPEAT),
        ("key = {'a': 1}\ncall(<key|name>=1)\nprint(key)\n", Reason.NO_REPEAT),
    ],
)
def test_without_a_renamed_definition_nothing_is_offered_and_the_reason_is_stated(marked: str, reason: Reason):
    desk = Desk(marked, "python")
    assert desk.walk() == [reason]
    assert {row.kind for row in desk.producer.not_offered} == {"rename"}


def test_the_definition_is_offered_first_where_a_use_alone_got_a_name_like_it():
    desk = Desk("def run(width):\n    total = <width|box_width> + 1\n    return width\n", "python")
    assert desk.walk() == ["def run(box_width):", "return box_width", Reason.NO_REPEAT]


@pytest.mark.parametrize(("behind", "offered"), [(0, True), (1, False), (4, False), (6, True), (7, True)])
def test_nothing_is_offered_while_the_cursor_is_inside_of_the_new_name(behind: int, offered: bool):
    desk = Desk("def run(<width|breadth>):\n    return width\n", "python", behind)
    assert isinstance(desk.propose(), Proposal) == offered


def test_a_walk_of_many_places_goes_on_when_the_definition_s_own_edit_is_forgotten():
    uses = "".join(f"    step_{number}(width)\n" + "    pass\n" * 20 for number in range(12))
    assert len(Desk(f"def run(<width|breadth>):\n{uses}", "python").walk()) == 13


# Of each language: `=== NAME`, and a text with one edit. Each use that the walk must rename has the mark ¹.
SAMPLES = dict(
    re.findall(
        r"(?ms)^=== (\w+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_name("renamed_samples.txt").read_text("utf-8")
    )
)


@pytest.mark.parametrize("language", SAMPLES)
def test_uses_in_placeholders_of_strings_are_renamed_and_other_text_stays(language: str):
    desk = Desk(SAMPLES[language], language)
    assert desk.walk()[-1] == Reason.NO_REPEAT
    assert desk.document.text == re.sub(r"<\w+\|(\w+)>|\w+¹", lambda match: match[1] or desk.new, SAMPLES[language])


def test_the_documentation_lists_the_languages_with_renames_and_each_has_a_sample():
    page = (ROOT / "docs/next-edit.md").read_text("utf-8")
    listed = re.search(r"Renames by scope work in ([^.]+)\.", page)
    assert listed is not None
    assert {grammar(name) for name in re.split(r", | and ", listed[1])} == set(SAMPLES)
    assert set(SAMPLES) == {language.name for language in LANGUAGES if load_query(language.name, bindings.SECTION)}
