"""Scores of a completion: the published exact-match rule, and the program whose tests decide pass@1."""

from __future__ import annotations

from benchmarks.quality.infilling.tasks import SINGLE, Task

LEADING_NEWLINES = ("\n", " \n")  # a completion that starts with one is scored by its second line


def answer_line(text: str) -> str:
    """The line of a completion that the published rule compares.

    It is the first line, or the second if the first is empty (QwenLM/Qwen3-Coder, fim-bench/hm_fim/humaneval_fim.py).
    """
    return text.split("\n")[1 if text.startswith(LEADING_NEWLINES) else 0]


def has_answer_line(text: str) -> bool:
    """True if a streamed text holds its whole answer line."""
    return text.count("\n") > text.startswith(LEADING_NEWLINES)


def is_exact(task: Task, kind: str, text: str) -> bool:
    """Exact match, blanks at both ends ignored: of the answer line for single-line tasks, else of the whole text."""
    answer = answer_line(text) if kind == SINGLE else text
    return answer.strip() == task.canonical_solution.strip()


def program(task: Task, document: str) -> str:
    """The completed document, followed by the problem's tests, as OpenAI's evaluation runs them."""
    return f"{document}\n{task.test}\ncheck({task.entry_point})"
