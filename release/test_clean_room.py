"""Clean-room tests of dist/: each artifact is installed in an empty place and used. `make dist` runs them.

The environment has a home directory of its own and no path into the checkout. Without REUSE_CACHES=1 the model is
downloaded. Only the clients that drive an installed program come from the checkout: tests/support.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest
from support.editors import code_server, install, nvim_session, vscode_screen
from support.lsp.lsp_client import Client
from support.waiting import wait_until
from windows.harness.wheel import LIBRARIES
from windows.harness.wheel import install as install_for_windows
from windows.harness.wheel import run as run_on_windows

from speclsp.process_resources import gpu_extra

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
MODEL = "qwen2.5-coder-0.5b-instruct"
CODE = "def area(width, height):\n    return width * height\n\n\ndef perimeter(width, height):\n    return "
KEPT = ("PIP_", "SSL_", "HTTP", "NO_PROXY", "http", "no_proxy", "HF_ENDPOINT", "LANG")  # of the environment
WINDOWS_PYTHON = os.environ.get("SPECLSP_WINDOWS_PYTHON", "")  # the launcher of one under Wine
INSTALL_S = 900
STEP_S = 280

pytestmark = pytest.mark.timeout(INSTALL_S)


@dataclass(frozen=True)
class CleanRoom:
    """A home directory and a virtual environment outside the checkout; `environment` has nothing else in it."""

    root: Path
    editors: dict[str, Path]
    environment: dict[str, str]

    @property
    def speclsp(self) -> Path:
        return self.root / "venv/bin/speclsp"

    def run(self, *command: str | Path, timeout_s: float = STEP_S) -> str:
        """Standard output of a command that must succeed."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def room() -> Iterator[CleanRoom]:
    """The clean room with the wheel for Linux x86-64 installed. Its variables replace those of this process."""
    editors = {name: install.install(name) for name in ("node", "code-server", "chromium", "nvim-0.11")}
    root = Path(tempfile.mkdtemp(prefix="cr-"))  # a short name: a Unix socket's path has 103 bytes
    (root / "home").mkdir()
    (root / "run").mkdir(mode=0o700)
    cache = platformdirs.user_cache_path() if os.environ.get("REUSE_CACHES") else root / "home/.cache"
    environment = {name: value for name, value in os.environ.items() if name.startswith(KEPT)}
    environment |= {
        "PATH": f"{root}/venv/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{root}/home",
        "XDG_RUNTIME_DIR": f"{root}/run",
        "XDG_CACHE_HOME": str(cache),
        "PIP_CACHE_DIR": str(platformdirs.user_cache_path("pip", appauthor=False)),
    }
    clean = CleanRoom(root, editors, environment)
    try:
        create_venv(clean, "venv")
        pip = (root / "venv/bin/python", "-m", "pip", "install", "-qq", "-c", ROOT / "constraints.txt")
        clean.run(*pip, artifact("*manylinux*x86_64.whl"), timeout_s=INSTALL_S)
        with pytest.MonkeyPatch.context() as patch:
            for name in set(os.environ) - set(environment) - {"PYTEST_CURRENT_TEST"}:
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
            yield clean
            subprocess.run([clean.speclsp, "engine", "stop"], env=environment, capture_output=True, check=False)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def artifact(pattern: str) -> Path:
    (path,) = DIST.glob(pattern)
    return path


def create_venv(room: CleanRoom, name: str) -> Path:
    """A new virtual environment, made by the Python under this process's own environment. Returns its Python."""
    room.run(Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}", "-m", "venv", room.root / name)
    return room.root / name / "bin/python"


