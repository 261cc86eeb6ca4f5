"""Runs every command of a list in a process of its own, and writes its exit code and output into files.

    python command_streams.py DIRECTORY CONDITION < COMMANDS     a JSON list of lists of words

A condition closes, fills or narrows the standard streams of this interpreter before anything of speclsp is imported, so
each command meets them as from a shell. Each ends through the interpreter's own exit, where the last flush happens.
The process is a fork.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

CONDITIONS = {  # {name: what becomes of descriptors 0, 1 and 2: "" kept, "-" closed, a file}
    "stdout closed": ("", "-", ""),
    "stdout full": ("", "/dev/full", ""),
    "stderr full": ("", "", "/dev/full"),
    "all closed": ("-", "-", "-"),
    "all full": ("", "/dev/full", "/dev/full"),
    "ascii": ("", "", ""),
}


def main(directory: Path, condition: str) -> None:
    """Change the streams, then start this file again, with the commands in a file."""
    (directory / "commands.json").write_text(sys.stdin.read())
    flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC
    for number, change in enumerate(CONDITIONS[condition]):
        path = change or ("/dev/null" if number == 0 else str(directory / f"{number}"))
        handle = os.open(path if path != "-" else "/dev/null", flags, 0o600)
        os.dup2(handle, number)
        os.close(handle)
    for number, change in enumerate(CONDITIONS[condition]):
        if change == "-":
            os.close(number)
    os.execve(sys.executable, [sys.executable, __file__, str(directory), "--run", condition], environment(condition))


def environment(condition: str) -> dict[str, str]:
    """The variables of the commands."""
    return os.environ | ({"PYTHONIOENCODING": "ascii"} if condition == "ascii" else {})


def run(directory: Path, condition: str) -> None:
    """Run the commands; results.json gets [exit code, stdout, stderr] of each, "" for a stream that goes elsewhere."""
    from speclsp.cli import entry

    results = []
    for words in json.loads((directory / "commands.json").read_text()):
        kept = [number for number in (1, 2) if not CONDITIONS[condition][number]]
        for number in kept:
            os.truncate(number, 0)
            os.lseek(number, 0, os.SEEK_SET)
        child = os.fork()
        if not child:
            sys.exit(entry.main(words))
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        texts = [(directory / f"{number}").read_bytes() if number in kept else b"" for number in (1, 2)]
        results.append([code, *(text.decode("utf-8", "backslashreplace") for text in texts)])
    (directory / "results.json").write_text(json.dumps(results))


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """{name: parser} of the commands or actions below `parser`; {} without any."""
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return next((dict(action.choices) for action in actions), {})


if __name__ == "__main__":
    if sys.argv[2] == "--run":
        run(Path(sys.argv[1]), sys.argv[3])
    else:
        main(Path(sys.argv[1]), sys.argv[2])
