"""Value of recent edits as context: suggesting the next edit between two successive releases of a package.

    python -m benchmarks edits --model qwen2.5-coder-0.5b-instruct [--tasks N] [--variants only-edit,full,with-edit]

    older release ─► all differences to the newer one, except at one place: applied as an editor's edits
                 └─► that one place: the cursor is there, and the rest of the line is the text that a person wrote

A task's edits are the nearest ones in its own file, and some in other files that the release changed, drawn without
regard to their text. People make one change after another and a release has many, so the gain holds for this test only.
The rest is as in `bench quality`: the product's own pipeline, one thing varied, all generations cached. Writes
benchmarks/results/edits-<pair>.json.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypeVar

from benchmarks import pairs, results_file
from benchmarks.quality import variants
from benchmarks.quality.cache.generation_cache import GenerationCache
from benchmarks.quality.quality import quality_dir, table
from benchmarks.quality.run_task import Row, TaskRunner
from benchmarks.quality.scoring import bootstrap, figures
from benchmarks.quality.tasks import packages as corpus
from benchmarks.quality.tasks import tasks as cursors
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.lsp.context.recent_activity import RecentActivity
from speclsp.lsp.documents.document import Documents

LIST = Path(__file__).parent / "tasks" / "edits.toml"  # as packages.toml; `before` is the release before
SEED = 7
SAME_FILE = 5  # edits of the task's own file
OTHER_FILES = 3
A_FILE = 2  # edits of each other file
TASKS_A_FILE, TASKS_A_PACKAGE = 4, 16
TRUTH_CHARACTERS = 5, 160
MOST_HUNK_LINES = 16
USUAL = "only-edit,full,with-edit"

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Hunk:
    """Lines `start` to before `end` of the older text, and the lines that replace them."""

    start: int
    end: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One edit: the lines from `first` to before `end` of a file at that time, and the lines that replace them."""

    path: str
    first: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Task:
    """The next edit to make, after others."""

    place: cursors.Task
    texts: Mapping[str, str]  # by path: before the edits; the last one is the task's own file
    steps: tuple[Step, ...]  # the last one is under way


def hunks(before: str, after: str) -> list[Hunk]:
    """The differences, from top to bottom."""
    old, new = before.split("\n"), after.split("\n")
    codes = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [Hunk(i, j, tuple(new[k:m])) for kind, i, j, k, m in codes if kind != "equal"]


def tasks(package: corpus.Package) -> list[Task]:
    """The tasks that a package's two releases make, in the order of their ids."""
    older, newer = sources(package.before_root, package.folders), sources(package.root, package.folders)
    changed = [path for path in newer if path in older and older[path] != newer[path]]
    differ = {path: hunks(older[path], newer[path]) for path in changed}
    edits = {path: [edit for edit in edits_of_file if is_edit(edit)] for path, edits_of_file in differ.items()}
    edits = {path: edits_of_file for path, edits_of_file in edits.items() if edits_of_file}
    result: list[Task] = []
    for path, edits_of_file in edits.items():
        places = drawn(
            [(edit, *at) for edit in edits_of_file for at in cursors_in(older[path], edit)], package.name, path
        )
        for hunk, line, column in places[:TASKS_A_FILE]:
            near = sorted(
                (edit for edit in edits_of_file if edit is not hunk), key=lambda edit: abs(edit.start - hunk.start)
            )
            others = drawn([other for other in edits if other != path], package.name, path, hunk)[:OTHER_FILES]
            recent = [(other, edits[other][:A_FILE]) for other in others] + [(path, near[:SAME_FILE][::-1])]
            if any(listed for _, listed in recent):
                whole = {other: (older[other], differ[other]) for other, _ in recent}
                result.append(task(package, whole, recent, hunk, line, column))
    return sorted(
        drawn(result, package.name, key=lambda one: one.place.id)[:TASKS_A_PACKAGE], key=lambda one: one.place.id
    )


