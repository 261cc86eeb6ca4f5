"""Size law: limits of entries a folder, code a file and lines a function; and one name, one file.

Code is counted without blank lines, comments, docstrings and imports: reasons and white space cost nothing.

Budget: the table of capabilities in CONTRIBUTING.md names every shipped file once, and no row or total is exceeded. A
row is "| capability | paths below speclsp | most lines | gain |"; totals have patterns of paths from the root. Lines
are those of `wc -l`, words those of `wc -w`.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest
from support.source_tree import ROOT, code_lines, entries_of, long_functions, modules

MAX_ENTRIES, MAX_FUNCTION_LINES = 12, 60
MAX_CODE_LINES, MAX_TEST_CODE_LINES, MAX_FILE_LINES = 250, 450, 500
OUTSIDE_TESTS = ("speclsp", "benchmarks", "models")
FOLDER_EXCEPTIONS = {  # folders of data files, one per language, package or client
    "speclsp/lsp/syntax/queries",
    "benchmarks/results",
}
LONG_FILES = {  # files above the limit of code, and the reason
}
DRAWERS = {"utils", "util", "common", "helpers", "misc"}
VAGUE_CLASSES = ("Manager", "Factory", "Service")


def sources(*tops: str) -> list[Path]:
    return sorted(path for top in tops for path in (ROOT / top).rglob("*.py"))


def test_no_folder_has_more_entries_than_the_limit():
    folders = {path.parent for top in ("speclsp", "benchmarks", "tests") for path in (ROOT / top).rglob("*.py")}
    wide = {str(folder.relative_to(ROOT)): len(entries_of(folder)) for folder in folders}
    assert {name: n for name, n in wide.items() if n > MAX_ENTRIES and name not in FOLDER_EXCEPTIONS} == {}


def files_above(limit: int, *tops: str) -> set[str]:
    """The files with more lines of code. A file without so many lines of any kind is not parsed."""
    texts = {str(path.relative_to(ROOT)): path.read_text("utf-8") for path in sources(*tops)}
    return {name for name, text in texts.items() if text.count("\n") > limit and code_lines(text) > limit}


def test_no_file_has_more_code_than_the_limit():
    above = files_above(MAX_CODE_LINES, *OUTSIDE_TESTS) | files_above(MAX_TEST_CODE_LINES, "tests")
    assert above - set(LONG_FILES) == set()
    assert set(LONG_FILES) - above == set(), "these are no exceptions any more: remove their rows"


def test_no_file_is_longer_than_the_limit():
    lengths = {str(path.relative_to(ROOT)): path.read_text("utf-8").count("\n") for path in sources(*OUTSIDE_TESTS)}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_function_is_longer_than_the_limit():
    too_long = {
        f"{path.relative_to(ROOT)} {name}": lines
        for path in sources("speclsp", "benchmarks")
        for name, lines in long_functions(path.read_text("utf-8"), MAX_FUNCTION_LINES)
    }
    assert too_long == {}


def test_no_two_shipped_files_have_one_name():
    counts = Counter(path.name for path in sources("speclsp") if not path.name.startswith("__"))
    assert [name for name, count in counts.items() if count > 1] == []


def test_files_and_classes_are_named_for_their_job():
    for name, file in modules().items():
        assert not DRAWERS & set(name.split(".")), f"{file}: name it for its job"
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                assert not node.name.endswith(VAGUE_CLASSES), f"{file}: class {node.name}"


def test_a_long_function_and_a_wide_folder_are_reported(tmp_path: Path):
    source = "def short():\n    pass\n\n\ndef long():\n" + "    x = 1\n" * MAX_FUNCTION_LINES
    assert list(long_functions(source, MAX_FUNCTION_LINES)) == [("long", MAX_FUNCTION_LINES + 1)]
    for number in range(MAX_ENTRIES + 1):
        (tmp_path / f"m{number}.py").touch()
    (tmp_path / "__init__.py").touch()
    (tmp_path / "_forward.so").touch()
    assert len(entries_of(tmp_path)) == MAX_ENTRIES + 1


def test_blank_lines_comments_docstrings_and_imports_are_no_code():
    source = '''"""A module.

