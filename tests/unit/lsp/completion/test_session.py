"""The newest keystroke wins, what is typed along is not computed twice, and every request has one outcome."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, URI, Room, Scripted, at, run

from speclsp.config import parse
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.prefill_ahead import UNASKED_AT_MOST, CompletionInput
from speclsp.lsp.completion.session import LOW_PAUSE_MS, Outcome
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles, IgnoreVerdict


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
        newer = asyncio.create_task(room.session.complete(at(TEXT + "ax", version=2)))
        await older
        await newer

    room = Room(Scripted("append(1)", "pop()", round_s=0.002))
    run(room, work)
    assert room.backend.asked[1].previous == room.backend.said[0][1:]
    assert room.backend.asked[1].previous.startswith("ppend")
    assert len(room.backend.said[0]) < 9, "its stream was closed"


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
        (Scripted("x"), {"completion.languages_off": ["python"]}, at(TEXT), "language_off"),
        (Scripted("x"), {"completion.globs_off": ["*.py"]}, at(TEXT), "glob_off"),
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


# ── typing along with a stream ────────────────────────────────────────────────────────────────────────────────────────


async def streamed(room: Room, characters: int, number: int = 0) -> None:
    """Until the backend has said so much of an answer."""
    while len(room.backend.said) <= number or len(room.backend.said[number]) < characters:
        await asyncio.sleep(0.001)


def asking(room: Room, text: str, **options: object) -> asyncio.Task[Outcome]:
    return asyncio.create_task(room.session.complete(at(text, **options)))


def test_a_key_that_agrees_with_what_is_streamed_takes_the_stream_over():
    async def work(room: Room) -> None:
        older = asking(room, TEXT)
        await streamed(room, 5)
        newer = asyncio.create_task(room.texts(at(TEXT + "app", version=2)))
        assert await older == Outcome(reason="superseded")
        assert not newer.done(), "the older one is answered at once"
        assert await newer == ["end(1)"]

    room = Room(Scripted("append(1)", round_s=0.005))
    run(room, work)
    assert len(room.backend.asked) == 1 and room.backend.said == ["append(1)"]
    assert [(trace.outcome, trace.adopted) for trace in room.traces] == [("superseded", False), ("shown", True)]
    assert room.metrics.total("adopted_total") == 1
    assert sum(trace.tokens for trace in room.traces) == 9, "each round is somebody's"
    assert room.metrics.total("predicted_tokens_total") == 9


def test_a_key_ahead_of_the_stream_is_waited_for_and_confirmed_without_a_second_request():
    async def work(room: Room) -> None:
        asking(room, TEXT)
        await streamed(room, 2)
        assert await room.texts(at(TEXT + "appe", version=2)) == ["nd(1)"]

    room = Room(Scripted("append(1)", round_s=0.02))
    run(room, work)
    assert len(room.backend.asked) == 1


def test_a_key_ahead_of_the_stream_that_is_contradicted_ends_it_within_the_round_and_asks_anew():
    async def work(room: Room) -> None:
        asking(room, TEXT)
        await streamed(room, 2)
        assert await room.texts(at(TEXT + "apx", version=2)) == ["y()"]

    room = Room(Scripted("append(1)", "y()", round_s=0.02))
    run(room, work)
    assert len(room.backend.said[0]) <= 4, "the round that contradicts, and perhaps one begun"
    assert room.backend.asked[1].previous.startswith("pend"[:1])
    assert room.backend.asked[1].line_prefix == "items.apx"


def test_many_keys_one_by_one_need_one_request():
    async def work(room: Room) -> None:
        said, asked = "append(value)", []
        for typed in range(len(said) - 3):
            asked.append(asking(room, TEXT + said[:typed], version=typed))
            await asyncio.sleep(0.006)
        *_, last = [await answer for answer in asked]
        assert [made.text for made in last.suggestions] == [said[len(said) - 4 :]]

    room = Room(Scripted("append(value)", round_s=0.01))
    run(room, work)
    assert len(room.backend.asked) == 1


@given(
    answer=st.text("ab(\n ", min_size=1, max_size=12),
    keys=st.lists(st.tuples(st.text("ab(\n ", min_size=1, max_size=3), st.integers(0, 3)), max_size=4),
)
def test_whatever_is_typed_what_is_shown_is_what_the_backend_said_to_that_text_or_to_its_beginning(
    answer: str, keys: list[tuple[str, int]]
):
    """Every request has one outcome, the last one is not superseded, and nothing is made up."""

    async def work(room: Room) -> None:
        text, asked = TEXT, [(TEXT, asking(room, TEXT))]
        for typed, pause in keys:
            for _ in range(pause):
                await asyncio.sleep(0)
            text += typed
            asked.append((text, asking(room, text)))
        outcomes = [(text, await task) for text, task in asked]
        assert outcomes[-1][1].reason != "superseded"
        asked_at = [request.prefix + request.line_prefix for request in room.backend.asked]
        for text, outcome in outcomes:
            for made in outcome.suggestions:
                whole = text[: made.start] + made.text
                assert any(text.startswith(start) and start + answer == whole for start in asked_at)
        for start, said in zip(asked_at, room.backend.said, strict=True):
            assert answer.startswith(said) and start.startswith(TEXT)

    backend = Scripted(answer)
    backend.status = Status(state="ready", pair="echo")  # whose words are not touched
    run(Room(backend), work)


@pytest.mark.parametrize(
    ("remote", "url", "shown"),
    [("", "", 1), ("localhost:1", "http://localhost:1", 1), ("far.example", "https://far.example", 0)],
)
def test_a_far_server_does_not_get_its_words_through_by_calling_itself_echo(remote: str, url: str, shown: int):
    async def work(room: Room) -> None:
        assert len(await room.texts(at(TEXT))) == shown

    backend = Scripted("\u202eappend(1)")
    backend.status = Status(state="ready", pair="echo", remote=remote)
    run(Room(backend, **{"backend.url": url}), work)


@pytest.mark.promise(32)
@pytest.mark.parametrize(("remote", "shown"), [("", 1), ("far.example", 0)])
def test_nothing_leaves_the_machine_while_the_disk_has_not_said_whether_it_may(
    remote: str, shown: int, monkeypatch: pytest.MonkeyPatch
):
    async def hangs(ignored: IgnoreFiles, uri: str, root: str | None) -> IgnoreVerdict:
        return UNREAD

    async def work(room: Room) -> None:
        assert len(await room.texts(at(TEXT))) == shown

    monkeypatch.setattr(IgnoreFiles, "settled", hangs)
    backend = Scripted("append(1)")
    backend.status = Status(state="ready", pair="x", remote=remote)
    room = Room(backend)
    run(room, work)
    assert len(backend.asked) == shown


def test_when_all_that_comes_has_been_typed_what_follows_is_asked_for():
    async def work(room: Room) -> None:
        asking(room, TEXT)
        await streamed(room, 2)
        assert await room.texts(at(TEXT + "pop()", version=2)) == ["  # last"]

    room = Room(Scripted("pop()", "  # last", round_s=0.005))
    run(room, work)
    assert [asked.line_prefix for asked in room.backend.asked] == ["items.", "items.pop()"]


def test_the_newer_request_has_a_plan_of_its_own():
    """The older one was for the rest of a line; after the colon is typed, it is a block's turn."""

    async def work(room: Room) -> None:
        older = asking(room, "for item in items")
        await streamed(room, 1)
        assert await room.texts(at("for item in items:", version=2)) == ["\n    print(item)\n    use(item)"]
        assert (await older).reason == "superseded"

    room = Room(Scripted(":\n    print(item)\n    use(item)\n\nx = 1\n", round_s=0.01))
    run(room, work)
    assert len(room.backend.asked) == 1


