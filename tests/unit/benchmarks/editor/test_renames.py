"""Renames made by program: the ground truth of each kind, new names, states, and the counts."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.rows import rows

from benchmarks.editor.edit_replay import rename_cases, rename_states
from benchmarks.editor.edit_replay.rename_cases import Case, File
from benchmarks.editor.edit_replay.rename_states import RenameCount
from benchmarks.editor.edit_replay.rename_truth import field_rules, python_truth, typescript_truth
from benchmarks.editor.edit_replay.rename_truth.definition import MEMBER, Definition, Use
from benchmarks.editor.edit_replay.rename_truth.new_names import new_name
from speclsp.errors import SpeclspError
from speclsp.lsp.documents.document import Document
from speclsp.lsp.next_edit.producer import Proposal

ROWS = rows(__file__)


def marked(text: str) -> tuple[str, dict[str, list[int]]]:
    """The text without its marks, and their offsets: `<d>` definition, `<u>` use, `<t>` documentation, `<o>` other."""
    places: dict[str, list[int]] = {mark: [] for mark in "duto"}
    plain = ""
    for piece in re.split(r"(<[duto]>)", text):
        if re.fullmatch(r"<[duto]>", piece):
            places[piece[1]].append(len(plain))
        else:
            plain += piece
    return plain, places


def check(text: str, kind: str, name: str, truth: Callable[[str], list[Definition]]) -> Definition:
    """The definition at `<d>`; fails unless its places are the marked ones."""
    plain, places = marked(text)
    (match,) = [item for item in truth(plain) if (item.kind, item.name, item.start) == (kind, name, places["d"][0])]
    assert [use.start for use in match.uses] == places["u"]
    assert list(match.documented) == places["t"]
    if places["o"]:
        assert list(match.others) == places["o"]
    return match


PYTHON = ROWS["python"]
NAMES = ROWS["names"]


@pytest.mark.parametrize("kind", PYTHON)
def test_python_uses_are_those_of_symtable_and_ast(kind: str):
    check(PYTHON[kind], kind, NAMES[kind], python_truth.definitions)


@pytest.mark.parametrize(("text", "left_out"), ROWS["a_python_name_with_an_uncertain_use_is_left_out"])
def test_a_python_name_with_an_uncertain_use_is_left_out(text: str, left_out: list[str]):
    names = {(definition.kind, definition.name) for definition in python_truth.definitions(text)}
    assert tuple(left_out) not in names


@pytest.mark.parametrize("language", ROWS["rules"])
def test_fields_of_a_struct_are_used_in_its_literals_and_behind_its_objects(language: str):
    check(ROWS["rules"][language], MEMBER, "width", lambda plain: field_rules.definitions(plain, language))


def test_typescript_uses_are_the_compiler_s_rename_locations(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    everywhere = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[3] / "conftest.py"))
    everywhere.use_users_cache(monkeypatch)  # type: ignore[union-attr]
    try:
        typescript_truth.compiler()
    except SpeclspError as error:
        pytest.skip(str(error))
    text = (
        "/** @param <t>width of it */\nexport function area(<d>width: number) {\n  const box = { <u>width };\n"
        "  return box.width * <u>width;\n}\nfunction other(<o>width: number) { return width; }\n"
    )
    definition = check(text, "parameter", "width", lambda plain: typescript_truth.definitions({"a.ts": plain})["a.ts"])
    assert definition.uses[0].prefix == "width: "
    text = "interface Box { width: number }\nfunction f({ width }: Box, a: Bag) { return width * a.width; }\n"
    answer = typescript_truth.definitions({"a.ts": text + "interface Bag { width: number }\n"})["a.ts"]
    member = next(definition for definition in answer if definition.kind == MEMBER)
    assert (member.kind, member.uses[0].suffix, len(member.uses[0].bound)) == (MEMBER, ": width", 1)


@pytest.mark.parametrize("old", ["width", "box_width", "boxWidth", "BoxWidth", "BOX_WIDTH", "_width", "n", "__m"])
def test_a_new_name_is_of_the_old_one_s_style_and_nowhere_in_the_file(old: str):
    new = new_name(old, f"{old} = amount", 1)
    assert new != old and new != "amount" and new.isidentifier()
    assert old.isupper() == new.isupper() or len(old) == 1
    assert old.startswith("_") == new.startswith("_") and old[0].isupper() == new[0].isupper()
    assert new_name(old, f"{old} = amount", 1) == new


# ── states ────────────────────────────────────────────────────────────────────────────────────────────────────────────

TEXT = """def area(<d>width):
    first = <u>width
    second = <u>width
    return <u>width

