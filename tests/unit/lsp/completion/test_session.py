"""The newest keystroke wins, what is typed along is not computed twice, and every request has one outcome."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, at, captured, run

from speclsp.config import parse
from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion.answer_cache import AnswerCache
from speclsp.lsp.completion.job import CompletionInput, Outcome
from speclsp.lsp.completion.prefill_ahead import MAX_UNREQUESTED
from speclsp.lsp.completion.session import LOW_PAUSE_MS
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles, IgnoreVerdict


def test_a_request_gives_what_the_backend_says():
    async def work(scripted: ScriptedSession) -> None:
        assert await scripted.texts(at(TEXT)) == ["append(1)"]

    scripted = ScriptedSession(ScriptedBackend("append(1)"))
    run(scripted, work)
    (asked,), (trace,) = scripted.backend.requests, scripted.traces
    assert asked.prefix + asked.line_prefix == TEXT and asked.suffix == ""
    assert asked.line_prefix == "items." and asked.temperature == 0 and asked.previous == ""
    assert (trace.outcome, trace.tokens, trace.rounds, trace.drafted, trace.accepted) == ("shown", 9, 9, 18, 9)
    assert trace.by_source == {"ngram": {"drafted": 18, "accepted": 9}}
    assert scripted.metrics.acceptance == 0.5 and scripted.metrics.last_ms("latency_ms") is not None


def test_the_stream_is_closed_as_soon_as_the_text_is_finished():
    async def work(scripted: ScriptedSession) -> None:
        assert await scripted.texts(at(TEXT)) == ["append(1)"]

    scripted = ScriptedSession(
        ScriptedBackend("append(1)\nitems.append(2)\nitems.append(3)\n" * 9), **{"completion.multiline": "never"}
    )
    run(scripted, work)
    assert len(scripted.backend.streamed[0]) < 20


def test_a_newer_request_ends_the_older_one_of_its_document_empty_at_once():
    async def work(scripted: ScriptedSession) -> None:
        older = asyncio.create_task(scripted.complete(at(TEXT)))
        elsewhere = asyncio.create_task(scripted.complete(at(TEXT, uri="file:///b.py")))
        await asyncio.sleep(0.05)
        start = time.perf_counter()
        newer = asyncio.create_task(scripted.complete(at(TEXT + "x", version=2)))
        assert await older == Outcome(reason="superseded")
        assert time.perf_counter() - start < 0.5
        assert (await newer).suggestions and (await elsewhere).suggestions

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.02))
    run(scripted, work)
    assert len(scripted.backend.streamed[0]) < 9, "its stream was closed"
    assert [trace.outcome for trace in scripted.traces] == ["superseded", "shown", "shown"]


def test_it_is_busy_while_the_engine_works_and_not_in_between():
    async def work(scripted: ScriptedSession) -> None:
        seen: list[bool] = []
        scripted.session._on_busy = lambda: seen.append(scripted.session.busy)
        older = asyncio.create_task(scripted.texts(at(TEXT)))
        await asyncio.sleep(0.01)
        await scripted.texts(at(TEXT + "x"))
        await older
        await scripted.texts(at(TEXT + "x"))
        assert seen == [True, True, False, False]

    run(ScriptedSession(ScriptedBackend("append(1)", round_s=0.005)), work)


def test_what_a_superseded_request_had_streamed_is_drafted_from_and_never_shown():
    async def work(scripted: ScriptedSession) -> None:
        older = asyncio.create_task(scripted.complete(at(TEXT)))
        while len(scripted.backend.streamed[0] if scripted.backend.streamed else "") < 6:
            await asyncio.sleep(0.001)
        newer = asyncio.create_task(scripted.complete(at(TEXT + "ax", version=2)))
        await older
        await newer

    scripted = ScriptedSession(ScriptedBackend("append(1)", "pop()", round_s=0.002))
    run(scripted, work)
    assert scripted.backend.requests[1].previous == scripted.backend.streamed[0][1:]
    assert scripted.backend.requests[1].previous.startswith("ppend")
    assert len(scripted.backend.streamed[0]) < 9, "its stream was closed"


def test_a_cancelled_caller_stops_the_backend():
    async def work(scripted: ScriptedSession) -> None:
        asking = asyncio.create_task(scripted.complete(at(TEXT)))
        await asyncio.sleep(0.05)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await asyncio.sleep(0.05)

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.02))
    run(scripted, work)
    assert len(scripted.backend.streamed[0]) < 9
    assert [trace.outcome for trace in scripted.traces] == ["cancelled"]


def test_typing_along_is_answered_from_the_suggestion_shown():
    async def work(scripted: ScriptedSession) -> None:
        assert await scripted.texts(at(TEXT)) == ["append(1)"]
        assert await scripted.texts(at(TEXT + "app")) == ["end(1)"]
        assert await scripted.texts(at(TEXT)) == ["append(1)"], "and back"
        assert len(scripted.backend.requests) == 1
        assert await scripted.texts(at(TEXT + "append(1)")) != ["append(1)"]
        assert len(scripted.backend.requests) == 2, "when all of it is typed, what follows is asked for"

    run(ScriptedSession(ScriptedBackend("append(1)", "")), work)


def test_other_words_ask_again_and_carry_what_is_left_of_the_old_ones():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        await scripted.texts(at(TEXT + "apx"))

    scripted = ScriptedSession(ScriptedBackend("append(1)", "y"))
    run(scripted, work)
    assert scripted.backend.requests[1].previous == "pend(1)"


def test_a_change_elsewhere_in_the_document_asks_again():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        await scripted.texts(at("# \n" + TEXT))
        await scripted.texts(at(TEXT + "\n#", cursor=len(TEXT)))

    scripted = ScriptedSession(ScriptedBackend("append(1)"))
    run(scripted, work)
    assert len(scripted.backend.requests) == 3


def test_by_hand_the_first_is_greedy_and_the_others_are_drawn_with_seeds_and_differ():
    async def work(scripted: ScriptedSession) -> None:
        assert await scripted.texts(at(TEXT), wanted=4) == ["append(1)", "pop()", "clear()"]
        assert await scripted.texts(at(TEXT), wanted=1) == ["append(1)"], "one is among them"
        assert len(scripted.backend.requests) == 4

    scripted = ScriptedSession(ScriptedBackend("append(1)", "pop()", "append(1)", "clear()"))
    run(scripted, work)
    assert [asked.temperature for asked in scripted.backend.requests] == [0.0, 0.8, 0.8, 0.8]
    assert len({asked.seed for asked in scripted.backend.requests}) == 4


def test_one_suggestion_remembered_is_not_enough_when_several_are_wanted():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        assert await scripted.texts(at(TEXT), wanted=2) == ["append(1)", "pop()"]

    run(ScriptedSession(ScriptedBackend("append(1)", "append(1)", "pop()")), work)


@pytest.mark.parametrize(
    ("backend", "settings", "snapshot", "reason"),
    [
        (ScriptedBackend("x"), {"completion.enabled": False}, at(TEXT), "disabled"),
        (ScriptedBackend("x"), {"completion.languages_off": ["python"]}, at(TEXT), "language_off"),
        (ScriptedBackend("x"), {"completion.globs_off": ["*.py"]}, at(TEXT), "glob_off"),
        (ScriptedBackend("x"), {"context.max_file_bytes": 5}, at(TEXT), "too_large"),
        (None, {}, at(TEXT), "loading"),
        (ScriptedBackend(EngineError("gone")), {}, at(TEXT), "engine_lost"),
        (ScriptedBackend(ValueError(TEXT)), {}, at(TEXT), "failed"),
        (ScriptedBackend("append(1)", round_s=0.1), {"completion.deadline_ms": 30}, at(TEXT), "deadline"),
    ],
)
def test_nothing_has_a_reason(
    backend: ScriptedBackend | None, settings: dict[str, object], snapshot: Snapshot, reason: str
):
    async def work(scripted: ScriptedSession) -> None:
        assert await scripted.complete(snapshot) == Outcome(reason=reason)
        await asyncio.sleep(0.01)

    scripted = ScriptedSession(backend, **settings)
    run(scripted, work)
    assert [trace.outcome for trace in scripted.traces] == [reason]


def test_a_failure_is_not_remembered():
    async def work(scripted: ScriptedSession) -> None:
        assert await scripted.texts(at(TEXT)) == []
        assert await scripted.texts(at(TEXT)) == ["append(1)"]

    run(ScriptedSession(ScriptedBackend(EngineError("gone"), "append(1)")), work)


def test_at_the_deadline_what_there_is_is_shown():
    async def work(scripted: ScriptedSession) -> None:
        (shown,) = await scripted.texts(at(TEXT))
        assert "append(1234567890)".startswith(shown) and 2 < len(shown) < 17
        await asyncio.sleep(0.05)

    run(ScriptedSession(ScriptedBackend("append(1234567890)", round_s=0.02), **{"completion.deadline_ms": 200}), work)


def test_a_pause_is_waited_for_when_asked_to():
    async def work(scripted: ScriptedSession) -> None:
        first = asyncio.create_task(scripted.complete(at(TEXT)))
        await asyncio.sleep(0.01)
        await scripted.complete(at(TEXT + "p"))
        await first

    scripted = ScriptedSession(ScriptedBackend("op()"), **{"completion.debounce_ms": 60})
    run(scripted, work)
    assert [asked.line_prefix for asked in scripted.backend.requests] == ["items.p"], "the backend never saw the first"


def test_a_closed_document_ends_its_request_and_is_forgotten():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        asking = asyncio.create_task(scripted.complete(at(TEXT + "x")))
        await asyncio.sleep(0.01)
        scripted.session.document_closed(URI)
        assert await asking == Outcome(reason="closed")
        await scripted.texts(at(TEXT))
        assert len(scripted.backend.requests) == 3

    run(ScriptedSession(ScriptedBackend("append(1)", "append(1)", round_s=0.005)), work)


# ── typing along with a stream ────────────────────────────────────────────────────────────────────────────────────────


async def streamed(scripted: ScriptedSession, characters: int, number: int = 0) -> None:
    """Until the backend has said so much of an answer."""
    while len(scripted.backend.streamed) <= number or len(scripted.backend.streamed[number]) < characters:
        await asyncio.sleep(0.001)


def asking(scripted: ScriptedSession, text: str, **options: object) -> asyncio.Task[Outcome]:
    return asyncio.create_task(scripted.complete(at(text, **options)))


def test_a_key_that_agrees_with_what_is_streamed_takes_the_stream_over():
    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, TEXT)
        await streamed(scripted, 5)
        newer = asyncio.create_task(scripted.texts(at(TEXT + "app", version=2)))
        assert await older == Outcome(reason="superseded")
        assert not newer.done(), "the older one is answered at once"
        assert await newer == ["end(1)"]

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1 and scripted.backend.streamed == ["append(1)"]
    assert [(trace.outcome, trace.adopted) for trace in scripted.traces] == [("superseded", False), ("shown", True)]
    assert scripted.metrics.total("adopted_total") == 1
    assert sum(trace.tokens for trace in scripted.traces) == 9, "each round is somebody's"
    assert scripted.metrics.total("predicted_tokens_total") == 9


def test_a_key_ahead_of_the_stream_is_waited_for_and_confirmed_without_a_second_request():
    async def work(scripted: ScriptedSession) -> None:
        asking(scripted, TEXT)
        await streamed(scripted, 2)
        assert await scripted.texts(at(TEXT + "appe", version=2)) == ["nd(1)"]

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.02))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1


def test_a_key_ahead_of_the_stream_that_is_contradicted_ends_it_within_the_round_and_asks_anew():
    async def work(scripted: ScriptedSession) -> None:
        asking(scripted, TEXT)
        await streamed(scripted, 2)
        assert await scripted.texts(at(TEXT + "apx", version=2)) == ["y()"]

    scripted = ScriptedSession(ScriptedBackend("append(1)", "y()", round_s=0.02))
    run(scripted, work)
    assert len(scripted.backend.streamed[0]) <= 4, "the round that contradicts, and perhaps one begun"
    assert scripted.backend.requests[1].previous.startswith("pend"[:1])
    assert scripted.backend.requests[1].line_prefix == "items.apx"


def test_many_keys_one_by_one_need_one_request():
    async def work(scripted: ScriptedSession) -> None:
        said, asked = "append(value)", []
        for typed in range(len(said) - 3):
            asked.append(asking(scripted, TEXT + said[:typed], version=typed))
            await asyncio.sleep(0.006)
        *_, last = [await answer for answer in asked]
        assert [made.text for made in last.suggestions] == [said[len(said) - 4 :]]

    scripted = ScriptedSession(ScriptedBackend("append(value)", round_s=0.01))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1


@given(
    answer=st.text("ab(\n ", min_size=1, max_size=12),
    keys=st.lists(st.tuples(st.text("ab(\n ", min_size=1, max_size=3), st.integers(0, 3)), max_size=4),
)
def test_whatever_is_typed_what_is_shown_is_what_the_backend_said_to_that_text_or_to_its_beginning(
    answer: str, keys: list[tuple[str, int]]
):
    """Every request has one outcome, the last one is not superseded, and nothing is made up."""

    async def work(scripted: ScriptedSession) -> None:
        text, asked = TEXT, [(TEXT, asking(scripted, TEXT))]
        for typed, pause in keys:
            for _ in range(pause):
                await asyncio.sleep(0)
            text += typed
            asked.append((text, asking(scripted, text)))
        outcomes = [(text, await task) for text, task in asked]
        assert outcomes[-1][1].reason != "superseded"
        asked_at = [request.prefix + request.line_prefix for request in scripted.backend.requests]
        for text, outcome in outcomes:
            for made in outcome.suggestions:
                whole = text[: made.start] + made.text
                assert any(text.startswith(start) and start + answer == whole for start in asked_at)
        for start, said in zip(asked_at, scripted.backend.streamed, strict=True):
            assert answer.startswith(said) and start.startswith(TEXT)

    backend = ScriptedBackend(answer)
    backend.status = Status(state="ready", pair="echo")  # whose words are not touched
    run(ScriptedSession(backend), work)


@pytest.mark.parametrize(
    ("remote", "url", "shown"),
    [("", "", 1), ("localhost:1", "http://localhost:1", 1), ("far.example", "https://far.example", 0)],
)
def test_a_far_server_does_not_get_its_words_through_by_calling_itself_echo(remote: str, url: str, shown: int):
    async def work(scripted: ScriptedSession) -> None:
        assert len(await scripted.texts(at(TEXT))) == shown

    backend = ScriptedBackend("\u202eappend(1)")
    backend.status = Status(state="ready", pair="echo", remote=remote)
    run(ScriptedSession(backend, **{"backend.url": url}), work)


@pytest.mark.promise(32)
@pytest.mark.parametrize(("remote", "shown"), [("", 1), ("far.example", 0)])
def test_nothing_leaves_the_machine_while_the_disk_has_not_said_whether_it_may(
    remote: str, shown: int, monkeypatch: pytest.MonkeyPatch
):
    async def hangs(ignored: IgnoreFiles, uri: str, root: str | None) -> IgnoreVerdict:
        return UNREAD

    async def work(scripted: ScriptedSession) -> None:
        assert len(await scripted.texts(at(TEXT))) == shown

    monkeypatch.setattr(IgnoreFiles, "settled", hangs)
    backend = ScriptedBackend("append(1)")
    backend.status = Status(state="ready", pair="x", remote=remote)
    scripted = ScriptedSession(backend)
    run(scripted, work)
    assert len(backend.requests) == shown


def test_when_all_that_comes_has_been_typed_what_follows_is_asked_for():
    async def work(scripted: ScriptedSession) -> None:
        asking(scripted, TEXT)
        await streamed(scripted, 2)
        assert await scripted.texts(at(TEXT + "pop()", version=2)) == ["  # last"]

    scripted = ScriptedSession(ScriptedBackend("pop()", "  # last", round_s=0.005))
    run(scripted, work)
    assert [asked.line_prefix for asked in scripted.backend.requests] == ["items.", "items.pop()"]


def test_the_newer_request_has_a_plan_of_its_own():
    """The older one was for the rest of a line; after the colon is typed, it is a block's turn."""

    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, "for item in items")
        await streamed(scripted, 1)
        assert await scripted.texts(at("for item in items:", version=2)) == ["\n    print(item)\n    use(item)"]
        assert (await older).reason == "superseded"

    scripted = ScriptedSession(ScriptedBackend(":\n    print(item)\n    use(item)\n\nx = 1\n", round_s=0.01))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1


