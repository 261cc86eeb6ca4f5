"""Command line: its arguments and help, its stdout, and one clear line for each failure."""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.cli.command_streams import commands_of
from support.cli.terminal import Run, Terminal, runner
from support.rows import rows

import speclsp
from speclsp import config
from speclsp.cli import commands, entry, terminal
from speclsp.cli.arguments import command_tree as tree
from speclsp.cli.complete import positions
from speclsp.errors import InputError

ROWS = rows(__file__)

ROOT = Path(__file__).parents[3]
no_colon = pytest.mark.skipif(sys.platform == "win32", reason="a colon names a stream of a file there")
COMMAND = [sys.executable, "-m", "speclsp"]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "add.py"
    path.write_text("def add(a, b):\n    return a\n\n\nprint(add(1, 2))\n")
    return path


def echo(prefix: str, suffix: str) -> str:
    """The echo model's answer."""
    first, second = (hashlib.sha256(text.encode()).hexdigest()[:8] for text in (prefix, suffix))
    return f"E:{first}:{second}"


# ── errors: one line with the fix ────────────────────────────────────────────────────────────────────────────────


def test_the_version_is_printed(run: Run):
    assert run("--version") == (0, f"speclsp {speclsp.__version__}\n", "")


@pytest.mark.parametrize(("words", "says"), ROWS["refused"], ids=[words for words, _ in ROWS["refused"]])
def test_an_invalid_command_line_is_refused_in_one_line(
    run: Run, source: Path, monkeypatch: pytest.MonkeyPatch, words: str, says: str
):
    monkeypatch.chdir(source.parent)
    code, out, err = run(*words.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("speclsp") and says in err


@pytest.mark.parametrize(("place", "says"), ROWS["an_invalid_completion_point_is_reported_with_the_reason"])
def test_an_invalid_completion_point_is_reported_with_the_reason(
    run: Run, source: Path, monkeypatch: pytest.MonkeyPatch, place: str, says: str
):
    monkeypatch.chdir(source.parent)
    Path("binary.py").write_bytes(b"\x7fELF\0\0")
    Path("latin.py").write_bytes(b"'\xe9'")
    Path("large.py").write_text("x" * 2000)
    if place.startswith("pipe"):
        if sys.platform == "win32":
            pytest.skip("Windows has no FIFO; tests/windows/test_command_line.py completes in the device NUL")
        os.mkfifo("pipe.py")
    if place.startswith("secret"):
        monkeypatch.setattr(Path, "read_bytes", lambda self: exec("raise PermissionError(13, 'Permission denied')"))
        Path("secret.py").write_text("x")
    code, out, err = run("complete", place, "--model", "echo", "--set", "context.max_file_bytes=1000")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("speclsp: ") and says in err


def test_a_bad_config_file_stops_a_command_and_is_named(run: Run, source: Path):
    path = config.config_path()
    path.parent.mkdir(parents=True)
    path.write_text("model = \n")
    code, _, err = run("complete", f"{source}:2:14")
    assert code == 2
    assert str(path) in err


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 141, ""),
        (
            OSError(28, "Disk full", "/cache/model"),
            2,
            "speclsp: /cache/model cannot be read or written: disk full. Free some space, or",
        ),
        (InputError("two\nlines"), 2, "speclsp: two lines\n"),
        (ZeroDivisionError("division by zero"), 70, "speclsp: ZeroDivisionError: division by zero. This is a bug"),
    ],
)
def test_no_error_prints_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: BaseException, code: int, says: str
):
    def fail(*_: object) -> int:
        raise error

    monkeypatch.setattr(commands, "run_doctor", fail)
    monkeypatch.setattr(entry.os, "dup2", lambda *_: None)
    assert entry.main(["doctor"]) == code
    err = capsys.readouterr().err
    assert err.startswith(says)
    assert err.count("\n") == (1 if says else 0)


# ── help ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_help_lists_every_command_and_names_a_first_step():
    parser = tree.parser()
    text = parser.format_help()
    assert all(f"\n    {name} " in text for name in commands_of(parser))
    assert "First step: speclsp" in text


# ── a completion ─────────────────────────────────────────────────────────────────────────────────────────────


def test_in_a_pipe_stdout_is_the_suggestion_and_nothing_else(run: Run, source: Path):
    text = source.read_text()
    cursor = text.index("return a") + len("return ")
    source.write_text(text[:cursor] + text[cursor + 1 :])
    expected = echo(text[:cursor], text[cursor + 1 :])
    assert run("complete", f"{source}:2:12", "--model", "echo") == (0, expected + "\n", "")


@pytest.mark.parametrize(
    ("name", "text", "place", "prefix", "suffix"),
    [
        ("wide.txt", "日本 🐍 = \nend\n", "1:8", "日本 🐍 = ", "\nend\n"),
        ("dos.txt", "one\r\ntwo \r\nthree", "2:5", "one\ntwo ", "\nthree"),
        ("mac.txt", "one\rtwo \rthree", "2:5", "one\ntwo ", "\nthree"),
        pytest.param("a:1.txt", "x = ", "1:5", "x = ", "", marks=no_colon),
    ],
)
def test_a_position_counts_characters_and_every_line_end_as_one(
    run: Run, tmp_path: Path, name: str, text: str, place: str, prefix: str, suffix: str
):
    path = tmp_path / name
    path.write_bytes(text.encode())
    code, out, _ = run("complete", f"{path}:{place}", "--model", "echo")
    assert (code, out) == (0, echo(prefix, suffix) + "\n")


