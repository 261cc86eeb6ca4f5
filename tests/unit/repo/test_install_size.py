"""Sizes that the pages state: dependencies, the extra gpu, and resident memory."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from speclsp.process_resources import gpu_extra
from speclsp.weights import cards

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
GRAMMARS = re.compile(r"tree-sitter-[\w-]+")  # loaded by name: speclsp/lsp/syntax/grammars.py
HEAVY = {"torch", "transformers", "bitsandbytes"}
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "editors").glob("*/*.md")]
PAGES += [*(ROOT / "editors/nvim").rglob("*.lua"), *(ROOT / "editors/nvim/doc").glob("*.txt")]
INSTALL = re.compile(r"[^\n`]*\b(?:uv tool|uv pip|pipx|pip) install\b[^\n`]*")
RESULTS = [*(ROOT / "benchmarks/results").glob("memory-*.json")]
MAX_DIFFERENCE = 0.05  # relative difference of the stated and the measured memory


def imported() -> set[str]:
    """The top-level modules that the package imports."""
    found: set[str] = set()
    for file in (ROOT / "speclsp").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                found.add(node.module.partition(".")[0])
    return found


def test_every_dependency_is_imported_by_the_package_and_none_is_for_plots_only():
    names = {Requirement(text).name for text in PROJECT["dependencies"]}
    modules: dict[str, set[str]] = {}
    for module, distributions in metadata.packages_distributions().items():
        for name in distributions:
            modules.setdefault(name.lower().replace("_", "-"), set()).add(module)
    used = imported()
    unused = {name for name in names if not modules.get(name.lower().replace("_", "-"), {name}) & used}
    assert {name for name in unused if not GRAMMARS.fullmatch(name)} == set()
    assert "matplotlib" not in names and not names & HEAVY


def test_pytorch_is_an_extra_that_developers_have_too():
    extras = PROJECT["optional-dependencies"]
    assert {Requirement(text).name for text in extras["gpu"]} == {"torch", "bitsandbytes"}
    assert "speclsp[gpu]" in extras["dev"]


def test_the_small_install_has_no_package_of_the_extra_and_the_pages_state_its_size():
    size = json.loads((ROOT / "benchmarks/results/install-size.json").read_text(encoding="utf-8"))
    assert not HEAVY & set(size["packages_mb"])
    assert size["disk_mb"] == pytest.approx(sum(size["packages_mb"].values()), abs=2)
    gb = f"{size['disk_mb'] / 1000:.2f}", f"{(size['disk_mb'] + size['compiled_mb']) / 1000:.2f}"
    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/install.md", "README.md"))
    for row, stated in zip(("program, by uv", "the same by pip or pipx"), gb, strict=True):
        assert re.search(rf"^\| {row}[^|]*\| {size['download_mb']} MB \| {stated} GB \|$", page, re.MULTILINE)
    assert re.search(rf"{size['disk_mb'] / 1000:.1f} GB for\s+the program", readme)
    (cuda_gb,) = re.findall(r"program with PyTorch and CUDA, by uv \| about 3 GB \| ([\d.]+) GB", page)
    (cpu_gb,) = re.findall(r"program with PyTorch for a CPU, by uv \| about 0.3 GB \| ([\d.]+) GB", page)
    for whole_gb, stated in ((cuda_gb, gpu_extra.GPU_SIZE), (cpu_gb, gpu_extra.CPU_SIZE)):
        assert float(stated.removesuffix(" GB")) == pytest.approx(float(whole_gb) - size["disk_mb"] / 1000, abs=0.05)
    assert f"PyTorch too, {gpu_extra.GPU_SIZE}" in readme


def install_lines() -> Iterator[tuple[str, str]]:
    """Each command of a page that installs speclsp, with the page's name."""
    for page in PAGES:
        for match in INSTALL.finditer(page.read_text(encoding="utf-8")):
            line = match[0].strip()
            if re.search(r"install\b.*(?:[\s\"]\.(?=[\s\"'\[]|$)|speclsp\b|CHECKOUT)", line):
                yield page.name, line


def test_no_documented_install_command_has_pytorch_except_by_the_extra():
    lines = list(install_lines())
    assert len(lines) > 5
    assert [line for line in lines if ("torch" in line[1]) > ("[gpu]" in line[1])] == []


def test_make_installs_the_extra_where_there_is_a_driver_and_tests_have_the_cpu_build_elsewhere():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "DRIVER := $(wildcard /proc/driver/nvidia/version)" in makefile
    assert re.search(rf"TORCH +:= \$\(if \$\(DRIVER\).*{re.escape(gpu_extra.CPU_INDEX)}", makefile)
    installs = re.findall(r"^\t@\$\(PIP\) (.*)$", makefile, re.MULTILINE)
    assert installs == ["-e '.$(if $(DRIVER),[gpu])'", "$(TORCH) --no-compile -e '.[dev]'"]


# ── memory ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def stated_gib(name: str) -> str:
    """The resident memory of a model on a CPU, as the pages state it."""
    return f"{cards.load(name).needed_mib('cpu', 0, 'int8') / 1024:.1f}"


@pytest.mark.parametrize("file", RESULTS, ids=lambda file: file.stem)
def test_the_stated_memory_is_the_measured_one(file: Path):
    result = json.loads(file.read_text(encoding="utf-8"))
    number_format = re.search(r"\((int\d)", result["target"])[1]  # type: ignore[index]
    needed_mib = cards.load(result["pair"]).needed_mib("cpu", 0, number_format)
    assert abs(needed_mib / result["used_mib"] - 1) <= MAX_DIFFERENCE
    assert result["loaded_mib"] <= result["used_mib"]


def test_the_pages_state_the_memory_of_the_model_definitions():
    readme, models, engine = (
        (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/models.md", "docs/engine.md")
    )
    small, medium, large = (f"qwen2.5-coder-{size}" for size in ("0.5b-instruct", "1.5b-instruct", "7b"))
    for title, name in (("0.5B", small), ("1.5B", medium), ("7B", large)):
        assert re.search(rf"^\| Qwen2.5-Coder {title} \| [^|]+ \| {stated_gib(name)} GiB \|", readme, re.MULTILINE)
    rows = dict(re.findall(r"^\| `([\w.-]+)` \| [^|]+ \| ([\d.]+) \|", models, re.MULTILINE))
    assert rows == {name: stated_gib(name) for name in cards.names() if name not in ("tiny", "echo")}
    result = json.loads((ROOT / f"benchmarks/results/memory-{small}.json").read_text(encoding="utf-8"))
    private_mib, mapped_mib = result["private_mib"], result["used_mib"] - result["private_mib"]
    assert f"share {private_mib / 1024:.1f} GiB and a mapped file of {mapped_mib / 1024:.1f} GiB" in readme
    assert f"memory    {private_mib} MiB, and {mapped_mib} MiB of mapped files, which" in engine
    for figure_mib in (private_mib, mapped_mib, result["loaded_private_mib"]):
        assert f"| {figure_mib} |" in engine
    assert f"| 0.5 GB | {stated_gib(small)} GiB | ends of lines" in models
    assert stated_gib("qwen2.5-coder-1.5b-q8_0") == stated_gib(medium), "one figure for both in the table of machines"
    assert f"| 1.1 GB | {stated_gib(medium)} GiB |" in models