def test_the_newer_request_has_a_deadline_of_its_own():
    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, TEXT)
        await asyncio.sleep(0.15)
        newer = asyncio.create_task(scripted.texts(at(TEXT + "a", version=2)))
        assert (await older).reason == "superseded"
        (shown,) = await newer
        assert len(shown) > 8, "the older one's deadline was over"
        assert "ppend(1234567890)".startswith(shown)

    run(ScriptedSession(ScriptedBackend("append(1234567890)", round_s=0.02), **{"completion.deadline_ms": 290}), work)


def test_a_request_that_the_editor_cancels_first_leaves_its_stream_to_the_next_key():
    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, TEXT)
        await streamed(scripted, 4)
        older.cancel()
        await asyncio.sleep(0.01)
        assert await scripted.texts(at(TEXT + "ap", version=2)) == ["pend(1)"]
        assert older.cancelled()

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1
    assert [trace.outcome for trace in scripted.traces] == ["cancelled", "shown"]


def test_a_request_cancelled_after_the_next_key_was_asked_changes_nothing():
    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, TEXT)
        await streamed(scripted, 4)
        newer = asyncio.create_task(scripted.texts(at(TEXT + "ap", version=2)))
        await asyncio.sleep(0)
        older.cancel()
        assert await newer == ["pend(1)"]

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1