def task(
    package: corpus.Package,
    whole: Mapping[str, tuple[str, Sequence[Hunk]]],
    recent: Sequence[tuple[str, Sequence[Hunk]]],
    hunk: Hunk,
    line: int,
    column: int,
) -> Task:
    """The edits of `recent` are made one by one, `hunk` up to a column of one of its lines, all others before."""
    path = recent[-1][0]
    texts: dict[str, str] = {}
    steps: list[Step] = []
    text = ""
    for other, listed in recent:
        old, every = whole[other]
        later = [*listed, hunk] if other == path else list(listed)
        done = {edit.start: edit for edit in every if edit not in later}
        texts[other] = text = made_of(old, done.values())
        for edit in listed:
            steps.append(step(other, edit, edit.lines, done))
            done[edit.start] = edit
            text = made_of(old, done.values())
    old = whole[path][0]
    written = (*hunk.lines[:line], hunk.lines[line][:column])
    steps.append(step(path, hunk, written, done))
    text = made_of(old, [*done.values(), Hunk(hunk.start, hunk.end, written)])
    first = steps[-1].first + line
    cursor = sum(len(row) + 1 for row in text.split("\n")[:first]) + column
    truth = hunk.lines[line][column:].rstrip()
    named = hashlib.sha256(f"{package.name} {path} {hunk.start} {line} {column}".encode()).hexdigest()[:12]
    indent = len(hunk.lines[line]) - len(hunk.lines[line].lstrip())
    place = cursors.Task(
        id=named,
        package=package.name,
        root=package.root,
        path=path,
        language=cursors.LANGUAGES[PurePosixPath(path).suffix],
        text=text,
        cursor=cursor,
        truth=truth,
        kind="line_start" if column == indent else "word",
        below="kept",
        crosses=(),
        seen=False,
        open_paths=tuple(other for other, _ in reversed(recent[:-1])),
    )
    return Task(place, texts, tuple(steps))


def made_of(old: str, done: Iterable[Hunk]) -> str:
    """A text with some of its hunks made."""
    lines = old.split("\n")
    for hunk in sorted(done, key=lambda hunk: -hunk.start):
        lines[hunk.start : hunk.end] = hunk.lines
    return "\n".join(lines)


def step(path: str, hunk: Hunk, lines: Sequence[str], done: Mapping[int, Hunk]) -> Step:
    """A hunk as an edit of the text in which those `done` are made."""
    shift = sum(len(edit.lines) - (edit.end - edit.start) for edit in done.values() if edit.start < hunk.start)
    return Step(path, hunk.start + shift, hunk.end + shift, "".join(line + "\n" for line in lines))


def is_edit(hunk: Hunk) -> bool:
    """True if a person may have made the edit in one go, and it holds a word."""
    return max(hunk.end - hunk.start, len(hunk.lines)) <= MOST_HUNK_LINES and any(map(WORD.search, hunk.lines))


def cursors_in(before: str, hunk: Hunk) -> Iterator[tuple[int, int]]:
    """Line and column of each place in a hunk's new lines where there is something to write."""
    old = before.split("\n")[hunk.start : hunk.end]
    for number, line in enumerate(hunk.lines):
        bare = line.strip()
        if bare.startswith(NO_CODE) or line in old or not WORD.search(bare):
            continue
        column = len(line) - len(line.lstrip())
        if len(old) == len(hunk.lines):  # a line for a line: it is written anew from where it differs
            same = next(
                (n for n, (a, b) in enumerate(zip(old[number], line, strict=False)) if a != b), len(old[number])
            )
            column = max(column, same)
        least, most = TRUTH_CHARACTERS
        if least <= len(line[column:].rstrip()) <= most:
            yield number, column


def sources(root: Path | None, folders: Sequence[str]) -> dict[str, str]:
    """The source files of a release, in their order; version files aside, which say the release's name."""
    assert root is not None
    texts = {}
    for file in sorted(root.rglob("*")):
        path = file.relative_to(root).as_posix()
        wanted = not folders or path.startswith(tuple(folder + "/" for folder in folders))
        if wanted and file.suffix in cursors.LANGUAGES and "version" not in file.name and file.is_file():
            texts[path] = file.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    return texts


