"""Is the int8 target as good as the bf16 weights it was made from? A variant of a model is not the model: measure it.

    python -m benchmarks formats --model qwen2.5-coder-0.5b-instruct [--files 16] [--tokens 32]

Tasks are lines cut off in installed packages that are newer than most of the models' training, the rest of the line
being the answer. Both formats complete them greedily. Then the bf16 tokens are forced on the int8 target one by one, so
that one early difference is not counted again in all that follows it, and its choice at each place is compared.
Nothing here is timed. Writes benchmarks/results/quality-int8-<model>.json.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from benchmarks import model_options, results_file
from benchmarks.speed import rounds
from benchmarks.speed.holes import package_files
from speclsp.cli import terminal
from speclsp.config import Config
from speclsp.engine.api import Request

if TYPE_CHECKING:
    from speclsp.engine.decoding.completion import CompletionEngine

PACKAGES = ("pygls", "starlette", "uvicorn", "httpx", "platformdirs", "rich", "click")  # versions: constraints.txt
SEED = 7
FILES, TOKENS = 16, 32
CONTEXT_LINES = 30
SKIPPED = ("#", '"', "import", "from", "@")
ROWS = 8  # tokens in one pass
REFERENCE, VARIANT = "bf16", "int8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A line cut off, and how it went on."""

    request: Request
    answer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatResult:
    """One format's result for a task: the prompt's tokens as the engine built them, and its greedy continuation.

    Its first `respelled` tokens repeat the text before the cursor, and were not chosen freely.
    """

    prompt: list[int]
    tokens: list[int]
    respelled: int = 0
    text: str


def tasks(files: int, tokens: int) -> list[Task]:
    """Two from each of `files` files: a line without its indent, and one cut at a random character."""
    dice, result = random.Random(SEED), []
    for file in package_files(PACKAGES, dice)[:files]:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        usable = [
            n
            for n, line in enumerate(lines)
            if n > CONTEXT_LINES // 2 and len(line.strip()) > 16 and not line.strip().startswith(SKIPPED)
        ]
        for cut_inside in (False, True):
            if not usable:
                continue
            n = dice.choice(usable)
            line, indent = lines[n], len(lines[n]) - len(lines[n].lstrip())
            at = dice.randrange(indent + 4, len(line.rstrip()) - 3) if cut_inside else indent
            request = Request(
                prefix="".join(lines[max(0, n - CONTEXT_LINES) : n]),
                line_prefix=line[:at],
                suffix="".join(lines[n + 1 : n + 1 + CONTEXT_LINES // 2]),
                filename=file.name,
                max_tokens=tokens,
                speculate=False,
            )
            result.append(Task(request=request, answer=line[at:].rstrip()))
    return result


def say(engine: CompletionEngine, chosen: list[Task], progress: Callable[[float, str], None]) -> list[FormatResult]:
    """Every task completed greedily, token by token."""
    results = []
    for number, task in enumerate(chosen):
        progress(number / len(chosen), f"{engine.target}: completing")
        result = rounds.run(engine, task.request).result
        prompt = engine.prompter.build(task.request)
        respelled = spelled_by(engine, result.tokens, prompt.heal)
        results.append(
            FormatResult(prompt=list(prompt.ids), tokens=list(result.tokens), respelled=respelled, text=result.text)
        )
    progress(1.0, engine.target)
    return results


def spelled_by(engine: CompletionEngine, tokens: list[int], text: bytes) -> int:
    """Number of the first `tokens` that spell `text`."""
    done = count = 0
    while done < len(text) and count < len(tokens):
        done, count = done + len(engine.prompter.vocabulary.bytes[tokens[count]]), count + 1
    return count


def agreement(
    engine: CompletionEngine, reference: list[FormatResult], progress: Callable[[float, str], None]
) -> list[list[bool]]:
    """For each token that the reference chose freely: True if `engine` also chooses it after the same tokens."""
    agreed = []
    for number, result in enumerate(reference):
        progress(number / len(reference), f"{engine.target}: forced")
        start_at = len(result.prompt) + result.respelled - 1  # the last of these tokens predicts the next one
        ids, target = [*result.prompt, *result.tokens], engine.target_decoder
        target.catch_up(ids[:start_at])
        target.rewind(start_at)
        choices: list[int] = []
        for start in range(start_at, len(ids) - 1, ROWS):
            choices += target.forward(ids[start : min(start + ROWS, len(ids) - 1)]).argmax(-1).tolist()
        agreed.append([choice == token for choice, token in zip(choices, ids[start_at + 1 :], strict=True)])
    progress(1.0, engine.target)
    return agreed


def exact(results: list[FormatResult], chosen: list[Task]) -> int:
    """Number of first lines that equal the answer, trailing blanks aside."""
    return sum(
        (result.text.split("\n")[0]).rstrip() == task.answer for result, task in zip(results, chosen, strict=True)
    )


def in_format(settings: Config, number_format: str) -> Config:
    """The model's target alone in that format."""
    engine = replace(settings.engine, quantization=number_format, draft=False, speculative_decoding=False)
    return replace(settings, device="cpu", engine=engine)


def bench(settings: Config, files: int, tokens: int) -> None:
    """Measure a model, print the result, write the JSON."""
    chosen = tasks(files, tokens)
    with terminal.progress() as bar:
        engine = model_options.engine(in_format(settings, REFERENCE))
        model, name = engine.model, engine.card.target.name
        reference = say(engine, chosen, bar.step)
        del engine
        gc.collect()
        engine = model_options.engine(in_format(settings, VARIANT))
        variant = say(engine, chosen, bar.step)
        agreements = agreement(engine, reference, bar.step)
    compared = sum(map(len, agreements))
    agreed = sum(map(sum, agreements))
    figures = {
        "pair": model,
        "model": name,
        "reference": REFERENCE,
        "variant": VARIANT,
        "seed": SEED,
        "tasks": len(chosen),
        "max_tokens": tokens,
        "tokens_compared": compared,
        "tokens_agreed": agreed,
        "agreement": round(agreed / max(compared, 1), 4),
        "identical_completions": sum(a.tokens == b.tokens for a, b in zip(reference, variant, strict=True)),
        "exact_first_lines": {REFERENCE: exact(reference, chosen), VARIANT: exact(variant, chosen)},
        "identical_first_lines": sum(
            a.text.split("\n")[0] == b.text.split("\n")[0] for a, b in zip(reference, variant, strict=True)
        ),
    }
    print(
        f"{name}: {VARIANT} chooses {REFERENCE}'s token at {agreed} of {compared} places ({figures['agreement']:.1%}); "
        f"first lines right {figures['exact_first_lines']} of {len(chosen)}; "
        f"completions identical {figures['identical_completions']} of {len(chosen)}"
    )
    print(f"wrote {results_file.write('quality-int8', figures, f'quality-int8-{model}')}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks formats`; `quality --formats` uses their defaults."""
    model_options.add_arguments(parser)
    parser.add_argument(
        "--files", metavar="N", type=int, default=FILES, help=f"source files, two tasks each (default: {FILES})"
    )
    parser.add_argument(
        "--tokens", metavar="N", type=int, default=TOKENS, help=f"longest completion (default: {TOKENS})"
    )


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    for setting in model_options.settings(options):
        bench(setting, getattr(options, "files", FILES), getattr(options, "tokens", TOKENS))
    return 0
