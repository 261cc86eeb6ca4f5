"""What does respelling the half-typed word buy, and what does it cost? Against no healing, and the standard order.

    python benchmarks/healing.py [--files 21] [--pair qwen2.5-coder-0.5b-instruct]

Three holes in each file, in packages installed here: where a line's text begins, where a word begins, and inside a
word. Each is asked in four ways: the current line after the middle marker (ours) or before it (the standard order),
each as it is and with token healing; drafting as always. Counted: whether the rest of the line is exactly right, and
what it took. No time is taken, so the machine may be busy. Writes benchmarks/results/healing.json.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from dataclasses import asdict, dataclass, replace

from speclsp import cards
from speclsp.bench import record
from speclsp.bench.completions import ratio, run
from speclsp.bench.holes import package_files
from speclsp.config import Config
from speclsp.engine import loading
from speclsp.engine.healing import split_healing
from speclsp.engine.prompt import Prompter
from speclsp.engine.seam import Request

PACKAGES = ("pygls", "starlette", "uvicorn", "httpx", "platformdirs", "rich", "click", "pygments", "packaging")
SKIPPED = ("#", '"', "'", "import", "from", "@")
WAYS = {"line_after_marker": (True, False), "line_before_marker": (True, False)}  # healed, and as it is
LINES_ABOVE, LINES_BELOW, MAX_TOKENS = 28, 8, 20
SEED = 11


@dataclass(frozen=True, slots=True)
class Hole:
    """A line cut off."""

    kind: str  # "line start" | "word start" | "mid-word"
    before: str
    line: str  # up to the cursor
    after: str
    rest: str


@dataclass(slots=True)
class Score:
    """What one way came to on the holes of one kind."""

    holes: int = 0
    exact: int = 0
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0


class StandardOrder(Prompter):
    """Everything before the cursor before the middle marker, as models are documented."""

    def parts(self, request: Request) -> tuple[str, str, str]:
        above, heal = split_healing(request.prefix + request.line_prefix, request.heal)
        return above, "", heal


def holes(files: int) -> list[Hole]:
    """Of each kind one from each of `files` files."""
    dice, made = random.Random(SEED), list[Hole]()
    for file in package_files(PACKAGES, dice, most_bytes=60_000):
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
        fit = [
            at
            for at, line in enumerate(lines)
            if 20 < at < len(lines) - 5 and 20 < len(line.strip()) < 70 and not line.strip().startswith(SKIPPED)
        ]
        cut = [hole for kind in KINDS if len(fit) > 3 and (hole := cut_off(lines, dice.choice(fit), kind, dice))]
        if len(cut) == len(KINDS):
            made += cut
        if len(made) >= files * len(KINDS):
            break
    return made


KINDS = ("line start", "word start", "mid-word")


def cut_off(lines: list[str], number: int, kind: str, dice: random.Random) -> Hole | None:
    """The line cut off at a place of this kind; None when it has none."""
    line = lines[number]
    words = [word for word in re.finditer(r"\w+", line) if word.end() < len(line) - 2]
    if kind == "line start":
        at = len(line) - len(line.lstrip())
    elif kind == "word start" and len(words) > 1:
        at = dice.choice(words[1:]).start()
    elif kind == "mid-word" and (long := [word for word in words if len(word[0]) > 3]):
        word = dice.choice(long)
        at = dice.randrange(word.start() + 1, word.end() - 1)
    else:
        return None
    before = "".join(f"{one}\n" for one in lines[max(0, number - LINES_ABOVE) : number])
    after = "\n" + "\n".join(lines[number + 1 : number + 1 + LINES_BELOW])
    return Hole(kind, before, line[:at], after, line[at:].strip())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=21)
    parser.add_argument("--pair", default="qwen2.5-coder-0.5b-instruct")
    asked = parser.parse_args()
    card = cards.load(asked.pair)
    engine = loading.load(Config(pair=asked.pair), card)
    ours = engine.prompter
    standard = StandardOrder(card, ours.tokenizer, ours.vocabulary, ours.context_tokens)
    tasks = holes(asked.files)
    scores = {f"{order}{', healed' if heal else ''}": score() for order, both in WAYS.items() for heal in both}
    both_exact = {order: {"holes": 0, "rounds": 0, "rounds_healed": 0} for order in WAYS}
    for number, hole in enumerate(tasks):
        for order, both in WAYS.items():
            engine.prompter = ours if order == "line_after_marker" else standard
            right, rounds = {}, {}
            for heal in both:
                request = Request(
                    prefix=hole.before,
                    line_prefix=hole.line,
                    suffix=hole.after,
                    heal=heal,
                    max_tokens=MAX_TOKENS,
                    stop=("\n",),
                )
                made = run(engine, replace(request, session=f"{number}"))
                right[heal] = made.text.strip() == hole.rest
                rounds[heal] = made.rounds
                count = scores[f"{order}{', healed' if heal else ''}"][hole.kind]
                count.holes += 1
                count.exact += right[heal]
                count.tokens += len(made.tokens)
                count.rounds += made.rounds
                count.drafted += made.drafted
                count.accepted += made.accepted
            if all(right.values()):
                same = both_exact[order]
                same["holes"] += 1
                same["rounds"] += rounds[False]
                same["rounds_healed"] += rounds[True]
        print(f"\r{number + 1} of {len(tasks)}", end="", file=sys.stderr, flush=True)
    figures = {
        "pair": asked.pair,
        "target": engine.target,
        "seed": SEED,
        "holes": len(tasks),
        "ways": {way: {kind: facts(of) for kind, of in kinds.items()} for way, kinds in scores.items()},
        "where_both_are_exact": both_exact,
    }
    file = record.write("healing", figures)
    print(f"\n{file.read_text(encoding='utf-8')}")
    return 0


def score() -> dict[str, Score]:
    return {kind: Score() for kind in KINDS}


def facts(score: Score) -> dict[str, object]:
    """The counts, and what they come to."""
    return {
        **asdict(score),
        "acceptance": ratio(score.accepted, score.drafted),
        "tokens_per_round": ratio(score.tokens, score.rounds),
        "rounds_per_hole": ratio(score.rounds, score.holes),
    }


if __name__ == "__main__":
    sys.exit(main())
