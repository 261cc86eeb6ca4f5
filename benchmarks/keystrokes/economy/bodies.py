"""Function bodies of packages from 2026, to be typed again, and the keys that type them.

A body is the lines between a function's header and its end. The document holds the rest of the file, so the closing
brace of the function stands below the cursor, as in an editor that closes brackets. The packages are those of
benchmarks/quality/tasks/packages.toml: no training reads them. The same packages give the same bodies anywhere, since
every choice follows from a sha256.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.quality.cache.source_digest import digest
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks
from benchmarks.quality.tasks.cross_file_names import Names, SourceFile
from benchmarks.quality.tasks.cut_points import draw

SEED = 38
GROUPS = {
    "python": "python", "typescript": "typescript", "typescriptreact": "typescript", "rust": "rust", "go": "go",
    "java": "java",
}  # fmt: skip
ECONOMY_GROUPS = ("python", "typescript", "rust", "go")
BODY_KEYS = (90, 480)  # fewest and most keys of a body
BODY_LINES = (4, 24)
FILE_LINES = (40, 1500)
MAX_OF_PACKAGE = {"python": 2, "typescript": 2, "rust": 3, "go": 12, "java": 3}  # one package is written in Go
MAX_FILES = 40  # of a package, searched for bodies
OPEN_FILES = 3  # other files of the package that are open beside
KEY = re.compile(r"\n[ \t]*|[^\n]")  # Enter also types the indentation of the next line, as editors do
_HEADERS = {
    "python": re.compile(r"^\s*(?:async\s+)?def\s+\w+.*:\s*$"),
    "typescript": re.compile(
        r"^\s*(?:export\s+|default\s+|public\s+|private\s+|protected\s+|static\s+|async\s+|override\s+)*"
        r"(?:function\*?\s+\w+|(?!if\b|for\b|while\b|switch\b|catch\b|return\b|else\b|do\b)[\w$#]+)"
        r"(?:<[^>]*>)?\s*\([^;{}]*\)\s*(?::[^;={}]+)?\{\s*$"
    ),
    "rust": re.compile(r"^\s*(?:pub(?:\([^)]*\))?\s+)?(?:async\s+|const\s+|unsafe\s+)*fn\s+\w+.*\{\s*$"),
    "go": re.compile(r"^func\s+.*\{\s*$"),
    "java": re.compile(
        r"^\s*(?:(?:public|protected|private|static|final|abstract|synchronized)\s+)+"
        r"(?:<[^>]*>\s*)?(?:[\w.<>\[\], ?]+\s+)?\w+\s*\([^;{}]*\)\s*(?:throws\s+[\w., ]+)?\{\s*$"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Body:
    """A function's body, and the document without it."""

    id: str
    package: str
    root: str  # of the unpacked package
    path: str  # of the file, inside root
    language: str  # LSP language id
    group: str  # "python" | "typescript" | "rust" | "go" | "java"
    above: str  # the file up to the end of the header's line
    text: str  # the body, from the newline behind the header to the end of its last line
    below: str  # the rest of the file
    open_paths: tuple[str, ...]  # other files that are open

    @property
    def keys(self) -> list[str]:
        """The texts that the keys of the body type."""
        return KEY.findall(self.text)


def bodies(packages: Sequence[corpus.Package], most: int, groups: Sequence[str] = ECONOMY_GROUPS) -> list[Body]:
    """Up to `most` bodies, the languages in turn, so that fewer are a part of more."""
    by_group: dict[str, list[Body]] = {group: [] for group in groups}
    for body in all_bodies(packages):
        if body.group in by_group:
            by_group[body.group].append(body)
    for members in by_group.values():
        members.sort(key=lambda body: draw(SEED, body.id))
        ranks = {body.id: sum(b.package == body.package for b in members[:at]) for at, body in enumerate(members)}
        members.sort(key=lambda body: ranks[body.id])  # every package once, then every package twice
    longest = max(map(len, by_group.values()))
    in_turn = [members[at] for at in range(longest) for members in by_group.values() if at < len(members)]
    return in_turn[:most]


def all_bodies(packages: Sequence[corpus.Package]) -> list[Body]:
    """The bodies of all packages, as the current code makes them; kept in the user's cache."""
    source = Path(__file__).read_text(encoding="utf-8")
    key = digest([source, tasks.task_source(), repr(packages)])[:16]
    file = corpus.corpus_dir() / f"bodies-{key}.json"
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))
        return [Body(**row | {"open_paths": tuple(row["open_paths"])}) for row in rows]
    except (OSError, ValueError, TypeError):
        result = [body for package in packages for body in of_package(package)]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(body) for body in result]), encoding="utf-8")
    return result


def of_package(package: corpus.Package) -> list[Body]:
    """The bodies of one package: at most one of each file."""
    group = GROUPS.get(package.languages[0], "")
    if not group:
        return []
    files = list(tasks.read(package))
    usable = [file for file in files if tasks.is_usable(file, package) and not tasks.is_test(file.path)]
    usable = [file for file in usable if FILE_LINES[0] <= len(file.lines) <= FILE_LINES[1]]
    usable.sort(key=lambda file: draw(SEED, package.name, file.path))
    names = Names(files)
    result: list[Body] = []
    for file in usable[:MAX_FILES]:
        spans = sorted(body_lines(file), key=lambda span: draw(SEED, package.name, file.path, *span))
        for first, last in spans[:1]:
            result.append(body_of(package, file, first, last, files, names))
        if len(result) == MAX_OF_PACKAGE[group]:
            break
    return result


def body_lines(file: SourceFile) -> Iterator[tuple[int, int]]:
    """(first, last) line of each body of usual size, from 0."""
    header = _HEADERS[GROUPS[file.language]]
    for number, masked in enumerate(file.masked_lines):
        if not header.match(masked):
            continue
        indent, last = indent_of(masked), number
        for at in range(number + 1, len(file.lines)):
            if file.lines[at].strip() and indent_of(file.lines[at]) <= indent:
                break
            last = at if file.lines[at].strip() else last
        text = "\n".join(["", *file.lines[number + 1 : last + 1]])
        is_whole = file.language == "python" or closes(file.lines, last + 1)
        lines, keys = last - number, len(KEY.findall(text))
        if is_whole and BODY_LINES[0] <= lines <= BODY_LINES[1] and BODY_KEYS[0] <= keys <= BODY_KEYS[1]:
            yield number + 1, last


def closes(lines: Sequence[str], at: int) -> bool:
    """True if a line begins with the brace that closes a body."""
    return at < len(lines) and lines[at].strip().startswith("}")


def indent_of(line: str) -> int:
    """Characters of a line's indentation."""
    return len(line) - len(line.lstrip())


def body_of(
    package: corpus.Package, file: SourceFile, first: int, last: int, files: Sequence[SourceFile], names: Names
) -> Body:
    """The body in lines `first` to `last` of a file."""
    identity = f"{package.name}/{file.path}/{first}"
    text = "\n".join(["", *file.lines[first : last + 1]])
    return Body(
        id=digest(identity)[:12],
        package=package.name,
        root=str(package.root),
        path=file.path,
        language=file.language,
        group=GROUPS[file.language],
        above="\n".join(file.lines[:first]),
        text="\n".join(line.rstrip() for line in text.split("\n")),
        below="\n".join(["", *file.lines[last + 1 :]]),
        open_paths=tasks.open_paths(identity, file, files, names)[:OPEN_FILES],
    )
