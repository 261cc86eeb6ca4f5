"""Measures which prompt order suits a model's weights, with token healing and without.

    40 lines of speclsp's own source files, always the same ─► each style completes them ─► lines restored exactly

The card's style is replaced only by one that is better beyond chance: a one-sided sign test over the lines
that exactly one of the two restores, at 5 % for all other styles together (Bonferroni). This code is newer than the
models, so none of it was in their training data.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from math import comb
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, cast

import speclsp
from speclsp.cli import complete, terminal
from speclsp.engine.api import Request
from speclsp.errors import InputError

if TYPE_CHECKING:
    from speclsp.cli.terminal import ProgressLine
    from speclsp.config import Config
    from speclsp.engine.api import Completer
    from speclsp.engine.decoding.completion import CompletionEngine
    from speclsp.engine.decoding.prompt import PromptStyle
    from speclsp.engine.loading.prompt_choice import PromptChoice
    from speclsp.weights.cards import Card

PLACES, MIN_PLACES, BUDGET_S = 40, 20, 240.0  # after so many seconds no further place is begun
LINES_ABOVE, LINES_BELOW = 30, 10  # of context: enough to tell orders apart, and short on a CPU
MIN_LINE = 12  # characters without the indent
MAX_TOKENS = 32
CHANCE = 0.05
SEED = 40

Scores = Mapping["PromptStyle", list[bool]]  # for each style and place: True where the line was restored exactly


def main(config: Config) -> int:
    """`speclsp tune`: load the configured model, measure and record its prompt order.

    Returns 0, or 1 when nothing was measured, see `remember`. Raises SpeclspError.
    """
    if config.model == "echo":
        raise InputError('model = "echo" has no prompt order; name another model (`speclsp models list`).')
    with terminal.progress() as bar:
        completer, _ = complete.open_engine(config, bar)
        measured, sentence = remember(completer, bar)
    print(f"Model:   {completer.target} on {completer.device}\nPrompt:  {sentence}")
    return 0 if measured else 1


@dataclass(frozen=True, slots=True)
class TrialPlace:
    """A source line whose end was removed."""

    request: Request
    answer: str


def places() -> list[TrialPlace]:
    """PLACES lines, each in another file of this package: half of them whole lines, half cut inside."""
    package = Path(speclsp.__file__).parent
    files = sorted(package.rglob("*.py"), key=lambda file: file.relative_to(package).as_posix())
    dice = random.Random(SEED)
    dice.shuffle(files)
    chosen: list[TrialPlace] = []
    for file in files:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        numbers = [n for n in range(LINES_BELOW, len(lines) - LINES_BELOW) if len(lines[n].strip()) >= MIN_LINE]
        if not numbers:
            continue
        n = dice.choice(numbers)
        indent, end = len(lines[n]) - len(lines[n].lstrip()), len(lines[n].rstrip())
        at = indent if len(chosen) % 2 else dice.randrange(indent + 2, end - 2)
        request = Request(
            prefix="".join(lines[max(0, n - LINES_ABOVE) : n]),
            line_prefix=lines[n][:at],
            suffix=lines[n][end:] + "".join(lines[n + 1 : n + 1 + LINES_BELOW]),
            filename=file.relative_to(package.parent).as_posix(),
            max_tokens=MAX_TOKENS,
            temperature=0.0,
            stop=("\n",),
        )
        chosen.append(TrialPlace(request, lines[n][at:end]))
        if len(chosen) == PLACES:
            break
    return chosen


def styles(engine: CompletionEngine) -> list[PromptStyle]:
    """The card's style first, then the others."""
    from speclsp.engine.decoding.prompt import PromptStyle
    from speclsp.engine.loading.prompt_choice import ORDERS

    default = PromptStyle.of_family(engine.card)
    every = [PromptStyle(order, heal) for order in ORDERS for heal in (True, False)]
    return [default, *(style for style in every if style != default)]


