"""Tasks of `python -m benchmarks quality`: the truth restores the file, and labels and sampling are correct."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.quality.tasks import tasks as cursors
from benchmarks.quality.tasks.code_only import mask
from benchmarks.quality.tasks.cross_file_names import Names, SourceFile
from benchmarks.quality.tasks.packages import Archive, Package
from benchmarks.quality.tasks.tasks import Task

MODULE = '''"""Module {n} of a shop."""

import json

from shop.base import Basket{other}, ship_{other}_home


class Basket{n}(Basket{other}):
    """What somebody wants of {n}."""

    limit_of_{n}: int = {n}

    def add_{n}(self, item, amount=1):
        """Put it in.

        Prose that nobody completes.
        """
        total_amount = self.limit_of_{other} + amount * len(item)
        # The limit is a hard one, whatever the shop says
        if total_amount > self.limit_of_{n}:
            raise ValueError(json.dumps({{"limit": total_amount}}))
        self.items[item.label] = ship_{other}_home(item, total_amount)
        return total_amount + self.limit_of_{n}

    def empty_{n}(self):
        for item in list(self.items):
            removed_item = self.items.pop(item, None)
            print("removed {n}", removed_item)


def ship_{n}_home(item, amount):
    address = item.address_of_owner
    return [address, amount, Basket{other}(item, amount)]
'''
SCRIPT = """import {{ Basket{other}, shipHome{other} }} from './module{other}'

export interface Order{n} {{
  orderedAt{n}: Date
}}

export class Basket{n} extends Basket{other} {{
  private boxes{n}: string[] = []

  // Whoever comes first is packed first
  pack{n}(order: Order{n}): string {{
    if (order.orderedAt{n} > this.orderedLast) {{
      const packed = this.boxes{n}.map((box) => shipHome{other}(box, order))
      return packed.join(`,${{order}}`)
    }} else {{
      this.boxes{n}.push(order.toString())
    }}
    return this.boxes{n}.join(', ')
  }}
}}

export function shipHome{n}(box: string, order: Order{n}): string {{
  const wrapped = [box, order.orderedAt{n}, Basket{other}.name]
  return wrapped.join('-')
}}

