"""Trains an adapter (LoRA) from build/training/examples.jsonl, in pieces, on a CPU or a GPU.

    python -m models.training.train --steps 300 --minutes 30     30 minutes of it; again, and it goes on
    python -m models.training.train --budget-minutes 60          as many steps as 60 minutes allow, in all

    examples in a fixed order ─► a step of 8 ─► learning.py ─► state.safetensors every minute and at the end
                                                          └─► log.jsonl: a line a step, held-out loss every 50 steps

A training that was stopped, or killed, goes on from the last state; the log is cut back to it. With --steps it ends
where an uninterrupted one ends, to the last bit. With --budget-minutes the learning rate follows the time that was
trained. Data, model and shape of the adapter belong to a state: another choice needs another --work folder.
--start-from trains an adapter further, on the examples after the first --skip.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

import speclsp.engine  # noqa: F401 - before torch is imported: it sets the OpenMP wait policy
from models.training import lora, training_state
from models.training.auto_closed_examples import KIND as AUTO_CLOSED
from models.training.data import MODEL, OTHER_FILES, OUT, tokens_of
from models.training.learning import Example, Learner, in_batches
from models.training.lora import LoraShape
from speclsp import private_files
from speclsp.engine.loading import adapter_merge
from speclsp.errors import InputError, SpeclspError, WeightsError
from speclsp.private_files import os_errors
from speclsp.weights import adapters, cards, store

WORK = OUT.parent / "adapter"
STEP_EXAMPLES = 8
SORTED_STEPS = 8  # whose examples are sorted by length
HELD_OUT_EXAMPLES, HELD_OUT_EVERY = 32, 50  # steps
MAX_TOKENS = 900  # of an example
ROW_TOKENS = 16_384  # of a pass on a GPU; the 0.5B keeps about 1.2 MB for each until its gradient is known
SAVE_EVERY_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that decides the steps of a training."""

    data_sha256: str
    weights: str
    rank: int
    scale: float
    first_layer: int
    peak_rate: float
    steps: int  # 0: the budget decides
    budget_s: float
    seed: int
    most_tokens: int = MAX_TOKENS
    other_files_share: float = 0.0  # of the examples whose answer needs a name from another file; 0: as in the data
    auto_closed_share: float = 0.0  # of the examples at automatic closers; 0: as in the data
    start_from: str = ""  # sha256 of the adapter that is trained further
    skipped: int = 0  # examples at the beginning of the order, which that adapter has seen
    step_examples: int = STEP_EXAMPLES


