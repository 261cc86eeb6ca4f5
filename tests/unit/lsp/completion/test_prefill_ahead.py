"""Prefill ahead of a request: after a pause in typing, and only where a request would follow; and work at rest."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncGenerator
from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, at, captured, until

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import FimRequest, Status, StreamPiece
from speclsp.lsp.completion import next_suggestion, prefill_ahead
from speclsp.lsp.completion.job import CompletionInput, CompletionRequest
from speclsp.lsp.completion.prefill_ahead import MAX_UNREQUESTED, is_new_line, new_line_below
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax.text_windows import line_end


async def test_the_prefilled_prompt_is_the_prompt_of_the_request_that_follows():
    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    await until(lambda: len(scripted.backend.requests) == 2 and not scripted.session.busy)
    await scripted.texts(at(TEXT + "x"))
    _, prefill, request = scripted.backend.requests
    assert prefill.max_tokens == 0 and request.max_tokens > 0
    for name in ("prefix", "line_prefix", "suffix", "session", "extra", "path"):
        assert getattr(prefill, name) == getattr(request, name)


async def test_nothing_is_prefilled_if_a_request_or_a_key_follows_at_once():
    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    scripted.session.document_changed(URI, captured(TEXT + "xy", version=2))
    await scripted.texts(at(TEXT + "xy"))
    await asyncio.sleep(0.03)
    assert [request.max_tokens > 0 for request in scripted.backend.requests] == [True, True]


@pytest.mark.parametrize(
    ("settings", "text", "uri", "engine"),
    [
        ({}, TEXT + "po", URI, {}),  # typed along: answered from memory
        ({}, TEXT, URI, {}),
        ({}, TEXT + "x", "file:///never-asked-in.py", {}),
        ({"context.max_file_bytes": len(TEXT)}, TEXT + "x", URI, {}),
        ({}, TEXT + "x", URI, {"reads_ahead": False}),
        ({}, TEXT + "x", URI, {"status": Status(state="asleep")}),  # only a request wakes it
    ],
)
async def test_nothing_is_prefilled_where_a_request_would_not_reach_the_engine(
    settings: dict[str, object], text: str, uri: str, engine: dict[str, object]
):
    scripted = ScriptedSession(ScriptedBackend("pop()"), **settings)
    await scripted.texts(at(TEXT))
    vars(scripted.backend).update(engine)
    scripted.session.document_changed(uri, lambda: CompletionInput(at(text, uri=uri)))
    await asyncio.sleep(0.03)
    assert len(scripted.backend.requests) == 1


async def test_a_failed_prefill_does_not_affect_the_next_request():
    scripted = ScriptedSession(ScriptedBackend("pop()", EngineError("gone"), "y()"))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
    await until(lambda: len(scripted.backend.requests) == 2)
    assert await scripted.texts(at(TEXT + "x")) == ["y()"]


# ── the document that has the focus ──────────────────────────────────────────────────────────────────────────────────


async def test_the_document_with_the_focus_is_prefilled_before_its_first_request():
    scripted = ScriptedSession(ScriptedBackend("pop()"))
    scripted.session.document_focused(lambda: CompletionInput(at(TEXT)))
    await until(lambda: scripted.backend.requests)
    await scripted.texts(at(TEXT))
    prefill, request = scripted.backend.requests[0], scripted.backend.requests[-1]
    assert prefill.max_tokens == 0 and request.max_tokens > 0
    assert (prefill.session, prefill.prefix, prefill.suffix) == (request.session, request.prefix, request.suffix)
    scripted.close()


async def test_a_user_who_only_reads_files_soon_costs_nothing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefill_ahead, "FOCUS_PAUSE_S", 0.0)
    scripted = ScriptedSession(ScriptedBackend())
    for number in range(MAX_UNREQUESTED + 5):
        uri = f"file:///{number}.py"
        scripted.session.document_focused(functools.partial(CompletionInput, at(TEXT, uri=uri)))
        await asyncio.sleep(0.01)
    await until(lambda: len(scripted.backend.requests) >= MAX_UNREQUESTED)
    await asyncio.sleep(0.05)
    assert len(scripted.backend.requests) == MAX_UNREQUESTED


# ── a resting cursor ──────────────────────────────────────────────────────────────────────────────────────────────────

LOOP = "for item in items:\n    count += 1"
SIMILAR = (
    "def count_items(items, store):\n    for item in items:\n        store.append(item)\n        count += item.weight\n"
)
OTHER = at(SIMILAR, uri="file:///b.py")


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rest begins at once."""
    for name in ("PAUSE_S", "FOCUS_PAUSE_S", "REST_S"):
        monkeypatch.setattr(prefill_ahead, name, 0.001)
    monkeypatch.setattr(next_suggestion, "PAUSE_S", 0.001)


