"""Language server that writes how each prompt differs from the document's previous one, and no text.

    python -m benchmarks.keystrokes.lines.change_server FILE lsp --stdio ...

One JSON row per request or prefill, in the order of the prompts. A prompt that prepares the next suggestion has none.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.keystrokes.lines.prompt_change import PromptChange, PromptText
from speclsp.cli import entry
from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.completion import pipeline, session
from speclsp.lsp.completion.job import CompletionInput, CompletionJob
from speclsp.lsp.context import build
from speclsp.lsp.postprocess.plan import SuggestionPlan


class RecordingPipeline(pipeline.Pipeline):
    """Writes a row for each prompt."""

    file: Path
    previous: dict[str, PromptText]  # by path

    def _request(self, job: CompletionJob, plan: SuggestionPlan, context: build.Context) -> FimRequest:
        fim = super()._request(job, plan, context)
        if not job.prepares_next:
            self.record(fim, int(job.trace.request))
        return fim

    def prefill_request(
        self, current: CompletionInput, *, at_rest: bool = False, better: bool = False
    ) -> FimRequest | None:
        """As the product's."""
        fim = super().prefill_request(current, at_rest=at_rest, better=better)
        if fim is not None:
            self.record(fim, None)
        return fim

    def record(self, fim: FimRequest, request: int | None) -> None:
        """Write the row of one prompt. `request`: the editor's id, None for a prefill."""
        prompt = PromptText.of(fim)
        change = PromptChange.of(prompt, self.previous.get(fim.path), request)
        self.previous[fim.path] = prompt
        with self.file.open("a", encoding="utf-8") as rows:
            rows.write(json.dumps(asdict(change)) + "\n")


def main(arguments: list[str]) -> int:
    """Serve, writing to the file that the first argument names."""
    file, *rest = arguments
    RecordingPipeline.file, RecordingPipeline.previous = Path(file), {}
    vars(session)["Pipeline"] = RecordingPipeline
    return entry.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
