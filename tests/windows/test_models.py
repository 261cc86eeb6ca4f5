"""Models on Windows: the same text as on Linux, from the same files of weights."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.waiting import PATIENCE_S

CODE = "def area(width, height):\n    return width * height\n\n\ndef perimeter(width, height):\n    return "
CURSOR = "6:12"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file with the cursor's place at its end."""
    file = tmp_path / "shapes.py"
    file.write_text(CODE)
    return file


def completed(command: list[str], place: str, *options: str) -> str:
    """The text that `speclsp complete` prints for a place."""
    words = [*command, "-m", "speclsp", "complete", f"{place}:{CURSOR}", *options]
    done = subprocess.run(words, input=b"", capture_output=True, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-2000:]
    return done.stdout.decode("utf-8").replace("\r\n", "\n")


def test_the_tiny_model_writes_the_same_text_as_on_linux(windows: list[str], source: Path):
    """It is shipped with the program."""
    text = completed([sys.executable], str(source), "--model", "tiny")
    assert text.strip()
    assert completed(windows, f"Z:{source}", "--model", "tiny") == text


@pytest.mark.real
def test_a_real_model_writes_the_same_text_as_on_linux(windows: list[str], source: Path, coder_0_5b: Path):
    """Both read the user's cache."""
    model = ("--model", "qwen2.5-coder-0.5b-instruct", "--set")
    text = completed([sys.executable], str(source), *model, f"models_dir={coder_0_5b.parent}")
    assert "width" in text
    assert completed(windows, f"Z:{source}", *model, f"models_dir=Z:{os.fspath(coder_0_5b.parent)}") == text
