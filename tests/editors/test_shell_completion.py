"""Tab completion in real shells: bash, zsh and fish, each installed as docs/install.md says."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

PATIENCE_S = 180.0
LINES = (
    ("speclsp mod", {"models"}),
    ("speclsp models ", {"list", "path", "pull", "remove", "verify"}),
    ("speclsp engine sta", {"start", "status"}),
    ("speclsp complete --mod", {"--model"}),
    ("speclsp completion ", {"bash", "fish", "powershell", "zsh"}),
    ("speclsp config get next_e", {"next_edit.enabled"}),
    ("speclsp config set completion.eag", {"completion.eagerness"}),
    ("speclsp doctor --set completion.eag", {f"completion.eagerness={value}" for value in ("low", "medium", "high")}),
    ("speclsp doctor --model qwen2.5-coder-1.5b-i", {"qwen2.5-coder-1.5b-instruct"}),
    ("speclsp models pull qwen2.5-coder-0.5b-i", {"qwen2.5-coder-0.5b-instruct"}),
)
WORDS = set().union(*(words for _, words in LINES)) | {"stop", "doctor", "--set"}
by_line = pytest.mark.parametrize(("line", "words"), LINES, ids=[line.strip() for line, _ in LINES])


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The file that `speclsp completion SHELL` writes."""

    def write(shell: str) -> Path:
        path = tmp_path_factory.mktemp(shell) / "_speclsp"
        with path.open("wb") as file:
            subprocess.run([sys.executable, "-m", "speclsp", "completion", shell], stdout=file, check=True, timeout=60)
        return path

    return write


@pytest.fixture(scope="module")
def bash_script(script: Callable[[str], Path]) -> Path:
    return script("bash")


@pytest.fixture(scope="module")
def fish_script(script: Callable[[str], Path]) -> Path:
    return script("fish")


@pytest.fixture(scope="module")
def zsh_folder(script: Callable[[str], Path], installed: Callable[[str], Path]) -> Path:
    """A home directory whose .zshrc has the script in a folder of $fpath."""
    folder = script("zsh").parent
    environment = installed("zsh").parents[2] / "etc/.zshenv"
    (folder / ".zshenv").write_text(environment.read_text())
    (folder / ".zshrc").write_text(f"fpath=('{folder}' $fpath)\nautoload -Uz compinit\ncompinit -u -D\nPS1='READY> '\n")
    return folder


@by_line
def test_bash_completes_commands_options_and_names(bash_script: Path, line: str, words: set[str]) -> None:
    typed = line.split(" ")
    body = f'source {bash_script}; COMP_WORDS=("$@"); COMP_CWORD={len(typed) - 1}; '
    body += "_shtab_speclsp speclsp; printf '%s\\n' \"${COMPREPLY[@]}\""
    output = subprocess.run(
        ["bash", "--norc", "-c", body, "bash", *typed], capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    assert set(output.stdout.split()) & WORDS == words and not output.stderr


@by_line
def test_fish_completes_commands_options_and_names(
    fish_script: Path, installed: Callable[[str], Path], line: str, words: set[str]
) -> None:
    command = [installed("fish"), "--no-config", "-c", f"source {fish_script}; complete -C '{line}'"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    assert {row.split("\t")[0] for row in output.stdout.splitlines()} & WORDS == words and not output.stderr


@by_line
def test_zsh_completes_commands_options_and_names(
    zsh_folder: Path, installed: Callable[[str], Path], line: str, words: set[str]
) -> None:
    with_tabs = f"{line}\t\t" if len(words) > 1 else f"{line}\t"
    screen = typed_in(installed("zsh"), zsh_folder, with_tabs, words)
    assert "not found" not in screen
    without_descriptions = re.sub(r" -- .*", "", screen)
    assert set(without_descriptions.split()) & WORDS - set(line.split()) == words


def typed_in(zsh: Path, folder: Path, keys: str, words: set[str]) -> str:
    """What an interactive zsh prints after these keys, until all of `words` are on the screen."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(zsh, [zsh, "-i"], {**os.environ, "ZDOTDIR": str(folder), "TERM": "dumb"})
    try:
        read_until(terminal, lambda screen: "READY> " in screen)
        os.write(terminal, keys.encode())
        return read_until(terminal, lambda screen: words <= set(screen.split()))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def read_until(terminal: int, complete: Callable[[str], bool]) -> str:
    """The text of the terminal, once it is complete or after PATIENCE_S."""
    screen, deadline_s = "", time.monotonic() + PATIENCE_S
    while not complete(screen) and time.monotonic() < deadline_s:
        if select.select([terminal], [], [], 0.2)[0]:
            screen += os.read(terminal, 4096).decode(errors="replace")
    return screen