def test_json_has_the_model_and_the_end(run: Run, tmp_path: Path):
    path = tmp_path / "x.txt"
    path.write_text("x = ")
    code, out, err = run("complete", f"{path}:1:5", "--model", "echo", "--json")
    report = json.loads(out)
    assert (code, err, out.count("\n")) == (0, "", 1)
    assert report["suggestion"] == echo("x = ", "")
    assert (report["model"], report["draft"], report["stop_type"]) == ("echo", "", "eos")
    assert report["new_tokens"] == len(report["suggestion"])


def test_without_a_suggestion_the_reason_is_printed_and_no_model_is_loaded(run: Run, source: Path):
    code, out, err = run("complete", f"{source}:2:8", "--model", "qwen2.5-coder-0.5b-instruct")
    assert (code, out) == (0, "")
    assert err == "speclsp: no suggestion at this position: an identifier continues to the right of the cursor.\n"
    report = json.loads(run("complete", f"{source}:2:8", "--json")[1])
    assert (report["suggestion"], report["reason"]) == ("", "inside_word")


def test_a_cursor_mark_is_removed_and_gives_the_completion_point(tmp_path: Path):
    path = tmp_path / "hole.py"
    path.write_text("def f():\n    # <cursor>\n\nf()\n", newline="\n")
    snapshot = positions.at_mark(path, 1000)
    assert snapshot.text == "def f():\n    \n\nf()\n"
    assert snapshot.text[: snapshot.cursor] == "def f():\n    "
    path.write_text("x")
    with pytest.raises(InputError, match="has no `# <cursor>` mark"):
        positions.at_mark(path, 1000)


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_installed_weights_are_found_and_verified_without_a_download(run: Run):
    with_draft = ("tiny", "--set", "engine.draft=true")
    verified = "".join(f"tiny/{role}: complete; no checksums are known\n" for role in ("target", "draft"))
    assert run("models", "verify", *with_draft)[:2] == (0, verified)
    assert run("models", "pull", "tiny")[:2] == (0, "tiny is ready\n")


def test_without_a_name_the_settings_choose_the_model(run: Run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # a hub that does not answer
    assert run("models", "verify", "--set", "model=tiny")[0] == 0
    code, out, err = run("models", "verify", "--set", "device=cpu")
    assert (code, out) == (1, "")
    assert err == (
        "speclsp: qwen2.5-coder-0.5b-instruct is not on this machine: "
        "`speclsp models pull qwen2.5-coder-0.5b-instruct` downloads it.\n"
    )


def test_offline_and_without_weights_there_is_one_clear_error(run: Run, source: Path):
    offline = ("--set", "engine.offline=true")
    for words in (
        ("models", "pull", "qwen2.5-coder-0.5b-instruct", *offline),
        ("complete", f"{source}:2:13", "--model", "qwen2.5-coder-0.5b-instruct", *offline),
    ):
        code, out, err = run(*words)
        assert (code, out) == (2, "")
        assert "qwen2.5-coder-0.5b-instruct is not on this machine: offline is set, so nothing is downloaded." in err
        assert "models_dir" in err, "the way out"
        assert err.count("\n") == 1


# ── processes ────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_command_imports_no_model_library_before_it_needs_one():
    code = (
        "import sys, speclsp.cli.entry\n"
        "speclsp.cli.entry.parser().parse_args(['lsp', '--stdio'])\n"
        "print([m for m in ('torch', 'transformers', 'pygls', 'rich', 'httpx') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_download_shows_size_rate_and_remaining_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLUMNS", "80")
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    bar = terminal.ProgressLine(Terminal())
    for second in range(5):
        now[0] = float(second)
        bar.bytes(second * 100 * 2**20, 400 * 2**20, "fetching model.gguf")
    bar.close()
    drawn = bar.stream.getvalue().split("\r")  # type: ignore[attr-defined]
    assert "200 MiB of 400 MiB, 100 MiB/s, 0:02 left" in drawn[3]
    full, empty = re.findall(r"\[(#+)(\.+)\]", drawn[3])[0]
    assert len(full) == len(empty), "half of it"
    assert all(len(line.rstrip("\n")) < 80 for line in drawn)
    assert drawn[-1].rstrip(" ").endswith("400 MiB of 400 MiB, 100 MiB/s, 0:04\n")


@pytest.mark.parametrize(("step_s", "lines"), [(1.0, 11), (0.05, 4), (0.001, 2)])
def test_without_a_terminal_a_download_prints_a_line_per_tenth_and_not_too_often(
    monkeypatch: pytest.MonkeyPatch, step_s: float, lines: int
):
    now = [1000.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    stream = io.StringIO()
    bar = terminal.ProgressLine(stream)
    for percent in range(101):
        bar.bytes(percent, 100, "fetching")
        now[0] += step_s
    bar.bytes(50, 100, "checking")
    bar.close()
    written = stream.getvalue().splitlines()
    assert len(written) == lines + 1
    assert (written[0], written[-1]) == ("fetching: 0 B of 100 B", "checking: 50 B of 100 B")
    assert written[-2].startswith("fetching: 100 B of 100 B")
    assert "\r" not in stream.getvalue()


def test_sizes_have_three_digits_and_times_minutes():
    sizes = {0: "0 B", 1023: "1023 B", 1536: "1.5 KiB", 491400064: "469 MiB", 3 * 2**30: "3.0 GiB"}
    assert {count: terminal.in_size(count) for count in sizes} == sizes
    times = {0.4: "0:00", 75: "1:15", 3725: "1:02:05"}
    assert {seconds: terminal.in_time(seconds) for seconds in times} == times
