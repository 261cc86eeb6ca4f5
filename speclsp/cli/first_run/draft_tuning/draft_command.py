"""`speclsp tune --draft`: trains the draft model on the target's answers in a directory's files, and judges it there.

    0 to 0.3 of the time    the target answers at places of four fifths of the files   (draft_examples.py)
    0.3 to 0.7              an adapter of the draft learns the answers                 (draft_training.py)
    0.7 to 1                the draft with and without it, at places of the other fifth (draft_judge.py)

The adapter is kept only where decoding becomes faster beyond the noise. The target is unchanged, so no text changes.
Everything runs at the lowest priority and contacts no server. A run that is stopped, or killed, goes on next time.
"""

from __future__ import annotations

import gc
import json
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp.cli import terminal
from speclsp.cli.first_run.draft_tuning import draft_examples
from speclsp.cli.first_run.draft_tuning.tuning_conditions import (
    alone,
    directory_of,
    draft_of,
    run_idle,
    stoppable,
    tunable_card,
)
from speclsp.cli.first_run.draft_tuning.tuning_files import StoredExamples, TuningFiles, TuningPlan, row_of
from speclsp.config import Config
from speclsp.errors import InputError, WeightsError

if TYPE_CHECKING:
    from speclsp.cli.first_run.draft_tuning.draft_judge import Judgement
    from speclsp.cli.first_run.draft_tuning.draft_training import DraftTraining
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.loading.loading import LoadedParts
    from speclsp.weights.cards import Card, Weights

KEPT, NOT_KEPT, STOPPED = 0, 1, 130  # exit codes
MINUTES = 20.0  # by default
ANSWERS_END, TRAINING_END = 0.3, 0.7  # shares of the time
MOST_EXAMPLES, LEAST_EXAMPLES = 2000, 2
RANK, SCALE, PEAK_RATE, SEED = 8, 2.0, 1e-3, 17
TRAINED_LAYERS = 0.5  # the upper ones: no gradient is computed below them
SPARE_MIB = 1024  # of memory for activations

Clock = Callable[[], float]


class Stopped(Exception):
    """The user stopped the command. The files hold its progress."""


@dataclass(frozen=True, slots=True)
class Stopwatch:
    """The time of a tuning over all its runs, and the request to stop."""

    clock: Clock
    limit_s: float
    began_s: float
    spent_s: float  # by earlier runs
    cancel: threading.Event

    @property
    def elapsed_s(self) -> float:
        return self.spent_s + self.clock() - self.began_s

    def until(self, share: float) -> Callable[[], bool]:
        """A function that answers True after that share of the time, or when the user stops the command."""
        return lambda: self.cancel.is_set() or self.elapsed_s >= share * self.limit_s


def main(
    settings: Config, directory: Path, minutes: float, *, as_json: bool = False, clock: Clock = time.monotonic
) -> int:
    """Tune and judge, and print the verdict. Raises SpeclspError."""
    if not 0 < minutes <= 24 * 60:
        raise InputError(f"--minutes {minutes:g} is not valid: expected a number above 0, of at most a day.")
    learned, held_out = draft_examples.own_files(directory, settings)
    card = tunable_card(settings)
    files = TuningFiles(card.name)
    with stoppable() as cancel, alone(files), terminal.progress() as bar:
        run_idle()
        plan = plan_of(directory, card, settings)
        stored = files.open(plan)
        if not paths_of(stored) <= {*learned, *held_out}:  # a file is gone, or no model may read it any more
            files.clear()
            stored = files.open(plan)
        watch = Stopwatch(clock, minutes * 60, clock(), stored.spent_s, cancel)
        tuning = Tuning(settings, directory, card, files, plan, watch, bar)
        try:
            tuning.answer(learned, stored)
            tuning.train(stored)
            judgement = tuning.judge([path for path in held_out if path not in paths_of(stored)])
        except Stopped:
            print(f"Stopped after {len(stored.rows)} examples and {tuning.steps} steps: the same command goes on.")
            return STOPPED
    return conclude(tuning, judgement, len(stored.rows), as_json)


def conclude(tuning: Tuning, judgement: Judgement, examples: int, as_json: bool) -> int:
    """Keep the adapter or delete it, and print the figures. Returns the exit code."""
    pays, files = judgement.pays, tuning.files
    if pays:
        from speclsp.weights import adapters

        draft = tuning.draft
        files.keep(adapters.read_file(files.candidate), draft.name, tuning.card.licence)
    files.clear()
    facts = judgement.facts() | {"examples": examples, "steps": tuning.steps, "kept": pays}
    facts |= {"model": tuning.card.name, "seconds": round(tuning.watch.elapsed_s), "diverged": tuning.diverged}
    print(json.dumps(facts) if as_json else "\n".join(lines_of(facts, tuning)))
    return KEPT if pays else NOT_KEPT


def remove(model: str) -> int:
    """Delete the adapter of a model's draft, and the files of an unfinished tuning."""
    files = TuningFiles(model)
    with alone(files):
        removed = files.remove()
    print(f"Deleted {' and '.join(removed)} of {model}'s draft." if removed else f"{model} has no tuned draft.")
    return KEPT if removed else NOT_KEPT


