"""Makes the fill-in examples that an adapter learns from, as tokens, with a weight for each.

    python -m models.training.data            fetches packages.toml, writes build/training/examples.jsonl

    releases ─┬─► fill_examples.py ─► the product's request ─► prompt; answer from the respelled word on
              ├─► auto_closed_examples.py ─► the same, at places with automatic closers
              └─► function_examples.py ─► the same, for a file of one function

Deterministic: every choice follows from the seed, a package's name and a path. Packages are mixed in a fixed order. A
line of the file is {"split", "kind", "package", "prompt", "answer", "weights"}, the last three in tokens, and
"other_files": true if its answer has a name that the prompt shows in other files only.

Each package has a part of its own in examples.parts/ until the file is written. A run that was stopped goes on with the
packages that have none. After a change of this code, remove the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import random
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cache
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any

from benchmarks.quality.tasks import tasks as cursors
from models.training import auto_closed_examples, fill_examples, function_examples, releases
from speclsp import private_files, process_resources
from speclsp.cli import terminal
from speclsp.config import EngineConfig
from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading.checkpoint import read_tokenizer
from speclsp.errors import InputError, SpeclspError
from speclsp.weights import cards, store

OUT = Path(__file__).resolve().parents[2] / "build" / "training" / "examples.jsonl"  # git ignores build/
MODEL = "qwen2.5-coder-0.5b-instruct"
SEED = 7
MAX_TOKENS = 900  # of a prompt and its answer
FILL_PER_PACKAGE, FUNCTIONS_PER_PACKAGE, AUTO_CLOSED_PER_PACKAGE = 45, 0, 0
AUTO_CLOSED_TIMES = 3  # so many more of a package in another language than Python: there are fewer of these packages
END = "<|endoftext|>"
OTHER_FILES = "other_files"

Row = dict[str, Any]
Cuts = Callable[[str, str, random.Random, int], Iterator[fill_examples.Cut]]  # (text, language, draw, most)


class Encoder:
    """Cases as tokens, with the product's own prompter."""

    def __init__(self, model: str) -> None:
        card = cards.load(model)
        directory = store.path(card.target)
        if directory is None:
            raise SpeclspError(f"the weights of {model} are not here: `speclsp models pull {model}` fetches them.")
        tokenizer = read_tokenizer(directory)
        self.prompter = Prompter(card, tokenizer, Vocabulary(tokenizer), EngineConfig().context_tokens)
        self.tokenizer, self.end = tokenizer, tokenizer.token_to_id(END)

    def fill(self, cut: fill_examples.Cut, request: fill_examples.Request) -> Row:
        """A fill-in example. The answer begins with the respelled end of the line, whose own tokens have no weight."""
        prompt = self.prompter.build(request)
        ids = self.prompter.encode_once(prompt.heal.decode() + cut.answer)
        weights, spelled = [], 0
        for token in ids:
            spelled += len(self.prompter.vocabulary.bytes[token])
            weights.append(1.0 if spelled > len(prompt.heal) else 0.0)
        if cut.is_whole:
            ids, weights = [*ids, self.end], [*weights, 1.0]
        return {"prompt": prompt.ids, "answer": ids, "weights": weights}


def fill_rows(
    package: releases.Learned,
    encoder: Encoder,
    wanted: int = FILL_PER_PACKAGE,
    per_file: int = fill_examples.PER_FILE,
    cuts: Cuts = fill_examples.cuts,
    seed: str = "fill",
) -> Iterator[Row]:
    """Fill-in examples of a package's newest release, at most `per_file` of a file: `wanted`, or a file's more."""
    root = package.roots[-1]
    texts = {
        path: text
        for path, text in package.files(root).items()
        if cursors.LANGUAGES[PurePosixPath(path).suffix] in accepted(package.languages) and "\r" not in text
    }
    count = 0
    for path in sorted(texts, key=lambda path: digest(package.name, path)):
        if count >= wanted:
            return
        draw = random.Random(f"{SEED} {seed} {package.name} {path}")
        for cut in cuts(texts[path], cursors.LANGUAGES[PurePosixPath(path).suffix], draw, per_file):
            budget, others = draw.choice(fill_examples.BUDGETS), fill_examples.open_beside(path, texts, draw)
            request = fill_examples.request_of(cut, root, path, others, budget)
            if request is not None:
                row = {"kind": cut.kind, "package": package.name, **encoder.fill(cut, request)}
                yield row | {OTHER_FILES: fill_examples.has_name_of_other_files(cut, request)}
                count += 1


def auto_closed_rows(package: releases.Learned, encoder: Encoder, wanted: int, per_file: int) -> Iterator[Row]:
    """Fill-in examples at places with automatic closers, of the newest release."""
    wanted *= 1 if "python" in package.languages else AUTO_CLOSED_TIMES
    yield from fill_rows(package, encoder, wanted, per_file, auto_closed_examples.cuts, auto_closed_examples.KIND)


def function_rows(package: releases.Learned, encoder: Encoder) -> Iterator[Row]:
    """Fill-in examples of single functions of a package's newest release, in Python."""
    root = package.roots[-1]
    texts = {path: text for path, text in package.files(root).items() if path.endswith(".py") and "\r" not in text}
    for path in sorted(texts, key=lambda path: digest(package.name, path)):
        draw = random.Random(f"{SEED} function {package.name} {path}")
        for name, cut in function_examples.cuts(path, texts[path], draw):
            request = fill_examples.request_of(cut, root, name, (), function_examples.BUDGET)
            if request is not None:
                row = {"kind": "function", "package": package.name, **encoder.fill(cut, request)}
                yield row | {OTHER_FILES: False}