def test_the_newer_request_has_a_deadline_of_its_own():
    async def work(room: Room) -> None:
        older = asking(room, TEXT)
        await asyncio.sleep(0.15)
        newer = asyncio.create_task(room.texts(at(TEXT + "a", version=2)))
        assert (await older).reason == "superseded"
        (shown,) = await newer
        assert len(shown) > 8, "the older one's deadline was over"
        assert "ppend(1234567890)".startswith(shown)

    run(Room(Scripted("append(1234567890)", round_s=0.02), **{"completion.deadline_ms": 290}), work)


def test_a_request_that_the_editor_cancels_first_leaves_its_stream_to_the_next_key():
    async def work(room: Room) -> None:
        older = asking(room, TEXT)
        await streamed(room, 4)
        older.cancel()
        await asyncio.sleep(0.01)
        assert await room.texts(at(TEXT + "ap", version=2)) == ["pend(1)"]
        assert older.cancelled()

    room = Room(Scripted("append(1)", round_s=0.005))
    run(room, work)
    assert len(room.backend.asked) == 1
    assert [trace.outcome for trace in room.traces] == ["cancelled", "shown"]


def test_a_request_cancelled_after_the_next_key_was_asked_changes_nothing():
    async def work(room: Room) -> None:
        older = asking(room, TEXT)
        await streamed(room, 4)
        newer = asyncio.create_task(room.texts(at(TEXT + "ap", version=2)))
        await asyncio.sleep(0)
        older.cancel()
        assert await newer == ["pend(1)"]

    room = Room(Scripted("append(1)", round_s=0.005))
    run(room, work)
    assert len(room.backend.asked) == 1


