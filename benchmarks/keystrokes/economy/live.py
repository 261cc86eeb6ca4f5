"""Bodies typed against a language server that shows and hides as the product does: the check of the replay."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.person import Keyboard, Person
from benchmarks.keystrokes.economy.recording import MODULE, recordings_dir
from benchmarks.keystrokes.economy.replay import Counts, Screen, ScreenAt, walk
from benchmarks.keystrokes.economy.typing import TypingEditor
from benchmarks.keystrokes.language_server import serving
from speclsp.config import Config

PRODUCT = "-"  # recording_server.py records nothing


def live(config: Config, bodies: Sequence[Body], person: Person) -> list[Counts]:
    """The counts of bodies that are typed live. Raises EngineError."""
    result = []
    with serving(config, (MODULE, PRODUCT)) as server:
        recordings_dir().mkdir(parents=True, exist_ok=True)
        server.begin(recordings_dir().as_uri())
        for body in bodies:
            typing = TypingEditor(server, body)
            result.append(walk(body, screen(typing), person))
            typing.close()
    return result


def screen(typing: TypingEditor) -> ScreenAt:
    """The server's suggestion at each position, once the text up to there is typed."""
    body, start = typing.body, typing.editor.cursor
    ends = Keyboard.of(body.text).ends

    def screen_at(position: int, _shown: str) -> Screen:
        typed = typing.editor.cursor - start
        if typed < ends[position]:
            typing.type(body.text[typed : ends[position]])
        return Screen(typing.request())

    return screen_at
