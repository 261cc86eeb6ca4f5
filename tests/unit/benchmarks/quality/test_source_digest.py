"""Cache keys of the quality benchmark: any source file of the packages that decide a value changes its key."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.quality.cache import source_digest as digests
from benchmarks.quality.cache.source_digest import INDEX_PACKAGES, PRODUCT, TOKEN_PACKAGES, source_digest
from benchmarks.quality.tasks import tasks


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the packages that keys are made of, in the place of the product."""
    for package in (*TOKEN_PACKAGES, *INDEX_PACKAGES):
        shutil.copytree(PRODUCT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__", "*.so*"))
    monkeypatch.setattr(digests, "PRODUCT", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("package", "key"),
    [
        *((package, digests.token_source) for package in TOKEN_PACKAGES),
        *((package, digests.index_source) for package in INDEX_PACKAGES),
    ],
)
def test_a_new_file_in_a_package_changes_its_key(product: Path, package: str, key):
    before = key.__wrapped__()
    assert key.__wrapped__() == before
    (product / package / "new_module.py").write_text("")
    assert key.__wrapped__() != before


def test_a_changed_kernel_or_grammar_query_changes_its_key(product: Path):
    tokens, index = digests.token_source.__wrapped__(), digests.index_source.__wrapped__()
    kernel = next((product / "engine/model").rglob("*.c"))
    kernel.write_text(kernel.read_text() + "\n")
    query = next((product / "lsp/syntax").rglob("*.scm"))
    query.write_text(query.read_text() + "\n")
    assert digests.token_source.__wrapped__() != tokens
    assert digests.index_source.__wrapped__() != index


def test_files_of_other_kinds_and_packages_change_no_key(product: Path):
    before = digests.token_source.__wrapped__()
    (product / "engine/model/notes.txt").write_text("nothing")
    (product / "lsp/index/new_module.py").write_text("")
    assert digests.token_source.__wrapped__() == before


def test_a_new_file_beside_the_task_maker_changes_the_key_of_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for file in tasks.HERE.glob("*.py"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(tasks, "HERE", tmp_path)
    before = tasks.task_source()
    (tmp_path / "new_module.py").write_text("")
    assert tasks.task_source() != before


def test_a_renamed_file_is_another_source(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one.py").write_text("x = 1\n")
    before = source_digest(tmp_path, ["a"])
    (tmp_path / "a/one.py").rename(tmp_path / "a/two.py")
    assert source_digest(tmp_path, ["a"]) != before
