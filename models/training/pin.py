"""Pins the releases of packages.toml: versions, files, sizes, sha256 sums and licences, looked up by name.

    python -m models.training.pin            pins the entries that have no releases yet
    python -m models.training.pin NAME...      pins these anew

The newest release, and the newest one of each minor version before it, until there are as many as `keep` says (3).
Nothing is run or built. The clean split refuses a name before anything is fetched: see clean_split.py.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import tomlkit

from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks.pin import PERMISSIVE, licence_in
from models.training.clean_split import LIST, refusal

MAX_BYTES = 16 << 20  # of one archive
KEEP = 3


class Refused(Exception):
    """Not a package for the list; str() says why."""


def releases_on_npm(name: str) -> tuple[dict[str, str], str]:
    """({version: file}, licence)."""
    command = [*corpus.npm(), "view", name, "versions", "license", "--json"]
    answer = json.loads(subprocess.run(command, capture_output=True).stdout)
    file = f"{name.strip('@').replace('/', '-')}-{{}}.tgz"
    return {version: file.format(version) for version in answer["versions"]}, str(answer["license"])


def releases_on_pypi(name: str, ecosystem: str) -> tuple[dict[str, str], str]:
    """({version: file}, ""): the licence stands in the archive."""
    commands: Any = importlib.import_module("pip._internal.commands")
    command = commands.create_command("download")
    options, _ = command.parse_args(["--no-deps", "--ignore-requires-python", "--disable-pip-version-check", name])
    with command.main_context():
        session = command.get_default_session(options)
        candidates = command._build_package_finder(options, session).find_all_candidates(name)
    ends = ".tar.gz" if ecosystem == "pypi-sdist" else "-none-any.whl"
    files = {
        candidate.link.filename: str(candidate.version)
        for candidate in candidates
        if candidate.link.filename.endswith(ends)
    }
    return {version: file for file, version in files.items()}, ""


def newest_of_minors(versions: list[str], keep: int) -> list[str]:
    """The newest version of each of the newest `keep` minor versions, oldest first; no pre-releases."""
    newest: dict[tuple[int, ...], tuple[tuple[int, ...], str]] = {}
    for version in versions:
        if re.fullmatch(r"\d+(\.\d+)*", version):
            numbers = tuple(map(int, version.split(".")))
            newest[numbers[:2]] = max(newest.get(numbers[:2], ((), "")), (numbers, version))
    return [newest[minor][1] for minor in sorted(newest)[-keep:]]


def pinned(ecosystem: str, name: str, keep: int) -> tuple[list[dict[str, Any]], str]:
    """(releases, oldest first; the licence of the newest)."""
    if why := refusal(name):
        raise Refused(f"{name}: {why}.")
    files, licence = releases_on_npm(name) if ecosystem == "npm" else releases_on_pypi(name, ecosystem)
    releases = []
    for version in newest_of_minors(list(files), keep):
        with tempfile.TemporaryDirectory() as folder:
            archive = corpus.Archive(
                ecosystem=ecosystem, name=name, version=version, file=files[version], bytes=0, sha256=""
            )
            arrived = Path(folder) / files[version]
            corpus.bring(archive, arrived)
            size, digest = arrived.stat().st_size, corpus.sha256(arrived)
            licence = licence if ecosystem == "npm" else licence_in(arrived)
        if size > MAX_BYTES:
            raise Refused(f"{name} {version} has {size} bytes; the most are {MAX_BYTES}.")
        releases.append({"version": version, "file": files[version], "bytes": size, "sha256": digest})
    words = set(re.split(r"\s+(?:OR|AND)\s+|[()]", licence)) - {""}
    if not (words and words <= set(PERMISSIVE)):
        raise Refused(f"{name} has the licence {licence!r}; the list wants one of {', '.join(PERMISSIVE)}.")
    return releases, licence


def main(names: list[str]) -> int:
    """Exit code 0; a package that is refused is named on stderr."""
    document = tomlkit.parse(LIST.read_text(encoding="utf-8"))
    wanted = [table for table in document["package"] if table["name"] in names or not (names or "releases" in table)]
    with ThreadPoolExecutor(corpus.AT_ONCE) as pool:
        jobs = {
            pool.submit(pinned, table["ecosystem"], table["name"], table.get("keep", KEEP)): table for table in wanted
        }
        for job in as_completed(jobs):
            try:
                releases, licence = job.result()
            except (Refused, corpus.CorpusError) as refused:
                print(f"not pinned: {refused}", file=sys.stderr, flush=True)
                continue
            listed = tomlkit.array()
            for release in releases:
                inline = tomlkit.inline_table()
                inline.update(release)
                listed.append(inline)
            table = jobs[job]
            table["licence"], table["releases"] = licence, listed.multiline(True)
            LIST.write_text(tomlkit.dumps(document), encoding="utf-8")
            print(
                f"{table['name']} {', '.join(str(release['version']) for release in releases)}: {licence}", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
