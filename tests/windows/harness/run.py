"""Runs the suites for Windows under Wine, and prints the counts: `make windows`.

    PYTHONPATH=tests python -m windows.harness.run [--light] [PATH...]

It makes the Windows Python (install.py) and the libraries of the forward pass, then runs pytest in three ways:

    windows   tests/windows, on Linux
    program   PROGRAM_SUITES, on Linux: the files that start the program, which is the Windows one
    python    PYTHON_SUITES, in the Windows Python itself

not_run.toml lists what cannot pass. It ends with 1 if another test fails, or if a process of pytest ends without a
reason. `--light` makes neither PyTorch nor models available, and runs one session of a language server. Where Wine
cannot be had, it ends with 0 and says so, as `make test` does for editors.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.editors.install import CannotInstall, locked
from windows.harness.install import install
from windows.harness.not_run import without_listed
from windows.harness.program import DRIVE

ROOT = Path(__file__).resolve().parents[3]
LIBRARY = ROOT / "speclsp" / "engine" / "model" / "int8"
PROGRAM_SUITES = ("tests/lsp", "tests/faults", "tests/engine/http", "tests/engine/process")
PYTHON_SUITES = (  # of the rest of tests/unit, nothing is in the wheel
    *(f"tests/unit/{folder}" for folder in ("cli", "ground", "lsp", "weights")),
    *(f"tests/engine/{folder}" for folder in ("decoding", "loading", "model", "scheduling")),
    *(f"tests/engine/test_{name}.py" for name in ("documented_decoder", "truncation")),
)
SESSION = "tests/windows/test_session.py"  # of a language server with the model echo
WORKERS = 2
STARTS_PROGRAM = re.compile(r"import .*(Editor|Client|EngineProcess|TcpEngine|program)\b|import faulty_hub")
LIMIT_S = 3000  # of one process of pytest
MAX_RESTARTS = 40
MAX_WITHOUT_PROGRESS = 3  # Wine 8 crashes now and then in its own heap, also while tests are collected
OPTIONS = (
    "-q",
    "-p",
    "no:cacheprovider",
    "-p",
    "windows.harness.not_run",
    "--timeout",
    "180",
    "--continue-on-collection-errors",
)
START_SERVICES = """
import ctypes, sys
open_manager = ctypes.WinDLL("advapi32").OpenSCManagerW
open_manager.restype = ctypes.c_void_p
print(open_manager(None, None, 1), flush=True)
sys.stdin.read()
"""
Line = dict[str, Any]


def build_libraries() -> None:
    """Compile the forward pass for Windows into the checkout, unless the libraries are newer than their sources."""
    sources = [*LIBRARY.glob("*.c"), *LIBRARY.rglob("*.h"), ROOT / "hatch_build.py"]
    newest = max(path.stat().st_mtime for path in sources)
    libraries = list(LIBRARY.glob("*.dll"))
    if libraries and min(path.stat().st_mtime for path in libraries) > newest:
        return
    environment = os.environ | {"SPECLSP_WHEEL_PLATFORM": "win32-AMD64"}
    with tempfile.TemporaryDirectory() as wheels:
        command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", wheels]
        subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    libraries = list(LIBRARY.glob("*.dll"))
    if not libraries or min(path.stat().st_mtime for path in libraries) < newest:
        raise CannotInstall("hatch_build.py did not compile the libraries for Windows")


def launcher_of_checkout(launcher: Path, folder: Path) -> Path:
    """A launcher that has this checkout on its path, whatever environment a test gives it."""
    script = folder / "python.sh"
    path = "${PYTHONPATH:+:$PYTHONPATH}"
    script.write_text(f'#!/bin/bash\nexport PYTHONPATH={ROOT}{path}\nexec {launcher} "$@"\n')
    script.chmod(0o755)
    pids = folder / "pids"
    pids.unlink(missing_ok=True)
    pids.symlink_to(launcher.with_name("pids"))
    return script


@contextmanager
def services_running(launcher: Path) -> Iterator[None]:
    """Keep Wine's services running. A program of a test that starts them would pass them the test's pipe for stderr."""
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen([launcher, "-c", START_SERVICES], stdin=pipe, stdout=pipe, stderr=null) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()


def outcomes(record: Path) -> dict[str, Line]:
    """{test: its worst outcome} of a record."""
    worst = ("failed", "ended", "passed though listed", "failed as listed", "not run", "skipped", "passed")
    lines: dict[str, Line] = {}
    started: dict[str, Line] = {}
    for line in map(json.loads, record.read_text("utf-8").splitlines() if record.exists() else []):
        if "test" not in line:
            continue
        name = line["test"]
        if line["outcome"] == "ended" or (line["outcome"] == "failed as listed" and name not in started):
            started[name] = line
        elif name not in lines or worst.index(line["outcome"]) < worst.index(lines[name]["outcome"]):
            lines[name] = line
    return started | lines


def has_finished(record: Path) -> bool:
    """True if the last process of a record came to its end."""
    text = record.read_text("utf-8") if record.exists() else ""
    return text.rstrip().endswith('{"finished": true}')


def run_pytest(words: list[str], way: str, record: Path, environment: dict[str, str]) -> None:
    """Run pytest until it has finished; a process that ends in a test goes on after it."""
    drive = DRIVE if way == "python" else ""
    variables = {"SPECLSP_TESTS_WINDOWS": way, "SPECLSP_TESTS_RECORD": f"{drive}{record}"}
    variables["PYTHONPATH"] = f"{ROOT}:{ROOT / 'tests'}"
    variables["XDG_CACHE_HOME"] = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")  # of the weights
    without_progress = 0
    for _ in range(MAX_RESTARTS):
        before = len(outcomes(record))
        with record.with_suffix(".log").open("w", encoding="utf-8") as log:  # no pipe: what outlives pytest may hold it
            process = subprocess.Popen(
                words,
                cwd=ROOT,
                env=os.environ | variables | environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            try:
                process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if has_finished(record):
            return
        without_progress = without_progress + 1 if len(outcomes(record)) == before else 0
        if without_progress == MAX_WITHOUT_PROGRESS:
            break
    output = record.with_suffix(".log").read_text("utf-8", errors="replace")
    with record.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"test": words[-1], "outcome": "failed", "reason": output[-4000:]}) + "\n")


def files_in(path: Path) -> list[Path]:
    """The test files in a folder, or the path itself if it is a file."""
    return [path] if path.is_file() else list(path.rglob("test_*.py"))


def shards(suites: tuple[str, ...], chosen: list[str]) -> list[list[str]]:
    """The test files of the suites, or of the chosen part of them, a list for each folder."""
    folders: dict[Path, list[str]] = {}
    for path in sorted(path for suite in suites for path in files_in(ROOT / suite)):
        name = path.relative_to(ROOT).as_posix()
        wanted = not chosen or any(name == part or name.startswith(f"{part}/") for part in chosen)
        if wanted and (suites != PROGRAM_SUITES or STARTS_PROGRAM.search(path.read_text("utf-8"))):
            folders.setdefault(path.parent, []).append(name)
    return sorted(folders.values(), key=len, reverse=True)


def run_all(launcher: Path, folder: Path, chosen: list[str]) -> dict[str, dict[str, Line]]:
    """{way: {test: outcome}} of all suites, or of the chosen files and folders."""
    launcher = launcher_of_checkout(launcher, folder)
    here = [sys.executable, "-m", "pytest", *OPTIONS]
    program = {"SPECLSP_TESTS_PROGRAM": str(launcher)}
    ways: dict[str, tuple[tuple[str, ...], list[str], dict[str, str]]] = {
        "windows": (("tests/windows",), here, {"SPECLSP_WINDOWS_PYTHON": str(launcher), **program}),
        "python": (PYTHON_SUITES, [str(launcher), "-m", "pytest", *OPTIONS], {}),
        "program": (PROGRAM_SUITES, here, program),
    }
    jobs = [
        (words, files, way, environment)
        for way, (suites, words, environment) in ways.items()
        for files in shards(suites, chosen)
    ]
    records = [(way, folder / f"{number}.jsonl") for number, (_, _, way, _) in enumerate(jobs)]
    with ThreadPoolExecutor(WORKERS) as pool:
        running = []
        for (words, files, way, environment), (_, record) in zip(jobs, records, strict=True):
            if wanted := without_listed(way, files, record):
                running.append(pool.submit(run_pytest, [*words, *wanted], way, record, environment))
    for process in running:
        process.result()
    results: dict[str, dict[str, Line]] = {}
    for way, record in records:
        results.setdefault(way, {}).update(outcomes(record))
    return results


def report(results: dict[str, dict[str, Line]]) -> int:
    """Print failures, listed tests that pass, skips and counts; returns the exit code."""
    failures = 0
    for way, tests in results.items():
        for outcome in ("failed", "ended", "passed though listed"):
            for name, line in sorted(tests.items()):
                if line["outcome"] == outcome:
                    detail = f"\n{line.get('reason')}" if outcome == "failed" else ""
                    print(f"{way}: {outcome}: {name}{detail}")
                    failures += outcome != "passed though listed"
        for outcome in ("skipped", "not run", "failed as listed"):
            reasons = Counter(line.get("reason") for line in tests.values() if line["outcome"] == outcome)
            for reason, count in reasons.most_common():
                print(f"{way}: {count} {outcome}: {reason}")
    for way, tests in results.items():
        counts = Counter(line["outcome"] for line in tests.values())
        print(f"{way}: {', '.join(f'{count} {outcome}' for outcome, count in counts.most_common())}")
    return int(failures > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--light", action="store_true", help="one session of a language server, without models")
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files or folders of tests; without it, all")
    options = parser.parse_args()
    started_s = time.monotonic()
    launcher, refusal = None, ""
    try:
        launcher = install(options.light)
    except (CannotInstall, OSError) as error:
        refusal = str(error)
    try:
        build_libraries()
    except (CannotInstall, OSError, subprocess.CalledProcessError) as error:
        print(f"make windows: {error}", file=sys.stderr)
        return 1
    if launcher is None:
        print(f"make windows: NO TEST WAS RUN, because there is no Windows Python: {refusal}", file=sys.stderr)
        return int(not options.light)
    ready_s = time.monotonic()
    folder = ROOT / "build" / "windows" / ("light" if options.light else "whole")
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder / ".lock"), services_running(launcher):  # two runs would write into the same records
        for old in folder.glob("*.jsonl"):
            old.unlink()
        code = report(run_all(launcher, folder, [SESSION] if options.light else options.paths))
    print(f"set-up {ready_s - started_s:.0f} s, tests {time.monotonic() - ready_s:.0f} s")
    return code


if __name__ == "__main__":
    sys.exit(main())
