"""Language server that writes the parts of each prompt to a file, as digests.

    python -m benchmarks.keystrokes.lines.parts_server FILE lsp --stdio ...

One JSON row per request or prefill, in the order of the prompts. A prompt that prepares the next suggestion has none.
"""

from __future__ import annotations

import json
import sys
from contextvars import ContextVar
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.keystrokes.lines.prompt_parts import NO_PROMPT, PromptParts, PromptText
from speclsp.cli import entry
from speclsp.lsp.backend.types import FimRequest
from speclsp.lsp.completion import pipeline, session
from speclsp.lsp.completion.job import CompletionJob, Outcome

_job: ContextVar[CompletionJob | None] = ContextVar("_job", default=None)


class RecordingPipeline(pipeline.Pipeline):
    """Knows the request of the prompt that is made."""

    async def answer(self, job: CompletionJob) -> Outcome:
        """As the product's."""
        _job.set(job)
        return await super().answer(job)


class PartsRecorder:
    """Writes the parts of each prompt."""

    def __init__(self, file: Path) -> None:
        self._file, self._to_request = file, pipeline.to_request
        self._previous: dict[str, PromptText] = {}  # by path

    def to_request(self, *args: Any, **keywords: Any) -> FimRequest:
        """As the product's, with a row."""
        fim, job = self._to_request(*args, **keywords), _job.get()
        if job is None or not job.prepares_next:
            request = int(job.trace.request) if job is not None else None
            parts = PromptParts.of(fim, request, self._previous.get(fim.path, NO_PROMPT))
            self._previous[fim.path] = PromptText.of(fim)
            with self._file.open("a", encoding="utf-8") as rows:
                rows.write(json.dumps(asdict(parts)) + "\n")
        return fim


def main(arguments: list[str]) -> int:
    """Serve, writing to the file that the first argument names."""
    file, *rest = arguments
    vars(session)["Pipeline"] = RecordingPipeline
    vars(pipeline)["to_request"] = PartsRecorder(Path(file)).to_request
    return entry.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