def test_a_stream_that_nobody_reads_ends_with_an_edit_that_disagrees_and_lives_on_with_one_that_agrees():
    async def work(scripted: ScriptedSession) -> None:
        for edit, rounds in (("x", 1), ("a", 5)):
            number = len(scripted.backend.streamed)
            older = asking(scripted, TEXT)
            await streamed(scripted, 3, number)
            older.cancel()
            await asyncio.sleep(0)
            said = len(scripted.backend.streamed[number])
            scripted.session.document_changed(URI, captured(TEXT + edit, version=2))
            await asyncio.sleep(0.07)
            if edit == "x":
                assert len(scripted.backend.streamed[number]) <= said + rounds
            else:
                assert len(scripted.backend.streamed[number]) >= said + rounds
        assert await scripted.texts(at(TEXT + "ap", version=3)) == ["pend(12345678)"]

    scripted = ScriptedSession(ScriptedBackend("append(12345678)", round_s=0.01))
    run(scripted, work)
    assert [asked.max_tokens > 0 for asked in scripted.backend.requests].count(True) == 2


def test_what_a_stream_without_a_reader_came_to_is_known_when_it_is_asked_for():
    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, TEXT)
        await streamed(scripted, 3)
        older.cancel()
        await asyncio.sleep(0.025)
        assert scripted.backend.streamed == ["pop()"]
        assert await scripted.texts(at(TEXT)) == ["pop()"]

    scripted = ScriptedSession(ScriptedBackend("pop()", round_s=0.001))
    run(scripted, work)
    assert len(scripted.backend.requests) == 1 and scripted.traces[-1].reused


