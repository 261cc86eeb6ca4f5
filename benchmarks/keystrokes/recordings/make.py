"""Makes the recordings beside this file: from a source file, or all again from the sources they hold.

python benchmarks/keystrokes/recordings/make.py
python benchmarks/keystrokes/recordings/make.py NAME FILE LANGUAGE SEED ORIGIN LICENCE PATH
"""

from __future__ import annotations

import sys
from pathlib import Path

from benchmarks.keystrokes.recording import Recording
from benchmarks.keystrokes.typist import record

HERE = Path(__file__).parent
MINUTES = 3.6  # of each file


def main(words: list[str]) -> int:
    """Write one recording, or every one again."""
    if words:
        name, file, language, seed, origin, licence, path = words
        source = Path(file).read_text(encoding="utf-8")
        made = record(
            source, language=language, seed=int(seed), minutes=MINUTES, path=path, origin=origin, licence=licence
        )
        made.write(HERE / f"{name}.jsonl")
    for file_of in sorted(HERE.glob("*.jsonl")):
        old = Recording.read(file_of)
        new = record(
            old.source(),
            language=old.language,
            seed=old.seed,
            minutes=MINUTES,
            path=old.path,
            origin=old.origin,
            licence=old.licence,
        )
        new.write(file_of)
        print(f"{file_of.stem:<24} {len(new.keys):>5} keys {new.duration_ms / 60_000:5.1f} min  {new.origin}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
