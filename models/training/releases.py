"""Releases of packages.toml on this disk: fetched, checked against their sums, unpacked as text, never run."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.quality.edits import sources
from benchmarks.quality.tasks import packages as corpus
from models.training.clean_split import LIST, normal, refusal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HELD_OUT_PART = 10  # one package of so many, for the loss log


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """A package to learn from. `roots` are its unpacked releases, oldest first."""

    name: str
    licence: str
    languages: tuple[str, ...]
    folders: tuple[str, ...]  # of its hand-written source; () when all of it is
    skip: tuple[str, ...]  # parts of paths that nothing is learned from: generated or vendored code
    archives: tuple[corpus.Archive, ...]
    roots: tuple[Path, ...]

    @property
    def is_held_out(self) -> bool:
        """True if no step trains on it: its examples give the held-out loss."""
        return int(hashlib.sha256(normal(self.name).encode()).hexdigest()[8:16], 16) % HELD_OUT_PART == 0

    def files(self, root: Path) -> dict[str, str]:
        """{path: text} of one of its releases' source files, without those to skip."""
        texts = sources(root, self.folders)
        return {path: text for path, text in texts.items() if not any(part in path for part in self.skip)}


def listed(file: Path = LIST, into: Path | None = None) -> list[Learned]:
    """The packages of a list, fetched or not. Raises CorpusError for one that the clean split forbids."""
    into = into or corpus.corpus_dir()
    result = []
    for table in tomllib.loads(file.read_text(encoding="utf-8"))["package"]:
        if why := refusal(table["name"]):
            raise corpus.CorpusError(f"{file.name} lists {table['name']}, and {why}: remove it.")
        base = {"ecosystem": table["ecosystem"], "name": table["name"]}
        archives = tuple(corpus.Archive(**base, **release) for release in table["releases"])
        result.append(
            Learned(
                name=table["name"],
                licence=table["licence"],
                languages=tuple(table["languages"]),
                folders=tuple(table.get("folders", ())),
                skip=tuple(table.get("skip", ())),
                archives=archives,
                roots=tuple(into / archive.folder for archive in archives),
            )
        )
    return result


def fetched(
    progress: Callable[[int, int], None],
    file: Path = LIST,
    into: Path | None = None,
    *,
    newest_only: bool = False,
) -> list[Learned]:
    """The packages of a list, downloaded and unpacked; `newest_only`: of each its last release. Raises CorpusError."""
    learned = listed(file, into)
    archives = [archive for package in learned for archive in package.archives[-1 if newest_only else 0 :]]
    corpus.fetch_archives([(archive, ()) for archive in archives], progress, into)
    return learned
