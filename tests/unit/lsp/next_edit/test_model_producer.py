"""Next edits by a model, with scripted answers of the engine: prompt, gate, filters, cancelling and the outcome."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from support.lsp.edited_document import EditDesk

from speclsp.errors import EngineError
from speclsp.lsp.backend.engine_http import ResponseTimeout
from speclsp.lsp.backend.types import CompletionCost, FimRequest, Status, StreamPiece
from speclsp.lsp.next_edit.model_producer import MIN_PROBABILITY, ModelProducer
from speclsp.lsp.next_edit.next_edits import NextEditOutcome
from speclsp.lsp.next_edit.offers import Offer
from speclsp.lsp.server.model_list import predicts_edits

URI = "file:///project/app.py"
TEXT = (
    "class Job:\n    name = ''\n\n    def load(self, data):\n        self.name = data['name']\n        return self\n\n"
    "    def stop(self):\n        pass\n"
)
LOAD = "        self.name = data['name']\n"
EDITED = LOAD + "        self.size = data['size']\n"
BUSY, LOST, LATE = "(busy)", "(lost)", "(late)"


class ScriptedEngine:
    """Answers with the window, `new` in place of `old`. A line is a round, and one token of probability `logprob`."""

    def __init__(self, old: str = "", new: str = "", logprob: float = -0.1, predicts_edits: bool = True) -> None:
        self.old, self.new, self.logprob, self.predicts_edits = old, new, logprob, predicts_edits
        self.requests: list[FimRequest] = []
        self.rounds = 0
        self.closed = 0
        self.gate = asyncio.Event()
        self.gate.set()

    async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
        self.requests.append(request)
        if self.old in (LOST, LATE):
            raise EngineError("gone") if self.old == LOST else ResponseTimeout("late")
        try:
            lines = request.previous.replace(self.old, self.new).splitlines(keepends=True)
            for line in lines if self.old != BUSY else []:
                self.rounds += 1
                await self.gate.wait()
                await asyncio.sleep(0)
                yield StreamPiece(text=line, tokens=1, logprobs=((len(line), self.logprob),))
            yield StreamPiece(cost=CompletionCost(stop_type="cancelled" if self.old == BUSY else "eos"))
        finally:
            self.closed += 1


class Desk(EditDesk):
    """One document whose class got a field, and the next edits with a scripted engine."""

    def __init__(self, engine: ScriptedEngine, text: str = TEXT) -> None:
        super().__init__(text)
        self.engine, self.outcomes = engine, list[NextEditOutcome]()
        self.edit("    name = ''\n", "    name = ''\n    size = 0\n")

        async def predicts_edits() -> bool:
            return engine.predicts_edits

        self.model = ModelProducer(predicts_edits, engine.stream, lambda uri: "s", lambda uri: "app.py")
        self.edits = self.next_edits(self.model, ended=self.outcomes.append)

    def edit(self, old: str, new: str) -> None:
        start = self.document.text.index(old)
        self.replace(start, start + len(old), new)

    async def answer(self) -> Offer | None:
        return await self.edits.answer(self.document, 2, self.document.text.index("size"))


async def test_the_first_hunk_is_offered_and_the_rest_is_not_waited_for():
    desk = Desk(ScriptedEngine(LOAD, EDITED))
    offer = await desk.answer()
    assert offer is not None and desk.applied(offer) == desk.document.text.replace(LOAD, EDITED)
    assert offer.kind == "model" and offer.confidence == pytest.approx(math.exp(-0.1))
    (request,) = desk.engine.requests
    assert request.idle and request.previous == desk.document.text
    edit = "<|file_sep|>app.py:3:3\noriginal:\n\nupdated:\n    size = 0\n"
    assert request.raw_prompt is not None and edit in request.raw_prompt
    assert desk.engine.closed == 1 and desk.engine.rounds == 8, "the window is repeated from the 8th line on"
    assert desk.outcomes[-1].outcome == "shown" and desk.outcomes[-1].producer == "model"


@pytest.mark.parametrize(
    ("old", "new", "logprob", "reason"),
    [
        ("", "", -0.1, "unchanged"),
        (LOAD, EDITED, math.log(MIN_PROBABILITY) - 0.01, "model_unsure"),
        ("    size = 0\n", "", -0.1, "reverts"),
        (LOAD, LOAD.replace("=", " = "), -0.1, "unfit"),
        (LOAD, EDITED.replace("size']", "size'"), -0.1, "breaks"),
        (LOAD, EDITED.replace("data['size']", "'<|endoftext|>'"), -0.1, "forbidden"),
        (BUSY, "", -0.1, "engine_busy"),
        (LOST, "", -0.1, "engine_lost"),
        (LATE, "", -0.1, "deadline"),
    ],
)
async def test_nothing_is_offered_and_the_outcome_says_why(old: str, new: str, logprob: float, reason: str):
    desk = Desk(ScriptedEngine(old, new, logprob))
    assert await desk.answer() is None
    assert [(outcome.outcome, outcome.producer) for outcome in desk.outcomes] == [(reason, "model")]


async def test_copied_tokens_are_no_evidence():
    """Long windows would never pass: each line that is copied has a probability below 1 as well."""
    desk = Desk(ScriptedEngine(LOAD, EDITED, logprob=math.log(MIN_PROBABILITY) + 0.1))
    assert await desk.answer() is not None


async def test_the_card_of_the_loaded_model_decides_and_for_a_server_its_own_format():
    ready = Status(state="ready", model="sweep-next-edit-0.5b")
    assert await predicts_edits(ready)
    assert await predicts_edits(replace(ready, model="tiny", remote="server", edit_format="sweep"))
    unusable = (
        *(None, replace(ready, state="asleep"), replace(ready, model="tiny")),
        *(replace(ready, remote="server"), replace(ready, remote="server", edit_format="of a later version")),
    )
    assert not any([await predicts_edits(status) for status in unusable])


async def test_a_model_without_an_edit_format_is_not_asked():
    desk = Desk(ScriptedEngine(LOAD, EDITED, predicts_edits=False))
    assert await desk.answer() is None
    assert desk.engine.requests == [] and desk.outcomes[-1].producer == "rules"


async def test_a_window_with_a_marker_is_not_sent():
    desk = Desk(ScriptedEngine(LOAD, EDITED))
    desk.edit("return self", "return '<|file_sep|>'")
    assert await desk.answer() is None and desk.engine.requests == []


async def test_the_next_key_ends_the_engines_work_without_an_outcome():
    desk = Desk(ScriptedEngine(LOAD, EDITED))
    desk.engine.gate.clear()
    answering = asyncio.create_task(desk.answer())
    while not desk.engine.rounds:
        await asyncio.sleep(0)
    desk.edit("return self", "return None")
    desk.edits.cancel(URI)
    assert await answering is None
    assert desk.engine.rounds == 1 and desk.engine.closed == 1 and desk.outcomes == []


async def test_a_rejected_edit_is_not_offered_again():
    desk = Desk(ScriptedEngine(LOAD, EDITED))
    offer = await desk.answer()
    assert offer is not None
    desk.edits.offers.rejected(offer.id)
    assert await desk.answer() is None and desk.outcomes[-1].outcome == "declined"
