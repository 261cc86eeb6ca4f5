"""The 240 places of `python -m benchmarks auto-closed`: cursors in held-out packages, with an editor's closers.

Eight languages, 30 places each, of the packages that `quality` pins: clean_split.py keeps them out of every training.
Every choice follows from sha256 sums, so the set is the same on any machine. Each place gives two tasks: with the
closers right of the cursor, and with nothing there.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.quality.auto_closed import editor_pairs
from benchmarks.quality.auto_closed.editor_pairs import Pair, Place
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks as cursors
from benchmarks.quality.tasks.cross_file_names import SourceFile
from benchmarks.quality.tasks.cut_points import draw
from benchmarks.quality.tasks.tasks import Task
from speclsp.lsp.syntax.parser import SyntaxParser

SEED = "auto-closed 1"
SHA256 = "8727573e7d7158a599b4efa8c897763a070c3788ff90191df6632fd8eae06a81"  # of the set
PARSE_MS = 20_000.0  # the choice of places must not depend on the machine's speed
PER_LANGUAGE, PER_FILE, PER_ANSWER = 30, 2, 2
MAX_FILES, MAX_LINES, MAX_PAIRS = 80, 2500, 40  # files of a package, lines and pairs of a file that are searched
GROUPS = {"python": "python", "javascript": "javascript", "typescript": "typescript", "go": "go", "rust": "rust",
          "typescriptreact": "typescriptreact", "c": "cpp", "cpp": "cpp", "java": "java"}  # fmt: skip
WANTED: Mapping[str, Mapping[str, int]] = {  # places of each kind; what a language lacks, brackets replace
    "python": {"bracket": 14, "docstring": 6, "string": 5, "block": 3, "entered": 2},
    "typescriptreact": {"bracket": 9, "tag": 7, "block": 8, "entered": 3, "string": 3},
    "": {"bracket": 12, "block": 10, "entered": 4, "string": 4},
}
ANSWER_CHARACTERS, ANSWER_LINES, LINE_CHARACTERS = (3, 200), 6, 140
AT_OPENER, WITH_MARK, TYPED_AROUND, ENTERED = 70, 40, 30, 30  # percent
TELLING = re.compile(r"[A-Za-z_]\w{2,}")
NO_PLACE = re.compile(r"\s*(?:#|//|\*|@|import\b|from\b|use\b|package\b|export\s*[*{]|extern\b|mod\b)")
BLOCKS = ("block", "entered")


@dataclass(frozen=True, slots=True)
class Case:
    """A place and its file."""

    package: corpus.Package
    file: SourceFile
    place: Place

    @property
    def language(self) -> str:
        return GROUPS[self.file.language]

    def closed(self) -> Task:
        """With the editor's closers right of the cursor."""
        return self.task("closed", self.place.document(self.file.text))

    def bare(self) -> Task:
        """With nothing right of the cursor: the closers are removed."""
        return self.task("bare", self.file.text[: self.place.cursor] + self.file.text[self.place.end :])

    def task(self, what: str, text: str) -> Task:
        identity = f"{what}/{self.package.name}/{self.file.path}/{self.place.cursor}/{self.place.kind}"
        return Task(
            id=hashlib.sha256(identity.encode()).hexdigest()[:12], package=self.package.name, root=self.package.root,
            path=self.file.path, language=self.file.language, text=text, cursor=self.place.cursor,
            truth=self.place.answer, kind=self.place.kind, below="kept", crosses=(), seen=False, open_paths=(),
        )  # fmt: skip


def cases(packages: Sequence[corpus.Package]) -> list[Case]:
    """The places of all languages, in a fixed order."""
    of_language: dict[str, list[Case]] = {language: [] for language in dict.fromkeys(GROUPS.values())}
    for package in packages:
        for case in of_package(package):
            of_language[case.language].append(case)
    return [case for language, candidates in of_language.items() for case in chosen(language, candidates)]


def pinned(packages: Sequence[corpus.Package]) -> list[Case]:
    """The same, checked. Raises CorpusError if they are not the set of SHA256."""
    listed = cases(packages)
    if (now := digest(listed)) != SHA256:
        raise corpus.CorpusError(
            f"the places are not those that were pinned: their sha256 is {now}, expected is {SHA256}. Results of two "
            "sets are not comparable: look for a change of the packages, the grammars or the choice."
        )
    return listed