def test_a_stream_is_not_taken_over_under_other_settings_or_for_a_text_changed_elsewhere():
    async def work(scripted: ScriptedSession) -> None:
        asking(scripted, TEXT)
        await streamed(scripted, 3)
        scripted.session.apply_config(scripted.session.config)
        asking(scripted, TEXT + "a", version=2)
        await streamed(scripted, 3, number=1)
        assert await scripted.texts(at("# \n" + TEXT + "ap", version=3))

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    run(scripted, work)
    assert len(scripted.backend.requests) == 3


# ── reading ahead ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_pause_the_prompt_is_read_ahead_as_the_request_will_have_it():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        await asyncio.sleep(0.05)
        assert not scripted.session.busy
        await scripted.texts(at(TEXT + "x"))

    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    run(scripted, work)
    _, ahead, asked = scripted.backend.requests
    assert ahead.max_tokens == 0 and asked.max_tokens > 0
    assert (ahead.prefix, ahead.line_prefix, ahead.suffix) == (asked.prefix, asked.line_prefix, asked.suffix)
    assert ahead.session == asked.session and ahead.extra == asked.extra and ahead.path == asked.path
    assert scripted.metrics.total("prefill_ahead_total") == 1


def test_a_request_in_the_same_millisecond_and_a_further_key_leave_nothing_to_read_ahead():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        scripted.session.document_changed(URI, captured(TEXT + "xy", version=2))
        await scripted.texts(at(TEXT + "xy"))
        await asyncio.sleep(0.03)

    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    run(scripted, work)
    assert [asked.max_tokens > 0 for asked in scripted.backend.requests] == [True, True]


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
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(uri, lambda: CompletionInput(at(text, uri=uri)))
        await asyncio.sleep(0.03)

    scripted = ScriptedSession(ScriptedBackend("pop()"), **settings)
    run(scripted, work)
    assert len(scripted.backend.requests) == 1


