"""The newest keystroke wins, what is typed along is not computed twice, and every request has one outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import Config, parse
from speclsp.errors import EngineError
from speclsp.lsp.backend import Cost, FimRequest, Piece, Status
from speclsp.lsp.document import Snapshot
from speclsp.lsp.postprocess import Suggestion
from speclsp.lsp.reuse import Memory
from speclsp.lsp.session import Outcome, Session, Trace
from speclsp.metrics import Metrics

URI = "file:///a.py"
TEXT = "items = []\nitems."


class Scripted:
    """A backend that says `answers` in turn, one character a round, and remembers what it was asked."""

    def __init__(self, *answers: str | Exception, round_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.round_s = round_s
        self.asked: list[FimRequest] = []
        self.said: list[str] = []  # for each request, what was taken before the stream was closed
        self.status = Status(state="ready")

    def start(self) -> None: ...
    def end(self) -> None: ...
    async def close(self) -> None: ...

    async def stream(self, request: FimRequest) -> AsyncGenerator[Piece, None]:
        number = len(self.asked)
        self.asked.append(request)
        self.said.append("")
        answer = self.answers[min(number, len(self.answers) - 1)]
        if isinstance(answer, Exception):
            raise answer
        for char in answer:
            await asyncio.sleep(self.round_s)
            self.said[number] += char
            yield Piece(text=char, tokens=1, source="ngram", drafted=2, accepted=1)
        yield Piece(cost=Cost(stop_type="eos", prompt_tokens=7, cached_tokens=3))


def at(text: str, cursor: int | None = None, version: int = 1, uri: str = URI, language: str = "python") -> Snapshot:
    return Snapshot(uri, language, version, text, len(text) if cursor is None else cursor)


class Room:
    """A session with a scripted backend."""

    def __init__(self, backend: Scripted | None, **settings: object) -> None:
        config, problems = parse(settings, Config())
        assert problems == []
        self.backend, self.traces = backend, list[Trace]()
        self.metrics = Metrics()
        self.session = Session(config, lambda: self.backend, self.metrics, on_trace=self.traces.append)

    async def texts(self, snapshot: Snapshot, wanted: int = 1) -> list[str]:
        """What is inserted at the cursor."""
        outcome = await self.session.complete(snapshot, wanted)
        return [made.text[snapshot.cursor - made.start :] for made in outcome.suggestions]


def run(room: Room, work: Callable[[Room], Awaitable[object]]) -> None:
    async def whole() -> None:
        await work(room)
        assert not room.session.busy
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something still runs"

    asyncio.run(whole())


def test_a_request_gives_what_the_backend_says():
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == ["append(1)"]

    room = Room(Scripted("append(1)"))
    run(room, work)
    (asked,), (trace,) = room.backend.asked, room.traces
    assert asked.prefix + asked.line_prefix == TEXT and asked.suffix == ""
    assert asked.line_prefix == "items." and asked.temperature == 0 and asked.previous == ""
    assert (trace.outcome, trace.tokens, trace.rounds, trace.drafted, trace.accepted) == ("shown", 9, 9, 18, 9)
    assert trace.by_source == {"ngram": {"drafted": 18, "accepted": 9}}
    assert room.metrics.acceptance == 0.5 and room.metrics.last_ms("latency_ms") is not None


def test_the_stream_is_closed_as_soon_as_the_text_is_finished():
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == ["append(1)"]

    room = Room(Scripted("append(1)\nitems.append(2)\nitems.append(3)\n" * 9), **{"completion.multiline": "never"})
    run(room, work)
    assert len(room.backend.said[0]) < 20


def test_a_newer_request_ends_the_older_one_of_its_document_empty_at_once():
    async def work(room: Room) -> None:
        older = asyncio.create_task(room.session.complete(at(TEXT)))
        elsewhere = asyncio.create_task(room.session.complete(at(TEXT, uri="file:///b.py")))
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        newer = asyncio.create_task(room.session.complete(at(TEXT + "x", version=2)))
        assert await older == Outcome(reason="superseded")
        assert time.perf_counter() - start < 0.5
        assert (await newer).suggestions and (await elsewhere).suggestions

    room = Room(Scripted("append(1)", round_s=0.02))
    run(room, work)
    assert len(room.backend.said[0]) < 9, "its stream was closed"
    assert [trace.outcome for trace in room.traces] == ["superseded", "shown", "shown"]


def test_it_is_busy_while_the_engine_works_and_not_in_between():
    async def work(room: Room) -> None:
        seen: list[bool] = []
        room.session._on_busy = lambda: seen.append(room.session.busy)
        older = asyncio.create_task(room.texts(at(TEXT)))
        await asyncio.sleep(0.01)
        await room.texts(at(TEXT + "x"))
        await older
        await room.texts(at(TEXT + "x"))
        assert seen == [True, True, False, False]

    run(Room(Scripted("append(1)", round_s=0.005)), work)


def test_what_a_superseded_request_had_streamed_is_drafted_from_and_never_shown():
    async def work(room: Room) -> None:
        older = asyncio.create_task(room.session.complete(at(TEXT)))
        while len(room.backend.said[0] if room.backend.said else "") < 6:
            await asyncio.sleep(0.001)
        newer = asyncio.create_task(room.session.complete(at(TEXT + "a", version=2)))
        await older
        await newer

    room = Room(Scripted("append(1)", "pop()", round_s=0.002))
    run(room, work)
    assert room.backend.asked[1].previous == room.backend.said[0][1:]
    assert room.backend.asked[1].previous.startswith("ppend")


def test_a_cancelled_caller_stops_the_backend():
    async def work(room: Room) -> None:
        asking = asyncio.create_task(room.session.complete(at(TEXT)))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0.05)

    room = Room(Scripted("append(1)", round_s=0.02))
    run(room, work)
    assert len(room.backend.said[0]) < 9
    assert [trace.outcome for trace in room.traces] == ["cancelled"]


def test_typing_along_is_answered_from_the_suggestion_shown():
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == ["append(1)"]
        assert await room.texts(at(TEXT + "app")) == ["end(1)"]
        assert await room.texts(at(TEXT)) == ["append(1)"], "and back"
        assert len(room.backend.asked) == 1
        assert await room.texts(at(TEXT + "append(1)")) != ["append(1)"]
        assert len(room.backend.asked) == 2, "when all of it is typed, what follows is asked for"

    run(Room(Scripted("append(1)", "")), work)


def test_other_words_ask_again_and_carry_what_is_left_of_the_old_ones():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        await room.texts(at(TEXT + "apx"))

    room = Room(Scripted("append(1)", "y"))
    run(room, work)
    assert room.backend.asked[1].previous == "pend(1)"


def test_a_change_elsewhere_in_the_document_asks_again():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        await room.texts(at("# \n" + TEXT))
        await room.texts(at(TEXT + "\n#", cursor=len(TEXT)))

    room = Room(Scripted("append(1)"))
    run(room, work)
    assert len(room.backend.asked) == 3


def test_by_hand_the_first_is_greedy_and_the_others_are_drawn_with_seeds_and_differ():
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT), wanted=4) == ["append(1)", "pop()", "clear()"]
        assert await room.texts(at(TEXT), wanted=1) == ["append(1)"], "one is among them"
        assert len(room.backend.asked) == 4

    room = Room(Scripted("append(1)", "pop()", "append(1)", "clear()"))
    run(room, work)
    assert [asked.temperature for asked in room.backend.asked] == [0.0, 0.8, 0.8, 0.8]
    assert len({asked.seed for asked in room.backend.asked}) == 4


def test_one_suggestion_remembered_is_not_enough_when_several_are_wanted():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        assert await room.texts(at(TEXT), wanted=2) == ["append(1)", "pop()"]

    run(Room(Scripted("append(1)", "append(1)", "pop()")), work)


@pytest.mark.parametrize(
    ("backend", "settings", "snapshot", "reason"),
    [
        (Scripted("x"), {"completion.enabled": False}, at(TEXT), "disabled"),
        (Scripted("x"), {"completion.languages_off": ["python"]}, at(TEXT), "disabled"),
        (Scripted("x"), {"context.max_file_bytes": 5}, at(TEXT), "too_large"),
        (None, {}, at(TEXT), "loading"),
        (Scripted(EngineError("gone")), {}, at(TEXT), "engine_lost"),
        (Scripted(ValueError(TEXT)), {}, at(TEXT), "failed"),
        (Scripted("append(1)", round_s=0.1), {"completion.deadline_ms": 30}, at(TEXT), "deadline"),
    ],
)
def test_nothing_has_a_reason(backend: Scripted | None, settings: dict[str, object], snapshot: Snapshot, reason: str):
    async def work(room: Room) -> None:
        assert await room.session.complete(snapshot) == Outcome(reason=reason)
        await asyncio.sleep(0.01)

    room = Room(backend, **settings)
    run(room, work)
    assert [trace.outcome for trace in room.traces] == [reason]


def test_a_failure_is_not_remembered():
    async def work(room: Room) -> None:
        assert await room.texts(at(TEXT)) == []
        assert await room.texts(at(TEXT)) == ["append(1)"]

    run(Room(Scripted(EngineError("gone"), "append(1)")), work)


def test_at_the_deadline_what_there_is_is_shown():
    async def work(room: Room) -> None:
        (shown,) = await room.texts(at(TEXT))
        assert "append(1234567890)".startswith(shown) and 2 < len(shown) < 17
        await asyncio.sleep(0.05)

    run(Room(Scripted("append(1234567890)", round_s=0.02), **{"completion.deadline_ms": 200}), work)


def test_a_pause_is_waited_for_when_asked_to():
    async def work(room: Room) -> None:
        first = asyncio.create_task(room.session.complete(at(TEXT)))
        await asyncio.sleep(0.01)
        await room.session.complete(at(TEXT + "p"))
        await first

    room = Room(Scripted("op()"), **{"completion.debounce_ms": 60})
    run(room, work)
    assert [asked.line_prefix for asked in room.backend.asked] == ["items.p"], "the backend never saw the first"


def test_a_closed_document_ends_its_request_and_is_forgotten():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        asking = asyncio.create_task(room.session.complete(at(TEXT + "x")))
        await asyncio.sleep(0.01)
        room.session.forget(URI)
        assert await asking == Outcome(reason="closed")
        await room.texts(at(TEXT))
        assert len(room.backend.asked) == 3

    run(Room(Scripted("append(1)", "append(1)", round_s=0.005)), work)


# ── what is remembered ────────────────────────────────────────────────────────────────────────────────────────────────


def applied(text: str, made: Suggestion) -> str:
    return text[: made.start] + made.text + text[made.end :]


@given(
    before=st.text("ab\n", max_size=6),
    after=st.text("ab)\n", max_size=4),
    suggested=st.text("ab)\n", min_size=1, max_size=6),
    back=st.integers(0, 2),
    over=st.integers(0, 2),
    typed=st.text("ab)\n", max_size=4),
)
def test_what_is_recalled_leads_to_the_text_that_was_suggested(
    before: str, after: str, suggested: str, back: int, over: int, typed: str
):
    line = before.rpartition("\n")[2]
    start, end = len(before) - min(back, len(line)), len(before) + min(over, len(after.partition("\n")[0]))
    shown = Suggestion(before[start:] + suggested, start, end)
    memory = Memory()
    memory.keep(at(before + after, len(before)), [shown], wanted=1)
    later = at(before + typed + after, len(before + typed))
    recalled = memory.recall(later, 1)
    assert (recalled is not None) >= (typed == "")
    if recalled is not None:
        (left,), _ = recalled
        assert applied(later.text, left) == applied(before + after, shown)
        assert suggested.startswith(typed)
        assert left.start <= later.cursor <= left.end
        assert "\n" not in later.text[left.start : left.end]
        assert left.text.startswith(later.text[left.start : later.cursor])


@given(before=st.text("ab", max_size=3), typed=st.text("ab\n", max_size=5), other=st.text("ab\n", max_size=5))
def test_nothing_is_recalled_for_another_text(before: str, typed: str, other: str):
    memory = Memory()
    shown = at(before + "|" + "tail", len(before) + 1)
    memory.keep(shown, [Suggestion("aaaa", shown.cursor, shown.cursor)], wanted=1)
    for text in (other + before + "|" + typed + "tail", before + "|" + typed + "tail" + other):
        later = at(text, text.index("tail"))
        if memory.recall(later, 1) is not None:
            assert other == "" or text == before + "|" + typed + "tail"


def test_only_the_last_few_answers_are_remembered():
    memory = Memory()
    for number in range(20):
        memory.keep(at("x" * number), [Suggestion("y", number, number)], wanted=1)
    assert memory.recall(at("x" * 19), 1) is not None
    assert memory.recall(at("x" * 3), 1) is None


def test_windows_newlines_are_plain_ones_in_what_is_drafted_from():
    memory = Memory()
    memory.keep(at("a"), [Suggestion("b\r\nc\rd", 1, 1)], wanted=1)
    assert memory.expected(at("aX")) == "b\nc\nd"