export const anybody{n} = (order: Order{n}): boolean => {{
  const somebody = order.orderedAt{n}
  return Boolean(somebody)
}}
"""


def package(root: Path, language: str = "python", files: int = 12) -> Package:
    """A made-up package of files that import one another."""
    folder, template, suffix = ("shop", MODULE, "py") if language == "python" else ("src", SCRIPT, "ts")
    (root / folder).mkdir(parents=True)
    (root / folder / "__init__.py").write_text("")
    for n in range(files):
        (root / folder / f"module{n}.{suffix}").write_text(template.format(n=n, other=(n + 1) % files))
    archive = Archive(ecosystem="npm", name=f"shop-{language}", version="1", file="shop.tgz", bytes=1, sha256="0" * 64)
    return Package(
        archive=archive, released="2026-01-01", first_release="", licence="MIT", folders=(), cursors=(), skip=(),
        languages=(language,), before=None, root=root, before_root=None,
    )  # fmt: skip


@pytest.fixture(scope="module")
def shops(tmp_path_factory: pytest.TempPathFactory) -> list[Package]:
    folder = tmp_path_factory.mktemp("shops")
    return [package(folder / language, language) for language in ("python", "typescript")]


@pytest.fixture(scope="module")
def made(shops: list[Package]) -> list[Task]:
    return cursors.make(shops)


def original(task: Task) -> str:
    return (task.root / task.path).read_text()


def test_inserting_the_truth_restores_the_original_file(made: list[Task]) -> None:
    for task in made:
        above, below = task.text[: task.cursor], task.text[task.cursor :]
        whole = original(task)
        assert whole.startswith(above + task.truth + "\n")
        if task.below == "kept":
            assert above + task.truth + below == whole
        else:
            kept = below.strip("\n").split("\n")
            rest = whole[len(above) + len(task.truth) :].split("\n")
            assert len(below) < len(whole) - len(above) - len(task.truth)
            assert all(line in rest or set(line.strip()) <= set(")}],;") for line in kept), "nothing is made up"


def test_a_truth_has_words_and_is_no_import_and_no_prose(made: list[Task]) -> None:
    for task in made:
        first = task.truth.split("\n")[0]
        assert 4 <= len(first) <= 120 and re.search(r"[A-Za-z_]{3}", first)
        assert not first.startswith(("import ", "from ")) and "Prose" not in task.truth


def test_a_name_that_crosses_files_is_defined_in_another_file_and_not_in_this_one(made: list[Task]) -> None:
    for task in made:
        for name in task.crosses:
            defines = re.compile(
                rf"(?:\b(?:class|def|function|interface)\s+|\bprivate |^\s+){name}\b\s*[(:{{]"
                rf"|(?:class|interface) {name}\b",
                re.M,
            )
            others = [path for path in task.root.rglob("module*") if path != task.root / task.path]
            assert any(defines.search(path.read_text()) for path in others), name
            assert not defines.search(original(task)), name
            line = original(task)[task.cursor - 40 if task.cursor > 40 else 0 :].split("\n")
            assert any(name in part for part in line)
        words = set(re.findall(r"\w+", task.text))
        assert task.seen == (set(task.crosses) <= words)


def test_names_of_the_standard_library_and_of_this_file_never_cross(tmp_path: Path) -> None:
    files = [
        SourceFile(
            "a.py",
            "python",
            "def dumps_all(x):\n    return x\n\nclass Box:\n    def weigh_it(self): ...\n",
            frozenset("s"),
        ),
        SourceFile(
            "b.py",
            "python",
            "import json\nfrom s.a import Box\nimport scales\n\n\ndef here_it_is():\n"
            "    y = json.dumps_all(Box().weigh_it())\n    z = scales.weigh_it(here_it_is, y.append('dumps_all'))\n",
            frozenset("s"),
        ),
    ]
    names = Names(files)
    assert names.crossing(files[1], 6, 0) == ("weigh_it",), "json is another's; Box is too short to tell"
    assert names.crossing(files[1], 7, 0) == ()


def test_the_same_packages_give_the_same_tasks(shops: list[Package], made: list[Task]) -> None:
    assert cursors.make(shops) == made
    random.seed(1)
    assert cursors.tasks(shops) == made == cursors.tasks(shops), "kept on disk, and read from there"
    assert cursors.digest(made) == cursors.digest(cursors.tasks(shops))
    assert cursors.digest(made[1:]) != cursors.digest(made)


def test_duplicate_code_gives_one_task(tmp_path: Path) -> None:
    shop = package(tmp_path / "one", files=2)
    text = (shop.root / "shop/module0.py").read_text()
    for n in range(20):
        (shop.root / "shop" / f"copy{n}.py").write_text(text + f"\n# copy {n} of it\n")
    tasks = cursors.make([shop])
    surroundings = [(task.truth, task.text[max(0, task.cursor - 60) : task.cursor]) for task in tasks]
    assert len(set(surroundings)) == len(tasks)


def test_generated_vendored_and_minified_files_are_not_read(tmp_path: Path) -> None:
    shop = package(tmp_path / "shop", files=2)
    text = (shop.root / "shop/module0.py").read_text()
    out = ["_vendor/a.py", "shop/a_pb2.py", "third_party/b.py", "shop/made.py", "shop/wide.py", "shop/taken/c.py"]
    for number, inside in enumerate(out):
        (shop.root / inside).parent.mkdir(exist_ok=True)
        head = "# Code generated by a program. DO NOT EDIT.\n" if "made" in inside else f"# file {number}\n"
        (shop.root / inside).write_text(head + text + ("x = 1" + " + 1" * 300 if "wide" in inside else ""))
    read = {file.path for file in cursors.read(replace(shop, skip=("taken/",)))}
    assert read == {"shop/__init__.py", "shop/module0.py", "shop/module1.py"}


def test_a_line_of_an_older_version_is_no_task(tmp_path: Path) -> None:
    shop = package(tmp_path / "new")
    old = package(tmp_path / "old")
    shop = replace(shop, before_root=old.root)
    assert cursors.make([shop]) == []
    (shop.root / "shop/module3.py").write_text(MODULE.format(n=3, other=4).replace("total_amount", "whole_amount"))
    tasks = cursors.make([shop])
    assert tasks and all(
        "whole_amount" in original(task).split("\n")[task.text[: task.cursor].count("\n")] for task in tasks
    )


@pytest.mark.parametrize(
    ("language", "code", "left"),
    [
        ("python", "a = 'b' # c", "a = '·'    "),
        ("python", 'f("""x\ny""")', 'f("··' + "·\n·" + '··")'),
        ("typescript", "a = /['\"]/ + `b${c}`", "a = /····/ + `·····`"),
        ("rust", "fn f<'a>(x: &'a str) { r#\"x\"#; '\"' }", "fn f<'a>(x: &'a str) { r····#; '·' }"),
        ("go", "a := `b\nc` // d", "a := `·\n·`     "),
        ("c", 'a /* b */ = "c\\"d";', 'a         = "····";'),
    ],
)
def test_strings_and_comments_are_blanked(language: str, code: str, left: str) -> None:
    assert mask(code, language) == left
