"""Every command of `speclsp` on a Windows Python under Wine: exit code, output, paths, interrupts and denied places.

A command gets a profile of its own through platformdirs' variable, and pipes as its three streams.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.cli.command_streams import commands_of

from speclsp.cli.arguments.command_tree import parser

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "def add(a, b):\n    return \n"
TINY = ("--model", "tiny")
COMMANDS = {  # {command: (words of a run without a network, exit code, a part of the output)}
    "setup": ((*TINY, "--yes"), 0, "Settings: model = 'tiny' is written to "),
    "demo": ((*TINY, "--repeats", "1"), 0, "text and tokens: identical"),
    "models list": ((), 0, "qwen2.5-coder-0.5b"),
    "models pull": (("tiny",), 0, "tiny is ready"),
    "models verify": (("tiny",), 0, "tiny/target: complete; no checksums are known"),
    "models remove": (("qwen2.5-coder-0.5b", "--yes"), 2, "is not downloaded, so there is nothing to remove."),
    "config list": ((), 0, "Local\\speclsp\\config.toml"),
    "config get": (("completion.eagerness",), 0, "medium"),
    "config set": (("completion.eagerness", "low"), 0, 'completion.eagerness = "low" ('),
    "config unset": (("completion.eagerness",), 1, "completion.eagerness is not set in "),
    "config path": ((), 0, "Local\\speclsp\\config.toml"),
    "stats": ((), 0, "No statistics yet"),
    "key set": (("http://127.0.0.1:9",), 2, "no key was given."),
    "key forget": (("http://127.0.0.1:9",), 1, "there is no key for http://127.0.0.1:9."),
}
ELSEWHERE = {"doctor", "complete", "lsp", "engine"}  # below, and in the files of the server and the engine


@dataclass(frozen=True)
class Result:
    """End of one command; its output is UTF-8 with "\\n"."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass(frozen=True)
class Program:
    """A Windows Python with a profile of its own."""

    windows: list[str]
    home: Path  # of the user, on the Linux side

    def environment(self, **more: str) -> dict[str, str]:
        """Variables of a process: the profile, and a locale in which Wine passes every name on."""
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "PYTHON"))}
        local = self.home / "AppData" / "Local"
        local.mkdir(parents=True, exist_ok=True)
        return variables | {"WIN_PD_OVERRIDE_LOCAL_APPDATA": windows_path(local), "LC_ALL": "C.UTF-8"} | more

    def python(self, *words: str, stdin: str = "", cwd: Path | None = None, **more: str) -> Result:
        """Run the Windows Python with these words; `more`: further variables."""
        ended = subprocess.run(
            [*self.windows, *words],
            input=stdin.encode(),
            capture_output=True,
            cwd=cwd,
            env=self.environment(**more),
            timeout=300,
            check=False,
        )
        out, err = (data.decode("utf-8").replace("\r\n", "\n") for data in (ended.stdout, ended.stderr))
        return Result(ended.returncode, out, err)

    def run(self, *words: str, stdin: str = "", cwd: Path | None = None, **more: str) -> Result:
        """Run a command of speclsp; it never shows a traceback or a bug."""
        result = self.python("-m", "speclsp", *words, stdin=stdin, cwd=cwd, **more)
        assert "Traceback" not in result.err and "bug in speclsp" not in result.err, result.err
        return result

    def script(self, text: str, directory: Path) -> Result:
        """Run a Python script on Windows."""
        file = directory / "script.py"
        file.write_text(text, encoding="utf-8")
        return self.python(windows_path(file))


def windows_path(path: Path) -> str:
    """The path as Wine's Windows names it: Z: is the root."""
    return "Z:" + str(path).replace("/", "\\")


@pytest.fixture
def program(windows: list[str], tmp_path: Path) -> Program:
    return Program(windows, tmp_path / "home")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "a.py"
    file.write_text(SOURCE)
    return file