def drawn(listed: Sequence[Item], *where: object, key: object = repr) -> list[Item]:
    """The same order on any machine, and no order of theirs."""
    assert callable(key)
    return sorted(listed, key=lambda one: hashlib.sha256(f"{SEED} {where} {key(one)}".encode()).hexdigest())


def played(task: Task, root: Path) -> RecentActivity:
    """Recent activity after the task's edits are replayed. Raises AssertionError where they do not give its text."""
    documents = Documents()
    activity = RecentActivity(
        kept_back=lambda uri: False,
        path=lambda uri: uri.removeprefix(root.as_uri() + "/"),
        clock=lambda: 0.0,
    )
    documents.follow_edits(activity.edited)
    for path, text in task.texts.items():
        documents.open((root / path).as_uri(), cursors.LANGUAGES[PurePosixPath(path).suffix], 1, text)
    for edit in task.steps:
        span = {"start": {"line": edit.first, "character": 0}, "end": {"line": edit.end, "character": 0}}
        documents.change((root / edit.path).as_uri(), None, [{"range": span, "text": edit.text}], "utf-32")
    document = documents.get((root / task.place.path).as_uri())
    assert document is not None and document.text.startswith(task.place.text[: task.place.cursor])
    return activity


# ── measuring ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def bench(config: Config, options: argparse.Namespace, every: Sequence[Task]) -> None:
    """Measure a pair, print the table, write the JSON."""
    chosen = sorted(every, key=lambda task: task.place.id)[: options.tasks]
    selected = variants.chosen(options.variants, config.context.sources)
    rows: dict[str, list[Row]] = {variant.name: [] for variant in selected}
    cache = GenerationCache(quality_dir() / "said")
    try:
        engine = pairs.engine(config)
        answering = TaskRunner(engine, config, cache)
        with terminal.progress() as bar:
            for number, task in enumerate(chosen):
                answering.recent_edits = played(task, task.place.root).candidates
                for variant in selected:
                    rows[variant.name].append(answering.row(task.place, variant))
                bar.show(
                    "completing",
                    number / len(chosen),
                    f"{number + 1} of {len(chosen)}, {answering.new_generations} asked",
                )
            answering.check()
    finally:
        cache.close()
    places = [task.place for task in chosen]
    base = rows[variants.BASE]
    figures_of = {
        variant.name: {"about": variant.about} | figures.of_variant(rows[variant.name], base, places, by_kind=False)
        for variant in selected
    }
    about = {
        "pair": engine.pair,
        "target": engine.target,
        "arithmetic": answering.arithmetic,
        "seed": SEED,
        "draws": bootstrap.DRAWS,
        "tasks": len(chosen),
        "packages": len({place.package for place in places}),
        "of_tasks": len(every),
    }
    print(table(figures_of))
    directory = results_file.RESULTS if len(chosen) == len(every) else quality_dir() / "part"
    print(f"wrote {results_file.write('edits', about | {'variants': figures_of}, f'edits-{engine.pair}', directory)}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks edits`."""
    pairs.add_arguments(parser)
    parser.add_argument("--tasks", metavar="N", type=int, help="only the first N (default: all)")
    parser.add_argument("--variants", metavar="NAMES", default=USUAL, help=f"beside base (default: {USUAL})")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    with terminal.progress() as bar:
        packages = corpus.fetch(lambda done, total: bar.show("fetching", done / max(total, 1), ""), LIST)
    every = [task for package in packages for task in tasks(package)]
    for config in pairs.settings(options):
        bench(config, options, every)
    return 0


NO_CODE = ("#", '"""', "//", "/*", "*", "import ", "from ", "export * from", "export {")
WORD = re.compile(r"\w{3,}")
