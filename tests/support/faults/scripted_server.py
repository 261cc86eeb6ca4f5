"""A remote server that sends scripted answers in pieces cut anywhere, and records every request."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from support.lsp.editor_client import Editor
from support.lsp.faulty_http_server import Asked, Connection, FaultyServer, choice


class Talker(FaultyServer):
    """`say` makes the text of each answer, whole; `chance` cuts it into pieces."""

    def __init__(self, say: Callable[[Asked], str], seed: int = 0) -> None:
        super().__init__()
        self.say, self.chance = say, random.Random(seed)
        self.always = self.talk
        self.said: list[str] = []

    async def talk(self, asked: Asked, connection: Connection) -> None:
        text, ours = self.say(asked), asked.path.endswith("infill")
        self.said.append(text)
        await connection.head()
        for piece in self.pieces(text):
            await connection.event({"content": piece, "stop": False} if ours else choice(piece))
        await connection.event({"content": "", "stop": True} if ours else choice("", "stop"))
        await connection.end()

    def pieces(self, text: str) -> list[str]:
        cuts = sorted(self.chance.randrange(len(text) + 1) for _ in range(self.chance.randrange(5)))
        return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True) if start < end]

    def heard(self) -> str:
        """All it was sent: paths, heads and bodies."""
        return "\n".join(
            json.dumps([asked.path, asked.headers, asked.body], ensure_ascii=False) for asked in list(self.asked)
        )


def editor_of(server: FaultyServer, *settings: str, style: str = "infill", **how: Any) -> Editor:
    """An editor whose completions that server makes."""
    ours = [
        word for one in (f"backend.url={server.url}", f"backend.style={style}", *settings) for word in ("--set", one)
    ]
    return Editor("--trace", *ours, **{"pair": "auto", **how})
