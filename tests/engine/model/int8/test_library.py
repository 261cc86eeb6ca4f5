"""Compiled libraries that are missing or cannot be loaded: one sentence, and the engine computes without them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speclsp.engine.model.int8 import library


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of a package without libraries, for x86-64."""
    monkeypatch.setattr(library, "DIRECTORY", tmp_path)
    monkeypatch.setattr(library, "NAMES", ("_forward", "_forward_avx2"))
    library.load_library.cache_clear()
    yield tmp_path
    library.load_library.cache_clear()


def test_a_package_without_libraries_is_no_problem_but_on_windows(package: Path, monkeypatch: pytest.MonkeyPatch):
    """There the wheel has them, and an antivirus program may have deleted them."""
    monkeypatch.setattr(sys, "platform", "linux")
    assert library.load_problem("") == ""
    monkeypatch.setattr(sys, "platform", "win32")
    first, second = (package / f"{name}{library.SUFFIX}" for name in library.NAMES)
    assert library.load_problem("") == (
        f"{first} is missing and {second} is missing, so PyTorch has to compute, which is slower: install "
        "speclsp again, and allow the file in the antivirus program if that blocked it."
    )


def test_a_file_that_is_no_library_is_named_with_the_systems_reason(package: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "platform", "linux")
    (package / f"_forward{library.SUFFIX}").write_bytes(b"no library")
    assert library.library("_forward") is None and library.library("_forward_avx2") is None
    problem = library.load_problem("AVX2")
    assert problem.startswith(f"{package / '_forward'}{library.SUFFIX} cannot be loaded (")
    assert "so the CPU computes with AVX2: install speclsp again" in problem


def test_x86_64_and_its_emulation_on_windows_on_arm_have_other_libraries_than_arm():
    assert {library.names_for(name) for name in ("x86_64", "win-amd64")} == {("_forward", "_forward_avx2")}
    assert {library.names_for(name) for name in ("aarch64", "arm64", "win-arm64", "ARM64")} == {("_forward_neon",)}


def test_the_libraries_of_this_package_are_no_problem():
    assert library.load_problem("AVX2") == ""