def looking(text: str) -> Callable[[], CompletionInput]:
    return lambda: CompletionInput(at(text, version=2))


def test_a_stream_that_nobody_reads_ends_with_an_edit_that_disagrees_and_lives_on_with_one_that_agrees():
    async def work(room: Room) -> None:
        for edit, rounds in (("x", 1), ("a", 5)):
            number = len(room.backend.said)
            older = asking(room, TEXT)
            await streamed(room, 3, number)
            older.cancel()
            await asyncio.sleep(0)
            said = len(room.backend.said[number])
            room.session.changed(URI, looking(TEXT + edit))
            await asyncio.sleep(0.07)
            if edit == "x":
                assert len(room.backend.said[number]) <= said + rounds
            else:
                assert len(room.backend.said[number]) >= said + rounds
        assert await room.texts(at(TEXT + "ap", version=3)) == ["pend(12345678)"]

    room = Room(Scripted("append(12345678)", round_s=0.01))
    run(room, work)
    assert [asked.max_tokens > 0 for asked in room.backend.asked].count(True) == 2


def test_what_a_stream_without_a_reader_came_to_is_known_when_it_is_asked_for():
    async def work(room: Room) -> None:
        older = asking(room, TEXT)
        await streamed(room, 3)
        older.cancel()
        await asyncio.sleep(0.025)
        assert room.backend.said == ["pop()"]
        assert await room.texts(at(TEXT)) == ["pop()"]

    room = Room(Scripted("pop()", round_s=0.001))
    run(room, work)
    assert len(room.backend.asked) == 1 and room.traces[-1].reused


def test_a_stream_is_not_taken_over_under_other_settings_or_for_a_text_changed_elsewhere():
    async def work(room: Room) -> None:
        asking(room, TEXT)
        await streamed(room, 3)
        room.session.take(room.session.config)
        asking(room, TEXT + "a", version=2)
        await streamed(room, 3, number=1)
        assert await room.texts(at("# \n" + TEXT + "ap", version=3))

    room = Room(Scripted("append(1)", round_s=0.005))
    run(room, work)
    assert len(room.backend.asked) == 3


# ── reading ahead ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_pause_the_prompt_is_read_ahead_as_the_request_will_have_it():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        room.session.changed(URI, looking(TEXT + "x"))
        await asyncio.sleep(0.05)
        assert not room.session.busy
        await room.texts(at(TEXT + "x"))

    room = Room(Scripted("pop()", ""))
    run(room, work)
    _, ahead, asked = room.backend.asked
    assert ahead.max_tokens == 0 and asked.max_tokens > 0
    assert (ahead.prefix, ahead.line_prefix, ahead.suffix) == (asked.prefix, asked.line_prefix, asked.suffix)
    assert ahead.session == asked.session and ahead.extra == asked.extra and ahead.path == asked.path
    assert room.metrics.total("prefill_ahead_total") == 1