class Training:
    """A training on disk: `work` holds its state and its log."""

    def __init__(
        self,
        learner: Learner,
        rows: Sequence[dict[str, Any]],
        plan: Plan,
        work: Path,
        held_out: int = HELD_OUT_EXAMPLES,
    ) -> None:
        self.learner, self.plan, self.work = learner, plan, work
        for flag, count in (("--skip", plan.skipped), ("--held-out", held_out)):
            if count < 0:
                raise InputError(f"{flag} {count}: expected 0 or more.")
        learned = with_auto_closed([row for row in rows if row["split"] == "train"], plan.auto_closed_share)
        learned = with_share(learned, plan.other_files_share)
        self.learned = examples(of_split(learned, "train", plan.most_tokens))[plan.skipped :]
        kept_back = of_split(rows, "held-out", plan.most_tokens)[:held_out]
        self.held_out, self.kinds = examples(kept_back), [row["kind"] for row in kept_back]
        if not 0 < plan.step_examples <= len(self.learned):
            raise InputError(
                f"there are {len(self.learned)} examples to train on; a step takes {plan.step_examples} "
                "(--examples-per-step: 1 or more)."
            )
        self.state, self.log = work / "state.safetensors", work / "log.jsonl"
        trained_s = training_state.restore(learner, self.state, asdict(plan))
        self.trained_s = trained_s or 0.0
        if trained_s is None:
            self.save()  # says at once that the disk takes it
        self.cut_log()

    def save(self) -> None:
        """Write the state. Raises WeightsError; the former state is then kept."""
        training_state.save(self.learner, self.state, asdict(self.plan), self.trained_s)

    def cut_log(self) -> None:
        """Remove the log's lines after the state, and a line that was not written to its end."""
        kept = []
        if self.log.exists():
            for line in self.log.read_text(encoding="utf-8").split("\n")[:-1]:
                if json.loads(line)["step"] <= self.learner.step_count:
                    kept.append(f"{line}\n")
        write_log(self.log, "".join(kept))

    def progress(self) -> float:
        """The trained part, 0..1."""
        if self.plan.steps:
            return self.learner.step_count / self.plan.steps
        return self.trained_s / self.plan.budget_s

    def run(self, seconds: float, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train for `seconds`, until `stop` answers True, or to the end. Returns True at the end."""
        began_s = last_s = saved_s = time.monotonic()
        lengths = [example.tokens for example in self.learned]
        steps = islice(order(lengths, self.plan.seed, self.plan.step_examples), self.learner.step_count, None)
        while self.progress() < 1 and last_s - began_s < seconds and not stop():
            of_step = [self.learned[number] for number in next(steps)]
            loss = self.learner.step(of_step, self.progress())
            now_s = time.monotonic()
            self.trained_s, step_s, last_s = self.trained_s + now_s - last_s, now_s - last_s, now_s
            line = {"step": self.learner.step_count, "loss": round(loss, 4), "seconds": round(step_s, 2)}
            line |= {"tokens": sum(example.tokens for example in of_step), "trained_s": round(self.trained_s, 1)}
            if self.held_out and (self.learner.step_count % HELD_OUT_EVERY == 0 or self.progress() >= 1):
                line |= self.held_out_losses()
                last_s = time.monotonic()  # a measurement is no training
            with self.log.open("a", encoding="utf-8") as out:
                out.write(json.dumps(line) + "\n")
            print(json.dumps(line), flush=True)
            if last_s - saved_s > SAVE_EVERY_S:
                self.save()
                saved_s = last_s
        self.save()
        return self.progress() >= 1

    def held_out_losses(self) -> dict[str, Any]:
        """The mean loss of the held-out examples, and that of each kind."""
        losses = self.learner.losses(self.held_out)
        by_kind: dict[str, list[float]] = {}
        for kind, loss in zip(self.kinds, losses, strict=True):
            by_kind.setdefault(kind, []).append(loss)
        means = {kind: round(fmean(of_kind), 4) for kind, of_kind in sorted(by_kind.items())}
        return {"held_out_loss": round(fmean(losses), 4), "held_out_by_kind": means}


def write_log(path: Path, text: str) -> None:
    """Replace the log in one step."""
    private_files.replace(path, text.encode(), mode=0o644)


def order(lengths: Sequence[int], seed: int, step_examples: int = STEP_EXAMPLES) -> Iterator[Sequence[int]]:
    """The numbers of the examples of each step, without end: each epoch has an order of its own.

    Args:
        lengths: the tokens of each example. Those of a step are of similar length: packed attention pads little then.
    """
    epoch = 0
    while True:
        draw = random.Random(f"{seed} {epoch}")
        numbers = list(range(len(lengths)))
        if epoch:  # the first one has the order of the data, which is mixed already
            draw.shuffle(numbers)
        for of_steps in in_batches(numbers, step_examples * SORTED_STEPS):
            near = sorted(of_steps, key=lambda number: lengths[number])
            steps = [step for step in in_batches(near, step_examples) if len(step) == step_examples]
            draw.shuffle(steps)
            yield from steps
        epoch += 1


def with_share(rows: Sequence[dict[str, Any]], share: float) -> Sequence[dict[str, Any]]:
    """The rows, those that need a name from another file repeated until they are `share` of any beginning.

    Both kinds keep their order, and each other row occurs once. A share of 0 changes nothing. Raises InputError.
    """
    if not 0.0 <= share < 1.0:
        raise InputError(f"--other-files-share {share:g}: expected 0 or more, and less than 1.")
    needing = [row for row in rows if row.get(OTHER_FILES)]
    if not (share and needing):
        return rows
    repeated, mixed, due = cycle(needing), [], 0.0
    for row in rows:
        if not row.get(OTHER_FILES):
            due += share / (1.0 - share)
            mixed += [row, *islice(repeated, int(due))]
            due -= int(due)
    return mixed


def with_auto_closed(rows: Sequence[dict[str, Any]], share: float) -> Sequence[dict[str, Any]]:
    """As many rows as possible of which `share` are examples at automatic closers, spread evenly.

    Both sorts keep their order, and no row occurs twice. A share of 0 changes nothing. Raises InputError.
    """
    if not 0.0 <= share < 1.0:
        raise InputError(f"--auto-closed-share {share:g}: expected 0 or more, and less than 1.")
    closed = [row for row in rows if row["kind"] == AUTO_CLOSED]
    others = [row for row in rows if row["kind"] != AUTO_CLOSED]
    if not (share and closed and others):
        return rows
    total = min(len(closed) / share, len(others) / (1.0 - share))
    chosen = (closed[: round(total * share)], others[: round(total * (1.0 - share))])
    placed = [
        ((number + 0.5) / len(of_sort), sort, row)
        for sort, of_sort in enumerate(chosen)
        for number, row in enumerate(of_sort)
    ]
    return [row for *_, row in sorted(placed, key=lambda place: place[:2])]


def of_split(rows: Iterable[dict[str, Any]], split: str, most_tokens: int) -> list[dict[str, Any]]:
    """The rows of a split with at most `most_tokens` tokens, in the order of the data."""
    return [row for row in rows if row["split"] == split and tokens_of(row) <= most_tokens]


def examples(rows: Iterable[dict[str, Any]]) -> list[Example]:
    """The rows as the learner takes them."""
    return [Example(row["prompt"], row["answer"], row["weights"]) for row in rows]


def read_rows(path: Path) -> tuple[list[dict[str, Any]], str]:
    """(examples, sha256 of the file). Raises InputError."""
    try:
        data = path.read_bytes()
        return [json.loads(line) for line in data.splitlines()], hashlib.sha256(data).hexdigest()
    except OSError as error:
        reason = os_errors.reason(error)
        raise InputError(f"{path} cannot be read ({reason}): `python -m models.training.data` writes it.") from None
    except ValueError as error:
        raise InputError(f"{path} holds no examples ({error}): `python -m models.training.data` writes it.") from None


def read_model(directory: Path, device: str) -> Any:
    """The model in bf16, or in float32 where a CPU emulates bf16."""
    is_narrow = device != "cpu" or torch.cpu._is_avx512_bf16_supported()
    return lora.read_trainable(directory, device, torch.bfloat16 if is_narrow else torch.float32)


def start(learner: Learner, adapter: Path, shape: LoraShape, weights_sha256: str) -> str:
    """Put an adapter's values into the learner. Returns the sha256 of its file.

    Raises:
        WeightsError: the file cannot be read, or is an adapter of other weights or of another shape.
    """
    file = adapters.read_file(adapter)
    stored = {name: tensor.shape for name, tensor in file.tensors.items() if not name.endswith(".scale")}
    if file.weights_sha256 != weights_sha256:
        raise WeightsError(f"{adapter} is an adapter of other weights: choose their --model.")
    if file.scale != shape.scale or stored != {name: tuple(value.shape) for name, value in learner.tensors.items()}:
        raise WeightsError(
            f"{adapter} has rank {file.rank} and scale {file.scale:g} on {len(file.linears)} linears, and this "
            f"training rank {shape.rank} and scale {shape.scale:g} on {len(learner.tensors) // 2}: "
            "choose the same --rank, --scale and --first-layer."
        )
    with torch.no_grad():
        for name, value in learner.tensors.items():
            value.copy_(torch.from_numpy(adapter_merge.decode(file, name)))
    return file.sha256


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags."""
    parser.add_argument("--data", type=Path, default=OUT, help="examples (default: build/training/examples.jsonl)")
    parser.add_argument("--work", type=Path, default=WORK, help="state and log (default: build/training/adapter)")
    parser.add_argument("--model", default=MODEL, help=f"the weights (default: {MODEL})")
    parser.add_argument("--minutes", type=float, default=1e9, help="length of this piece (default: to the end)")
    length = parser.add_mutually_exclusive_group(required=True)
    length.add_argument("--steps", type=int, default=0, help="length of the whole training")
    length.add_argument("--budget-minutes", type=float, default=0.0, help="the same, in time")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--scale", type=float, default=2.0)
    parser.add_argument("--first-layer", type=int, default=8, help="layers below it are left alone (8)")
    parser.add_argument("--most-tokens", type=int, default=MAX_TOKENS, help="longer examples are left out (900)")
    parser.add_argument(
        "--other-files-share", type=float, default=0.0,
        help="of the examples that need a name from another file (as in the data)",
    )  # fmt: skip
    parser.add_argument(
        "--auto-closed-share", type=float, default=0.0, help="of the examples at automatic closers (as in the data)"
    )
    parser.add_argument("--start-from", type=Path, help="an adapter's .safetensors, to train it further")
    parser.add_argument("--skip", type=int, default=0, help="the first examples, which that adapter has seen")
    parser.add_argument(
        "--examples-per-step", type=int, default=STEP_EXAMPLES,
        help=f"default {STEP_EXAMPLES}; a large GPU learns more of them in the same time",
    )  # fmt: skip
    parser.add_argument("--row-tokens", type=int, default=ROW_TOKENS, help=f"of a pass on a GPU ({ROW_TOKENS})")
    parser.add_argument("--peak-rate", type=float, default=3e-4)
    parser.add_argument(
        "--held-out", type=int, default=HELD_OUT_EXAMPLES, help=f"examples of the held-out loss ({HELD_OUT_EXAMPLES})"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=0, help="examples at a time (default: one for each core)")


def main(arguments: Sequence[str]) -> int:
    """Exit code 0 at the end, 3 if a part is left, 1 with one sentence."""
    parser = argparse.ArgumentParser(prog="python -m models.training.train", description=__doc__.splitlines()[0])
    add_arguments(parser)
    options = parser.parse_args(arguments)
    stopped: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stopped.append(number))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    workers = options.workers or (torch.get_num_threads() if device == "cpu" else 1)
    torch.set_num_threads(max(1, torch.get_num_threads() // workers))
    try:
        rows, data_sha256 = read_rows(options.data)
        directory = store.path(cards.load(options.model).target)
        if directory is None:
            raise InputError(f"the weights of {options.model} are not here: `speclsp models pull {options.model}`.")
        model = read_model(directory, device)
        shape = LoraShape(rank=options.rank, scale=options.scale, first_layer=options.first_layer)
        adapter, row_tokens = lora.attach(model, shape, options.seed), 0 if device == "cpu" else options.row_tokens
        learner = Learner(model, adapter, options.peak_rate, workers=workers, row_tokens=row_tokens)
        weights_sha256 = adapters.sum_of_weights(directory) if options.start_from else ""
        start_from = start(learner, options.start_from, shape, weights_sha256) if options.start_from else ""
        plan = Plan(
            data_sha256=data_sha256,
            weights=options.model,
            **asdict(shape),
            peak_rate=options.peak_rate,
            steps=options.steps,
            budget_s=options.budget_minutes * 60,
            seed=options.seed,
            most_tokens=options.most_tokens,
            other_files_share=options.other_files_share,
            auto_closed_share=options.auto_closed_share,
            start_from=start_from,
            skipped=options.skip,
            step_examples=options.examples_per_step,
        )
        training = Training(learner, rows, plan, options.work, options.held_out)
        is_done = training.run(options.minutes * 60, lambda: bool(stopped))
    except (SpeclspError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0 if is_done else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
