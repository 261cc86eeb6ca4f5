"""The forward pass on Windows: Linux's bits and tokens, the wheel that has it, and an engine without it.

`make windows` runs the tests of tests/engine/model in the Windows Python itself as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.engine.random_models import NATIVE, save_random, save_seven_heads
from support.engine.superblock_models import save_random_q4k_m
from windows.harness.wheel import LIBRARIES, install, run

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
BITS, TOKENS = HERE / "programs/engine_bits.py", HERE / "programs/engine_tokens.py"
FORWARD = ROOT / "speclsp/engine/model/int8/forward.c"
TILES = ROOT / "tests/support/engine/amx_tiles.h"
FLAGS = ("-O3", "-ffp-contract=off", "-fno-sanitize=undefined", "-shared")
HAS_AVX512 = "AVX-512 VNNI" in NATIVE  # the emulated tiles are in the library of AVX-512

pytestmark = pytest.mark.timeout(1800)


def on_linux(program: Path, *words: str | Path) -> Any:
    """What a program prints as JSON in this Python."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(program), *map(str, words)]
    return json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def on_windows(windows: list[str], program: Path, *words: str | Path) -> Any:
    """What a program prints as JSON in the Windows Python."""
    return json.loads(run(windows, program, *words))


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of small models: random ones, some in superblocks, and the target of `tiny`."""
    directory = tmp_path_factory.mktemp("models")
    save_seven_heads(directory / "seven-heads", layers=2)
    save_random_q4k_m(directory / "superblocks")
    sizes = {"hidden_size": 160, "num_attention_heads": 5, "num_key_value_heads": 1, "intermediate_size": 240}
    save_random("qwen3", directory / "qwen3", **sizes, head_dim=128)
    shutil.copytree(ROOT / "models/tiny/target", directory / "tiny")
    return directory


@pytest.fixture(scope="module")
def emulated_amx(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The library with AMX's instructions in C, for both systems, without its suffix; none without AVX-512."""
    if not HAS_AVX512:
        return []
    library = tmp_path_factory.mktemp("amx") / "forward"
    for suffix, target in ((".so", "x86_64-linux-gnu.2.17"), (".dll", "x86_64-windows-gnu")):
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", target, *FLAGS, "-fPIC", "-pthread"]
        output = library.with_suffix(suffix)
        subprocess.run([*compiler, "-include", str(TILES), "-o", str(output), str(FORWARD)], check=True)
    return [library]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for Windows, built from the checkout's files as `make dist` does."""
    folder = tmp_path_factory.mktemp("wheel")
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listing.split("\0")):
        (folder / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / "source" / name)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    environment = os.environ | {"SPECLSP_WHEEL_PLATFORM": "win32-AMD64"}
    subprocess.run(build, cwd=folder / "source", env=environment, check=True, capture_output=True)
    (path,) = folder.glob("speclsp-*-py3-none-win_amd64.whl")
    return path


@pytest.fixture(scope="module")
def installed(windows: list[str], wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the package as pip on Windows installs the wheel."""
    directory = tmp_path_factory.mktemp("installed")
    install(windows, wheel, directory)
    return directory


def test_every_pass_has_the_bits_of_linux(windows: list[str], models: Path, emulated_amx: list[Path]):
    """With each instruction set, one and two threads, and passes of several widths."""
    linux = on_linux(BITS, models, *emulated_amx)
    assert len(linux) == 12 * (7 * len(NATIVE) + 3 * len(emulated_amx)), "7 pairs of a model and its bits, 3 of int8"
    assert on_windows(windows, BITS, models, *emulated_amx) == linux
    assert len({(case.partition(",")[0], digest) for case, digest in linux.items()}) == len(linux) / 12


def test_the_installed_wheel_completes_with_the_tokens_of_linux(windows: list[str], installed: Path):
    assert {file.name for file in installed.rglob("_forward*")} == LIBRARIES
    assert (installed / "bin" / "speclsp.exe").is_file()
    answer, expected = on_windows(windows, TOKENS, installed, "tiny"), on_linux(TOKENS, "", "tiny")
    assert answer.pop("package").endswith(installed.name) and expected.pop("package")
    assert answer == expected
    assert answer["paths"] and answer["note"] == ""


@pytest.mark.real
def test_a_real_model_completes_with_the_tokens_of_linux(windows: list[str], coder_0_5b: Path):
    words = ("", "qwen2.5-coder-0.5b-instruct", coder_0_5b.parent)
    answer, expected = on_windows(windows, TOKENS, *words), on_linux(TOKENS, *words)
    assert {**answer, "package": ""} == {**expected, "package": ""}
    assert answer["format"].startswith("int8, ")


@pytest.mark.parametrize("file_name", sorted(LIBRARIES))
def test_a_library_that_windows_refuses_leaves_the_other_and_is_one_sentence(
    windows: list[str], installed: Path, file_name: str, tmp_path: Path
):
    copy = shutil.copytree(installed, tmp_path / "installed")
    (library,) = copy.rglob(file_name)
    library.write_bytes(b"MZ, and no more: what is left of a file that was cleaned")
    answer = on_windows(windows, TOKENS, copy, "tiny")
    assert f"{file_name} cannot be loaded (" in answer["note"] and answer["note"].count(". ") == 0
    assert answer["paths"] and f"so the CPU computes with {answer['paths'][0]}: " in answer["note"]


def test_without_libraries_pytorch_computes_the_same_tokens_and_one_sentence_says_so(
    windows: list[str], installed: Path, tmp_path: Path
):
    copy = shutil.copytree(installed, tmp_path / "installed")
    for library in copy.rglob("_forward*.dll"):
        library.unlink()
    answer = on_windows(windows, TOKENS, copy, "tiny")
    assert answer["paths"] == [] and answer["tokens"] == on_linux(TOKENS, "", "tiny", "", "fp32")["tokens"]
    for file_name in LIBRARIES:
        assert f"{file_name} is missing" in answer["note"]
    assert "so PyTorch has to compute, which is slower: install speclsp again" in answer["note"]
