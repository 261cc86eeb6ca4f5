"""Language server whose engine writes a scripted document on: `scripted_engine.py SCRIPT lsp --stdio ...`.

SCRIPT is a JSON file: {"document": text that the model knows, "round_s": time of each of its tokens}. Everything but
the engine is the product's.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from speclsp.cli import entry
from speclsp.config import Config
from speclsp.lsp.backend.remote import backend_choice
from speclsp.lsp.backend.types import OnStatus, Status
from support.lsp.scripted_session import TokenBackend


class ScriptedEngine(TokenBackend):
    """A TokenBackend that is ready as soon as it is started."""

    kept_while_off = False

    def __init__(self, script: dict[str, Any], on_status: OnStatus) -> None:
        super().__init__(script["document"], round_s=script.get("round_s", 0.0))
        self.status, self._on_status = Status(state="ready", pair="scripted"), on_status

    def start(self) -> None:
        asyncio.get_running_loop().call_soon(self._on_status, self.status)


def main(arguments: list[str]) -> int:
    """Serve with the script that the first argument names."""
    script, *rest = arguments

    def connect(_config: Config, on_status: OnStatus, *_: object) -> ScriptedEngine:
        return ScriptedEngine(json.loads(Path(script).read_text(encoding="utf-8")), on_status)

    vars(backend_choice)["connect"] = connect
    return entry.main(rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
