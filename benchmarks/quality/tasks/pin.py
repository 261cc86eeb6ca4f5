"""Pins the packages of packages.toml: newest release, its day, licence, size and sha256, all looked up by name.

    python -m benchmarks pin                   pins the entries that have no version yet
    python -m benchmarks pin NAME[==VERSION]…  pins these anew

The manual entries (`folders`, `cursors`, `skip`, `languages`) are not changed. After a change of the pins the task set
is another one: `python -m benchmarks tasks` shows its new sha256 for README.md. Nothing is run or built.
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import tomlkit

from benchmarks.quality.tasks import packages

PERMISSIVE = ("0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT", "PSF-2.0", "Unlicense", "Zlib")
SPOKEN = {  # licence texts of metadata without an SPDX expression
    "MIT License": "MIT",
    "The MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
}
YEAR, BEFORE_YEAR = "2026", "2024"


class Refused(Exception):
    """Not a package for the list; str() says why."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks pin`."""
    parser.add_argument("packages", nargs="*", metavar="NAME[==VERSION]", help="default: those without a version yet")


def main(options: argparse.Namespace) -> int:
    """Exit code 0; a package that is refused is named on stderr."""
    version_of = dict(name.partition("==")[::2] for name in options.packages)
    document = tomlkit.parse(packages.LIST.read_text(encoding="utf-8"))
    for table in document["package"]:
        older = table.get("before", {"bytes": 0})
        if table["name"] in version_of or (not version_of and not ("version" in table and "bytes" in older)):
            try:
                table.update(pinned(table["ecosystem"], table["name"], version_of.get(table["name"], "")))
                if "bytes" not in older:
                    older_release = pinned(
                        table["ecosystem"], older.get("name", table["name"]), older["version"], BEFORE_YEAR
                    )
                    older.update({key: older_release[key] for key in ("file", "bytes", "sha256", "released")})
            except Refused as refused:
                print(f"not pinned: {refused}", file=sys.stderr)
                continue
            packages.LIST.write_text(tomlkit.dumps(document), encoding="utf-8")
            print(f"{table['name']} {table['version']} of {table['released']}, {table['licence']}")
    return 0


def pinned(ecosystem: str, name: str, version: str, year: str = YEAR) -> dict[str, str | int]:
    """Everything the index knows of one release that the list wants to know."""
    days, licence, file = (npm if ecosystem == "npm" else pypi)(name, version, ecosystem)
    first = {"first_release": min(day for day, _ in days.values())} if ecosystem != "npm" else {}
    released, version = days[file]
    if not released.startswith(year):
        raise Refused(f"{name} {version} is of {released}: the list wants a release of {year}.")
    with tempfile.TemporaryDirectory() as folder:
        archive = packages.Archive(ecosystem=ecosystem, name=name, version=version, file=file, bytes=0, sha256="")
        arrived = Path(folder) / file
        packages.bring(archive, arrived)
        licence = licence or licence_in(arrived)
        size, digest = arrived.stat().st_size, packages.sha256(arrived)
    words = set(re.split(r"\s+(?:OR|AND)\s+|[()]", licence)) - {""}
    if year == YEAR and not (words and all(word in PERMISSIVE for word in words)):
        raise Refused(f"{name} {version} has the licence {licence!r}: the list wants one of {', '.join(PERMISSIVE)}.")
    return {
        "version": version, "file": file, "bytes": size, "sha256": digest,
        "released": released, "licence": licence, **first,
    }  # fmt: skip


def npm(name: str, version: str, _ecosystem: str) -> tuple[dict[str, tuple[str, str]], str, str]:
    """-> {file: (day, version)}, licence, the file wanted."""

    def view(what: str, field: str) -> Any:
        output = subprocess.run(
            [*packages.npm(), "view", what, field, "--json"], capture_output=True, check=True
        ).stdout
        return json.loads(output)

    version = version or view(name, "dist-tags.latest")
    days = {key: day[:10] for key, day in view(name, "time").items() if key not in ("created", "modified")}
    file = f"{name.strip('@').replace('/', '-')}-{{}}.tgz"
    return (
        {file.format(key): (day, key) for key, day in days.items()},
        view(f"{name}@{version}", "license"),
        file.format(version),
    )


def pypi(name: str, version: str, ecosystem: str) -> tuple[dict[str, tuple[str, str]], str, str]:
    """The same; the licence stands in the archive."""
    commands: Any = importlib.import_module("pip._internal.commands")
    command = commands.create_command("download")
    options, _ = command.parse_args(["--no-deps", "--ignore-requires-python", "--disable-pip-version-check", name])
    with command.main_context():
        session = command.get_default_session(options)
        candidates = command._build_package_finder(options, session).find_all_candidates(name)
        days: dict[str, str] = {}
        for page in sorted(
            {candidate.link.comes_from for candidate in candidates if candidate.link.url.startswith("http")}
        ):
            answer = session.get(page, headers={"Accept": "application/vnd.pypi.simple.v1+json"})
            days |= {file["filename"]: file["upload-time"][:10] for file in answer.json()["files"]}
    ends = ".tar.gz" if ecosystem == "pypi-sdist" else "-none-any.whl"
    of_kind = [candidate for candidate in candidates if candidate.link.filename.endswith(ends)]
    of_kind = [candidate for candidate in of_kind if not version or str(candidate.version) == version]
    if not of_kind:
        raise Refused(f"{name} {version} has no {ends} on the index")
    newest = max(of_kind, key=lambda candidate: (not candidate.version.is_prerelease, candidate.version))
    versions = {candidate.link.filename: str(candidate.version) for candidate in candidates}
    return {file: (day, versions.get(file, "")) for file, day in days.items()}, "", newest.link.filename


def licence_in(archive: Path) -> str:
    """The SPDX expression of a Python archive's metadata, or the one derived from its classifiers and text."""
    for name, _, read in packages.members(archive):
        if name.count("/") == 1 and name.endswith(("/PKG-INFO", ".dist-info/METADATA")):
            text = read().read().decode("utf-8", "replace").partition("\n\n")[0]
            fields = re.findall(r"(?m)^License(?:-Expression)?: (.+)$|^Classifier: License :: (?:.* :: )?(.+)$", text)
            for word in (a or b for a, b in fields):
                if word.strip() in PERMISSIVE or " OR " in word or " AND " in word:
                    return str(word.strip())
                if word.strip() in SPOKEN:
                    return str(SPOKEN[word.strip()])
    return ""