def of_package(package: corpus.Package) -> Iterator[Case]:
    """Every candidate of a package: at most one for each of some pairs of its files."""
    folders = tuple(f"{folder}/" for folder in package.cursors) or ("",)
    usable = [
        file
        for file in cursors.read(package)
        if file.language in package.languages and file.path.startswith(folders) and len(file.lines) <= MAX_LINES
    ]
    usable.sort(key=lambda file: draw(SEED, package.name, file.path))
    for file in usable[:MAX_FILES]:
        pairs = editor_pairs.pairs_of(file.text, file.language) or []
        for pair in sorted(pairs, key=lambda pair: draw(SEED, file.path, pair.opened))[:MAX_PAIRS]:
            place = place_in(file, pairs, pair)
            if place is not None and is_telling(file, place):
                yield Case(package, file, place)


def place_in(file: SourceFile, pairs: Sequence[Pair], pair: Pair) -> Place | None:
    """The place that the digests choose in a pair."""
    _, end = editor_pairs.line_of(file.text, pair.opened)
    cursor, right = pair.opened, min(pair.closed, end)

    def percent(what: str) -> int:
        return draw(SEED, file.path, pair.opened, what) % 100

    if percent("cursor") >= AT_OPENER and right - cursor > 8:
        cursor += 1 + draw(SEED, file.path, pair.opened, "column") % (right - cursor - 6)
    place = editor_pairs.place_at(
        file.text, pairs, cursor, with_mark=percent("mark") < WITH_MARK, typed_around=percent("around") < TYPED_AROUND
    )
    if place is not None and place.kind == "block" and percent("enter") < ENTERED:
        return editor_pairs.entered(file.text, place)
    return place


def is_telling(file: SourceFile, place: Place) -> bool:
    """True if the answer has a word and a usual length, and its line is no import."""
    start, end = editor_pairs.line_of(file.text, place.cursor)
    low, high = ANSWER_CHARACTERS
    return (
        low <= len(place.answer.strip()) <= high
        and place.answer.strip().count("\n") < ANSWER_LINES
        and end - start <= LINE_CHARACTERS
        and TELLING.search(place.answer) is not None
        and NO_PLACE.match(file.text[start:end]) is None
    )


def chosen(language: str, candidates: Sequence[Case]) -> list[Case]:
    """The places of a language: by kind, few of a file and of a package, no answer often."""
    ordered = sorted(candidates, key=lambda case: draw(SEED, case.package.name, case.file.path, case.place.cursor))
    names = {case.package.name for case in ordered}
    per_package = max(6, 2 * PER_LANGUAGE // max(len(names), 1))
    counts: Counter[tuple[str, ...]] = Counter()
    result: list[Case] = []
    wanted = dict(WANTED.get(language, WANTED[""]))
    wanted = {kind: count for kind, count in wanted.items() if kind != "bracket"} | {"bracket": PER_LANGUAGE}
    for kind, count in wanted.items():
        left = min(count, PER_LANGUAGE - len(result))
        for case in ordered:
            keys = (("file", case.file.path), ("package", case.package.name), ("answer", case.place.answer.strip()))
            is_free = all(
                counts[key] < most for key, most in zip(keys, (PER_FILE, per_package, PER_ANSWER), strict=True)
            )
            if left and case.place.kind == kind and is_free and is_whole(case):
                counts.update(keys)
                result.append(case)
                left -= 1
    return result


def is_whole(case: Case) -> bool:
    """True if the author's text of the place has no more syntax errors than the file."""
    text, place = case.file.text, case.place
    whole = text[: place.cursor] + place.answer + place.rest + place.mark + text[place.end :]
    now, then = errors_of(case.file.language, text), errors_of(case.file.language, whole)
    return now is not None and then is not None and then <= now


def errors_of(language: str, text: str) -> int | None:
    """Syntax errors of a text; None where there is no tree."""
    tree = SyntaxParser().parse(language, text, PARSE_MS)
    return None if tree is None else tree.count_errors()


def digest(listed: Sequence[Case]) -> str:
    """The sha256 of the tasks of all places."""
    total = hashlib.sha256()
    for case in listed:
        for task in (case.closed(), case.bare()):
            total.update(repr((task.id, task.package, task.path, task.text, task.cursor, task.truth)).encode())
    return total.hexdigest()