def test_nothing_is_read_ahead_where_that_is_of_no_use():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.backend.reads_ahead = False
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        await asyncio.sleep(0.03)
        scripted.backend.reads_ahead = True
        for number in range(MAX_UNREQUESTED + 5):  # somebody who types on and never asks
            scripted.session.document_changed(URI, captured(TEXT + "x" * number, version=2))
            await asyncio.sleep(0.01)

    scripted = ScriptedSession(ScriptedBackend("pop()", ""))
    run(scripted, work)
    assert len(scripted.backend.requests) <= 1 + MAX_UNREQUESTED


def test_nothing_is_read_ahead_for_an_engine_that_is_asleep_and_a_question_is_asked_all_the_same():
    async def work(scripted: ScriptedSession) -> None:
        scripted.backend.status = Status(state="asleep")
        scripted.session._prefill_ahead.request_arrived(URI)
        scripted.session.document_changed(URI, lambda: CompletionInput(at(TEXT)))
        await asyncio.sleep(0.05)
        assert scripted.backend.requests == [], "nothing but a question wakes it"
        assert await scripted.texts(at(TEXT)) == ["append(1)"]

    run(ScriptedSession(ScriptedBackend("append(1)")), work)


def test_what_the_draft_said_alone_is_shown_while_the_target_loads_and_never_again():
    alone = Status(state="loading", draft_only=True)

    async def work(scripted: ScriptedSession) -> None:
        scripted.backend.status = alone
        assert await scripted.texts(at(TEXT)) == ["append(1)"]
        assert await scripted.texts(at(TEXT)) == ["append(1)"], "as long as there is nothing better"
        assert [trace.draft_only for trace in scripted.traces] == [True, False] and scripted.traces[1].reused
        under_way = asyncio.create_task(scripted.texts(at(TEXT + "x", version=2)))
        await asyncio.sleep(0.01)
        scripted.backend.status = Status(state="ready", target="the target")
        scripted.session.discard_answers()  # as the server does then
        assert await under_way == ["late"], "who waited for it gets it"
        assert await scripted.texts(at(TEXT + "x", version=2)) == ["better"]
        assert await scripted.texts(at(TEXT, version=3)) == ["best"]
        assert [trace.draft_only for trace in scripted.traces[2:]] == [True, False, False]

    scripted = ScriptedSession(ScriptedBackend("append(1)", "late", "better", "best", round_s=0.01))
    run(scripted, work)
    assert len(scripted.backend.requests) == 4