def plan_of(directory: Path, card: Card, settings: Config) -> TuningPlan:
    """The plan for these weights. Raises WeightsError: no adapter can be trained for the draft."""
    from speclsp.engine.loading import checkpoint
    from speclsp.weights import adapters

    target, draft = (directory_of(weights, settings) for weights in (card.target, draft_of(card)))
    return TuningPlan(
        directory=str(directory.resolve()),
        target=card.target.name,
        target_sha256=adapters.sum_of_weights(target),
        draft_sha256=adapters.sum_of_weights(draft),
        rank=RANK,
        scale=SCALE,
        first_layer=int(checkpoint.read_config(draft).num_hidden_layers * (1 - TRAINED_LAYERS)),
        peak_rate=PEAK_RATE,
        seed=SEED,
    )


def paths_of(stored: StoredExamples) -> set[str]:
    """The files that were learned."""
    return {str(row["path"]) for row in stored.rows}


# ── the three parts ──


@dataclass(slots=True)
class Tuning:
    """One run of the command."""

    settings: Config
    directory: Path
    card: Card
    files: TuningFiles
    plan: TuningPlan
    watch: Stopwatch
    bar: terminal.ProgressLine
    steps: int = 0
    diverged: bool = False

    @property
    def draft(self) -> Weights:
        return draft_of(self.card)

    def show(self, fraction: float, message: str) -> None:
        """Draw progress. Raises Stopped after a signal: also while weights are read."""
        if self.watch.cancel.is_set():
            raise Stopped
        self.bar.step(fraction, message)

    def parts(self) -> LoadedParts:
        """The pair, ready to load. Raises SpeclspError, Stopped."""
        from speclsp.engine.loading import loading

        offline = replace(self.settings, engine=replace(self.settings.engine, offline=True))
        parts = loading.prepare(offline, self.card, self.show)
        if parts.draft_dir is None:
            raise InputError(f"there is no memory for the draft of {self.card.name} beside it: close other programs.")
        return parts

    def engine(self, parts: LoadedParts) -> CompletionEngine:
        """The pair in memory. Raises SpeclspError, Stopped."""
        return parts.build_engine(parts.read_target(self.show), parts.read_draft(self.show), self.show)

    def answer(self, paths: list[str], stored: StoredExamples) -> None:
        """Let the target answer at places of `paths`, up to its share of the time. Raises SpeclspError, Stopped."""
        stop, end = self.watch.until(ANSWERS_END), self.watch.until(1.0)
        if self.files.state.exists() or stop():
            return
        engine = self.engine(self.parts())
        settings = draft_examples.with_short_prompts(self.settings)
        for number, (path, request) in enumerate(draft_examples.requests(self.directory, paths, settings, SEED)):
            if number < stored.next_place:
                continue
            enough = len(stored.rows) >= LEAST_EXAMPLES
            if len(stored.rows) >= MOST_EXAMPLES or end() or (enough and stop()):
                break
            self.show(len(stored.rows) / MOST_EXAMPLES, f"{len(stored.rows)} answers of the target")
            example = draft_examples.example_at(engine, request, self.watch.cancel)
            if example is not None:
                row = row_of(example, path, number, self.watch.elapsed_s)
                self.files.add(row)
                stored.rows.append(row)

    def train(self, stored: StoredExamples) -> None:
        """Train the adapter on the examples, up to its share of the time, and write it as the candidate.

        Raises:
            SpeclspError, Stopped.
        """
        from speclsp.engine.training import adapter_export
        from speclsp.engine.training.adapter_export import AdapterFacts

        if self.watch.cancel.is_set():
            raise Stopped
        if len(stored.rows) < LEAST_EXAMPLES:
            raise InputError(f"the target answers at {len(stored.rows)} places of {self.directory}: name a larger one.")
        gc.collect()  # the engine
        training = self.training(stored)
        stop = self.watch.until(TRAINING_END)
        at_least = max(1, training.learner.step_count)
        training.run(lambda: self.watch.cancel.is_set() or (stop() and training.learner.step_count >= at_least))
        self.steps, self.diverged = training.learner.step_count, training.diverged
        if self.watch.cancel.is_set():
            raise Stopped
        from speclsp.cli.first_run.draft_tuning.draft_training import stored_tensors

        facts = AdapterFacts(
            name=self.files.name,
            rank=self.plan.rank,
            scale=self.plan.scale,
            weights_sha256=self.plan.draft_sha256,
            jobs="fill",
            edit_format="",
            drafts_for=self.plan.target,
        )
        adapter_export.write(stored_tensors(training), facts, self.files.candidate, mode=0o600)

    def training(self, stored: StoredExamples) -> DraftTraining:
        """The training, at its state on disk."""
        import torch

        from speclsp.cli.first_run.draft_tuning.draft_training import DraftTraining
        from speclsp.engine.loading import checkpoint, loading
        from speclsp.engine.model.cpu_linears import quicker_float
        from speclsp.engine.training.learning import Example
        from speclsp.engine.training.lora import LoraShape

        device = loading.pick_device(self.settings.device)
        is_narrow = device != "cpu" or quicker_float() == "bf16"
        self.see_that_it_fits(2 if is_narrow else 4, device)
        self.show(0.0, "loading the draft for training")
        model = checkpoint.read_trainable(
            directory_of(self.draft, self.settings), device, torch.bfloat16 if is_narrow else torch.float32
        )
        return DraftTraining(
            model,
            [Example(row["prompt"], row["answer"], row["weights"], row["labels"]) for row in stored.rows],
            LoraShape(rank=self.plan.rank, scale=self.plan.scale, first_layer=self.plan.first_layer),
            self.plan.peak_rate,
            self.plan.seed,
            (TRAINING_END - ANSWERS_END) * self.watch.limit_s,
            self.files.state,
            self.watch.clock,
        )

    def see_that_it_fits(self, bytes_per_parameter: int, device: str) -> None:
        """Raise WeightsError if the draft needs more memory for training than is free."""
        from speclsp.engine.scheduling.device_memory import DeviceMemory

        need_mib = math.ceil(self.draft.parameters * bytes_per_parameter / 2**20) + SPARE_MIB
        free_mib = DeviceMemory(device).free_mib()
        if need_mib > free_mib:
            raise WeightsError(
                f"the training of {self.draft.name} needs {need_mib} MiB and {device} has {free_mib} MiB free: close "
                "other programs and run the command again; it goes on."
            )

    def judge(self, paths: list[str]) -> Judgement:
        """Judge the candidate at places of `paths`. Raises SpeclspError, Stopped."""
        from speclsp.cli.first_run.draft_tuning import draft_judge
        from speclsp.cli.first_run.draft_tuning.draft_judge import JudgedDraft
        from speclsp.engine.decoding.policy import MeasuredPolicy
        from speclsp.engine.loading import adapter_choice
        from speclsp.weights import adapters

        gc.collect()  # the training's model
        parts = self.parts()
        assert parts.draft_dir is not None
        file = adapters.read_file(self.files.candidate)
        lora = adapter_choice.fitted(file, self.draft, parts.draft_dir, self.card.target.name)
        engine = self.engine(parts)
        tuned = replace(parts, loras=[parts.loras[0], lora]).read_draft(self.show)
        assert engine.draft_decoder is not None
        drafts = []
        for decoder in (engine.draft_decoder, tuned):
            costs, fused = replace(engine.costs), None
            if engine.fused is not None:
                costs, fused = parts.warm_up(engine.target_decoder, decoder)
            policy = MeasuredPolicy(costs, engine.config.max_draft_tokens, engine.config.max_model_draft_tokens)
            drafts.append(JudgedDraft(decoder=decoder, policy=policy, fused=fused))
        end, count = self.watch.until(1.0), 0

        def show(places: int) -> None:
            nonlocal count
            count = places
            self.bar.step(places / draft_judge.MOST_PLACES, "completing in held-out files")

        judgement = draft_judge.judge(
            engine,
            (drafts[0], drafts[1]),
            draft_examples.requests(self.directory, paths, self.settings, SEED),
            lambda: self.watch.cancel.is_set() or (count >= draft_judge.LEAST_PLACES and end()),
            self.watch.cancel,
            show,
        )
        if self.watch.cancel.is_set():
            raise Stopped
        return judgement


