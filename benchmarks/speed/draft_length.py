"""Effect of the draft-length policy: recorded answers of the target, replayed offline against several policies.

    python -m benchmarks draft-length --model qwen2.5-coder-0.5b-instruct [--places 24] [--tokens 64]

An answer is recorded once, without speculation. Greedy decoding is deterministic, so a replay knows how many guesses of
each round the target would have accepted. A round costs what a pass of its rows took when the model was loaded. Each
policy sees the places in the same order and learns from one to the next, as in an editor. Three kinds of place:

    new code         a line that is cut off in a file of the standard library
    typed into       the same, with the answer as the earlier suggestion, after its first characters were typed
    repeated         a block of the file that is written a second time, from its first line on

`whole` replays the recorded answers, `line` only the tokens of their first line, which is where the editor ends most
suggestions; the earlier suggestion ended there, too. Writes benchmarks/results/draft-length-<model>.json.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks import model_options, results_file
from benchmarks.speed import rounds
from benchmarks.speed.holes import CONTEXT_LINES, MODULES, holes, source
from speclsp.cli import terminal
from speclsp.engine.api import Request

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.decoding.policy import Costs, MeasuredPolicy

NEW, TYPED, REPEATED = "new code", "typed into", "repeated"
TYPED_CHARACTERS = 3
BLOCK_LINES = 12
LEVELS = (0, 1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)  # match lengths of the table of acceptance


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A place and what the target wrote there, in tokens."""

    kind: str
    prompt: list[int]
    left_out: list[int]
    previous: list[int]
    answer: list[int]
    line_tokens: int  # of the answer's first line, its line end included
    previous_line_tokens: int = 0  # the same of `previous`


@dataclass(slots=True, kw_only=True)
class Tally:
    """Sums over the answers that a policy has replayed."""

    tokens: int = 0
    rounds: int = 0
    rows: int = 0
    wide_rounds: int = 0  # of more than 17 rows
    ms: float = 0.0

    def figures(self) -> dict[str, float]:
        return {
            "rounds": self.rounds,
            "wide_rounds": self.wide_rounds,
            "tokens_per_round": round(self.tokens / max(self.rounds, 1), 2),
            "rows_per_round": round(self.rows / max(self.rounds, 1), 2),
            "ms_per_token": round(self.ms / max(self.tokens, 1), 2),
        }


def replay(records: Iterable[Record], policy: MeasuredPolicy, costs: Costs, whole: bool) -> Tally:
    """Decode every record with that policy; nothing is computed. `whole`: not only the answers' first lines."""
    from speclsp.engine.decoding.drafters import Drafter, NGramDrafter, ReuseDrafter
    from speclsp.engine.model.kv_archive import common_prefix

    tally = Tally()
    for record in records:
        policy.start()
        drafters: list[Drafter] = [NGramDrafter(record.left_out)]
        previous = record.previous if whole else record.previous[: record.previous_line_tokens]
        if previous:
            drafters.insert(0, ReuseDrafter(previous, start=len(record.prompt)))
        end, done = len(record.answer) if whole else record.line_tokens, 0
        while done < end:
            room = len(record.answer) - done - 1
            ids = [*record.prompt, *record.answer[:done]]
            offered, guess = policy.guess(drafters, ids, room, no_pick)
            accepted = common_prefix(guess.tokens, record.answer[done:])
            policy.learn(offered, guess.strength, len(guess.tokens), accepted)
            tally.rounds += 1
            tally.rows += len(guess.tokens) + 1
            tally.wide_rounds += len(guess.tokens) > 16
            tally.ms += costs.verify(len(guess.tokens) + 1)
            tally.tokens += min(accepted + 1, end - done)
            done += accepted + 1
    return tally


def no_pick(*_: object) -> Any:
    raise AssertionError("free drafters choose no tokens")


def places(count: int, max_tokens: int) -> list[tuple[str, Request]]:
    """The kind and the request of each place."""
    requests = [(kind, request) for request in holes(count, max_tokens) for kind in (NEW, TYPED)]
    return requests + [(REPEATED, request) for request in repeated(count, max_tokens)]