def test_what_goes_wrong_while_reading_ahead_is_nobodys_business():
    async def work(scripted: ScriptedSession) -> None:
        await scripted.texts(at(TEXT))
        scripted.session.document_changed(URI, captured(TEXT + "x", version=2))
        while len(scripted.backend.requests) < 2:
            await asyncio.sleep(0.005)
        assert await scripted.texts(at(TEXT + "x")) == ["y()"]

    run(ScriptedSession(ScriptedBackend("pop()", EngineError("gone"), "y()")), work)


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
    cache = AnswerCache()
    cache.store(at(before + after, len(before)), [shown], wanted=1)
    later = at(before + typed + after, len(before + typed))
    recalled = cache.lookup(later, 1)
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
    cache = AnswerCache()
    shown = at(before + "|" + "tail", len(before) + 1)
    cache.store(shown, [Suggestion("aaaa", shown.cursor, shown.cursor)], wanted=1)
    for text in (other + before + "|" + typed + "tail", before + "|" + typed + "tail" + other):
        later = at(text, text.index("tail"))
        if cache.lookup(later, 1) is not None:
            assert other == "" or text == before + "|" + typed + "tail"


def test_only_the_last_few_answers_are_remembered():
    cache = AnswerCache()
    for number in range(20):
        cache.store(at("x" * number), [Suggestion("y", number, number)], wanted=1)
    assert cache.lookup(at("x" * 19), 1) is not None
    assert cache.lookup(at("x" * 3), 1) is None


