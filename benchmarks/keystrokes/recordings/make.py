"""Generates the typing traces in this folder: all of them anew from the sources they hold, or one from a source file.

python -m benchmarks make-recordings
python -m benchmarks make-recordings NAME FILE LANGUAGE SEED ORIGIN LICENCE PATH
"""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.keystrokes.recording import Recording
from benchmarks.keystrokes.typist import record
from speclsp.errors import InputError

HERE = Path(__file__).parent
MINUTES = 3.6  # of typing in each file
FIELDS = ("NAME", "FILE", "LANGUAGE", "SEED", "ORIGIN", "LICENCE", "PATH")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks make-recordings`."""
    parser.add_argument(
        "fields", nargs="*", metavar="FIELD", help=f"a new trace: {' '.join(FIELDS)} (default: make all of them again)"
    )


def main(options: argparse.Namespace) -> int:
    """Write one new recording, if named, then every recording again. Exit code 0."""
    if options.fields:
        if len(options.fields) != len(FIELDS):
            raise InputError(f"{len(options.fields)} fields: expected {' '.join(FIELDS)}.")
        name, file, language, seed, origin, licence, path = options.fields
        source = Path(file).read_text(encoding="utf-8")
        recording = record(
            source, language=language, seed=int(seed), minutes=MINUTES, path=path, origin=origin, licence=licence
        )
        recording.write(HERE / f"{name}.jsonl")
    for file_of_recording in sorted(HERE.glob("*.jsonl")):
        old = Recording.read(file_of_recording)
        new = record(
            old.source(),
            language=old.language,
            seed=old.seed,
            minutes=MINUTES,
            path=old.path,
            origin=old.origin,
            licence=old.licence,
        )
        new.write(file_of_recording)
        minutes = new.duration_ms / 60_000
        print(f"{file_of_recording.stem:<24} {len(new.keys):>5} keys {minutes:5.1f} min  {new.origin}")
    return 0