@cache
def encoder_of(model: str) -> Encoder:
    """A model's encoder, read once in each process. Raises SpeclspError."""
    return Encoder(model)


@dataclass(frozen=True, slots=True)
class Counts:
    """Examples of a package, by sort; `per_file`: the most fill-ins of one file."""

    fill: int = FILL_PER_PACKAGE
    per_file: int = fill_examples.PER_FILE
    functions: int = FUNCTIONS_PER_PACKAGE
    auto_closed: int = AUTO_CLOSED_PER_PACKAGE


def part_of(job: tuple[releases.Learned, Counts, Path]) -> Path:
    """The file with the examples of a package, in the given folder. One that is there is not made again."""
    package, counts, folder = job
    part = folder / f"{digest(package.name, package.archives, counts)[:16]}.jsonl"
    if not part.exists():
        private_files.replace(part, as_lines(rows_of(package, counts)))
    return part


def as_lines(rows: Iterable[Row]) -> bytes:
    """A line of JSON for each row."""
    return "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()


def rows_of(package: releases.Learned, counts: Counts) -> list[Row]:
    """All examples of a package."""
    split = "held-out" if package.is_held_out else "train"
    encoder = encoder_of(MODEL)
    examples = [
        *fill_rows(package, encoder, counts.fill, counts.per_file),
        *auto_closed_rows(package, encoder, counts.auto_closed, counts.per_file),
        *islice(function_rows(package, encoder), counts.functions),
    ]
    return [{"split": split, **row} for row in examples if tokens_of(row) <= MAX_TOKENS]


def accepted(languages: Sequence[str]) -> set[str]:
    """Language ids of a package's files: those of its list, and their variants with markup."""
    return {
        *languages,
        *(f"{name}react" for name in languages if name.endswith("script")),
        *(["c"] * ("cpp" in languages)),
    }


def tokens_of(row: Row) -> int:
    """The length of an example."""
    return len(row["prompt"]) + len(row["answer"])


def mixed(rows: Iterable[Row]) -> list[Row]:
    """Packages mixed."""
    return sorted(rows, key=lambda row: digest(row["package"], row["prompt"], row["answer"]))


def digest(*parts: object) -> str:
    """The same order on any machine, and no order of theirs."""
    return hashlib.sha256(f"{SEED} {parts!r}".encode()).hexdigest()


def main(arguments: Sequence[str]) -> int:
    """Exit code 0; 1 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m models.training.data", description=__doc__.splitlines()[0])
    parser.add_argument(
        "--out", type=Path, default=OUT, help="the file to write (default: build/training/examples.jsonl)"
    )
    parser.add_argument("--list", type=Path, default=releases.LIST, help="the packages (default: packages.toml)")
    parser.add_argument(
        "--fill-per-package",
        type=int,
        default=FILL_PER_PACKAGE,
        help=f"fill-in examples (default: {FILL_PER_PACKAGE}; a longer training needs more)",
    )
    parser.add_argument(
        "--fill-per-file",
        type=int,
        default=fill_examples.PER_FILE,
        help=f"the most fill-in examples of one file (default: {fill_examples.PER_FILE})",
    )
    parser.add_argument(
        "--functions-per-package",
        type=int,
        default=FUNCTIONS_PER_PACKAGE,
        help="fill-in examples of single functions, in Python and in other styles of spacing (default: none)",
    )
    parser.add_argument(
        "--auto-closed-per-package",
        type=int,
        default=AUTO_CLOSED_PER_PACKAGE,
        help=f"fill-in examples at automatic closers, {AUTO_CLOSED_TIMES} times as many without Python (default: none)",
    )
    options = parser.parse_args(arguments)
    rows: list[Row] = []
    try:
        counts = Counts(
            options.fill_per_package,
            options.fill_per_file,
            options.functions_per_package,
            options.auto_closed_per_package,
        )
        flags = (
            "--fill-per-package",
            "--fill-per-file",
            "--functions-per-package",
            "--auto-closed-per-package",
        )
        for flag, count in zip(flags, astuple(counts), strict=True):
            if count < 0:
                raise InputError(f"{flag} {count}: expected 0 or more.")
        with terminal.progress() as bar:
            packages = releases.fetched(
                lambda done, total: bar.show("fetching", done / max(total, 1), ""),
                options.list,
                newest_only=True,
            )
            encoder_of(MODEL)  # says here if the weights are missing
            processes = min(len(packages) or 1, process_resources.cpus().whole)
            folder = options.out.with_suffix(".parts")
            folder.mkdir(parents=True, exist_ok=True)
            with multiprocessing.get_context("spawn").Pool(processes) as pool:
                jobs = [(package, counts, folder) for package in packages]
                for number, part in enumerate(pool.imap(part_of, jobs)):
                    bar.show("making examples", number / len(packages), packages[number].name)
                    rows += map(json.loads, part.read_bytes().splitlines())
        lines = as_lines(mixed(rows))
        private_files.replace(options.out, lines, mode=0o644)
        shutil.rmtree(folder)
    except (SpeclspError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{options.out}: {hashlib.sha256(lines).hexdigest()}")
    for split in ("train", "held-out"):
        print(split, dict(Counter(row["kind"] for row in rows if row["split"] == split)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
