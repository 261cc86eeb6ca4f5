"""While a suggestion is on the screen the one after it is made, as if accepted; anything else ends that at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, URI, Room, Scripted, at

from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion import next_suggestion as following
from speclsp.lsp.completion.prefill_ahead import CompletionInput
from speclsp.lsp.completion.session import Session
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion

FIRST, SECOND = "append(1)", "\nitems.pop()"
ACCEPTED = TEXT + FIRST


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody reads for long here."""
    monkeypatch.setattr(following, "PAUSE_S", 0.01)


def run(room: Room, work: Callable[[Room], Awaitable[object]]) -> None:
    async def whole() -> None:
        await work(room)
        room.session.close()
        await asyncio.sleep(0.02)
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something still runs"

    asyncio.run(whole())


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it never came true")


def look(text: str) -> Callable[[], CompletionInput]:
    return lambda: CompletionInput(at(text))


async def prepared(room: Room, requests: int = 2) -> None:
    """The first suggestion is shown, and the next one made."""
    assert await room.texts(at(TEXT)) == [FIRST]
    await until(lambda: len(room.backend.asked) == requests and not busy(room))


def busy(room: Room) -> bool:
    return any(going.job is None or not going.job.task.done() for going in room.session._next._going.values())


def idle(room: Room) -> list[str]:
    """What the engine was asked to make for nobody."""
    return [one.prefix + one.line_prefix for one in room.backend.asked if one.idle]


def test_accepting_shows_the_next_one_without_asking_the_engine() -> None:
    async def work(room: Room) -> None:
        await prepared(room)
        room.session.changed(URI, look(ACCEPTED))
        assert await room.texts(at(ACCEPTED)) == [SECOND]
        assert len(room.backend.asked) == 2

    room = Room(Scripted(FIRST, SECOND))
    run(room, work)
    assert idle(room) == [ACCEPTED], "and it was made as if accepted"
    assert [trace.outcome for trace in room.traces] == ["shown", "shown"], "what nobody asked for is no request"
    assert [trace.prepared for trace in room.traces] == [False, True]
    assert (room.metrics.total("prepared_total"), room.metrics.total("prepared_used_total")) == (1, 1)


def test_while_it_is_being_made_accepting_takes_its_stream_over() -> None:
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == [FIRST]
        await until(lambda: len(room.backend.said) == 2 and len(room.backend.said[1]) > 2)
        room.session.changed(URI, look(ACCEPTED))
        assert await room.texts(at(ACCEPTED)) == [SECOND]
        assert len(room.backend.asked) == 2 and room.traces[-1].adopted and room.traces[-1].prepared

    run(Room(Scripted(FIRST, SECOND, round_s=0.01)), work)


def test_accepting_word_by_word_keeps_it() -> None:
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == [FIRST]
        await until(lambda: len(room.backend.asked) == 2)
        for end in (3, 6, 8):
            room.session.changed(URI, look(TEXT + FIRST[:end]))
            assert await room.texts(at(TEXT + FIRST[:end])) == [FIRST[end:]]
        await until(lambda: not busy(room))
        room.session.changed(URI, look(ACCEPTED))
        assert await room.texts(at(ACCEPTED)) == [SECOND]
        assert len(room.backend.asked) == 2

    run(Room(Scripted(FIRST, SECOND, round_s=0.005)), work)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["x", "ax", "append(2", "\n", ""]), st.booleans())
def test_any_other_edit_closes_its_stream_within_a_round(typed: str, elsewhere: bool) -> None:
    text = ("# \n" if elsewhere or not typed else "") + TEXT + typed

    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == [FIRST]
        await until(lambda: len(room.backend.said) == 2 and room.backend.said[1])
        room.session.changed(URI, look(text))
        said = len(room.backend.said[1])
        await asyncio.sleep(0.02)
        assert len(room.backend.said[1]) <= said + 1, "the engine was stopped"
        assert room.session.memory.recall(at(ACCEPTED), 1) is None, "half an answer is none"

    run(Room(Scripted(FIRST, "\n" + "x" * 400, round_s=0.002)), work)


def test_an_edit_before_it_has_begun_leaves_nothing_to_do() -> None:
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        room.session.changed(URI, lambda: None)
        await asyncio.sleep(0.05)

    room = Room(Scripted(FIRST, SECOND))
    run(room, work)
    assert idle(room) == []


def test_keys_that_agree_put_it_off_until_the_typist_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "PAUSE_S", 0.2)

    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == [FIRST]
        for end in range(1, len(FIRST)):
            await asyncio.sleep(0.05)
            room.session.changed(URI, look(TEXT + FIRST[:end]))
            assert await room.texts(at(TEXT + FIRST[:end])) == [FIRST[end:]]
        assert len(FIRST) * 0.05 > 0.2 and idle(room) == []
        await until(lambda: idle(room) == [ACCEPTED])

    run(Room(Scripted(FIRST, SECOND)), work)


