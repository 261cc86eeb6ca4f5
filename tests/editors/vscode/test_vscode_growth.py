"""Lines that join a first line in a real VS Code, with the real server and an engine that writes a text on.

VS Code draws the first line until the answer with the further ones, and every request is an automatic one.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from support.editors.code_server import ROOT
from support.editors.vscode_screen import OBSERVE, Studio, Window, same
from support.lsp import scripted_engine

BODY = "def NAME(items):\n    total = 0\n    count = 1\n    total += count\n    return total\n\n\nother = 1\n"
TYPED, FIRST = BODY[: BODY.index(" = 0")], " = 0"
JOINED = "\n".join([FIRST, "    count = 1", "    total += count", "    return total"])
AUTOMATIC = 2
START_S = 10.0  # of the engine: the file is open and the letter typed before it is ready
ROUND_S = 0.02  # of a token of the engine: the further lines take a second


@pytest.fixture(scope="module")
def window(studio: Studio) -> Iterator[Window]:
    """A window whose engine writes the document of `begin` on."""
    answers = studio.server.root / "script.json"
    tap = shlex.join([sys.executable, str(ROOT / "tests/support/editors/lsp_tap.py")])
    words = shlex.join([sys.executable, scripted_engine.__file__, str(answers)])
    path = shlex.quote(os.pathsep.join([str(ROOT), str(ROOT / "tests")]))
    command = f'{tap} "{studio.server.logs}/$$.jsonl" {words} "$@" --set next_edit.enabled=false'
    with studio.window_with_program(f"PYTHONPATH={path} exec {command}") as window:
        yield window


def begin(window: Window, name: str, round_s: float = ROUND_S) -> None:
    """Type the last letter of TYPED, and record every state of the editor from there on.

    The server caches the lines that have joined, so each test has a function of its own `name`.
    """
    script = {"document": BODY.replace("NAME", name), "round_s": round_s}
    (window.server.root / "script.json").write_text(json.dumps(script))
    window.show(f"{name}.py", TYPED[:-1].replace("NAME", name))
    window.page.evaluate(OBSERVE)
    window.type(TYPED[-1])
    window.sees(lambda screen: screen.ghost, "the first line")


def states(window: Window, name: str) -> list[str]:
    """The grey texts that the editor showed since the whole letter was typed, without repetitions."""
    observed = window.page.evaluate("() => window.observed()")["states"]
    whole = TYPED.replace("NAME", name)
    typed = [state["ghost"] for state in observed if state["typed"].rstrip() == whole]
    return [after for before, after in pairwise(["", *typed]) if after != before]


def test_further_lines_join_the_first_one_without_a_blink_and_tab_takes_all(window: Window) -> None:
    begin(window, "joined")
    wanted = BODY.replace("NAME", "joined").split("\n")[:5]
    screen = window.sees(lambda screen: screen.ghost == JOINED, "the further lines")
    window.shot("growth-joined")
    assert same(screen.whole, wanted)
    between = states(window, "joined")
    assert (between[0], between[-1]) == (FIRST, JOINED)
    assert all(FIRST in ghost.split("\n") for ghost in between), "the first line was never away"
    window.press("Tab")
    window.sees(lambda screen: same(screen.document[:5], wanted), "all of it")
    questions = [question for question in window.wire.replay()[1] if question.uri.endswith("joined.py")]
    assert {question.context["triggerKind"] for question in questions} == {AUTOMATIC}, (
        "the repeated request was not made by the user"
    )
    window.put_away()


def test_nothing_comes_back_that_was_hidden_before_the_further_lines(window: Window) -> None:
    begin(window, "hidden")
    window.press("Escape")
    window.sees(lambda screen: not screen.ghost, "nothing")
    time.sleep(3.0)
    assert states(window, "hidden") == [FIRST, ""]
    window.put_away()


def test_the_suggestion_comes_without_a_key_when_the_model_becomes_ready(window: Window) -> None:
    script = {"document": BODY.replace("NAME", "waiting"), "round_s": ROUND_S, "start_s": START_S}
    (window.server.root / "script.json").write_text(json.dumps(script))
    window.command("speclsp: Restart Server")
    window.show("waiting.py", TYPED[:-1].replace("NAME", "waiting"))
    window.says("the engine starts")
    window.type(TYPED[-1])
    window.sees(lambda screen: screen.document[-1].rstrip().endswith("total"), "the letter")
    assert not window.screen().ghost, "the model was not ready"
    window.says("speclsp: ready")
    window.sees(lambda screen: screen.ghost.startswith(FIRST), "the suggestion")
    questions = [question for question in window.wire.replay()[1] if question.uri.endswith("waiting.py")]
    assert {question.context["triggerKind"] for question in questions} == {AUTOMATIC}
    window.put_away()