# ── every command ────────────────────────────────────────────────────────────────────────────────────────────


def leaves() -> Iterator[str]:
    """The names of all commands and actions."""
    for name, command in commands_of(parser()).items():
        yield from [f"{name} {action}" for action in commands_of(command)] or [name]


def test_every_command_is_in_the_table_or_has_tests_of_its_own():
    assert set(leaves()) == set(COMMANDS) | ELSEWHERE


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_ends_with_its_code_and_its_answer(name: str, program: Program):
    words, code, part = COMMANDS[name]
    result = program.run(*name.split(), *words)
    assert (result.code, part in result.text) == (code, True), result
    assert code == 0 or result.err.count("\n") == 1, "an error is one line"


# ── positions ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("form", ["{drive}", "{slashes}", "{long}", "a.py", ".\\a.py", "A.PY"])
def test_a_position_may_begin_with_a_drive_letter(form: str, program: Program, source: Path):
    drive = windows_path(source)
    spot = form.format(drive=drive, slashes=drive.replace("\\", "/"), long=f"\\\\?\\{drive}") + ":2:12"
    result = program.run("complete", spot, "--model", "echo", "--json", cwd=source.parent)
    assert result.code == 0 and json.loads(result.out)["suggestion"], result
    assert json.loads(result.out)["place"] == spot


@pytest.mark.parametrize(
    ("spot", "part"),
    [
        (".env:1:1", "holds secrets"),
        (".ENV:1:1", "holds secrets"),
        (".env.:1:1", "holds secrets"),
        (".env::$DATA:1:1", "is a stream of a file"),
        ("nul:1:1", "is not a regular file"),
        ("Q:\\a.py:1:1", "no such file"),
        ("\\\\server\\share\\a.py:1:1", "no such file"),
        ("a.py:9:1", "has no line 9"),
        ("C:\\a.py", "is not a position"),
    ],
)
def test_a_position_that_cannot_be_completed_is_one_sentence(spot: str, part: str, program: Program, source: Path):
    (source.parent / ".env").write_text("KEY=1\n")
    result = program.run("complete", spot, "--model", "echo", cwd=source.parent)
    assert (result.code, result.out, result.err.count("\n")) == (2, "", 1) and part in result.err, result


# ── doctor ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_doctor_passes_every_line_but_what_wine_lacks(program: Program):
    result = program.run("doctor", *TINY, "--json")
    report = json.loads(result.out)
    lines = {check["name"]: check for check in report["checks"]}
    assert (result.code, report["ok"]) == (0, True), result
    other = {name for name, check in lines.items() if check["status"] != "ok"}
    assert other <= {"python", "completion"}, "the speed is that of a busy machine under Wine"
    assert "py -m speclsp" in lines["python"]["fix"] or lines["python"]["status"] == "ok"


# ── places ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_user_name_outside_ascii_is_no_obstacle(windows: list[str], tmp_path: Path):
    program = Program(windows, tmp_path / "Zoë Å 日本")
    file = program.home / "naïve 日本.py"
    assert program.run("setup", *TINY, "--yes").code == 0
    [settings] = program.home.rglob("config.toml")
    assert 'model = "tiny"' in settings.read_text()
    file.write_text(SOURCE)
    result = program.run("complete", f"{windows_path(file)}:2:12", "--json")
    assert result.code == 0 and json.loads(result.out)["target"].startswith("tiny/"), result
    assert program.run("config", "path").out == windows_path(settings) + "\n", "UTF-8 in a pipe"


DENIED = {"no rights": "Z:\\sys", "no such drive": "Q:\\"}  # no user may make files in /sys


