"""Tasks of `python -m benchmarks edits`: two releases' differences as edits, with one place left to write."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.quality import edits, variants
from benchmarks.quality.tasks.packages import Archive, Package
from speclsp.config import Config
from speclsp.lsp.context.chunk import ChunkPlace

OLD = {
    "pkg/shop.py": "".join(f"def price_{n}(item):\n    return item.cost * {n}\n\n\n" for n in range(12)),
    "pkg/till.py": "from pkg.shop import price_1\n\n\ndef total(items):\n    return sum(map(price_1, items))\n",
    "pkg/same.py": "SAME = True\n",
}
NEW = {
    **OLD,
    "pkg/shop.py": OLD["pkg/shop.py"]
    .replace("item.cost * 3", "item.price(3)")
    .replace("item.cost * 9", "item.price(9)"),
    "pkg/till.py": OLD["pkg/till.py"].replace("    return", "    assert items, 'nothing to sum'\n    return"),
    "pkg/_version.py": "version = 2\n",
}


def package(folder: Path, old: dict[str, str], new: dict[str, str]) -> Package:
    for name, texts in ("old", old), ("new", new):
        for path, text in texts.items():
            (folder / name / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / name / path).write_text(text, encoding="utf-8")
    archive = Archive(ecosystem="npm", name="shop", version="2", file="shop-2.tgz", bytes=1, sha256="")
    return Package(
        archive=archive, before=archive, root=folder / "new", before_root=folder / "old", released="", first_release="",
        licence="MIT", folders=(), cursors=(), skip=(), languages=("python",),
    )  # fmt: skip


@pytest.fixture
def shop(tmp_path: Path) -> Package:
    return package(tmp_path, OLD, NEW)


def test_a_task_has_its_cursor_at_a_change_and_the_rest_of_the_line_as_its_truth(shop: Package):
    found = {(task.place.path, task.place.text[: task.place.cursor].rpartition("\n")[2], task.place.truth)
             for task in edits.tasks(shop)}  # fmt: skip
    assert found == {
        ("pkg/shop.py", "    return item.", "price(3)"),
        ("pkg/shop.py", "    return item.", "price(9)"),
        ("pkg/till.py", "    ", "assert items, 'nothing to sum'"),
    }


def test_the_other_changes_of_the_release_are_the_recent_edits(shop: Package):
    (task,) = (one for one in edits.tasks(shop) if one.place.truth == "price(9)")
    place = ChunkPlace((task.place.root / task.place.path).as_uri(), task.place.path, None, "python", "", "")
    shown = [(chunk.path, chunk.text) for chunk in edits.played(task, task.place.root).candidates(place)]
    assert shown == [
        ("pkg/till.py", "+    assert items, 'nothing to sum'\n"),
        ("pkg/shop.py", "-    return item.cost * 3\n+    return item.price(3)\n"),
    ]
    assert not any("price(9)" in text for _, text in shown), "that is the answer"


def test_the_same_releases_make_the_same_tasks(shop: Package):
    assert edits.tasks(shop) == edits.tasks(shop)


lines = st.lists(st.sampled_from(["alpha = 1", "beta(2)", "    gamma.delta", "", "return epsilon"]), max_size=12)
texts = lines.map(lambda listed: "".join(line + "\n" for line in listed))


@settings(deadline=None, max_examples=60)
@given(texts, texts)
def test_applying_all_hunks_gives_the_newer_text(old: str, new: str) -> None:
    assert edits.made_of(old, edits.hunks(old, new)) == new


@settings(deadline=None, max_examples=60)
@given(texts, texts, st.randoms())
def test_hunks_applied_as_single_edits_give_the_newer_text(old: str, new: str, dice) -> None:
    found = edits.hunks(old, new)
    dice.shuffle(found)
    text, done = old, {}
    for hunk in found:
        step = edits.step("a.py", hunk, hunk.lines, done)
        listed = text.split("\n")
        listed[step.first : step.end] = step.text.split("\n")[:-1]
        text = "\n".join(listed)
        done[hunk.start] = hunk
    assert text == new


def test_every_default_variant_exists() -> None:
    names = [task.name for task in variants.chosen(edits.USUAL, Config().context.sources)]
    assert names == [variants.BASE, *edits.USUAL.split(",")]
