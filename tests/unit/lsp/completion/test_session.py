"""One outcome per request: the newest request wins, and every empty answer has a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, at, until

from speclsp.errors import EngineError
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion.job import Outcome
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess import plan as postprocess
from speclsp.lsp.visibility.ignore_files import UNREAD, IgnoreFiles, IgnoreVerdict

ENDLESS = "append(" + "1" * 20_000  # no machine is so busy that it ends before it is closed


async def test_a_request_returns_the_backends_answer():
    scripted = ScriptedSession(ScriptedBackend("append(1)"))
    assert await scripted.texts(at(TEXT)) == ["append(1)"]
    (request,), (trace,) = scripted.backend.requests, scripted.traces
    assert request.prefix + request.line_prefix == TEXT and request.suffix == ""
    assert request.line_prefix == "items." and request.temperature == 0 and request.previous == ""
    assert (trace.outcome, trace.tokens, trace.rounds, trace.drafted, trace.accepted) == ("shown", 9, 9, 18, 9)
    assert trace.by_source == {"ngram": {"drafted": 18, "accepted": 9}}
    assert scripted.session.last_latency_ms == trace.total_ms


async def test_the_stream_is_closed_as_soon_as_the_text_is_finished():
    scripted = ScriptedSession(
        ScriptedBackend("append(1)\nitems.append(2)\nitems.append(3)\n" * 9), **{"completion.multiline": "never"}
    )
    assert await scripted.texts(at(TEXT)) == ["append(1)"]
    assert len(scripted.backend.streamed[0]) < 20


async def test_a_newer_request_for_the_same_document_ends_the_older_one_at_once():
    scripted = ScriptedSession(ScriptedBackend(ENDLESS, "append(1)", round_s=0.005))
    older = asyncio.create_task(scripted.complete(at(TEXT)))
    await until(lambda: scripted.backend.streamed and scripted.backend.streamed[0])
    elsewhere = asyncio.create_task(scripted.complete(at(TEXT, uri="file:///b.py")))
    newer = asyncio.create_task(scripted.complete(at(TEXT + "x", version=2)))
    assert await older == Outcome(reason="superseded")
    assert (await newer).suggestions and (await elsewhere).suggestions
    assert len(scripted.backend.streamed[0]) < len(ENDLESS), "its stream was closed"
    assert [trace.outcome for trace in scripted.traces] == ["superseded", "shown", "shown"]


async def test_a_cancelled_caller_stops_the_backend():
    scripted, own_tasks = ScriptedSession(ScriptedBackend(ENDLESS, round_s=0.005)), asyncio.all_tasks()
    asking = asyncio.create_task(scripted.complete(at(TEXT)))
    await until(lambda: scripted.backend.streamed and scripted.backend.streamed[0])
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    await until(lambda: asyncio.all_tasks() <= own_tasks)
    assert len(scripted.backend.streamed[0]) < len(ENDLESS)
    assert [trace.outcome for trace in scripted.traces] == ["cancelled"]


async def test_typing_through_a_suggestion_is_answered_from_the_cache():
    scripted = ScriptedSession(ScriptedBackend("append(1)", ""))
    assert await scripted.texts(at(TEXT)) == ["append(1)"]
    assert await scripted.texts(at(TEXT + "app")) == ["end(1)"]
    assert await scripted.texts(at(TEXT)) == ["append(1)"], "and back"
    assert len(scripted.backend.requests) == 1
    assert await scripted.texts(at(TEXT + "append(1)")) != ["append(1)"]
    assert len(scripted.backend.requests) == 2, "when all of it is typed, what follows is asked for"


async def test_one_cached_suggestion_does_not_answer_a_request_for_several():
    scripted = ScriptedSession(ScriptedBackend("append(1)", "append(1)", "pop()"))
    await scripted.texts(at(TEXT))
    assert await scripted.texts(at(TEXT), wanted=2) == ["append(1)", "pop()"]


@pytest.mark.parametrize(
    ("backend", "settings", "snapshot", "reason"),
    [
        (ScriptedBackend("x"), {"completion.enabled": False}, at(TEXT), "disabled"),
        (ScriptedBackend("x"), {"completion.disabled_languages": ["python"]}, at(TEXT), "language_off"),
        (ScriptedBackend("x"), {"completion.disabled_globs": ["*.py"]}, at(TEXT), "glob_off"),
        (ScriptedBackend("x"), {"context.max_file_bytes": 5}, at(TEXT), "too_large"),
        (None, {}, at(TEXT), "loading"),
        (ScriptedBackend(EngineError("gone")), {}, at(TEXT), "engine_lost"),
        (ScriptedBackend(ValueError(TEXT)), {}, at(TEXT), "failed"),
        (ScriptedBackend("append(1)", round_s=0.1), {"completion.timeout_ms": 30}, at(TEXT), "deadline"),
    ],
)
async def test_an_empty_answer_has_a_reason(
    backend: ScriptedBackend | None, settings: dict[str, object], snapshot: Snapshot, reason: str
):
    scripted = ScriptedSession(backend, **settings)
    assert await scripted.complete(snapshot) == Outcome(reason=reason)
    await asyncio.sleep(0.01)
    assert [trace.outcome for trace in scripted.traces] == [reason]


async def test_a_failure_is_not_cached():
    scripted = ScriptedSession(ScriptedBackend(EngineError("gone"), "append(1)"))
    assert await scripted.texts(at(TEXT)) == []
    assert await scripted.texts(at(TEXT)) == ["append(1)"]


async def test_at_the_deadline_the_text_so_far_is_shown_as_far_as_it_is_whole():
    statements, settings = "a();" + " b();" * 20, {"completion.timeout_ms": 200}
    (shown,) = await ScriptedSession(ScriptedBackend(statements, round_s=0.02), **settings).texts(at(TEXT))
    assert statements.startswith(shown) and shown.endswith(";") and len(shown) < len(statements)
    expression = ScriptedSession(ScriptedBackend("append(1234567890)", round_s=0.02), **settings)
    assert await expression.texts(at(TEXT)) == [], "the half of a call means something else"
    await asyncio.sleep(0.05)


async def test_closing_a_document_ends_its_request_and_forgets_its_answers():
    scripted = ScriptedSession(ScriptedBackend("append(1)", "append(1)", round_s=0.005))
    await scripted.texts(at(TEXT))
    asking = asyncio.create_task(scripted.complete(at(TEXT + "x")))
    await asyncio.sleep(0.01)
    scripted.session.document_closed(URI)
    assert await asking == Outcome(reason="closed")
    await scripted.texts(at(TEXT))
    assert len(scripted.backend.requests) == 3


@pytest.mark.parametrize(
    ("remote", "url", "shown"),
    [("", "", 1), ("localhost:1", "http://localhost:1", 1), ("far.example", "https://far.example", 0)],
)
async def test_a_remote_server_that_calls_itself_echo_is_still_post_processed(remote: str, url: str, shown: int):
    backend = ScriptedBackend("\u202eappend(1)")
    backend.status = Status(state="ready", model="echo", remote=remote)
    scripted = ScriptedSession(backend, **{"remote.url": url})
    assert len(await scripted.texts(at(TEXT))) == shown


@pytest.mark.promise(32)
@pytest.mark.parametrize(("remote", "shown"), [("", 1), ("far.example", 0)])
async def test_nothing_is_sent_to_a_remote_server_while_the_ignore_files_are_unread(
    remote: str, shown: int, monkeypatch: pytest.MonkeyPatch
):
    async def hangs(ignored: IgnoreFiles, uri: str, root: str | None) -> IgnoreVerdict:
        return UNREAD

    monkeypatch.setattr(IgnoreFiles, "settled", hangs)
    backend = ScriptedBackend("append(1)")
    backend.status = Status(state="ready", model="x", remote=remote)
    scripted = ScriptedSession(backend)
    assert len(await scripted.texts(at(TEXT))) == shown
    assert len(backend.requests) == shown


async def test_queued_requests_are_read_before_work_begins_and_one_text_is_parsed_per_loop_turn(
    monkeypatch: pytest.MonkeyPatch,
):
    """The event loop reads one message per turn, so a cheap request never waits for more than one text."""
    monkeypatch.setattr("speclsp.lsp.completion.session.DRAIN_S", 60.0)
    scripted, turn, worked = ScriptedSession(ScriptedBackend("a")), 0, list[int]()
    plan = postprocess.plan

    def noted(*arguments: Any, **options: Any) -> object:
        worked.append(turn)
        return plan(*arguments, **options)

    async def turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    monkeypatch.setattr(postprocess, "plan", noted)
    counting, tasks = asyncio.create_task(turns()), []
    for number in range(20):
        tasks.append(asyncio.create_task(scripted.texts(at(TEXT, uri=f"file:///{number}.py"))))
        await asyncio.sleep(0)
    all_read = turn
    assert await asyncio.gather(*tasks) == [["a"]] * 20
    assert worked[0] > all_read and len(set(worked)) == 20
    counting.cancel()
    await asyncio.wait([counting])