def test_a_request_in_the_same_millisecond_and_a_further_key_leave_nothing_to_read_ahead():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        room.session.changed(URI, looking(TEXT + "x"))
        room.session.changed(URI, looking(TEXT + "xy"))
        await room.texts(at(TEXT + "xy"))
        await asyncio.sleep(0.03)

    room = Room(Scripted("pop()", ""))
    run(room, work)
    assert [asked.max_tokens > 0 for asked in room.backend.asked] == [True, True]


@pytest.mark.parametrize(
    ("settings", "text", "uri"),
    [
        ({}, TEXT + "po", URI),  # typed along: answered from memory
        ({}, TEXT, URI),
        ({}, TEXT + "x", "file:///never-asked-in.py"),
        ({"context.max_file_bytes": len(TEXT)}, TEXT + "x", URI),
    ],
)
def test_nothing_is_read_ahead_where_the_engine_would_not_be_asked(settings: dict[str, object], text: str, uri: str):
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        room.session.changed(uri, lambda: CompletionInput(at(text, uri=uri)))
        await asyncio.sleep(0.03)

    room = Room(Scripted("pop()"), **settings)
    run(room, work)
    assert len(room.backend.asked) == 1


def test_nothing_is_read_ahead_where_that_is_of_no_use():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        room.backend.reads_ahead = False
        room.session.changed(URI, looking(TEXT + "x"))
        await asyncio.sleep(0.03)
        room.backend.reads_ahead = True
        for number in range(UNASKED_AT_MOST + 5):  # somebody who types on and never asks
            room.session.changed(URI, looking(TEXT + "x" * number))
            await asyncio.sleep(0.01)

    room = Room(Scripted("pop()", ""))
    run(room, work)
    assert len(room.backend.asked) <= 1 + UNASKED_AT_MOST


def test_nothing_is_read_ahead_for_an_engine_that_is_asleep_and_a_question_is_asked_all_the_same():
    async def work(room: Room) -> None:
        room.backend.status = Status(state="asleep")
        room.session._ahead.asked(URI)
        room.session.changed(URI, lambda: CompletionInput(at(TEXT)))
        await asyncio.sleep(0.05)
        assert room.backend.asked == [], "nothing but a question wakes it"
        assert await room.texts(at(TEXT)) == ["append(1)"]

    run(Room(Scripted("append(1)")), work)


def test_what_the_draft_said_alone_is_shown_while_the_target_loads_and_never_again():
    alone = Status(state="loading", draft_only=True)

    async def work(room: Room) -> None:
        room.backend.status = alone
        assert await room.texts(at(TEXT)) == ["append(1)"]
        assert await room.texts(at(TEXT)) == ["append(1)"], "as long as there is nothing better"
        assert [trace.draft_only for trace in room.traces] == [True, False] and room.traces[1].reused
        under_way = asyncio.create_task(room.texts(at(TEXT + "x", version=2)))
        await asyncio.sleep(0.01)
        room.backend.status = Status(state="ready", target="the target")
        room.session.start_afresh()  # as the server does then
        assert await under_way == ["late"], "who waited for it gets it"
        assert await room.texts(at(TEXT + "x", version=2)) == ["better"]
        assert await room.texts(at(TEXT, version=3)) == ["best"]
        assert [trace.draft_only for trace in room.traces[2:]] == [True, False, False]

    room = Room(Scripted("append(1)", "late", "better", "best", round_s=0.01))
    run(room, work)
    assert len(room.backend.asked) == 4