def borrow_dependencies(room: CleanRoom, python: Path) -> None:
    """Let another environment import the dependencies in `venv`: installing them again would take minutes."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = Path(room.run(python, "-c", code).strip())
    shared = room.run(room.root / "venv/bin/python", "-c", code).strip()
    (packages / "shared.pth").write_text(f"{shared}\n")


def compiled(room: CleanRoom, python: Path) -> set[str]:
    """Names of the compiled libraries in the speclsp that `python` imports, which must be its own."""
    code = "import speclsp, pathlib; print(pathlib.Path(speclsp.__file__).parent)"
    package = Path(room.run(python, "-c", code).strip())
    assert package.is_relative_to(python.parents[1]), package
    return {path.name for path in package.rglob("*.so")}


def test_the_wheels_and_the_sdist_have_their_files() -> None:
    with (
        zipfile.ZipFile(artifact("*manylinux*x86_64.whl")) as binary,
        zipfile.ZipFile(artifact("*-none-any.whl")) as pure,
    ):
        names, pure_names = set(binary.namelist()), set(pure.namelist())
        metadata = binary.read(next(name for name in names if name.endswith("/METADATA"))).decode()
        wheel = pure.read(next(name for name in pure_names if name.endswith("/WHEEL"))).decode()
    assert {Path(name).name for name in names - pure_names} == {"_forward.so", "_forward_avx2.so"}
    assert pure_names <= names
    for pattern in ("*manylinux*aarch64.whl", "*macosx*arm64.whl"):
        with zipfile.ZipFile(artifact(pattern)) as other:
            assert {Path(name).name for name in set(other.namelist()) - pure_names} == {"_forward_neon.so"}
    with zipfile.ZipFile(artifact("*win_amd64.whl")) as windows:
        assert {Path(name).name for name in set(windows.namelist()) - pure_names} == LIBRARIES
    assert "Root-Is-Purelib: true" in wheel and "Tag: py3-none-any" in wheel
    assert "License-Expression: Apache-2.0" in metadata and "Description-Content-Type: text/markdown" in metadata
    assert {f"speclsp/models/{MODEL}.toml", "speclsp/__main__.py"} <= names
    assert any(name.startswith("speclsp/examples/") for name in names)
    with tarfile.open(artifact("speclsp-*.tar.gz")) as sdist:
        inside = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md"} <= inside
    assert not any(name.endswith(".so") for name in inside)


def test_the_windows_wheel_installs_and_completes(tmp_path: Path) -> None:
    if not WINDOWS_PYTHON:
        pytest.skip("the wheel for Windows was built and read, not installed: no Windows Python (see `make windows`)")
    install_for_windows([WINDOWS_PYTHON], artifact("*win_amd64.whl"), tmp_path)
    assert {file.name for file in tmp_path.rglob("_forward*.dll")} == LIBRARIES
    answer = json.loads(
        run_on_windows([WINDOWS_PYTHON], ROOT / "tests/windows/programs/engine_tokens.py", tmp_path, "tiny")
    )
    assert answer["package"].endswith(tmp_path.name)
    assert answer["paths"] and answer["note"] == "" and all(answer["texts"])


def test_setup_demo_and_complete_work_from_the_wheel(room: CleanRoom) -> None:
    assert compiled(room, room.root / "venv/bin/python") == {"_forward.so", "_forward_avx2.so"}
    packages = {line.partition("==")[0] for line in room.run("python", "-m", "pip", "freeze").splitlines()}
    assert "tokenizers" in packages and not packages & set(gpu_extra.PACKAGES)
    assert "is completed with" in room.run(room.speclsp, "setup", "--yes", "--model", MODEL)
    demo = room.run(room.speclsp, "demo", "--repeats", "1")
    assert "identical" in demo, demo
    (room.root / "area.py").write_text(CODE)
    assert "width" in room.run(room.speclsp, "complete", "area.py:6:12")
    assert "ended process" in room.run(room.speclsp, "engine", "stop"), "the shared engine stays for the next command"


def test_a_language_client_gets_a_suggestion(room: CleanRoom) -> None:
    flags = ("--model", MODEL, "--set", "engine.shutdown_delay_seconds=0", "--set", "completion.timeout_ms=60000")
    with Client([str(room.speclsp), "lsp", *flags], env={"PYTHONPATH": ""}, cwd=room.root) as client:
        capabilities = client.initialize({"textDocument": {"inlineCompletion": {}}})["capabilities"]
        assert "inlineCompletionProvider" in capabilities
        client.open("file:///area.py", CODE)
        items: list[dict[str, object]] = []

        def suggested() -> bool:
            reply = client.reply(client.complete("file:///area.py", 5, len("    return ")))
            items[:] = (reply.get("result") or {}).get("items", [])
            time.sleep(0.2)
            return bool(items)

        wait_until(suggested, 120)
        assert "width" in str(items[0]["insertText"])
        client.call("shutdown")
        client.notify("exit")
        assert client.ended(30) == 0
        assert client.stray == b""


@pytest.mark.parametrize(
    ("pattern", "libraries"),
    [("*-none-any.whl", set()), ("speclsp-*.tar.gz", {"_forward.so", "_forward_avx2.so"})],
    ids=["pure wheel", "sdist"],
)
def test_the_pure_wheel_and_the_sdist_install_and_complete(
    room: CleanRoom, pattern: str, libraries: set[str], request: pytest.FixtureRequest
) -> None:
    python = create_venv(room, request.node.callspec.id.replace(" ", "-"))
    room.run(python, "-m", "pip", "install", "-qq", "--no-deps", artifact(pattern), timeout_s=INSTALL_S)
    borrow_dependencies(room, python)
    assert compiled(room, python) == libraries
    (room.root / "area.py").write_text(CODE)
    room.run(python, "-m", "speclsp", "complete", "area.py:6:12", "--model", "tiny")


def test_each_vsix_names_its_platform_and_carries_the_server() -> None:
    packages = {"": artifact("speclsp-*.tar.gz")}
    packages |= {"linux-x64": artifact("*manylinux*x86_64.whl"), "win32-x64": artifact("*-none-win_amd64.whl")}
    platforms = {}
    for vsix in DIST.glob("*.vsix"):
        with zipfile.ZipFile(vsix) as archive:
            manifest = archive.read("extension.vsixmanifest").decode()
            carried = {name for name in archive.namelist() if name.startswith("extension/server/speclsp-")}
            target = re.search(r'TargetPlatform="([\w-]+)"', manifest)
            platform = platforms[vsix.stem.partition("-")[2].partition("-")[2]] = target[1] if target else ""
            package = packages[platform]
            assert carried == {f"extension/server/{package.name}"}
            assert archive.read(f"extension/server/{package.name}") == package.read_bytes()
    assert platforms == {"linux-x64": "linux-x64", "win32-x64": "win32-x64", "": ""}


def test_code_server_shows_a_suggestion_with_each_vsix_for_linux(
    room: CleanRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_server, "SPECLSP", room.speclsp)
    with vscode_screen.browsing(room.editors["chromium"]) as browser:
        for vsix in sorted(set(DIST.glob("*.vsix")) - set(DIST.glob("*-win32-x64.vsix"))):
            cache = {"XDG_CACHE_HOME": room.environment["XDG_CACHE_HOME"]}
            with vscode_screen.running(room.editors, vsix, browser, **cache) as studio:
                server = studio.server
                server.settings(server.ours | {"speclsp.model": MODEL})
                with studio.window(studio.folder()) as window:
                    window.says("ready", 120)
                    window.show("area.py", CODE.removesuffix("    return "))
                    question = window.suggested("    return ", "width ", "+ ")
                    assert window.screen().ghost.rstrip() == question.rest().rstrip() != ""
                    window.shot(f"clean-room-{vsix.stem}")


def test_neovim_shows_a_suggestion_with_the_plugin_directory_alone(
    room: CleanRoom, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tarfile.open(artifact("speclsp.nvim-*.tar.gz")) as archive:
        archive.extractall(room.root, filter="data")
    plugin = room.root / "speclsp.nvim"
    names = {path.relative_to(plugin).as_posix() for path in plugin.rglob("*")}
    assert {"plugin/speclsp.lua", "lua/speclsp/init.lua", "doc/tags", "README.md", "LICENSE"} <= names
    assert "](../" not in (plugin / "README.md").read_text("utf-8")
    monkeypatch.setattr(nvim_session, "SPECLSP", room.speclsp)
    setup = f"vim.opt.runtimepath:prepend('{plugin}')\nrequire('speclsp').setup({{ cmd = cmd }})"
    home = room.root / "nvim"
    with nvim_session.NvimSession(room.editors["nvim-0.11"], home, setup, "--model", MODEL) as seat:
        seat.open("area.py", CODE.removesuffix("    return "))
        seat.ready()
        loaded = seat.lua("return vim.api.nvim_get_runtime_file('lua/speclsp/init.lua', true)")
        assert loaded == [str(plugin / "lua/speclsp/init.lua")]
        assert "speclsp-options" in seat.lua("return vim.fn.getcompletion('speclsp-opt', 'help')")
        seat.keys("Go    return ")
        frame = seat.suggestion()
        assert frame.ghost, json.dumps([seat.answer().texts, frame.text])