def prompt(request: FimRequest) -> tuple[str, str]:
    """(text above the cursor, text below it)."""
    return request.prefix + request.line_prefix, request.suffix


def focus(scripted: ScriptedSession, snapshot: Snapshot, *others: Snapshot) -> None:
    scripted.session.document_focused(lambda: CompletionInput(snapshot, lambda: others))


def computed_at_rest(scripted: ScriptedSession) -> list[FimRequest]:
    assert scripted.backend is not None
    return [request for request in scripted.backend.requests if request.idle and not request.max_tokens]


async def test_where_the_cursor_rests_its_prompt_is_computed_and_then_that_of_a_new_line(soon: None):
    scripted, own = ScriptedSession(ScriptedBackend("total = 0")), asyncio.all_tasks()
    focus(scripted, at(LOOP + "\nprint(count)\n", len(LOOP)))
    await until(lambda: computed_at_rest(scripted) and asyncio.all_tasks() == own)
    here, below = scripted.backend.requests
    assert prompt(here) == (LOOP, "\nprint(count)\n") and not here.idle
    assert prompt(below) == (LOOP + "\n", "\nprint(count)\n") and below.idle


async def test_the_server_notices_a_rest_after_an_edit_by_itself(soon: None):
    scripted = ScriptedSession(ScriptedBackend(""))
    await scripted.texts(at(TEXT))
    scripted.session.document_changed(URI, captured(LOOP, version=2))
    await until(lambda: computed_at_rest(scripted))
    assert prompt(computed_at_rest(scripted)[0])[0] == LOOP + "\n"


@pytest.mark.parametrize(("typed", "goes_on"), [("\n    ", True), ("\n", True), ("x", False), ("\n    x", False)])
async def test_only_the_enter_that_it_was_computed_for_leaves_the_work_at_rest_alone(
    soon: None, typed: str, goes_on: bool
):
    scripted = ScriptedSession(ScriptedBackend("", "slow" * 20, round_s=0.01))
    focus(scripted, at(LOOP))
    await until(lambda: len(scripted.backend.streamed) == 2 and scripted.backend.streamed[1])
    scripted.session.document_changed(URI, captured(LOOP + typed, version=2))
    await asyncio.sleep(0.05)
    characters = len(scripted.backend.streamed[1])
    await asyncio.sleep(0.05)
    assert (len(scripted.backend.streamed[1]) > characters) == goes_on
    scripted.session.document_changed(URI, captured(LOOP + typed + "x", version=3))
    await asyncio.sleep(0.05)
    characters = len(scripted.backend.streamed[1])
    await asyncio.sleep(0.05)
    assert len(scripted.backend.streamed[1]) == characters, "the next key ends it"
    scripted.close()