def test_what_goes_wrong_while_reading_ahead_is_nobodys_business():
    async def work(room: Room) -> None:
        await room.texts(at(TEXT))
        room.session.changed(URI, looking(TEXT + "x"))
        while len(room.backend.asked) < 2:
            await asyncio.sleep(0.005)
        assert await room.texts(at(TEXT + "x")) == ["y()"]

    run(Room(Scripted("pop()", EngineError("gone"), "y()")), work)


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
    memory = AnswerCache()
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
    memory = AnswerCache()
    shown = at(before + "|" + "tail", len(before) + 1)
    memory.keep(shown, [Suggestion("aaaa", shown.cursor, shown.cursor)], wanted=1)
    for text in (other + before + "|" + typed + "tail", before + "|" + typed + "tail" + other):
        later = at(text, text.index("tail"))
        if memory.recall(later, 1) is not None:
            assert other == "" or text == before + "|" + typed + "tail"


def test_only_the_last_few_answers_are_remembered():
    memory = AnswerCache()
    for number in range(20):
        memory.keep(at("x" * number), [Suggestion("y", number, number)], wanted=1)
    assert memory.recall(at("x" * 19), 1) is not None
    assert memory.recall(at("x" * 3), 1) is None


def test_windows_newlines_are_plain_ones_in_what_is_drafted_from():
    memory = AnswerCache()
    memory.keep(at("a"), [Suggestion("b\r\nc\rd", 1, 1)], wanted=1)
    assert memory.expected(at("aX")) == "b\nc\nd"


# ── eagerness ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_low_waits_for_a_pause_and_asks_once():
    async def work(room: Room) -> None:
        start = time.perf_counter()
        typed = [TEXT + "x" * count for count in range(5)]
        asked = [asyncio.create_task(room.session.complete(at(text, version=n))) for n, text in enumerate(typed)]
        outcomes = await asyncio.gather(*asked)
        assert [outcome.reason for outcome in outcomes] == ["superseded"] * 4 + [""]
        assert time.perf_counter() - start >= 0.9 * LOW_PAUSE_MS / 1000
        assert len(room.backend.asked) == 1

    run(Room(Scripted("append(1)"), **{"completion.eagerness": "low"}), work)


def test_by_hand_low_is_like_medium_whatever_was_answered_before():
    block = "def f():\n    "
    middle = at("total =  + tax", 8)

    async def work(room: Room) -> None:
        (alone,) = await room.texts(at(block))
        assert alone == "a = 1"
        (by_hand,) = (await room.session.complete(at(block), by_hand=True)).suggestions
        assert by_hand.text.count("\n") == 1
        assert (await room.session.complete(middle)).reason == "mid_line"
        assert (await room.session.complete(middle, by_hand=True)).suggestions

    run(Room(Scripted("a = 1\n    b = 2\n\n\n"), **{"completion.eagerness": "low", "completion.alternatives": 1}), work)


def test_a_setting_holds_from_the_next_request_on():
    async def work(room: Room) -> None:
        place = at("total =  + tax", 8)
        assert (await room.session.complete(place)).suggestions
        room.session.take(parse({"completion.eagerness": "low"}, room.session.config)[0])
        assert (await room.session.complete(place)).reason == "mid_line"
        room.session.take(parse({"completion.eagerness": "medium"}, room.session.config)[0])
        assert (await room.session.complete(place)).suggestions

    run(Room(Scripted("net")), work)


def test_an_answer_begun_under_other_settings_is_given_and_not_remembered():
    async def work(room: Room) -> None:
        older = asking(room, TEXT)
        await streamed(room, 3)
        room.session.take(parse({"completion.multiline": "never"}, room.session.config)[0])
        assert (await older).suggestions
        await room.texts(at(TEXT))

    room = Room(Scripted("append(1)", round_s=0.005))
    run(room, work)
    assert len(room.backend.asked) == 2 and not room.traces[-1].reused


# ── for the menu and inline at once ───────────────────────────────────────────────────────────────────────────────────