def repeated(count: int, max_tokens: int, seed: int = 20) -> list[Request]:
    """Places where a block of code is written again below itself, as when a function is copied by hand."""
    dice, requests = random.Random(seed), []
    for module in MODULES[:count]:
        lines = source(module).splitlines(keepends=True)
        first = dice.randrange(CONTEXT_LINES, len(lines) - 3 * CONTEXT_LINES)
        block = lines[first : first + BLOCK_LINES]
        begun = lines[first - CONTEXT_LINES : first + BLOCK_LINES] + block[:2]
        requests.append(
            Request(
                prefix="".join(begun),
                line_prefix=block[2][: len(block[2]) // 2],
                suffix="".join(lines[first + BLOCK_LINES : first + 2 * BLOCK_LINES]),
                filename=f"{module}.py",
                max_tokens=max_tokens,
            )
        )
    return requests


def record(engine: CompletionEngine, kind: str, request: Request) -> Record:
    """The target's answer at a place. A typed-into place continues the answer that it had before."""
    if kind == TYPED:
        earlier = rounds.run(engine, replace(request, speculate=False)).result.text
        typed = earlier[:TYPED_CHARACTERS]
        if "\n" not in typed:
            request = replace(request, line_prefix=request.line_prefix + typed, previous=earlier[len(typed) :])
    result = rounds.run(engine, replace(request, speculate=False)).result
    prompt = engine.prompter.build(request)

    def first_line(tokens: Sequence[int]) -> int:
        ends = (i + 1 for i, token in enumerate(tokens) if b"\n" in engine.prompter.vocabulary.bytes[token])
        return next(ends, len(tokens))

    return Record(
        kind=kind,
        prompt=prompt.ids,
        left_out=prompt.left_out,
        previous=prompt.previous,
        answer=list(result.tokens),
        line_tokens=first_line(result.tokens),
        previous_line_tokens=first_line(prompt.previous),
    )


def policies(costs: Costs) -> Mapping[str, MeasuredPolicy]:
    """The policies that are compared, each new."""
    from speclsp.engine.decoding.policy import MeasuredPolicy

    return {
        "plain": MeasuredPolicy(costs, max_gamma=0),
        "at most 7": MeasuredPolicy(costs, max_gamma=7),
        "at most 16": MeasuredPolicy(costs, max_gamma=16),
        "no cap": MeasuredPolicy(costs),
        "no cap, no end": MeasuredPolicy(costs, usual_tokens=float("inf")),
    }


def acceptance(records: Sequence[Record], costs: Costs) -> dict[str, dict[int, tuple[int, float]]]:
    """By source and match length: the number of guesses that were verified, and the share accepted."""
    from speclsp.engine.decoding.policy import MeasuredPolicy

    accepted_at: dict[tuple[str, int], list[int]] = {}

    class Counting(MeasuredPolicy):
        def learn(self, source: str, strength: int, drafted: int, accepted: int) -> None:
            for depth in range(min(accepted + 1, drafted)):
                level = max(level for level in LEVELS if level <= strength + depth)
                accepted_at.setdefault((source, level), []).append(depth < accepted)
            MeasuredPolicy.learn(self, source, strength, drafted, accepted)

    replay(records, Counting(costs), costs, whole=True)
    table: dict[str, dict[int, tuple[int, float]]] = {}
    for (name, level), outcomes in sorted(accepted_at.items()):
        table.setdefault(name, {})[level] = len(outcomes), round(sum(outcomes) / len(outcomes), 3)
    return table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    model_options.add_arguments(parser)
    parser.add_argument("--places", type=int, default=len(MODULES), help=f"of each kind (default: {len(MODULES)})")
    parser.add_argument("--tokens", type=int, default=64, help="of an answer at most (default: 64)")


def main(options: argparse.Namespace) -> int:
    for settings in model_options.settings(options, {"engine.draft": False}):
        engine = model_options.engine(settings)
        with terminal.progress() as bar:
            chosen, records = places(options.places, options.tokens), []
            for number, (kind, request) in enumerate(chosen):
                bar.step(number / len(chosen), f"recording {kind}")
                records.append(record(engine, kind, request))
        costs = engine.costs
        table = {
            f"{kind}, {part}": {
                name: replay([r for r in records if r.kind == kind], policy, costs, part == "whole").figures()
                for name, policy in policies(costs).items()
            }
            for kind in (NEW, TYPED, REPEATED)
            for part in ("whole", "line")
        }
        for title, rows in table.items():
            print(title)
            for name, row in rows.items():
                gain = rows["plain"]["ms_per_token"] / row["ms_per_token"] if row["ms_per_token"] else 1.0
                print(f"  {name:<16} {gain:5.2f} x  {'  '.join(f'{key} {value}' for key, value in row.items())}")
        figures: dict[str, object] = {
            **model_options.about(engine),
            "places": options.places,
            "tokens": options.tokens,
            "policies": table,
            "acceptance": acceptance(records, costs),
        }
        print(figures["acceptance"])
        results_file.write("draft-length", figures, f"draft-length-{engine.model}")
    return 0
