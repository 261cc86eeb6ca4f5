"""Hostile repositories: files of a repository are text to complete; they change no setting and run no code."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from promises import Measured
from support.lsp.editor_client import CAPABILITIES, Editor, Page
from support.lsp.lsp_client import gone_within
from windows.harness.program import IS_FOREIGN, PREFIX, program

from speclsp import config

SOURCE = "def f():\n    return \n"
CURSOR = len(SOURCE) - 1
# As the installed program: `python -m` searches the working directory without -P, which Python 3.10 does not have.
COMMAND = [*PREFIX, "-P", "-m", "speclsp"] if IS_FOREIGN else [str(Path(sys.executable).with_name("speclsp"))]
# Modules that Python finds with -m in a directory, and files that it runs at start.
MODULES = ("speclsp/__init__.py", "speclsp/__main__.py", "torch.py", "httpx.py", "pygls.py", "tree_sitter.py")
MODULES += ("sitecustomize.py", "usercustomize.py", "conftest.py", "setup.py")
PULLS = {**CAPABILITIES, "workspace": {"configuration": True}}


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that appears only if code of the repository runs."""
    return tmp_path / "canary"


@pytest.fixture
def attacker() -> Iterator[socket.socket]:
    """A server that must never be contacted."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.setblocking(False)
        yield listening


def hostile(attacker: socket.socket, repository: Path) -> dict[str, Any]:
    """Each setting that names an address, a path, a command or a policy of the user."""
    url = f"http://127.0.0.1:{attacker.getsockname()[1]}"
    return {
        "remote.url": url,
        "remote.key": "sk-stolen",
        "remote.model": "evil",
        "remote.api": "infill",
        "remote.ca_file": str(repository / "evil.pem"),
        "engine.offline": False,
        "models_dir": str(repository / "models"),
        "model": str(repository / "model"),
        "completion.disabled_globs": [],
    }


@pytest.fixture
def repository(tmp_path: Path, attacker: socket.socket, canary: Path) -> Path:
    """A project that contains each file that a tool might read or run automatically."""
    root = tmp_path / "project"
    run = f"open({str(canary)!r}, 'w').write('run')\n"
    settings = "\n".join(f'"{key}" = "{value}"' for key, value in hostile(attacker, root).items() if key != "model")
    files = {
        "app.py": SOURCE,
        ".env": f"SPECLSP_API_KEY=sk-stolen\nSPECLSP_BACKEND_URL=http://127.0.0.1:{attacker.getsockname()[1]}\n",
        **dict.fromkeys(("config.toml", "speclsp.toml", ".speclsp.toml", ".speclsp/config.toml"), settings),
        "pyproject.toml": f"[tool.speclsp]\n{settings}\n",
        ".vscode/settings.json": "{" + ",".join(f'"speclsp.{k}": "{v}"' for k, v in {"remote.url": "x"}.items()) + "}",
        **dict.fromkeys(MODULES, run),
        "models/qwen2.5-coder-0.5b-instruct.toml": "",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    os.mkfifo(root / "evil.sock")
    return root


def called(attacker: socket.socket) -> bool:
    try:
        attacker.accept()
    except BlockingIOError:
        return False
    return True


@pytest.mark.promise(30)
def test_no_content_of_a_repository_changes_the_users_own_settings(
    promise: Measured, repository: Path, attacker: socket.socket, canary: Path
):
    settings = hostile(attacker, repository)
    nested: dict[str, Any] = {}
    for key, value in settings.items():
        section, _, name = key.rpartition(".")
        (nested.setdefault(section, {}) if section else nested)[name] = value
    own = config.config_path()
    own.parent.mkdir()
    own.write_text('[completion]\ndisabled_globs = ["**/hidden/*"]\n[engine]\noffline = true\n')
    with Editor(command=COMMAND, cwd=repository, settings={"speclsp": nested}) as editor:  # as from a terminal there
        editor.begin(PULLS, rootUri=repository.as_uri(), workspaceFolders=[{"uri": repository.as_uri(), "name": "p"}])
        (engine,) = editor.engines()
        dotted = {f"speclsp.{key}": value for key, value in settings.items()}
        for payload in (settings, nested, {"speclsp": nested}, dotted):
            editor.notify("workspace/didChangeConfiguration", {"settings": payload})
        editor.settings = nested
        editor.notify("workspace/didChangeConfiguration", {"settings": None})
        page = Page(editor, SOURCE, uri=(repository / "app.py").as_uri())
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
        hidden = Page(editor, SOURCE, uri=(repository / "hidden/app.py").as_uri())
        assert editor.items(hidden.ask(CURSOR)) == [], "what its user hides stays hidden"
        last = editor.statuses()[-1]
        assert last["remote"] == "" and last["model"] == "echo" and last["state"] in ("ready", "thinking")
        refused = {key for key in settings if any(key in problem for problem in last["problems"])}
        assert refused == set(settings) - {"completion.disabled_globs"}, "that one is added to, as seen above"
        assert editor.engines() == [engine]
        assert editor.popups() == []
    assert not called(attacker), "it was connected to"
    assert not canary.exists(), "something of the repository was run"
    promise.measured(f"0 of {len(settings)} sensitive settings changed by 5 ways of saying them", holds=True)


@pytest.mark.promise(30)
@pytest.mark.parametrize(
    "words",
    [
        ["complete", "app.py:2:12", "--model", "echo", "--set", "engine.shutdown_delay_seconds=0"],
        ["engine", "status"],
        ["stats"],
    ],
)
def test_a_command_started_inside_a_repository_runs_no_code_of_it(
    words: list[str], repository: Path, attacker: socket.socket, canary: Path
):
    done = subprocess.run(
        [*COMMAND, *words],
        cwd=repository,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, 1), done.stderr
    assert not canary.exists() and not called(attacker)


@pytest.mark.promise(30)
@pytest.mark.parametrize("kind", ["fifo", "device", "directory", "endless", "loop", "huge"])
def test_a_pipe_or_device_is_refused_by_name_without_waiting(tmp_path: Path, kind: str):
    path = tmp_path / "file.py"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/tty")
    elif kind == "directory":
        path.mkdir()
    elif kind == "endless":
        path.symlink_to("/dev/zero")
    elif kind == "loop":
        path.symlink_to(path)
    else:
        with path.open("wb") as file:
            file.truncate(2**40)
    with subprocess.Popen(
        program("complete", f"{path}:1:1", "--model", "echo"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            _, output = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 2, output
    assert output.count("\n") == 1 and "file.py" in output and "Traceback" not in output


@pytest.mark.promise(30)
def test_a_document_whose_path_is_a_pipe_or_a_device_is_completed_from_the_editors_text(tmp_path: Path):
    """The server completes the editor's text and opens no file."""
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    with Editor() as editor:
        editor.begin(rootUri=tmp_path.as_uri())
        for uri in (
            pipe.as_uri(),
            "file:///dev/zero",
            "file:///proc/kmsg",
            "untitled:Untitled-1",
            "evil://host/a%00b",
            "",
        ):
            page = Page(editor, SOURCE, uri=uri)
            assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR), uri


@pytest.mark.promise(30)
@pytest.mark.parametrize("occupied", ["config.toml", "log", "stats"])
def test_a_pipe_in_place_of_one_of_our_own_files_blocks_no_start(isolated: Path, occupied: str):
    """A repository cannot create this pipe, but a start that hangs would look like its attack."""
    places = {
        "config.toml": config.config_path(),
        "log": config.log_dir() / "lsp.log",
        "stats": config.log_dir().parent / "stats.db",
    }
    places[occupied].parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(places[occupied])
    with Editor() as editor:
        page = Page(editor.begin(), SOURCE)
        assert editor.text(page.ask(CURSOR)) == page.expected(CURSOR)
        server = editor.process.pid
    assert gone_within(server, 10)