def test_an_editor_that_asks_for_its_menu_and_inline_gets_both_from_one_completion():
    async def work(room: Room) -> None:
        for first in (True, False):
            place = at(TEXT + str(first))
            inline = asyncio.create_task(room.session.complete(place, menu=first))
            await asyncio.sleep(0)
            menu = asyncio.create_task(room.session.complete(place, menu=not first))
            assert (await inline).suggestions == (await menu).suggestions != ()
        assert len(room.backend.asked) == 2
        older = asyncio.create_task(room.session.complete(at(TEXT), menu=True))
        await asyncio.sleep(0)
        newer = asyncio.create_task(room.session.complete(at(TEXT + "x", version=2)))
        assert (await older).reason == "superseded", "another place is another question"
        assert (await newer).suggestions

    run(Room(Scripted("append(1)", round_s=0.01)), work)


@pytest.mark.parametrize("gives_up", [0, 1])
def test_of_menu_and_inline_one_may_give_up_and_the_other_is_answered(gives_up: int):
    async def work(room: Room) -> None:
        both = []
        for menu in (False, True):
            both.append(asyncio.create_task(room.session.complete(at(TEXT), menu=menu)))
            await asyncio.sleep(0.02)
        both[gives_up].cancel()
        assert [one.text for one in (await both[1 - gives_up]).suggestions] == ["append(1)"]
        assert both[gives_up].cancelled() and room.backend.said == ["append(1)"]

    room = Room(Scripted("append(1)", round_s=0.01))
    run(room, work)
    assert [trace.outcome for trace in room.traces] == ["shown"]


def test_when_menu_and_inline_both_give_up_the_engine_stops():
    async def work(room: Room) -> None:
        both = []
        for menu in (False, True):
            both.append(asyncio.create_task(room.session.complete(at(TEXT), menu=menu)))
            await asyncio.sleep(0.02)
        for one in both:
            one.cancel()
        await asyncio.wait(both)
        await asyncio.sleep(0.2)
        assert all(one.cancelled() for one in both) and 0 < len(room.backend.said[0]) < len("append(1)" * 9)

    room = Room(Scripted("append(1)" * 9, round_s=0.01))
    run(room, work)
    assert [trace.outcome for trace in room.traces] == ["cancelled"]


# ── what a trace tells ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_trace_tells_when_a_request_came_how_long_it_took_and_what_of_it_was_the_engine():
    async def work(room: Room) -> None:
        before_ms = time.monotonic() * 1000
        await room.session.complete(at(TEXT), request="7")
        after_ms = time.monotonic() * 1000
        await room.session.complete(at(TEXT), request=8)
        slow = asyncio.create_task(room.session.complete(at(TEXT + "y")))
        await asyncio.sleep(0.1)
        await room.session.complete(at(TEXT + "zz"))
        await slow
        asked, reused, superseded, _ = room.traces
        assert asked.request == "7" and before_ms <= asked.at_ms <= after_ms
        assert 9 * 15 <= asked.engine_ms <= asked.total_ms <= after_ms - before_ms
        assert asked.total_ms - asked.engine_ms >= asked.parse_ms + asked.context_ms - 0.01
        assert reused.request == 8 and reused.reused and reused.engine_ms == 0
        assert superseded.outcome == "superseded" and 0 < superseded.engine_ms <= superseded.total_ms

    run(Room(Scripted("append(1)", round_s=0.02)), work)


def test_requests_that_come_together_are_all_read_before_a_text_is_worked_on_and_then_one_in_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
):
    """The loop takes a message in each of its turns: so a small question never waits for more than one text."""
    monkeypatch.setattr("speclsp.lsp.completion.session.LET_IN_S", 60.0)
    turn, worked = 0, list[int]()

    async def work(room: Room) -> None:
        plan = room.session.pipeline._plan

        def noted(*arguments: object) -> object:
            worked.append(turn)
            return plan(*arguments)

        async def turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        room.session.pipeline._plan = noted
        counting, asked = asyncio.create_task(turns()), []
        for number in range(20):
            asked.append(asyncio.create_task(room.texts(at(TEXT, uri=f"file:///{number}.py"))))
            await asyncio.sleep(0)
        all_read = turn
        assert await asyncio.gather(*asked) == [["a"]] * 20
        assert worked[0] > all_read and len(set(worked)) == 20
        counting.cancel()
        await asyncio.wait([counting])

    run(Room(Scripted("a")), work)