@pytest.mark.parametrize("local", DENIED.values(), ids=DENIED)
@pytest.mark.parametrize(
    "words",
    [
        ("config", "set", "completion.eagerness", "low"),
        ("key", "set", "http://127.0.0.1:9"),
        ("models", "pull", "qwen2.5-coder-0.5b-instruct", "--set", "engine.offline=true"),
        ("setup", "--model", "qwen2.5-coder-0.5b-instruct", "--yes", "--set", "engine.offline=true"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_profile_without_rights_is_one_sentence(words: tuple[str, ...], local: str, program: Program):
    result = program.run(*words, stdin="secret\n", WIN_PD_OVERRIDE_LOCAL_APPDATA=local)
    assert (result.code, result.err.count("\n")) == (2, 1), result
    assert local.rstrip("\\") in result.err and "speclsp" in result.err


# ── files in use ─────────────────────────────────────────────────────────────────────────────────────────────

IN_USE = """
import mmap, sys, threading, time
from pathlib import Path
from speclsp import private_files
from speclsp.weights import cards, store_messages

there = Path(__file__).parent
target, new = there / "model.safetensors", there / "new"
target.write_bytes(b"old" * 5000)
new.write_bytes(b"new")
file = target.open("r+b")
mapped = mmap.mmap(file.fileno(), 0)
file.close()
if {closes}:
    threading.Timer(0.7, mapped.close).start()
began_s = time.monotonic()
try:
    private_files.retry_while_open(lambda: new.replace(target))
    print("replaced" if target.read_bytes() == b"new" and time.monotonic() - began_s > 0.5 else "at once")
except OSError as error:
    print(store_messages.os_error(cards.load("tiny").target, error))
    print(target.stat().st_size, new.exists())
"""


def test_a_mapped_file_is_replaced_once_its_reader_closes_it(program: Program, tmp_path: Path):
    assert program.script(IN_USE.format(closes=True), tmp_path).out == "replaced\n"


# ── ends ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(program: Program):
    command = [*program.windows, "-m", "speclsp", "doctor", *TINY]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=program.environment()) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline().startswith(b"ok    python")
        process.send_signal(signal.SIGINT)  # Wine makes a CTRL_C_EVENT of it
        began_s = time.monotonic()
        _, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (130, b""), time.monotonic() - began_s


# ── installation ─────────────────────────────────────────────────────────────────────────────────────────────

INSTALL = """
import sys
sys.path.insert(0, {pip!r})
sys.argv = ["pip", "install", "--no-deps", "--no-index", "--prefix", {prefix!r}, {wheel!r}]
from pip._internal.cli.main import main
sys.exit(main())
"""
START = """
import subprocess, sys
command = [{program!r}, "--version"]
ended = subprocess.run(command, stdin=subprocess.PIPE, capture_output=True, text=True)
print(ended.returncode, ended.stdout.strip(), ended.stderr.strip())
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pure wheel of this checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    build = f"import hatchling.build; hatchling.build.build_wheel({str(directory)!r})"
    environment = {**os.environ, "SPECLSP_PURE_WHEEL": "1"}
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, env=environment, check=True, timeout=300)
    return next(directory.glob("*.whl"))


def test_pip_installs_scripts_speclsp_exe(
    program: Program, wheel: Path, tmp_path: Path, path_of_pip: Callable[[], Path]
):
    prefix = tmp_path / "prefix"
    words = {"pip": path_of_pip(), "prefix": prefix, "wheel": wheel}
    text = INSTALL.format(**{name: windows_path(path) for name, path in words.items()})
    assert program.script(text, tmp_path).code == 0
    exe = prefix / "Scripts" / "speclsp.exe"
    assert exe.is_file()
    result = program.script(START.format(program=windows_path(exe)), tmp_path)
    assert result.out.startswith("0 speclsp "), result


@pytest.fixture
def path_of_pip(tmp_path: Path) -> Callable[[], Path]:
    """Copies this interpreter's pip, which is plain Python, into a directory of its own."""

    def copy() -> Path:
        import pip

        directory = tmp_path / "pip"
        shutil.copytree(Path(pip.__file__).parent, directory / "pip")
        return directory

    return copy