def other(<o>width):
    return width
"""


def case() -> Case:
    plain, places = marked(TEXT)
    definition = Definition.of("parameter", "width", places["d"][0], map(Use, places["u"]), (), places["o"])
    return Case(File("a package", "app.py", "python", plain), definition, "breadth")


class Scripted:
    """A producer that renames one old name in each edit: those of the function, or every one."""

    def __init__(self, is_greedy: bool = False) -> None:
        self.is_greedy = is_greedy

    def propose(self, document: Document, activity: object, cursor: int, declined: object) -> Proposal | None:
        text = document.text
        end = len(text) if self.is_greedy else text.index("def other")
        at = text.find("width", text.index("\n"), end)
        place = SimpleNamespace(substitution=SimpleNamespace(kind="rename"))
        return None if at < 0 else Proposal(at, at + 5, "breadth", place)  # type: ignore[arg-type]


def replayed(producer: object) -> tuple[RenameCount, list[rename_states.Example]]:
    count = RenameCount()
    return count, list(rename_states.replay(case(), producer, count))  # type: ignore[arg-type]


def test_a_walk_that_offers_every_use_is_finished_and_then_quiet():
    count, examples = replayed(Scripted())
    assert (count.uses, count.uses_offered, count.offers, count.right) == (3, 3, 3, 3)
    assert count.walks_finished == 1
    assert (count.left, count.left_offered, count.left_right) == (3, 3, 3)
    assert (count.quiet_states, count.quiet) == (2, 2)
    assert examples == []


def test_an_edit_of_another_function_s_variable_is_wrong():
    count, examples = replayed(Scripted(is_greedy=True))
    assert (count.uses_offered, count.offers, count.right) == (3, 4, 3)
    assert count.quiet == 0
    assert {(example.state, example.verdict) for example in examples} == {("first", "wrong"), ("quiet", "wrong")}
    assert count.figures()["precision"] == round(6 / 7, 3)


def test_an_edit_is_right_only_if_it_changes_nothing_else():
    file = rename_states.RenamedFile(case(), Scripted(), RenameCount())  # type: ignore[arg-type]
    file.rename(file.definition)
    text, uses = file.document.text, case().definition.uses
    line = text.index("    first"), text.index("    return width\n\n")

    def proposal(new: str) -> Proposal:
        return Proposal(*line, new, SimpleNamespace(substitution=SimpleNamespace(kind="lines")))  # type: ignore[arg-type]

    old = text[slice(*line)]
    assert file.places_of(proposal(old.replace("width", "breadth"))) == uses[:2]
    assert file.places_of(proposal(old.replace("width", "breadth", 1))) == uses[:1]
    assert file.places_of(proposal(old.replace("width", "breadth").replace("first", "one"))) == ()
    assert file.places_of(proposal(old)) == ()


def test_a_package_of_one_part_is_in_no_other():
    held_out, tuning = (
        {package.name for package in rename_cases.packages(part)}
        for part in (rename_cases.HELD_OUT, rename_cases.TUNING)
    )
    assert held_out and tuning and not held_out & tuning
    assert "svelte" in held_out and "textual" in tuning
    assert "wandb" in held_out and "JPype1" not in held_out, "no ground truth of its language"
