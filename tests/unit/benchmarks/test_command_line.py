"""`python -m benchmarks`: every benchmark is listed, imported only when named, and fails with one sentence."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import results_file
from benchmarks.__main__ import BENCHMARKS, OUTSIDE_A_CHECKOUT, main


def python(code: str) -> str:
    """Standard output of a fresh interpreter."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout


def test_help_lists_every_benchmark_with_its_description_and_imports_none():
    code = """
import sys
from benchmarks.__main__ import main
try:
    main(["--help"])
finally:
    allowed = ("benchmarks.__main__", "benchmarks.results_file")
    print([name for name in sys.modules if name in ("torch", "pygls")])
    print([name for name in sys.modules if name.startswith("benchmarks.") and name not in allowed])
"""
    text = " ".join(python(code).split())
    for name, benchmark in BENCHMARKS.items():
        assert f"{name} {benchmark.about}" in text, name
    assert text.endswith("[] []")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_is_a_module_with_flags_and_a_main_function(name: str):
    spec = importlib.util.find_spec(f"benchmarks.{BENCHMARKS[name].module}")
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text(encoding="utf-8")
    assert "def add_arguments(parser: argparse.ArgumentParser) -> None:" in source
    assert "def main(options: argparse.Namespace) -> int:" in source
    assert f"python -m benchmarks {name}" in source, "its docstring names the command"


def test_every_module_with_a_main_function_is_a_benchmark():
    folder = Path(results_file.__file__).parent
    modules = {
        ".".join(file.relative_to(folder).with_suffix("").parts)
        for file in folder.rglob("*.py")
        if "def main(options: argparse.Namespace)" in file.read_text(encoding="utf-8")
    }
    assert modules == {benchmark.module for benchmark in BENCHMARKS.values()}


@pytest.mark.parametrize("name", ["lines", "peers", "economy"])
def test_a_benchmark_describes_itself_and_refuses_unknown_flags_in_one_line(
    name: str, capsys: pytest.CaptureFixture[str]
):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: python -m benchmarks {name} ")
    assert BENCHMARKS[name].about in " ".join(out.split())
    assert "--results" in out
    assert main([name, "--fastest"]) == 2
    err = capsys.readouterr().err
    assert "unrecognized arguments: --fastest" in err and err.count("\n") == 1


def test_the_command_outside_a_checkout_reports_one_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(results_file, "CHECKOUT", tmp_path)
    assert main(["charts"]) == 2
    assert capsys.readouterr().err == f"benchmarks: {OUTSIDE_A_CHECKOUT}\n"
