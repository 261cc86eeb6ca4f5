"""Language server whose engine writes a scripted document on: `scripted_engine.py SCRIPT lsp --stdio ...`.

SCRIPT is a JSON file, read again at each request: {"document": text that the model knows, "round_s": time of each
token, "start_s": time until the engine is ready, read at its start}. Everything but the engine is the product's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

from speclsp.cli import entry
from speclsp.config import Config
from speclsp.lsp.backend.remote import backend_choice
from speclsp.lsp.backend.types import FimRequest, OnStatus, Status, StreamPiece
from support.lsp.scripted_session import TokenBackend


class ScriptedEngine(TokenBackend):
    """A TokenBackend that is ready `start_s` seconds after its start."""

    def __init__(self, script: Path, on_status: OnStatus) -> None:
        super().__init__("")
        self._script = script
        written = json.loads(script.read_text(encoding="utf-8")) if script.exists() else {}
        self._start_s = float(written.get("start_s", 0.0))
        self.status, self._on_status = Status(state="starting", model="scripted"), on_status

    def start(self) -> None:
        asyncio.get_running_loop().call_later(self._start_s, self._become_ready)

    def _become_ready(self) -> None:
        self.status = Status(state="ready", model="scripted")
        self._on_status(self.status)

    def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        """The pieces of an answer, of the script's present document."""
        script = json.loads(self._script.read_text(encoding="utf-8"))
        self.document, self.round_s = script["document"], script.get("round_s", 0.0)
        return super().stream(request)


def main(arguments: list[str]) -> int:
    """Serve with the script that the first argument names."""
    script, *rest = arguments

    def connect(_config: Config, on_status: OnStatus, *_: object) -> ScriptedEngine:
        return ScriptedEngine(Path(script), on_status)

    vars(backend_choice)["connect"] = connect
    return entry.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
