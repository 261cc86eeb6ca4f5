"""A remote server that sends scripted answers in pieces cut anywhere, and records every request."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from support.lsp.editor_client import Editor
from support.lsp.faulty_http_server import Connection, FaultyServer, HttpRequest, choice


class Talker(FaultyServer):
    """A server with scripted answers: `say` makes the whole text of each, `chance` cuts it into pieces."""

    def __init__(self, say: Callable[[HttpRequest], str], seed: int = 0) -> None:
        super().__init__()
        self.say, self.chance = say, random.Random(seed)
        self.always = self.talk
        self.answers: list[str] = []

    async def talk(self, request: HttpRequest, connection: Connection) -> None:
        text, ours = self.say(request), request.path.endswith("infill")
        self.answers.append(text)
        await connection.head()
        for piece in self.pieces(text):
            await connection.event({"content": piece, "stop": False} if ours else choice(piece))
        await connection.event({"content": "", "stop": True} if ours else choice("", "stop"))
        await connection.end()

    def pieces(self, text: str) -> list[str]:
        cuts = sorted(self.chance.randrange(len(text) + 1) for _ in range(self.chance.randrange(5)))
        return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if start < end]

    def received_text(self) -> str:
        """All received requests as text: paths, headers and bodies."""
        return "\n".join(
            json.dumps([request.path, request.headers, request.body], ensure_ascii=False)
            for request in list(self.requests)
        )


def editor_of(server: FaultyServer, *settings: str, style: str = "infill", **how: Any) -> Editor:
    """An editor whose completions come from that server."""
    ours = [
        word
        for setting in (f"remote.url={server.url}", f"remote.api={style}", *settings)
        for word in ("--set", setting)
    ]
    return Editor("--trace", *ours, **{"model": "auto", **how})


def words(tag: str = "post") -> str:
    """Functions that resemble those of other files, with the tag in each."""
    functions = (f"def settle_account_{number}(ledger, entry):\n    return {tag}\n" for number in range(40))
    return "\n".join(functions) + "\ndef settle_account_99(ledger, entry):\n    \n"