# ── the report ──


def lines_of(facts: dict[str, Any], tuning: Tuning) -> list[str]:
    """The verdict for a person."""
    from speclsp.cli.first_run.draft_tuning import draft_judge

    head = f"{facts['model']}: its draft learned {facts['examples']} answers in {facts['steps']} steps"
    lines = [f"{head} and was judged at {facts['places']} places in {facts['files']} held-out files.", ""]
    if facts["places"]:
        lines.append(f"  {'':16}{'accepted':>10}{'tokens/round':>14}{'ms/token':>10}{'as decoded':>22}")
    for side in ("before", "after") if facts["places"] else ():
        alone, decoded = facts[side]["draft_alone"], facts[side]["as_decoded"]
        lines.append(
            f"  {side + ' tuning':16}{alone['acceptance']:>10.1%}{alone['tokens_per_round']:>14.2f}"
            f"{alone['ms_per_token']:>10.1f}{decoded['ms_per_token']:>13.1f} ms/token"
        )
    if facts["diverged"]:
        lines.append("The training stopped before a step whose loss was not a number.")
    if facts["places"] < draft_judge.LEAST_PLACES:
        return [*lines, f"Not kept: {facts['places']} places are too few to judge; name a larger directory."]
    gain, (low, high) = facts["tokens_per_ms"]["as_decoded"]["gain"], facts["tokens_per_ms"]["as_decoded"]["interval"]
    figures = f"{gain:.3f} x the tokens per millisecond (95 % interval {low:.3f} to {high:.3f})"
    if facts["kept"]:
        lines += ["", f"Kept: {figures}. The text of suggestions does not change."]
        lines += [f"The adapter is {tuning.files.card}; the engine uses it after `speclsp engine stop`."]
    else:
        lines += ["", f"Not kept: {figures}. It is kept from {draft_judge.LEAST_GAIN} on, beyond the noise."]
    return lines