def test_one_is_made_and_none_after_it_until_it_is_accepted() -> None:
    async def work(room: Room) -> None:
        await prepared(room)
        await asyncio.sleep(0.05)
        assert len(room.backend.asked) == 2
        room.session.changed(URI, look(ACCEPTED))
        await room.texts(at(ACCEPTED))
        await until(lambda: len(room.backend.asked) == 3)

    room = Room(Scripted(FIRST, SECOND, "\nitems.clear()"))
    run(room, work)
    assert idle(room) == [ACCEPTED, ACCEPTED + SECOND]


@pytest.mark.parametrize(
    ("options", "status"),
    [
        ({"completion.eagerness": "low"}, Status(state="ready")),
        ({"completion.prepare_next": False}, Status(state="ready")),
        ({}, Status(state="asleep")),
        ({}, Status(state="ready", remote="models.example")),
    ],
)
def test_nobody_who_wants_quiet_is_asked_nor_an_engine_that_sleeps_nor_a_server_far_away(
    options: dict[str, object], status: Status
) -> None:
    async def work(room: Room) -> None:
        room.backend.status = status
        await room.texts(at(TEXT))
        await asyncio.sleep(0.06)

    room = Room(Scripted(FIRST, SECOND), **options)
    run(room, work)
    assert idle(room) == []


def test_what_the_engine_ended_for_somebody_else_is_not_shown_and_is_asked_for_anew() -> None:
    class Interrupted(Scripted):
        async def stream(self, request):
            async for piece in super().stream(request):
                if request.idle and piece.cost is not None:
                    piece = replace(piece, cost=replace(piece.cost, stop_type="cancelled"))
                yield piece

    async def work(room: Room) -> None:
        await prepared(room)
        assert await room.texts(at(ACCEPTED)) == ["\nitems.clear()"]

    run(Room(Interrupted(FIRST, "\nitems", "\nitems.clear()")), work)


def test_what_is_chosen_for_the_prompt_stays_as_it_was_unless_it_is_accepted() -> None:
    long = "".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(600)) + TEXT

    def chosen(session: Session) -> tuple[object, ...]:
        return dict(session.pipeline.windows), {uri: replace(shelf) for uri, shelf in session.pipeline.shelves.items()}

    async def work(room: Room) -> None:
        assert await room.texts(at(long)) == [FIRST + "\nitems."]
        before = chosen(room.session)
        await until(lambda: len(room.backend.asked) == 2 and not busy(room))
        assert chosen(room.session) == before, "so that typing on finds its prompt in the cache"
        await room.texts(at(long + FIRST + "\nitems."))
        assert chosen(room.session) != before, "what was accepted goes on from there"

    run(Room(Scripted(FIRST + "\nitems.", SECOND), **{"completion.multiline": "always"}), work)


def test_closing_the_document_or_other_settings_end_it() -> None:
    async def work(room: Room) -> None:
        for end in (lambda: room.session.forget(URI), lambda: room.session.take(room.session.config)):
            requests = len(room.backend.asked)
            await room.texts(at(TEXT))
            await until(lambda: len(room.backend.asked) == requests + 2 and room.backend.said[-1])  # noqa: B023
            end()
            said = len(room.backend.said[-1])
            await asyncio.sleep(0.03)
            assert len(room.backend.said[-1]) <= said + 1

    run(Room(Scripted(FIRST, "\n" + "y" * 400, FIRST, "\n" + "y" * 400, round_s=0.002)), work)


@given(st.text("ab(\n", max_size=8), st.text("ab)\n", max_size=8), st.text("ab(", min_size=1, max_size=6), st.data())
def test_every_beginning_of_accepting_leads_there_and_no_other_text_does(
    before: str, after: str, new: str, data: st.DataObject
) -> None:
    swallowed = data.draw(st.integers(0, len(after.partition("\n")[0])))
    here = Snapshot(URI, "python", 1, before + after, len(before))
    suggestion = Suggestion(new, len(before), len(before) + swallowed)
    then = following.accepted(here, suggestion)
    assert then.text == before + new + after[swallowed:] and then.text[: then.cursor] == before + new
    going: following.Preparation = following.Preparation(here, CompletionInput(then), timer=None)
    for taken in range(len(new) + 1):
        now = replace(here, text=before + new[:taken] + after, cursor=len(before) + taken)
        assert going.leads_here(now)
    assert going.leads_here(then)
    assert not going.leads_here(replace(then, text=then.text + "!"))
    assert not going.leads_here(replace(here, text=before + "?" + after, cursor=len(before) + 1))