def test_windows_newlines_are_plain_ones_in_what_is_drafted_from():
    cache = AnswerCache()
    cache.store(at("a"), [Suggestion("b\r\nc\rd", 1, 1)], wanted=1)
    assert cache.draft_hint(at("aX")) == "b\nc\nd"


# ── eagerness ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_low_waits_for_a_pause_and_asks_once():
    async def work(scripted: ScriptedSession) -> None:
        start = time.perf_counter()
        typed = [TEXT + "x" * count for count in range(5)]
        asked = [asyncio.create_task(scripted.complete(at(text, version=n))) for n, text in enumerate(typed)]
        outcomes = await asyncio.gather(*asked)
        assert [outcome.reason for outcome in outcomes] == ["superseded"] * 4 + [""]
        assert time.perf_counter() - start >= 0.9 * LOW_PAUSE_MS / 1000
        assert len(scripted.backend.requests) == 1

    run(ScriptedSession(ScriptedBackend("append(1)"), **{"completion.eagerness": "low"}), work)


def test_by_hand_low_is_like_medium_whatever_was_answered_before():
    block = "def f():\n    "
    middle = at("total =  + tax", 8)

    async def work(scripted: ScriptedSession) -> None:
        (alone,) = await scripted.texts(at(block))
        assert alone == "a = 1"
        (by_hand,) = (await scripted.complete(at(block), by_hand=True)).suggestions
        assert by_hand.text.count("\n") == 1
        assert (await scripted.complete(middle)).reason == "mid_line"
        assert (await scripted.complete(middle, by_hand=True)).suggestions

    run(
        ScriptedSession(
            ScriptedBackend("a = 1\n    b = 2\n\n\n"), **{"completion.eagerness": "low", "completion.alternatives": 1}
        ),
        work,
    )


def test_a_setting_holds_from_the_next_request_on():
    async def work(scripted: ScriptedSession) -> None:
        place = at("total =  + tax", 8)
        assert (await scripted.complete(place)).suggestions
        scripted.session.apply_config(parse({"completion.eagerness": "low"}, scripted.session.config)[0])
        assert (await scripted.complete(place)).reason == "mid_line"
        scripted.session.apply_config(parse({"completion.eagerness": "medium"}, scripted.session.config)[0])
        assert (await scripted.complete(place)).suggestions

    run(ScriptedSession(ScriptedBackend("net")), work)


def test_an_answer_begun_under_other_settings_is_given_and_not_remembered():
    async def work(scripted: ScriptedSession) -> None:
        older = asking(scripted, TEXT)
        await streamed(scripted, 3)
        scripted.session.apply_config(parse({"completion.multiline": "never"}, scripted.session.config)[0])
        assert (await older).suggestions
        await scripted.texts(at(TEXT))

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.005))
    run(scripted, work)
    assert len(scripted.backend.requests) == 2 and not scripted.traces[-1].reused


# ── for the menu and inline at once ───────────────────────────────────────────────────────────────────────────────────


