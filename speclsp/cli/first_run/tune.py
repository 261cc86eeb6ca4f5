"""`speclsp tune`: finds the prompt order that suits the weights and the fastest way of drafting on this machine.

    prompt       lines of speclsp's own code, completed with every order (prompt_trial.py); kept for these weights
    latency      milliseconds of a target pass by rows, and of a draft token; where even a draft that is always right
                 could not pay, its acceptance is not measured
    acceptance   a few holes in the user's files, completed with every candidate in turn
    choice       the candidate with the least time over short and longer completions; no speculation is one of them

Each candidate runs exactly as its settings would run later, with the same policy. The files are read on this machine,
by the model on this machine, and none of their text is stored. The way of drafting is written to config.toml.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import date
from functools import reduce
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from speclsp import config
from speclsp.cli import complete, terminal
from speclsp.cli import measure as rounds
from speclsp.cli.first_run import prompt_trial
from speclsp.config import Config, toml_edit
from speclsp.errors import InputError
from speclsp.lsp.syntax.grammars import LANGUAGE_ID_OF_SUFFIX
from speclsp.lsp.syntax.languages import record
from speclsp.weights import auto_choice

if TYPE_CHECKING:
    from speclsp.engine.api import Piece, Request
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.decoding.policy import Costs

HOLES, MIN_HOLES, BUDGET_S = 8, 3, 60.0  # after so many seconds no further hole is begun
SHORT_TOKENS, LONG_TOKENS = 12, 40  # a line's rest; a block
MAX_GAMMAS, MODEL_GAMMAS = (3, 7, 64), (2, 4, 8)  # 64: the setting's default
MARGIN = 1.03  # what is not faster by more than the noise is not preferred over less machinery
STEADY = 1.5  # plain steps that vary by more say nothing about drafting
SEED = 11
MIN_BYTES, MAX_BYTES, MAX_FILES = 400, 200_000, 20_000
SKIPPED = {"node_modules", "__pycache__", "venv", "build", "dist", "target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TuneCandidate:
    """Settings that could be chosen, and the decoding that they mean."""

    name: str
    speculation: bool = True
    draft: bool = False
    max_gamma: int = max(MAX_GAMMAS)
    model_gamma: int = 0

    def settings(self, has_draft: bool) -> dict[str, object]:
        """As they are written; those of a draft model only for a model that has one."""
        free: dict[str, object] = {
            "engine.speculative_decoding": self.speculation,
            "engine.max_draft_tokens": self.max_gamma,
        }
        return free | (
            {"engine.draft": self.draft, "engine.max_model_draft_tokens": self.model_gamma} if has_draft else {}
        )

    def request(self, request: Request) -> Request:
        """The request as it would be decoded."""
        return replace(request, speculate=self.speculation, sources=() if self.draft else ("reuse", "ngram", "head"))


@dataclass(slots=True, kw_only=True)
class TuneMeasurement:
    """A candidate's runs, one for each hole."""

    way: TuneCandidate
    runs: list[rounds.Run] = field(default_factory=list)

    def ms_per_token(self, tokens: int) -> float:
        """Decoding's, over the first `tokens` of each completion. A round counts as long as the middle of its kind."""
        usual_ms = rounds.usual_ms((piece for run in self.runs for piece in run.rounds), kind_of)
        spent_ms = sum(usual_ms[kind_of(piece)] for run in self.runs for piece in run.first(tokens))
        return spent_ms / max(sum(min(tokens, len(run.result.tokens)) for run in self.runs), 1)

    @property
    def score(self) -> float:
        """The figure that is compared: milliseconds per token, short and longer completions weighted equally."""
        return self.ms_per_token(SHORT_TOKENS) + self.ms_per_token(LONG_TOKENS)

    def drafting(self, source: str | None = None) -> rounds.Drafting:
        return rounds.drafting((piece for run in self.runs for piece in run.rounds), source)


