"""`speclsp tune --draft`: trains a draft head on the target's answers in a directory's files, and judges it there.

    0 to 0.4 of the time    the target answers at places of four fifths of the files   (draft_examples.py)
    0.4 to 0.8              the model's head, or a new one, learns the answers         (head_learning.py)
    0.8 to 1                decoding with it and without it, at places of the rest     (draft_judge.py)

The head is kept only where decoding becomes faster beyond the noise. The target is unchanged, so no text changes.
Everything runs at the lowest priority and contacts no server. A run that is stopped, or killed, goes on next time.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from speclsp import private_files
from speclsp.cli import terminal
from speclsp.cli.first_run.draft_tuning import draft_examples, draft_judge, head_file, head_layer, head_texts
from speclsp.cli.first_run.draft_tuning.draft_judge import Judgement
from speclsp.cli.first_run.draft_tuning.head_layer import HeadLayer
from speclsp.cli.first_run.draft_tuning.head_learning import PEAK_RATE, HeadTraining, Text
from speclsp.cli.first_run.draft_tuning.tuning_files import TuningFiles, alone, run_idle, stoppable, tunable_card
from speclsp.config import Config
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.policy import MeasuredPolicy
from speclsp.engine.loading import adapter_choice, head_choice, loading
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.head_choice import HeadUse
from speclsp.engine.loading.torch_checkpoint import tensor
from speclsp.engine.model.int8.draft_head import DraftHead, HeadWeights
from speclsp.engine.model.int8.hidden_states import StateRecorder, layers_of
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.errors import InputError
from speclsp.weights.cards import Card

KEPT, NOT_KEPT, STOPPED = 0, 1, 130  # exit codes
MINUTES = 10.0  # by default
ANSWERS_END, TRAINING_END = 0.4, 0.8  # shares of the time
MAX_TEXTS, MIN_TEXTS, FILE_TEXTS = 2000, 2, 8
SEED = 17
FURTHER_RATE = 5e-4  # of a head that is trained already

Clock = Callable[[], float]


class Stopped(Exception):
    """The user stopped the command. The files hold its progress."""


@dataclass(slots=True)
class Tuning:
    """One run of the command. The time of earlier runs counts."""

    settings: Config
    directory: Path
    card: Card
    weights: Path
    files: TuningFiles
    engine: CompletionEngine
    target: NativeDecoder
    use: HeadUse
    lora: Lora | None
    trained: HeadWeights | None  # the head that the model has
    limit_s: float
    began_s: float
    clock: Clock
    cancel: threading.Event
    bar: terminal.ProgressLine
    steps: int = 0

    def is_over(self, share: float) -> bool:
        """True after that share of the time. Raises Stopped after a signal."""
        if self.cancel.is_set():
            raise Stopped
        return self.clock() - self.began_s >= share * self.limit_s

    @property
    def plan(self) -> dict[str, str]:
        """Everything that the texts and the training depend on."""
        return {"directory": str(self.directory.resolve()), "seed": str(SEED)} | {
            key: getattr(self.use, key) for key in ("weights_sha256", "adapter_sha256", "vocabulary_sha256")
        }

    def answer(self, paths: list[str]) -> list[Text]:
        """Let the target answer at places of `paths`, up to its share of the time. Returns all texts.

        Raises:
            SpeclspError, Stopped.
        """
        stored = self.stored()
        if not {own["path"] for _, own in stored} <= set(paths):  # a file is gone, or no model may read it any more
            self.files.clear()
            stored = []
        done = stored[-1][1]["place"] + 1 if stored else 0
        began_s = stored[-1][1]["spent_s"] if stored else 0.0
        self.began_s -= began_s
        recorder, new = StateRecorder(self.target), list[tuple[Any, dict[str, Any]]]()
        before, after = draft_examples.PROMPT_TOKENS
        short = replace(self.settings.context, prefix_tokens=before, suffix_tokens=after)
        places = draft_examples.requests(self.directory, paths, replace(self.settings, context=short), SEED)
        try:
            for number, (path, request) in enumerate(places):
                count = len(stored) + len(new)
                if number < done:
                    continue
                if count >= MAX_TEXTS or self.is_over(1.0) or (count >= MIN_TEXTS and self.is_over(ANSWERS_END)):
                    break
                self.bar.step(count / MAX_TEXTS, f"{count} answers of the target")
                prompt = self.engine.prompter.build(request).ids
                text = draft_examples.answered(self.engine, recorder, prompt, self.cancel)
                if len(text.ids) > text.prompt and not self.cancel.is_set():
                    spent_s = round(self.clock() - self.began_s, 1)
                    new.append((text, {"path": path, "place": number, "spent_s": spent_s}))
                if len(new) == FILE_TEXTS:
                    head_texts.write(self.files.work, new, self.plan, 0o600)
                    stored, new = stored + new, []
        finally:
            recorder.close()
            if new:
                head_texts.write(self.files.work, new, self.plan, 0o600)
        stored += new
        if len(stored) < MIN_TEXTS:
            raise InputError(f"the target answers at {len(stored)} places of {self.directory}: name a larger one.")
        return [text for text, _ in stored]

    def stored(self) -> list[tuple[Text, dict[str, Any]]]:
        """The texts of earlier runs. Raises InputError: they are of another tuning."""
        texts: list[tuple[Text, dict[str, Any]]] = []
        for path in head_texts.files(self.files.work):
            facts = head_texts.facts_of(path)
            if differing := [key for key, value in self.plan.items() if facts.get(key) != value]:
                raise InputError(
                    f"a tuning with other data has begun ({', '.join(differing)} differ; its directory is "
                    f"{facts.get('directory')}): finish it there, or delete it with `speclsp tune --draft --remove`."
                )
            texts += head_texts.read(path)
        return texts

    def train(self, texts: list[Text]) -> DraftHead:
        """Train the head, up to its share of the time, and attach it. Raises SpeclspError, Stopped."""
        self.bar.step(0.0, "preparing the head")
        head, former = self.untrained(texts), self.trained
        training = HeadTraining(
            head, texts, self.files.state, self.plan, budget_s=(TRAINING_END - ANSWERS_END) * self.limit_s, seed=SEED,
            peak_rate=PEAK_RATE if former is None else FURTHER_RATE, clock=self.clock,
        )  # fmt: skip
        least = max(1, training.step_count)
        training.run(  # it saves its state before `Stopped` is raised
            lambda: self.cancel.is_set() or (training.step_count >= least and self.is_over(TRAINING_END)),
            lambda line: self.bar.step(training.progress, f"step {line['step']}, agrees {line['agreed'][0]:.0%}"),
        )
        self.steps = training.step_count
        if self.cancel.is_set():
            raise Stopped
        metadata = self.use.metadata(self.files.name, layers_of(self.target.layers))
        head_file.write(head.tensors(), head.target.vocabulary, metadata, self.files.candidate, 0o600)
        return head_choice.attach(self.target, head_choice.read(self.files.candidate))

    def untrained(self, texts: list[Text]) -> HeadLayer:
        """The head that the model has, or a new one. Raises SpeclspError."""
        if self.trained is None:
            vocabulary = head_layer.common_tokens((text.ids for text in texts), self.target.shape.vocab)
            return head_layer.new_head(self.weights, self.lora, vocabulary, head_layer.INNER, SEED)
        vocabulary = tensor(self.trained.vocabulary)
        head = head_layer.new_head(self.weights, self.lora, vocabulary, self.trained.inner, SEED)
        for name, value in head.tensors().items():
            value.copy_(tensor(self.trained.tensors[name]))
        return head

    def judge(self, paths: list[str], tuned: DraftHead) -> Judgement:
        """Judge the head at places of `paths`. Raises SpeclspError, Stopped."""
        engine = self.engine
        before = None if self.trained is None else DraftHead(self.target, self.trained)
        tuned.open()
        engine.costs.set_guess("head", tuned.measure())
        policies = [MeasuredPolicy(replace(engine.costs), engine.config.max_draft_tokens) for _ in range(2)]

        def stop(places: int) -> bool:
            self.bar.step(places / draft_judge.MAX_PLACES, "completing in held-out files")
            return places >= draft_judge.MIN_PLACES and self.is_over(1.0)

        places = draft_examples.requests(self.directory, paths, self.settings, SEED)
        judgement = draft_judge.judge(
            engine, self.target, ((before, policies[0]), (tuned, policies[1])), places, stop, self.cancel
        )
        if self.cancel.is_set():
            raise Stopped
        return judgement


def main(
    settings: Config, directory: Path, minutes: float, *, as_json: bool = False, clock: Clock = time.monotonic
) -> int:
    """Tune and judge, and print the verdict. Raises SpeclspError."""
    if not 0 < minutes <= 24 * 60:
        raise InputError(f"--minutes {minutes:g} is not valid: expected a number above 0, of at most a day.")
    learned, held_out = draft_examples.own_files(directory, settings)
    card, weights = tunable_card(settings)
    files = TuningFiles(card.name)
    with stoppable() as cancel, alone(files), terminal.progress() as bar:
        run_idle()
        tuning = started(settings, directory, card, files, weights, minutes * 60, clock, cancel, bar)
        texts: list[Text] = []
        try:
            texts = tuning.answer(learned)
            tuned = tuning.train(texts)
            judgement = tuning.judge(held_out, tuned)
        except Stopped:
            print(f"Stopped after {len(texts)} answers and {tuning.steps} steps: the same command goes on.")
            return STOPPED
    return conclude(tuning, judgement, len(texts), as_json)


def started(
    settings: Config, directory: Path, card: Card, files: TuningFiles, weights: Path, limit_s: float,
    clock: Clock, cancel: threading.Event, bar: terminal.ProgressLine,
) -> Tuning:  # fmt: skip
    """The model in memory, without its head. Raises SpeclspError."""
    began_s = clock()
    own = replace(settings, engine=replace(settings.engine, offline=True, draft=False))
    engine = loading.load(own, card, bar.step)
    target = engine.target_decoder
    if not isinstance(target, NativeDecoder):
        raise InputError(f"{engine.target} on {engine.device} gives no hidden states, so no draft head can be tuned.")
    loras, _ = adapter_choice.choose(settings.engine.adapter, settings.models_dir, [(card.target, weights)])
    use = head_choice.use_of(weights, loras[0], engine.prompter.vocabulary)
    file, _ = head_choice.find(use, settings.models_dir)
    trained = None if file is None else head_choice.weights_of(file, target.shape, target.layers)
    engine.head = None
    target.detach()
    return Tuning(
        settings, directory, card, weights, files, engine, target, use, loras[0], trained, limit_s, began_s, clock,
        cancel, bar,
    )  # fmt: skip


def conclude(tuning: Tuning, judgement: Judgement, texts: int, as_json: bool) -> int:
    """Keep the head or delete it, and print the figures. Returns the exit code."""
    pays, files = judgement.pays, tuning.files
    if pays:
        files.head.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        private_files.replace(files.head, files.candidate.read_bytes(), sync=True)
    files.clear()
    facts = judgement.facts() | {"answers": texts, "steps": tuning.steps, "kept": pays, "model": tuning.card.name}
    facts |= {"seconds": round(tuning.clock() - tuning.began_s)}
    print(json.dumps(facts) if as_json else "\n".join(lines_of(facts, files)))
    return KEPT if pays else NOT_KEPT


def remove(model: str) -> int:
    """Delete the tuned head of a model, and the files of an unfinished tuning."""
    files = TuningFiles(model)
    with alone(files):
        removed = files.head.exists() or files.work.exists()
        files.head.unlink(missing_ok=True)
        files.clear()
    print(f"Deleted the head of {model} and its texts." if removed else f"{model} has no tuned draft.")
    return KEPT if removed else NOT_KEPT


def lines_of(facts: dict[str, Any], files: TuningFiles) -> list[str]:
    """The verdict for a person."""
    head = f"{facts['model']}: its draft head learned {facts['answers']} answers in {facts['steps']} steps"
    lines = [f"{head} and was judged at {facts['places']} places in {facts['files']} held-out files.", ""]
    if facts["places"] < draft_judge.MIN_PLACES:
        return [*lines, f"Not kept: {facts['places']} places are too few to judge; name a larger directory."]
    lines.append(f"  {'':16}{'accepted':>10}{'tokens/round':>14}{'ms/token':>10}")
    for side in ("before", "after"):
        of_side = facts[side]
        lines.append(
            f"  {side + ' tuning':16}{of_side['head_acceptance']:>10.1%}{of_side['tokens_per_round']:>14.2f}"
            f"{of_side['ms_per_token']:>10.1f}"
        )
    low, high = facts["interval"]
    figures = f"{facts['gain']:.3f} x the tokens per millisecond (95 % interval {low:.3f} to {high:.3f})"
    if not facts["kept"]:
        return [*lines, "", f"Not kept: {figures}. It is kept from {draft_judge.MIN_GAIN} on, beyond the noise."]
    lines += ["", f"Kept: {figures}. The text of suggestions does not change."]
    return [*lines, f"The head is {files.head}; the engine uses it after `speclsp engine stop`."]
