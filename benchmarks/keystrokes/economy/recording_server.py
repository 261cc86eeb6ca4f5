"""Language server whose confidence gate writes every candidate to a file and shows none of them.

    python -m benchmarks.keystrokes.economy.recording_server FILE lsp --stdio ...   records
    python -m benchmarks.keystrokes.economy.recording_server - lsp --stdio ...      the product, without its time limits

A candidate is a suggestion before the gate. One that the gate holds back stays in its stream, so the next key that
agrees with it gets the rest of it, and any other key asks the engine. The budgets of cross-file context are lifted in
both cases: a busy machine changes no text.
"""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from speclsp.cli import entry
from speclsp.lsp.completion import pipeline, session
from speclsp.lsp.completion.confidence import lines
from speclsp.lsp.completion.gate import ConfidenceGate, first_lines
from speclsp.lsp.completion.job import CompletionJob
from speclsp.lsp.completion.stream import Stream
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.postprocess.plan import NoSuggestion, Suggestion, SuggestionPlan
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax.text_windows import common_ends

PATIENCE_MS = 2000.0  # for context from other files
LINES_ABOVE, LINES_BELOW, LINE_CHARACTERS = 6, 3, 300  # of the document, in a row


class RecordingGate(ConfidenceGate):
    """Writes one row for each request and holds its suggestion back."""

    file: Path

    def to_suggestion(
        self, stream: Stream, plan: SuggestionPlan, job: CompletionJob | None = None, whole: bool = True
    ) -> Suggestion | NoSuggestion:
        """As the product's, but nothing is sure enough."""
        suggestion = plan.to_suggestion(stream.rest or "", complete=whole)
        if job is not None:
            row = {**place_of(plan), **candidate_of(stream, plan, suggestion)}
            with self.file.open("a", encoding="utf-8") as rows:
                rows.write(json.dumps(row) + "\n")
        return suggestion if isinstance(suggestion, NoSuggestion) else NoSuggestion(Reason.UNSURE)


def place_of(plan: SuggestionPlan) -> dict[str, Any]:
    """The text around the cursor, as far as features may read it."""
    around = plan.around
    return {
        "cursor": around.cursor,
        "kind": around.kind,
        "line": around.line[-LINE_CHARACTERS:],
        "rest": around.rest[:LINE_CHARACTERS],
        "above": [line[:LINE_CHARACTERS] for line in around.above[-LINES_ABOVE:]],
        "below": [line[:LINE_CHARACTERS] for line in around.below[:LINES_BELOW]],
        "multiline": plan.multiline,
        "opens": bool(plan.opener),
    }


def candidate_of(stream: Stream, plan: SuggestionPlan, suggestion: Suggestion | NoSuggestion) -> dict[str, Any]:
    """The suggestion, the lines of the text that it was made of, and the suggestion that its first lines make.

    A line is [end in the text, [log-probability, ...], characters of the suggestion that ends there]; the last is -1
    where the lines up to this one make no beginning of the suggestion.
    """
    text, begin = stream.text, len(stream.typed)
    line_list = [(line.end - begin, line.logprobs) for line in lines(text, stream.token_spans, begin)]
    if isinstance(suggestion, NoSuggestion):
        return {"reason": suggestion.reason.value, "text": "", "start": 0, "end": 0, "stop": stream.stop, "lines": []}
    rows: list[list[object]] = []
    for end, logprobs in line_list:
        shorter = suggestion if begin + end >= len(text.rstrip()) else first_lines(suggestion, plan, text[begin:], end)
        shown = common_ends(suggestion.text, shorter.text)[0] if shorter is not None else -1
        rows.append([end, [round(logprob, 4) for logprob in logprobs], shown])
        if shown == len(suggestion.text):
            break
    return {
        "reason": "",
        "text": suggestion.text,
        "start": suggestion.start,
        "end": suggestion.end,
        "stop": stream.stop,
        "typed": begin,
        "in_token": any(span.start < begin < span.end for span in stream.token_spans),
        "generated": text[begin : begin + int(str(rows[-1][0]))] if rows else "",
        "lines": rows,
    }


def main(arguments: list[str]) -> int:
    """Serve, recording to the file that the first argument names."""
    file, *rest = arguments
    vars(pipeline)["CrossFileSources"] = partial(CrossFileSources, patience_ms=PATIENCE_MS)
    RecordingGate.file = Path(file)
    vars(session)["ConfidenceGate"] = RecordingGate
    return entry.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