With two paragraphs.
"""

import os
from pathlib import (
    Path,
)

# a reason
LINES = """
a text is data,
and data is code
"""


class Empty:
    """A class."""

    def here(self) -> Path:
        """A method."""
        # a comment of its own

        return Path(os.getcwd(),  # a comment behind code
                    "x")
'''
    assert code_lines(source) == 8
    assert code_lines(source + "LAST = 1\n\n") == 9


@pytest.mark.parametrize("name", sorted(FOLDER_EXCEPTIONS))
def test_an_exception_is_still_needed(name: str):
    assert (ROOT / name).is_dir()


# ── the budget ───────────────────────────────────────────────────────────────────────────────────────────────

PAGE = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
ROW = re.compile(r"^\| (?P<name>[^|]+) \| (?P<paths>`[^|]+) \| (?P<most>[\d,]+) \| (?P<gain>[^|]+) \|$", re.MULTILINE)
TOTAL = re.compile(
    r"^\| (?P<name>[\w ]+) \| (?P<paths>`[^|]+) \| (?P<most>[\d,]+) (?P<unit>lines|words) \|$", re.MULTILINE
)
RESULT = re.compile(r"`([\w.-]+\.json)`")
MAGNET_LINES, MOST_NEAR_THE_LIMIT = 235, 8  # files of 235 to 250 lines of code crowd against the limit of a file


def count(path: Path, unit: str) -> int:
    text = path.read_text("utf-8")
    return text.count("\n") if unit == "lines" else len(text.split())


def matching(paths: str, below: Path) -> set[Path]:
    """The files that the patterns of a row name, each between backticks."""
    return {file for pattern in re.findall(r"`([^`]+)`", paths) for file in below.glob(pattern)}


ROWS = {row["name"]: row for row in ROW.finditer(PAGE)}
TOTALS = {row["name"]: row for row in TOTAL.finditer(PAGE)}


def excess(row: re.Match[str], below: Path, unit: str = "lines") -> int:
    """Lines or words above the row's number; 0 or less within it."""
    return sum(count(file, unit) for file in matching(row["paths"], below)) - int(row["most"].replace(",", ""))


@pytest.mark.parametrize("name", ROWS)
def test_no_capability_is_larger_than_its_row(name: str):
    over = excess(ROWS[name], ROOT / "speclsp")
    assert over <= 0, f"{name} is {over} lines above its row: remove as many, or take them from another row"


def test_every_shipped_file_belongs_to_one_row():
    shipped = set((ROOT / "speclsp").rglob("*.py"))
    named = [file for row in ROWS.values() for file in matching(row["paths"], ROOT / "speclsp")]
    assert sorted(named) == sorted(shipped)


@pytest.mark.parametrize("name", TOTALS)
def test_no_total_is_above_the_budget(name: str):
    over = excess(TOTALS[name], ROOT, TOTALS[name]["unit"])
    assert over <= 0, f"{name}: {over} {TOTALS[name]['unit']} above the budget"


def test_the_rows_add_up_to_the_shipped_lines():
    assert sum(int(row["most"].replace(",", "")) for row in ROWS.values()) <= int(
        TOTALS["shipped"]["most"].replace(",", "")
    )


def test_each_gain_names_a_result_or_a_test_that_exists():
    for name, row in ROWS.items():
        results = RESULT.findall(row["gain"])
        tests = re.findall(r"`(tests/[\w/.]+)`", row["gain"])
        assert results or tests, f"{name} names no evidence"
        assert all((ROOT / "benchmarks/results" / result).is_file() for result in results), name
        assert all((ROOT / test).exists() for test in tests), name


def test_a_line_above_a_row_fails(tmp_path: Path):
    (tmp_path / "part.py").write_text("x = 1\n" * 11)
    row = ROW.search("| part | `part.py` | 10 | tested by `tests/unit` |")
    assert row is not None and excess(row, tmp_path) == 1


def test_few_files_crowd_against_the_limit_of_a_file():
    crowd = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "speclsp").rglob("*.py")
        if path.read_text("utf-8").count("\n") > MAGNET_LINES and code_lines(path.read_text("utf-8")) > MAGNET_LINES
    ]
    assert len(crowd) <= MOST_NEAR_THE_LIMIT, f"split one by subject: {crowd}"
