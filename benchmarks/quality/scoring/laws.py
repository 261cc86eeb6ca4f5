"""Checks the displayable texts against the laws of a text that needs no repair, over all cursors of the task set.

    python -m benchmarks laws [--tasks N]     no model: the generations are derived from the truth

The generations at every cursor: the truth cut anywhere, followed by the lines below, with a bracket doubled or missing,
repeated five times, in foreign indentation, with a Markdown fence after it; and other pieces of the file. None of
these, once shown, may add a syntax error, repeat the lines below, mix tabs and spaces, or change when cleaned again.
The truth itself must pass unchanged. The exit code is 1 if a law is broken.
"""

from __future__ import annotations

import argparse
import random
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from time import perf_counter

from benchmarks.quality.scoring.scores import first_line, repeats, truth_of
from benchmarks.quality.tasks import packages
from benchmarks.quality.tasks import tasks as cursors
from speclsp.config import CompletionConfig
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.postprocess import repetition, syntax_check
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.syntax import lexical_rules
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.lsp.syntax.text_windows import line_start
from speclsp.lsp.syntax.tree import SyntaxTree

ENOUGH_MS = 5_000.0  # no user is waiting
BELOW = 1_000  # characters


def generations(task: cursors.Task, chance: random.Random) -> Iterator[tuple[str, str]]:
    """(kind, text that a model might generate)."""
    truth, below = task.truth, task.text[task.cursor :][:BELOW]
    yield "truth", truth + "\n" + below.lstrip("\n")
    yield "cut", truth[: chance.randrange(1, len(truth) + 1)]
    yield "and on", truth + below[: chance.randrange(len(below) + 1)]
    marks = [at for at, character in enumerate(truth) if character in "()[]{}\"'`"]
    if marks:
        at = chance.choice(marks)
        yield "doubled", f"{truth[:at]}{truth[at]}{truth[at:]}\n"
        yield "dropped", f"{truth[:at]}{truth[at + 1 :]}\n"
    yield "repeated", f"{truth}\n" * 5
    at = chance.randrange(len(task.text))
    yield "elsewhere", task.text[at : at + 300]
    yield "fenced", f"{truth}\n```\n\nThis does it."
    indent = re.match(r"[ \t]*", task.text[line_start(task.text, task.cursor) : task.cursor])
    next_lines = [line for line in below.partition("\n")[2].split("\n")[:-1] if line.strip()]
    if next_lines and indent:  # the next lines at the cursor's indentation, and an end of the block, or no end at all
        some = textwrap.dedent("\n".join(next_lines[: chance.randrange(1, len(next_lines) + 1)]))
        again = textwrap.indent(some, indent[0])
        for text in (again.lstrip(), f"{truth}\n{again}"):
            yield "below again", text
            yield "below, closed", text + chance.choice(["\n}", "\n  }\n}", "\n)", "\n])", "\nend", "\n})\n\n"])
    yield "foreign", truth + "\n" + below.lstrip("\n").replace("    ", "\t").replace("\n  ", "\n\t")


def broken(
    task: cursors.Task, plan: SuggestionPlan, tree: SyntaxTree, made: Suggestion, output: str, kind: str
) -> Iterator[str]:
    """The laws that a suggestion does not keep."""
    deadline = perf_counter() + ENOUGH_MS / 1e3
    verdict = syntax_check.SyntaxCheck(tree, plan.around).check(made.text, made.end, deadline)
    if verdict is syntax_check.Verdict.BREAKS:
        yield "breaks the syntax"
    # A mere `@override` may be repeated, which occurs only where the lines below equal the generated ones.
    mere = kind.startswith("below") and not any(
        map(repetition.is_distinctive, (plan.around.line + made.text).split("\n"))
    )
    if not mere and repeats(task, made) and not repeats(task, truth_of(task)):
        yield "repeats what stands below"
    style, _step = lexical_rules.indent_style(plan.around.before + plan.around.after)
    blanks = {line[:1] for line in made.text.split("\n")[1:] if line[:1] in "\t "}
    if style and "\t" in output + " " and blanks - {""} - {"\t" if style == "tabs" else " "} and " *" not in made.text:
        yield "mixes tabs and spaces"
    if plan.to_suggestion(made.text) != made:
        yield "is another text when cleaned again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks laws`."""
    parser.add_argument("--tasks", metavar="N", type=int, default=10_000, help="cursors, drawn at random")


def main(options: argparse.Namespace) -> int:
    """Print counts by kind of generation; exit code 1 when a law is broken."""
    postprocess.CHECK_MS = ENOUGH_MS
    parser, config, counts, faults = SyntaxParser(), CompletionConfig(), Counter[tuple[str, str]](), 0
    tasks = cursors.tasks(packages.packages())
    for task in random.Random(7).sample(tasks, min(options.tasks, len(tasks))):
        chance = random.Random(task.id)
        tree = parser.parse(task.language, task.text, ENOUGH_MS)
        plan = postprocess.plan(
            Snapshot(f"file:///{task.path}", task.language, 1, task.text, task.cursor), tree, config
        )
        if tree is None or isinstance(plan, NoSuggestion):
            continue
        for kind, text in generations(task, chance):
            counts[kind, "said"] += 1
            suggestion = plan.to_suggestion(text)
            if isinstance(suggestion, NoSuggestion):
                counts[kind, suggestion.reason.value] += 1
                continue
            counts[kind, "shown"] += 1
            counts[kind, "the truth's line"] += first_line(suggestion.text) == first_line(task.truth)
            for law in broken(task, plan, tree, suggestion, text, kind):
                counts[kind, law.upper()] += 1
                faults += 1
                place = f"{task.package}/{task.path} {task.language} {kind}"
                print(f"{place}: {law}: {plan.around.line!r} + {suggestion.text!r}")
    for kind in dict.fromkeys(kind for kind, _what in counts):
        print(kind, {what: count for (of, what), count in sorted(counts.items()) if of == kind})
    return 1 if faults else 0
