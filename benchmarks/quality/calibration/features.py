"""Features of a line of a candidate that a fit may weigh. The product uses "total" alone: see `calibration`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from speclsp.lsp.completion.confidence import TokenProb, clipped, total_logprob

SURE = math.log(0.5)  # a token below it is uncertain
ENDS = ("(", ",", "[", "{")
OPERATORS = ("=", "+", "-", "*", "/", "<", ">", "&", "|", "!", "?", ":")
FEATURES: Mapping[str, str] = {
    "total": "log-probability of the line as a whole",
    "worst": "log-probability of its least sure token",
    "share": "expected share of the line that is right from its start on",
    "depth": "logarithm of the characters before the first uncertain token",
    "length": "logarithm of the number of tokens",
    "opens": "a block opens at the cursor",
    "inside_word": "the cursor is behind a letter, digit or underscore",
    "line_start": "nothing but blanks is left of the cursor",
    "argument": "the cursor is behind an opening bracket or a comma",
    "operator": "the cursor is behind an operator",
    "comment": "the cursor is in a comment",
    "string": "the cursor is in a string",
    "next_line": "the suggestion begins with a newline",
    "repeats": "the same line stands among the nearest lines above",
    "contradicted": "earlier candidates of this line that the typed text contradicted, up to 4",
    "agreed": "logarithm of the typed characters that agree with the candidate",
    "same_end": "the candidate ends as the last contradicted one did",
}
NEVER_NEGATIVE = ("total", "worst", "share", "depth", "agreed")  # weights: the surer the model, the higher


def features(tokens: Sequence[TokenProb], text: str, row: Mapping[str, Any]) -> dict[str, float]:
    """All features of a line with at least one token.

    Args:
        text: the line, with the newlines before it.
        row: the candidate's, with the text around its cursor and the history of its line.
    """
    logprobs = [clipped(logprob) for _, logprob in tokens]
    line = text.lstrip("\n") if text.startswith("\n") else row["line"] + text
    bare = row["line"].rstrip()
    return {
        "total": total_logprob(tokens),
        "worst": min(logprobs),
        "share": right_share(tokens),
        "depth": math.log1p(sure_characters(tokens)),
        "length": math.log(len(logprobs)),
        "opens": float(row["opens"]),
        "inside_word": float(row["line"][-1:].isalnum() or row["line"][-1:] == "_"),
        "line_start": float(not bare),
        "argument": float(bare.endswith(ENDS)),
        "operator": float(bare.endswith(OPERATORS)),
        "comment": float(row["kind"] == "comment"),
        "string": float(row["kind"] in ("string", "prose")),
        "next_line": float(text.startswith("\n")),
        "repeats": float(line.strip() in {other.strip() for other in row["above"]}),
        "contradicted": float(min(4, row.get("contradicted", 0))),
        "agreed": math.log1p(row["typed"]),
        "same_end": float(row.get("same_end", False)),
    }


def right_share(tokens: Sequence[TokenProb]) -> float:
    """Expected share of a line that is right from its start on."""
    right = characters_total = logprob_total = 0.0
    for characters, logprob in tokens:
        logprob_total += clipped(logprob)
        right += characters * math.exp(logprob_total)
        characters_total += characters
    return right / characters_total if characters_total else math.exp(logprob_total)


def sure_characters(tokens: Sequence[TokenProb]) -> int:
    """The number of characters before the first uncertain token."""
    sure = 0
    for characters, logprob in tokens:
        if logprob < SURE:
            break
        sure += characters
    return sure


def with_history(rows: Sequence[Mapping[str, Any]], text: str, ends: Sequence[int]) -> list[dict[str, Any]]:
    """The rows of a body, with "contradicted" and "same_end": the history of each candidate on its line.

    `ends`: the offset in `text` of each row's cursor.
    """
    result: list[dict[str, Any]] = []
    contradicted, line, last, last_at, same_end = 0, -1, "", 0, False
    for row, end in zip(rows, ends, strict=True):
        start = text.rfind("\n", 0, end)
        if start != line:
            contradicted, line, same_end = 0, start, False
        typed = text[last_at:end]
        if last and not last.startswith(typed) and not typed.startswith(last):
            contradicted += 1
            same_end = bool(row["text"]) and last[-8:] == row["text"][-8:]
            last = ""
        if row["text"] and (not last or len(last) <= end - last_at):
            last, last_at = row["text"], end
        result.append({**row, "contradicted": contradicted, "same_end": same_end})
    return result
