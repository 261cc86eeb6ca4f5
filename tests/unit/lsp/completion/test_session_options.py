"""Eagerness, changed settings, and requests for the completion menu beside inline ones."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.lsp.scripted_session import (
    TEXT,
    ScriptedBackend,
    ScriptedSession,
    at,
    start_request,
    streamed,
)

from speclsp.config import parse
from speclsp.lsp.completion.session import LOW_PAUSE_MS


async def test_low_eagerness_waits_for_a_pause_and_sends_one_request():
    scripted = ScriptedSession(ScriptedBackend("append(1)"), **{"completion.eagerness": "low"})
    start = time.perf_counter()
    typed = [TEXT + "x" * count for count in range(5)]
    tasks = [asyncio.create_task(scripted.complete(at(text, version=n))) for n, text in enumerate(typed)]
    outcomes = await asyncio.gather(*tasks)
    assert [outcome.reason for outcome in outcomes] == ["superseded"] * 4 + [""]
    assert time.perf_counter() - start >= 0.9 * LOW_PAUSE_MS / 1000
    assert len(scripted.backend.requests) == 1


async def test_an_explicit_request_at_low_is_completed_like_medium():
    block = "def f():\n    "
    middle = at("total =  + tax", 8)
    scripted = ScriptedSession(
        ScriptedBackend("a = 1\n    b = 2\n\n\n"), **{"completion.eagerness": "low", "completion.alternatives": 1}
    )
    assert await scripted.texts(at(block)) == ["a = 1\n    b = 2"]
    assert (await scripted.complete(middle)).reason == "mid_line"
    assert (await scripted.complete(middle, by_hand=True)).suggestions


async def test_with_a_manual_trigger_only_explicit_requests_reach_the_model():
    scripted = ScriptedSession(
        ScriptedBackend("append(1)"), **{"completion.trigger": "manual", "completion.alternatives": 1}
    )
    assert (await scripted.complete(at(TEXT), automatic=True)).reason == "manual"
    assert scripted.backend.requests == []
    (by_hand,) = (await scripted.complete(at(TEXT), by_hand=True)).suggestions
    assert by_hand.text.endswith("append(1)")
    typed = await scripted.complete(at(TEXT + "app", version=2), automatic=True)
    assert typed.suggestions, "the user types through the suggestion"
    assert (await scripted.complete(at(TEXT + "pop", version=3), automatic=True)).reason == "manual"
    assert len(scripted.backend.requests) == 1


async def test_with_a_manual_trigger_the_menu_does_not_share_the_refusal_of_an_inline_request():
    scripted = ScriptedSession(ScriptedBackend("append(1)"), **{"completion.trigger": "manual"})
    inline = asyncio.create_task(scripted.complete(at(TEXT), automatic=True))
    menu = asyncio.create_task(scripted.complete(at(TEXT), menu=True))
    assert (await inline).reason in ("manual", "superseded")
    assert (await menu).suggestions


async def test_a_new_setting_applies_from_the_next_request_on():
    scripted = ScriptedSession(ScriptedBackend("net"))
    place = at("total =  + tax", 8)
    assert (await scripted.complete(place)).suggestions
    scripted.session.apply_config(parse({"completion.eagerness": "low"}, scripted.session.config)[0])
    assert (await scripted.complete(place)).reason == "mid_line"
    scripted.session.apply_config(parse({"completion.eagerness": "medium"}, scripted.session.config)[0])
    assert (await scripted.complete(place)).suggestions


async def test_an_answer_begun_under_old_settings_is_shown_and_not_cached():
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    older = start_request(scripted, TEXT)
    await streamed(scripted, 3)
    scripted.session.apply_config(parse({"completion.multiline": "never"}, scripted.session.config)[0])
    assert (await older).suggestions
    await scripted.texts(at(TEXT))
    assert len(scripted.backend.requests) == 2 and not scripted.traces[-1].reused


async def test_the_menu_and_the_inline_request_share_one_completion():
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.01))
    for first in (True, False):
        place = at(TEXT + str(first))
        inline = asyncio.create_task(scripted.complete(place, menu=first))
        await asyncio.sleep(0)
        menu = asyncio.create_task(scripted.complete(place, menu=not first))
        assert (await inline).suggestions == (await menu).suggestions != ()
    assert len(scripted.backend.requests) == 2
    older = asyncio.create_task(scripted.complete(at(TEXT), menu=True))
    await asyncio.sleep(0)
    newer = asyncio.create_task(scripted.complete(at(TEXT + "x", version=2)))
    assert (await older).reason == "superseded", "another place is another question"
    assert (await newer).suggestions


@pytest.mark.parametrize("gives_up", [0, 1])
async def test_cancelling_one_of_menu_and_inline_leaves_the_other_answered(gives_up: int):
    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.01))
    both = []
    for menu in (False, True):
        both.append(asyncio.create_task(scripted.complete(at(TEXT), menu=menu)))
        await asyncio.sleep(0.02)
    both[gives_up].cancel()
    assert [suggestion.text for suggestion in (await both[1 - gives_up]).suggestions] == ["append(1)"]
    assert both[gives_up].cancelled() and scripted.backend.streamed == ["append(1)"]
    assert [trace.outcome for trace in scripted.traces] == ["shown"]