def kind_of(piece: Piece) -> tuple[str, int]:
    """The kind of a round: its drafter and its slices of 8 rows. Rounds of one kind should take the same time."""
    return piece.source, -(-(piece.drafted + 1) // 8)


def main(settings: Config, directory: Path, dry_run: bool = False) -> int:
    """Measure, show the table, write the choice: 0; 1 when the machine was too busy to tell. Raises SpeclspError.

    `dry_run`: print the work instead, at once.
    """
    if settings.model == "echo":
        raise InputError('model = "echo" has no model to tune; name another (`speclsp models list`).')
    holes = own_holes(directory, settings)
    if dry_run:
        print(plan(settings, directory, len(holes)))
        return 0
    began_s = monotonic()
    with terminal.progress() as bar:
        card, _ = complete.choose_card(settings, measure_again=True)
        opened, _ = complete.open_engine(settings, bar, card)
        engine: CompletionEngine = opened  # type: ignore[assignment]  # the only other Completer is the echo
        prompt = prompt_trial.remember(engine, bar)
        measurements = measure(engine, holes, bar)
    plain, best = measurements[0], chosen(measurements)
    target = complete.about(engine)["target"]
    print(f"{target} on {engine.device}, at {len(plain.runs)} positions in the files of {directory}\n")
    print(f"prompt: {prompt}\n")
    print("\n".join([*latency(engine.costs, bool(engine.draft)), "", *table(measurements, best)]))
    print(f"\n{why(measurements, best)} Measured in {monotonic() - began_s:.0f} s.")
    written = best.way.settings(bool(engine.draft))
    lines = ", ".join(f"{key} = {toml_edit.in_toml(value)}" for key, value in written.items())
    path = config.config_path()
    if (wavering := unsteadiness(plain)) > STEADY:
        print(
            f"Not written: plain steps took up to {wavering:.1f} times their usual time, because other programs use "
            "the processor. Run `speclsp tune` again when they have ended."
        )
        return 1
    toml_edit.change(path, written, f"speclsp tune, {date.today().isoformat()}")
    print(f"Written to {path}: {lines}")
    return 0


def plan(settings: Config, directory: Path, count: int) -> str:
    """The work of this command at `count` positions, for --dry-run. Loads, measures and writes nothing."""
    card, _ = auto_choice.auto(settings)
    has_draft = len(complete.needed(settings, card)) > 1
    minutes = (prompt_trial.BUDGET_S + BUDGET_S) / 60
    written = (
        f"{key} (now {toml_edit.in_toml(reduce(getattr, key.split('.'), settings))})"
        for key in TuneCandidate(name="").settings(has_draft)
    )
    rows = {
        "model": card.name,
        "positions": f"{count}, in the source files of {directory}",
        "compares": "prompt orders; " + "; ".join(way.name for way in ways(has_draft)),
        "time": f"about {minutes:.0f} minutes at most, after the model is loaded",
        "writes": f"{', '.join(written)}, in {config.config_path()}",
    }
    lines = [f"{name:<10} {text}" for name, text in rows.items()]
    return "\n".join([*lines, "", "Nothing was loaded, measured or written (--dry-run)."])


# ── the user's own files ─────────────────────────────────────────────────────────────────────────────────────


def own_holes(directory: Path, settings: Config) -> list[Request]:
    """Places in source files under `directory` where a line is cut off, chosen by a seed; each in another file.

    Raises:
        InputError: there is no such directory, or no source file in it.
    """
    if not directory.is_dir():
        raise InputError(f"{directory}: no such directory.")
    dice = random.Random(SEED)
    files = sorted(file for file in source_files(directory) if usable(file))
    dice.shuffle(files)
    holes = list(islice(filter(None, (hole_in(file, settings, dice) for file in files)), HOLES))
    if not holes:
        raise InputError(f"no source files of a known language in {directory}: name a directory with source files.")
    return holes


def source_files(directory: Path) -> Iterator[Path]:
    """The files that git tracks; without git, all but those of hidden and generated directories."""
    try:
        listed = subprocess.run(
            ["git", "-C", str(directory), "ls-files", "-z", "--cached"], capture_output=True, timeout=20, check=True
        )
        names = [os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
        yield from (directory / name for name in names[:MAX_FILES])
        if names:
            return
    except (OSError, subprocess.SubprocessError):
        pass
    count = 0
    for root, folders, names in os.walk(directory):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in SKIPPED)
        for name in sorted(names):
            count += 1
            if count > MAX_FILES:
                return
            yield Path(root, name)


def usable(file: Path) -> bool:
    """True for a file whose name and size are those of code."""
    language = LANGUAGE_ID_OF_SUFFIX.get(file.suffix.lower(), "")
    try:
        return (
            bool(language)
            and not record(language).is_data  # nobody waits for completions there
            and file.is_file()
            and MIN_BYTES <= file.stat().st_size <= MAX_BYTES
        )
    except OSError:
        return False


def hole_in(file: Path, settings: Config, dice: random.Random) -> Request | None:
    """A request for the removed rest of a random line, as an editor would send it; None for a file without one."""
    try:
        complete.see_that_it_may_be_shown(file)
        text = complete.read_text(file, MAX_BYTES)
    except InputError:
        return None
    lines = text.splitlines(keepends=True)
    numbers = [n for n, line in enumerate(lines) if len(line.strip()) > 12]
    if not numbers:
        return None
    n = dice.choice(numbers)
    indent, end = len(lines[n]) - len(lines[n].lstrip()), len(lines[n].rstrip())
    at = dice.choice((indent, dice.randrange(indent + 4, end - 2)))  # a new line, or one that has begun
    before = "".join(lines[:n])
    whole = before + lines[n][:at] + lines[n][end:] + "".join(lines[n + 1 :])
    hole = complete.prepare(complete.snapshot_of(file, whole, len(before) + at), settings)
    if not isinstance(hole, complete.CompletionPoint):
        return None
    return replace(hole.request, max_tokens=LONG_TOKENS, temperature=0.0)


# ── measuring ────────────────────────────────────────────────────────────────────────────────────────────────


def ways(draft_can_pay: bool) -> list[TuneCandidate]:
    """Every candidate, the plainest first."""
    candidates = [TuneCandidate(name="plain", speculation=False)]
    candidates += [TuneCandidate(name=f"n-grams, up to {gamma}", max_gamma=gamma) for gamma in MAX_GAMMAS]
    if draft_can_pay:
        candidates += [
            TuneCandidate(name=f"+ draft model, up to {gamma}", draft=True, model_gamma=gamma) for gamma in MODEL_GAMMAS
        ]
    return candidates


def at_best(costs: Costs) -> float:
    """The speed-up over plain decoding of a draft model that is always right."""
    plain_ms, guess_ms = costs.verify(1), costs.guess("model")
    return max((gamma + 1) * plain_ms / (gamma * guess_ms + costs.verify(gamma + 1)) for gamma in range(1, 17))


def measure(engine: CompletionEngine, holes: list[Request], bar: terminal.ProgressLine) -> list[TuneMeasurement]:
    """Run every candidate at every hole, in rotating order. The prompt is cached, as it is between keystrokes."""
    from speclsp.engine.decoding.policy import MeasuredPolicy

    can_pay = bool(engine.draft) and at_best(engine.costs) > MARGIN
    measurements = [TuneMeasurement(way=way) for way in ways(can_pay)]
    policies = [
        MeasuredPolicy(replace(engine.costs), measurement.way.max_gamma, measurement.way.model_gamma)
        for measurement in measurements
    ]  # each learns for itself, from hole to hole
    policy, began_s = engine.policy, monotonic()
    for number, hole in enumerate(holes):
        if number >= MIN_HOLES and monotonic() - began_s > BUDGET_S:
            break
        bar.step(number / len(holes), "completing in your files")
        rounds.run(
            engine, replace(hole, max_tokens=3, gamma=1, sources=("model",) if can_pay else ())
        )  # fills the caches
        for turn in range(len(measurements)):
            at = (number + turn) % len(measurements)
            engine.policy = policies[at]
            measurements[at].runs.append(rounds.run(engine, measurements[at].way.request(hole)))
    engine.policy = policy
    return measurements


def unsteadiness(plain: TuneMeasurement) -> float:
    """The 90th percentile of plain steps over their median: all of them do the same work."""
    steps_ms = [piece.ms for run in plain.runs for piece in run.rounds]
    return rounds.quantile(steps_ms, 0.9) / max(rounds.quantile(steps_ms, 0.5), 1e-9)


# ── the choice, and why ──────────────────────────────────────────────────────────────────────────────────────


def chosen(measurements: list[TuneMeasurement]) -> TuneMeasurement:
    """The fastest candidate; of equals within MARGIN, the one with the least machinery.

    Among n-grams alone, that is the default limit: the policy draws its own line below it.
    """
    plain = measurements[0]
    free = [measurement for measurement in measurements if measurement.way.speculation and not measurement.way.draft]
    drafted = [measurement for measurement in measurements if measurement.way.draft]
    usual = next(measurement for measurement in free if measurement.way.max_gamma == max(MAX_GAMMAS))
    best = faster(usual, min(free, key=lambda measurement: measurement.score))
    if drafted:
        best = faster(best, min(drafted, key=lambda measurement: measurement.score))
    return faster(plain, best)


def faster(usual: TuneMeasurement, other: TuneMeasurement) -> TuneMeasurement:
    """`other` where it beats `usual` by more than MARGIN."""
    return other if other.score * MARGIN < usual.score else usual


def why(measurements: list[TuneMeasurement], best: TuneMeasurement) -> str:
    """The choice in a sentence or two."""
    plain = measurements[0]
    if best is plain:
        nearest = min(measurements[1:], key=lambda measurement: measurement.score)
        return (
            f"Speculation off: its best variant, {nearest.way.name}, is {plain.score / nearest.score:.2f} x as fast as "
            f"plain decoding, within the noise."
        )
    sentence = f"{best.way.name}: {plain.score / best.score:.2f} x as fast as plain decoding."
    drafted = [measurement for measurement in measurements if measurement.way.draft]
    if drafted and not best.way.draft:
        nearest = min(drafted, key=lambda measurement: measurement.score)
        sentence += f" The draft model is not used: with it, {plain.score / nearest.score:.2f} x."
    return sentence


def latency(costs: Costs, has_draft: bool) -> list[str]:
    """Lines about the latency of passes, and about the largest gain that a draft model could bring."""
    step_ms = costs.verify(1)
    lines = [
        f"a pass of the target   {step_ms:6.1f} ms for 1 token, "
        + ", ".join(f"{costs.verify(rows):.1f} for {rows}" for rows in (8, 16))
    ]
    if has_draft:
        at_most, guess_ms = at_best(costs), costs.guess("model")
        verdict = "" if at_most > MARGIN else ", so its acceptance was not measured"
        lines.append(
            f"the draft model        {guess_ms:6.1f} ms a token; with every draft accepted, decoding would be "
            f"{at_most:.2f} x as fast{verdict}"
        )
    return lines


def table(measurements: list[TuneMeasurement], best: TuneMeasurement) -> list[str]:
    """A table of candidates, their acceptance and time per token by length; `<` marks the fastest of each length."""
    lengths = (SHORT_TOKENS, LONG_TOKENS)
    heads = "".join(f"{f'first {tokens} tokens':>22}" for tokens in lengths)
    lines = [f"  {'':24}{'accepted':>10}{'tokens/round':>14}{heads}"]
    fastest = {
        tokens: min(measurements, key=lambda measurement: measurement.ms_per_token(tokens)) for tokens in lengths
    }
    for measurement in measurements:
        counts = measurement.drafting("model" if measurement.way.draft else None)
        accepted = f"{counts.alpha:.0%}" if counts.judged else "-"
        cells = "".join(
            f"{measurement.ms_per_token(tokens):13.1f} ms/token{'<' if fastest[tokens] is measurement else ' '}"[-22:]
            for tokens in lengths
        )
        mark = "*" if measurement is best else " "
        lines.append(
            f"{mark} {measurement.way.name:24}{accepted:>10}{measurement.drafting().tokens_per_round:14.2f}{cells}"
        )
    return [
        *lines,
        "  * chosen   < fastest at that length   accepted: share of verified drafts, the model's where used",
    ]