def measure(engine: CompletionEngine, bar: ProgressLine) -> Scores:
    """Complete the places with every style; fewer places where the time is up. The engine keeps its prompter."""
    from speclsp.engine.decoding.prompt import Prompter

    own, began_s = engine.prompter, monotonic()
    prompters = {
        style: Prompter(own.card, own.tokenizer, own.vocabulary, own.context_tokens, style) for style in styles(engine)
    }
    scores: dict[PromptStyle, list[bool]] = {style: [] for style in prompters}
    try:
        for number, place in enumerate(places()):
            if monotonic() - began_s > BUDGET_S:
                break
            bar.long_step(number / PLACES, "comparing prompt orders")
            for style, prompter in prompters.items():
                engine.prompter = prompter
                pieces = engine.complete(place.request, threading.Event())
                text = "".join(piece.text for piece in pieces)
                scores[style].append(text.partition("\n")[0].rstrip() == place.answer)
    finally:
        engine.prompter = own
    return scores


def choose(scores: Scores) -> PromptStyle:
    """The style with the most lines if it beats the first one beyond chance, else the first one."""
    default, *others = scores
    best = max(others, key=lambda style: sum(scores[style]))
    won = sum(ours and not theirs for ours, theirs in zip(scores[best], scores[default], strict=True))
    lost = sum(theirs and not ours for ours, theirs in zip(scores[best], scores[default], strict=True))
    return best if chance(won, lost) <= CHANCE / len(others) else default


def chance(won: int, lost: int) -> float:
    """Probability of at least `won` of won + lost fair coins: the sign test's p value."""
    coins = won + lost
    return sum(comb(coins, heads) for heads in range(won, coins + 1)) * 2.0**-coins


def remember(completer: Completer, bar: ProgressLine) -> tuple[bool, str]:
    """Measure, use and record the style of a loaded model: True if a style was measured, and a sentence for the user.

    Without fill-in-the-middle tokens, or with fewer than MIN_PLACES places in BUDGET_S, nothing is recorded.
    """
    from speclsp.engine.decoding.prompt import Prompter
    from speclsp.engine.loading import prompt_choice

    engine = cast("CompletionEngine", completer)  # the only other Completer is the echo
    if not engine.card.fim.prefix:
        return False, "The model has no fill-in-the-middle tokens, so there is no order to choose."
    scores = measure(engine, bar)
    default, chosen = next(iter(scores)), choose(scores)
    count = len(scores[default])
    if count < MIN_PLACES:
        return False, f"The prompt order was not measured: {count} places took {BUDGET_S:.0f} s."
    choice = prompt_choice.PromptChoice(
        order=chosen.order,
        heal=chosen.heal,
        exact=sum(scores[chosen]),
        default_exact=sum(scores[default]),
        places=count,
    )
    own = engine.prompter
    engine.prompter = Prompter(own.card, own.tokenizer, own.vocabulary, own.context_tokens, choice.style)
    prompt_choice.record(engine.card, choice)
    return True, in_words(choice, scores)


def in_words(choice: PromptChoice, scores: Scores | None = None) -> str:
    """The choice in part of a sentence; the next best style too, where its scores are given and the default is kept."""
    sentence = f"{style_in_words(choice.style)}: {choice.exact} of {choice.places} lines exact"
    if scores and choice.style == (default := next(iter(scores))):
        best = max((style for style in scores if style != default), key=lambda style: sum(scores[style]))
        return f"{sentence}; no other is better beyond chance (next: {style_in_words(best)}, {sum(scores[best])})"
    better = choice.exact != choice.default_exact
    return f"{sentence}; the model definition's own style restores {choice.default_exact}" if better else sentence


def report(card: Card) -> str:
    """The style of these weights, and whether it was measured, for `doctor`."""
    from speclsp.engine.loading import prompt_choice

    if choice := prompt_choice.recorded(card):
        return in_words(choice)
    return f"{style_in_words(prompt_choice.style(card))}; not measured (`speclsp tune` measures it)"


def style_in_words(style: PromptStyle) -> str:
    """The style in part of a sentence."""
    return f"order {style.order}, token healing {'on' if style.heal else 'off'}"