async def test_a_better_selection_is_used_once_its_prompt_is_computed_and_not_before(soon: None):
    class Cancelling(ScriptedBackend):
        is_cancelling = True

        async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
            async for piece in super().stream(request):
                is_ended = self.is_cancelling and request.idle and piece.cost is not None
                yield replace(piece, cost=replace(piece.cost, stop_type="cancelled")) if is_ended else piece

    scripted = ScriptedSession(Cancelling(""))

    async def shown(text: str, version: int) -> list[str]:
        document = CompletionInput(at(text, version=version), lambda: (OTHER,))
        await scripted.session.complete(CompletionRequest(document))
        return [path for path, _ in scripted.backend.requests[-1].extra]

    async def rest(text: str) -> None:
        computed = len(computed_at_rest(scripted))
        focus(scripted, at(text, version=9), OTHER)
        await until(lambda: len(computed_at_rest(scripted)) > computed)
        await asyncio.sleep(0.05)

    assert await shown("\n", 1) == [], "nothing to compare"
    assert await shown(LOOP + "\n    ", 2) == []
    await rest(LOOP + "\n    ")
    assert [path for path, _ in computed_at_rest(scripted)[-1].extra] == ["b.py"]
    assert await shown(LOOP + "\n    x", 3) == [], "its prompt is not cached"
    scripted.backend.is_cancelling = False
    await rest(LOOP + "\n    ")
    assert await shown(LOOP + "\n    xy", 4) == ["b.py"]


@pytest.mark.parametrize("settings", [{"completion.prefetch_next": False}, {"completion.trigger": "manual"}])
async def test_without_work_ahead_a_better_selection_is_used_after_a_pause(soon: None, settings: dict[str, object]):
    scripted = ScriptedSession(ScriptedBackend(""), **settings)
    await scripted.texts(at("\n"))
    scripted.session.document_changed(URI, lambda: CompletionInput(at(LOOP + "\n    ", version=2), lambda: (OTHER,)))
    selection = scripted.session.pipeline.selections
    await until(lambda: selection[URI].chosen)
    assert computed_at_rest(scripted) == []


async def test_each_step_at_rest_waits_for_the_work_at_the_cursor(soon: None):
    """A request by hand begins while the first step is computed; then the next suggestion is prepared."""

    class Watching(ScriptedBackend):
        has_work = False

        async def stream(self, request: FimRequest) -> AsyncGenerator[StreamPiece, None]:
            is_working = scripted.session.busy or scripted.session.next_suggestion.is_working(URI)
            self.has_work |= is_working and request.idle and not request.max_tokens
            async for piece in super().stream(request):
                yield piece

    scripted = ScriptedSession(Watching("", "", "slow", "; count += 1", "pass", "", round_s=0.01))
    first, here = (CompletionInput(at(text), lambda: (OTHER,)) for text in ("\n", LOOP))
    await scripted.session.complete(CompletionRequest(first))
    focus(scripted, at(LOOP), OTHER)
    await until(lambda: len(scripted.backend.streamed) == 3 and scripted.backend.streamed[2])
    await scripted.session.complete(CompletionRequest(here, by_hand=True))
    await until(lambda: scripted.session.pipeline.selections[URI].chosen)
    assert not scripted.backend.has_work
    scripted.close()


async def test_other_settings_end_the_work_at_rest(soon: None):
    scripted = ScriptedSession(ScriptedBackend("", "slow" * 20, round_s=0.01))
    focus(scripted, at(LOOP))
    await until(lambda: len(scripted.backend.streamed) == 2 and scripted.backend.streamed[1])
    scripted.session.apply_config(replace(scripted.session.config))
    await asyncio.sleep(0.05)
    assert len(scripted.backend.streamed[1]) < len("slow" * 20)


@given(st.text(alphabet="ab(){}[] \n\r", max_size=30).map(lambda text: text.replace("\r", "\r\n")), st.data())
def test_enter_makes_the_new_line_that_was_expected_whatever_its_indentation(text: str, data: st.DataObject):
    cursor = data.draw(st.integers(0, len(text)))
    assume(text[cursor - 1 : cursor + 1] != "\r\n")  # no editor puts the cursor inside a line end
    before = at(text, cursor)
    expected = new_line_below(before)
    line = text[: line_end(text, cursor)].rpartition("\n")[2]
    assert (expected is None) == (not line.strip())
    if expected is not None:
        indent = data.draw(st.text(alphabet=" \t", max_size=8))
        now = at(
            expected.text[: expected.cursor] + indent + expected.text[expected.cursor :], expected.cursor + len(indent)
        )
        assert is_new_line(now, before)
        assert not is_new_line(at(now.text[: now.cursor] + "x" + now.text[now.cursor :], now.cursor + 1), before)
