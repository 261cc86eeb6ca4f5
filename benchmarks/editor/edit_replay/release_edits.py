"""Packages whose releases are replayed as edits, the part that each belongs to, and the verdict on an edit.

Packages whose name has a sha256 that begins with 0, 1, 2 or 3 are held out, and so are all of next_edit.toml: the gate
was tuned on the others. The part `blind` is next_edit_blind.toml, chosen by name when the rules were finished.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from benchmarks.editor.edit_replay.replayed_file import covering, writes
from benchmarks.quality import edits
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks as cursors
from speclsp.cli import terminal
from speclsp.lsp.next_edit.producer import Proposal

MORE = edits.LIST.with_name("next_edit.toml")  # packages that are held out, in the same form
BLIND_LIST = edits.LIST.with_name("next_edit_blind.toml")
HELD_OUT = "0123"  # first characters of the sha256 of a package's name
PARTS = ("held-out", "tuning", "all")
BLIND = "blind"
MAX_STATES = 40  # of one file
MAX_QUIET = 8  # of one file
MAX_PACKAGE_STATES = 500  # of one package: no further file is replayed then
MAX_FILE_CHARACTERS = 150_000  # a larger file was generated, or bundled
GROUPS = {"typescriptreact": "typescript", "javascriptreact": "javascript"}


def verdict(proposal: Proposal, text: str, left: Sequence[edits.Hunk], done: Sequence[edits.Hunk]) -> tuple[bool, bool]:
    """(right, exact) for an edit of `text`, from which the differences `left` lead to the newer release."""
    place = proposal.place
    first, end = lines_of(proposal, text)
    old, lines = text[place.start : place.end].split("\n"), tuple(place.new.split("\n"))
    while len(lines) > 1 and old and old[0] == lines[0]:  # a line that stays is not written
        first, old, lines = first + 1, old[1:], lines[1:]
    for hunk, start, stop in covering(left, done, first, end):
        return writes(hunk, lines), hunk.lines == lines and (start, stop) == (first, end)
    return False, False


def lines_of(proposal: Proposal, text: str) -> tuple[int, int]:
    """The lines [first, end) that an edit replaces."""
    place = proposal.place
    return text.count("\n", 0, place.start), text.count("\n", 0, place.end) + 1


def files_of(package: corpus.Package) -> Iterator[tuple[str, str, str]]:
    """(path, older text, newer text) of each file that the release changed."""
    older, newer = (edits.sources(root, package.folders) for root in (package.before_root, package.root))
    yield from ((path, older[path], text) for path, text in newer.items() if older.get(path, text) != text)


def replayed(package: corpus.Package) -> Iterator[tuple[str, str, str]]:
    """The changed files in the package's languages, in an order without regard to their text."""
    wanted = {GROUPS.get(language, language) for language in package.languages}
    for path, before, after in edits.drawn(list(files_of(package)), package.name, key=lambda file: file[0]):
        if max(len(before), len(after)) <= MAX_FILE_CHARACTERS and language_of(path, package) in wanted:
            yield path, before, after


def language_of(path: str, package: corpus.Package) -> str:
    """The row of a file: with TypeScript's and JavaScript's two dialects together, and headers with their package."""
    suffix = PurePosixPath(path).suffix
    language = cursors.LANGUAGES[suffix]
    return "cpp" if suffix == ".h" and "cpp" in package.languages else GROUPS.get(language, language)


def is_held_out(package: str) -> bool:
    """True if the gate was not tuned on this package."""
    return hashlib.sha256(package.encode()).hexdigest()[0] in HELD_OUT


def is_judge(package: corpus.Package, listed: Path) -> bool:
    """True if a package may judge the gate."""
    return listed == MORE or is_held_out(package.name)


def part_of(package: corpus.Package, listed: Path) -> str:
    """The part that a package of a list belongs to."""
    if listed == BLIND_LIST:
        return BLIND
    return PARTS[0] if is_judge(package, listed) else PARTS[1]


def listed_packages(
    bar: terminal.ProgressLine, lists: Sequence[Path] = (edits.LIST, MORE)
) -> list[tuple[corpus.Package, str]]:
    """The packages of the lists, fetched, and the part that each belongs to."""
    return [
        (package, part_of(package, listed))
        for listed in lists
        for package in corpus.fetch(lambda done, total: bar.show("fetching", done / max(total, 1), ""), listed)
    ]
