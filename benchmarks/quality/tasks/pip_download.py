"""Fetches one named file of a package index with pip's own session, as a child process: nothing is built or installed.

    python pip_download.py NAME FILENAME DESTINATION

`pip download` asks a source distribution for its metadata, and that runs code of the package. This runs none: pip's
settings (index, certificates, proxies, keyring) find and fetch the file, and its bytes are all that is looked at. It is
run with nothing but pip on the path, so it imports nothing of speclsp.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

PIECE_BYTES = 1 << 18
# Whether this Python could run the package is of no interest, and pip's cache would keep every archive twice.
OPTIONS = (
    "--no-deps",
    "--ignore-requires-python",
    "--no-cache-dir",
    "--no-input",
    "--pre",
    "--timeout=20",
    "--retries=2",
)


def main(name: str, filename: str, destination: Path) -> str:
    """Write the file to `destination`. Returns the error, "" on success."""
    pip: Any = importlib.import_module("pip._internal.commands")  # no public name gives a file without building it
    command = pip.create_command("download")
    options, _ = command.parse_args([*OPTIONS, "--disable-pip-version-check", name])
    with command.main_context():
        session = command.get_default_session(options)
        finder = command._build_package_finder(options, session)
        links = [candidate.link for candidate in finder.find_all_candidates(name)]
        link = next((link for link in links if link.filename == filename), None)
        if link is None:
            return f"the package index has {len(links)} files of {name}, and no {filename}"
        answer = session.get(link.url_without_fragment, headers={"Accept-Encoding": "identity"}, stream=True)
        answer.raise_for_status()
        with destination.open("wb") as out:
            while piece := answer.raw.read(PIECE_BYTES):
                out.write(piece)
    return ""


if __name__ == "__main__":
    try:
        wrong = main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
    except Exception as error:  # the parent shows one sentence, whatever it was
        wrong = f"{type(error).__name__}: {error}"
    sys.exit(wrong)