def test_an_editor_that_asks_for_its_menu_and_inline_gets_both_from_one_completion():
    async def work(scripted: ScriptedSession) -> None:
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

    run(ScriptedSession(ScriptedBackend("append(1)", round_s=0.01)), work)


@pytest.mark.parametrize("gives_up", [0, 1])
def test_of_menu_and_inline_one_may_give_up_and_the_other_is_answered(gives_up: int):
    async def work(scripted: ScriptedSession) -> None:
        both = []
        for menu in (False, True):
            both.append(asyncio.create_task(scripted.complete(at(TEXT), menu=menu)))
            await asyncio.sleep(0.02)
        both[gives_up].cancel()
        assert [one.text for one in (await both[1 - gives_up]).suggestions] == ["append(1)"]
        assert both[gives_up].cancelled() and scripted.backend.streamed == ["append(1)"]

    scripted = ScriptedSession(ScriptedBackend("append(1)", round_s=0.01))
    run(scripted, work)
    assert [trace.outcome for trace in scripted.traces] == ["shown"]


def test_when_menu_and_inline_both_give_up_the_engine_stops():
    async def work(scripted: ScriptedSession) -> None:
        both = []
        for menu in (False, True):
            both.append(asyncio.create_task(scripted.complete(at(TEXT), menu=menu)))
            await asyncio.sleep(0.02)
        for one in both:
            one.cancel()
        await asyncio.wait(both)
        await asyncio.sleep(0.2)
        assert all(one.cancelled() for one in both) and 0 < len(scripted.backend.streamed[0]) < len("append(1)" * 9)

    scripted = ScriptedSession(ScriptedBackend("append(1)" * 9, round_s=0.01))
    run(scripted, work)
    assert [trace.outcome for trace in scripted.traces] == ["cancelled"]


# ── what a trace tells ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_trace_tells_when_a_request_came_how_long_it_took_and_what_of_it_was_the_engine():
    async def work(scripted: ScriptedSession) -> None:
        before_ms = time.monotonic() * 1000
        await scripted.complete(at(TEXT), id="7")
        after_ms = time.monotonic() * 1000
        await scripted.complete(at(TEXT), id=8)
        slow = asyncio.create_task(scripted.complete(at(TEXT + "y")))
        await asyncio.sleep(0.1)
        await scripted.complete(at(TEXT + "zz"))
        await slow
        asked, reused, superseded, _ = scripted.traces
        assert asked.request == "7" and before_ms <= asked.at_ms <= after_ms
        assert 9 * 15 <= asked.engine_ms <= asked.total_ms <= after_ms - before_ms
        assert asked.total_ms - asked.engine_ms >= asked.parse_ms + asked.context_ms - 0.01
        assert reused.request == 8 and reused.reused and reused.engine_ms == 0
        assert superseded.outcome == "superseded" and 0 < superseded.engine_ms <= superseded.total_ms

    run(ScriptedSession(ScriptedBackend("append(1)", round_s=0.02)), work)


def test_requests_that_come_together_are_all_read_before_a_text_is_worked_on_and_then_one_in_a_turn_of_the_loop(
    monkeypatch: pytest.MonkeyPatch,
):
    """The loop takes a message in each of its turns: so a small question never waits for more than one text."""
    monkeypatch.setattr("speclsp.lsp.completion.session.DRAIN_S", 60.0)
    turn, worked = 0, list[int]()

    async def work(scripted: ScriptedSession) -> None:
        plan = scripted.session.pipeline._plan

        def noted(*arguments: object) -> object:
            worked.append(turn)
            return plan(*arguments)

        async def turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        scripted.session.pipeline._plan = noted
        counting, asked = asyncio.create_task(turns()), []
        for number in range(20):
            asked.append(asyncio.create_task(scripted.texts(at(TEXT, uri=f"file:///{number}.py"))))
            await asyncio.sleep(0)
        all_read = turn
        assert await asyncio.gather(*asked) == [["a"]] * 20
        assert worked[0] > all_read and len(set(worked)) == 20
        counting.cancel()
        await asyncio.wait([counting])

    run(ScriptedSession(ScriptedBackend("a")), work)
