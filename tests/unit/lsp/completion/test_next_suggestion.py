"""The next suggestion is prepared while one is shown, as if it were accepted; any other edit ends the preparation."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
from async_tests import run
from hypothesis import given, settings
from hypothesis import strategies as st
from support.lsp.scripted_session import TEXT, URI, ScriptedBackend, ScriptedSession, TokenBackend, at, captured, until

from speclsp.config import CompletionConfig
from speclsp.lsp.backend.types import Status
from speclsp.lsp.completion import next_suggestion, pipeline
from speclsp.lsp.completion.job import CompletionInput
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.postprocess.plan import Suggestion

FIRST, SECOND = "append(1)", "\nitems.pop()"
ACCEPTED = TEXT + FIRST


@pytest.fixture(autouse=True)
def short_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Preparations begin after 10 ms."""
    monkeypatch.setattr(next_suggestion, "PAUSE_S", 0.01)


@asynccontextmanager
async def preparing(backend: ScriptedBackend, **settings: object) -> AsyncIterator[ScriptedSession]:
    """A session that is closed at the end."""
    scripted = ScriptedSession(backend, **settings)
    yield scripted
    scripted.close()
    await asyncio.sleep(0.02)


async def closing(work: Callable[[ScriptedSession], Awaitable[object]], *backend: Any, **settings: object) -> None:
    """Do `work` in a session that is closed at the end: an example of a law."""
    async with preparing(*backend, **settings) as scripted:
        await work(scripted)


async def prepared(scripted: ScriptedSession, requests: int = 2) -> None:
    """Wait until the first suggestion is shown, and the next one is prepared."""
    assert await scripted.texts(at(TEXT)) == [FIRST]
    await until(lambda: len(scripted.backend.requests) == requests and not busy(scripted))


def busy(scripted: ScriptedSession) -> bool:
    preparation = scripted.session.next_suggestion.get(URI)
    return preparation is not None and (preparation.job is None or not preparation.job.task.done())


def idle(scripted: ScriptedSession) -> list[str]:
    """The texts that were completed without a caller."""
    return [request.prefix + request.line_prefix for request in scripted.backend.requests if request.idle]


async def test_accepting_shows_the_prepared_suggestion_without_a_new_request() -> None:
    async with preparing(ScriptedBackend(FIRST, SECOND)) as scripted:
        await prepared(scripted)
        scripted.session.document_changed(URI, captured(ACCEPTED))
        assert await scripted.texts(at(ACCEPTED)) == [SECOND]
        assert len(scripted.backend.requests) == 2
    assert idle(scripted) == [ACCEPTED], "the document with the suggestion accepted"
    assert [trace.outcome for trace in scripted.traces] == ["shown", "shown"], "a preparation is not a request"
    assert [trace.prepared for trace in scripted.traces] == [False, True]


async def test_accepting_during_the_preparation_adopts_its_stream() -> None:
    async with preparing(ScriptedBackend(FIRST, SECOND, round_s=0.01)) as scripted:
        assert await scripted.texts(at(TEXT)) == [FIRST]
        await until(lambda: len(scripted.backend.streamed) == 2 and len(scripted.backend.streamed[1]) > 2)
        scripted.session.document_changed(URI, captured(ACCEPTED))
        assert await scripted.texts(at(ACCEPTED)) == [SECOND]
        assert len(scripted.backend.requests) == 2 and scripted.traces[-1].adopted and scripted.traces[-1].prepared


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(["x", "ax", "append(2", "\n", ""]), st.booleans(), st.booleans())
def test_any_other_edit_closes_the_preparations_stream_within_a_round(
    typed: str, elsewhere: bool, continues: bool
) -> None:
    """`continues`: the preparation continues the stream of a first line."""
    text = ("# \n" if elsewhere or not typed else "") + TEXT + typed

    async def work(scripted: ScriptedSession) -> None:
        reports = scripted.grown
        assert await scripted.texts(at(TEXT)) == [FIRST]
        await until(lambda: len(scripted.backend.streamed) == 2 and scripted.backend.streamed[1])
        scripted.session.document_changed(URI, captured(text))
        streamed_characters = len(scripted.backend.streamed[1])
        await asyncio.sleep(0.02)
        assert len(scripted.backend.streamed[1]) <= streamed_characters + 1, "the engine was stopped"
        assert scripted.session.cache.lookup(at(ACCEPTED), 1) is None, "half an answer is none"
        assert reports == [] and scripted.session.cache.lookup(at(TEXT), 1) is not None, "the first line stays"

    whole = ScriptedBackend(FIRST, "\n" + "x" * 400, round_s=0.002)
    run(closing(work, TokenBackend(DOCUMENT, round_s=0.002) if continues else whole))


async def test_keys_that_agree_delay_the_preparation_until_typing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_suggestion, "PAUSE_S", 0.2)
    async with preparing(ScriptedBackend(FIRST, SECOND)) as scripted:
        assert await scripted.texts(at(TEXT)) == [FIRST]
        for end in range(1, len(FIRST)):
            await asyncio.sleep(0.05)
            scripted.session.document_changed(URI, captured(TEXT + FIRST[:end]))
            assert await scripted.texts(at(TEXT + FIRST[:end])) == [FIRST[end:]]
        assert len(FIRST) * 0.05 > 0.2 and idle(scripted) == []
        await until(lambda: idle(scripted) == [ACCEPTED])


async def test_a_preempted_preparation_is_not_shown_and_is_requested_again() -> None:
    class Interrupted(ScriptedBackend):
        async def stream(self, request):
            async for piece in super().stream(request):
                if request.idle and piece.cost is not None:
                    piece = replace(piece, cost=replace(piece.cost, stop_type="cancelled"))
                yield piece

    async with preparing(Interrupted(FIRST, "\nitems", "\nitems.clear()")) as scripted:
        await prepared(scripted)
        assert await scripted.texts(at(ACCEPTED)) == ["\nitems.clear()"]


async def test_typing_on_after_a_preparation_only_appends_to_the_prompt() -> None:
    long = "".join(f"def f{number}():\n    return {number}\n\n\n" for number in range(600)) + TEXT
    async with preparing(ScriptedBackend(FIRST + "\nitems.", SECOND), **{"completion.multiline": "always"}) as scripted:
        assert await scripted.texts(at(long)) == [FIRST + "\nitems."]
        await until(lambda: len(scripted.backend.requests) == 2 and not busy(scripted))
        await scripted.texts(at(long + "x"))
        before, _, after = scripted.backend.requests
        assert (after.prefix, after.extra, after.suffix) == (before.prefix, before.extra, before.suffix)
        assert after.line_prefix == before.line_prefix + "x"


async def test_closing_the_document_or_new_settings_end_the_preparation() -> None:
    async with preparing(ScriptedBackend(FIRST, "\n" + "y" * 400, FIRST, "\n" + "y" * 400, round_s=0.002)) as scripted:
        for end in (
            lambda: scripted.session.document_closed(URI),
            lambda: scripted.session.apply_config(scripted.session.config),
        ):
            requests = len(scripted.backend.requests)
            await scripted.texts(at(TEXT))
            await until(lambda: len(scripted.backend.requests) == requests + 2 and scripted.backend.streamed[-1])  # noqa: B023
            end()
            streamed_characters = len(scripted.backend.streamed[-1])
            await asyncio.sleep(0.03)
            assert len(scripted.backend.streamed[-1]) <= streamed_characters + 1


@given(st.text("ab(\n", max_size=8), st.text("ab)\n", max_size=8), st.text("ab(", min_size=1, max_size=6), st.data())
def test_every_beginning_of_accepting_is_on_track_and_no_other_text_is(
    before: str, after: str, new: str, data: st.DataObject
) -> None:
    swallowed = data.draw(st.integers(0, len(after.partition("\n")[0])))
    here = Snapshot(URI, "python", 1, before + after, len(before))
    suggestion = Suggestion(new, len(before), len(before) + swallowed)
    then = next_suggestion.accepted(here, suggestion)
    assert then.text == before + new + after[swallowed:] and then.text[: then.cursor] == before + new
    preparation = next_suggestion.Preparation(here, CompletionInput(then), timer=None)
    for accepted_characters in range(len(new) + 1):
        now = replace(here, text=before + new[:accepted_characters] + after, cursor=len(before) + accepted_characters)
        assert preparation.still_on_track(now)
    assert preparation.still_on_track(then)
    assert not preparation.still_on_track(replace(then, text=then.text + "!"))
    assert not preparation.still_on_track(replace(here, text=before + "?" + after, cursor=len(before) + 1))


# ── further lines that join a first line ─────────────────────────────────────────────────────────────────────────────

LINES = ("append(1)", "items.pop()", "items.sort()")
JOINED = "\n".join(LINES)
DOCUMENT = f"{TEXT}{JOINED}\n\n\nother"


def continued(scripted: ScriptedSession) -> list[str]:
    """The forced first tokens of the requests that continued a first line."""
    return ["".join(map(chr, request.begin)) for request in scripted.backend.requests if request.begin]


async def under_way(scripted: ScriptedSession, characters: int) -> None:
    """Wait until the first line is shown, and its stream is continued by so many characters."""
    assert await scripted.texts(at(TEXT)) == [FIRST]
    await until(lambda: len(scripted.backend.streamed) == 2 and len(scripted.backend.streamed[1]) >= characters)


async def test_sure_lines_join_the_first_line_and_the_prompt_is_not_prefilled_again() -> None:
    async with preparing(TokenBackend(DOCUMENT)) as scripted:
        reports = scripted.grown
        assert await scripted.texts(at(TEXT, version=7)) == [FIRST], "the first line does not wait"
        await until(lambda: reports)
        assert [report.input.snapshot for report in reports] == [at(TEXT, version=7)]
        assert await scripted.texts(at(TEXT, version=7)) == [JOINED]
    first, further = scripted.backend.requests
    assert replace(further, begin=(), idle=False, max_tokens=0, deadline_ms=0, previous="") == replace(
        first, max_tokens=0, deadline_ms=0, previous=""
    ), "the engine has its prompt in the cache"
    assert further.idle and continued(scripted) == [FIRST + "\n"]
    assert scripted.traces[-1].reused


async def test_accepting_the_first_line_after_lines_have_joined_it_offers_them_without_new_work() -> None:
    async with preparing(TokenBackend(DOCUMENT)) as scripted:
        await prepared(scripted)
        scripted.session.document_changed(URI, captured(ACCEPTED))
        assert await scripted.texts(at(ACCEPTED)) == ["\n" + "\n".join(LINES[1:])]
        assert len(scripted.backend.requests) == 2 and scripted.traces[-1].prepared


@pytest.mark.parametrize("characters", [0, 5, 14])
async def test_accepting_the_first_line_while_lines_are_under_way_adopts_their_stream(characters: int) -> None:
    async with preparing(TokenBackend(DOCUMENT, round_s=0.003)) as scripted:
        reports = scripted.grown
        await under_way(scripted, characters)
        scripted.session.document_changed(URI, captured(ACCEPTED))
        assert await scripted.texts(at(ACCEPTED)) == ["\n" + LINES[1]]
        assert len(scripted.backend.requests) == 2 and scripted.traces[-1].adopted and reports == []


async def test_lines_that_are_not_sure_enough_do_not_join_but_the_next_line_is_ready() -> None:
    logprobs = {1: -0.4 / len(FIRST), 2: -0.4 / len(LINES[1]), 3: -2.0}
    async with preparing(TokenBackend(DOCUMENT, logprobs), **{"completion.min_confidence": 0.5}) as scripted:
        reports = scripted.grown
        await prepared(scripted)
        assert reports == [] and await scripted.texts(at(TEXT)) == [FIRST]
        scripted.session.document_changed(URI, captured(ACCEPTED))
        assert await scripted.texts(at(ACCEPTED)) == ["\n" + LINES[1]], "judged as a first line"
        assert len(scripted.backend.requests) == 2 and scripted.traces[-1].prepared


async def test_the_forced_tokens_keep_the_log_probabilities_that_they_had() -> None:
    """The engine reports forced tokens as certain: an unsure first line must not become sure."""
    logprobs = {1: -0.3 / len(FIRST), 2: -0.3 / len(LINES[1]), 3: -9.0}  # together below 0.6, each of them above
    async with preparing(TokenBackend(DOCUMENT, logprobs), **{"completion.min_confidence": 0.62}) as scripted:
        await prepared(scripted)
        assert await scripted.texts(at(TEXT)) == [FIRST]


HEADER, BODY = "def total_of(items):\n    ", "total = 0\n    count = 1\n    return total"


@pytest.mark.parametrize(
    ("block_ms", "follows_growth", "automatic", "settings", "shown"),
    [
        (1, True, True, {}, "total = 0"),
        (60_000, True, True, {}, BODY),
        (1, False, True, {}, BODY),
        (1, True, False, {}, BODY),
        (1, True, True, {"completion.prefetch_next": False}, BODY),
        (1, True, True, {"completion.eagerness": "low"}, BODY),
    ],
)
async def test_a_block_that_takes_long_shows_its_first_line_and_the_further_lines_join_it(
    monkeypatch: pytest.MonkeyPatch,
    block_ms: int,
    follows_growth: bool,
    automatic: bool,
    settings: dict[str, object],
    shown: str,
) -> None:
    """A block is shown whole if it is ready in time, by hand, and where no lines would join it."""
    monkeypatch.setattr(pipeline, "BLOCK_SHARE", block_ms / CompletionConfig().timeout_ms)
    backend = TokenBackend(f"{HEADER}{BODY}\n\n\nother = 1\n", round_s=0.002)
    async with preparing(backend, follows_growth=follows_growth, **settings) as scripted:
        reports = scripted.grown
        outcome = await scripted.complete(at(HEADER), automatic=automatic)
        assert [suggestion.text for suggestion in outcome.suggestions] == [shown]
        assert scripted.traces[0].engine_ms > len(shown), "the time of its rounds is the engine's"
        if shown != BODY:
            await until(lambda: reports)
            assert await scripted.texts(at(HEADER)) == [BODY]
            assert continued(scripted) == ["total = 0\n"], "the engine goes on from the tokens that it has"


@given(
    st.lists(st.sampled_from(("a()", "if b:", "    c()", "d = [", "]", "", "items.append(1)")), max_size=6),
    st.lists(st.floats(-2.0, 0.0), min_size=7, max_size=7),
    st.sampled_from((TEXT, "def f():\n    x = ", "# ", "")),
    st.sampled_from(("medium", "high")),
)
@settings(max_examples=60, deadline=None)
def test_the_first_line_is_the_beginning_of_the_joined_text_and_no_other_document_gets_it(
    further: list[str], line_logprobs: list[float], text: str, eagerness: str
) -> None:
    document = text + "\n".join(["append(1)", *further, "", "", "end"])
    first_number = text.count("\n")
    logprobs = {first_number + number: logprob / 10 for number, logprob in enumerate(line_logprobs)}

    async def work(scripted: ScriptedSession) -> None:
        reports = scripted.grown
        first = await scripted.texts(at(text))
        await until(lambda: not busy(scripted))
        again = await scripted.texts(at(text))
        assert len(first) == len(again)
        if first:
            assert again[0].startswith(first[0]) and again[0][len(first[0]) :][:1] in ("", "\n")
            assert (again != first) == bool(reports), "each longer text is reported, and nothing else"
        for other in (text + "?", "\n" + text, text[:-1]):
            cached = scripted.session.cache.lookup(at(other), 1)
            assert cached is None or other == text, "stored for another document"

    run(closing(work, TokenBackend(document, logprobs), **{"completion.eagerness": eagerness}))


async def test_a_suggestion_that_is_typed_through_grows_where_the_user_is() -> None:
    async with preparing(TokenBackend(DOCUMENT, round_s=0.003)) as scripted:
        reports = scripted.grown
        await under_way(scripted, 1)
        scripted.session.document_changed(URI, captured(TEXT + "app", version=2))
        assert await scripted.texts(at(TEXT + "app", version=2)) == ["end(1)"]
        await until(lambda: reports)
        assert [report.input.snapshot for report in reports] == [at(TEXT + "app", version=2)], "the newest request"
        assert await scripted.texts(at(TEXT + "app", version=2)) == [JOINED[3:]]
    assert continued(scripted) == [FIRST + "\n"]


async def test_at_the_deadline_only_whole_lines_have_joined() -> None:
    async with preparing(TokenBackend(DOCUMENT)) as scripted:
        scripted.backend.stop_after = len(LINES[0]) + 1 + len(LINES[1]) + 1 + 7
        await prepared(scripted)
        assert await scripted.texts(at(TEXT)) == ["\n".join(LINES[:2])]


READY, REMOTE = Status(state="ready"), Status(state="ready", remote="models.example")


@pytest.mark.parametrize(
    ("options", "status", "prepares_nothing"),
    [
        ({"completion.eagerness": "low"}, READY, True),
        ({"completion.prefetch_next": False}, READY, True),
        ({}, Status(state="asleep"), True),
        ({}, REMOTE, True),
        ({"completion.multiline": "never"}, READY, False),
        ({"completion.trigger": "manual"}, READY, False),
    ],
)
@pytest.mark.parametrize("backend", [TokenBackend(DOCUMENT), ScriptedBackend(FIRST, SECOND)], ids=["tokens", "texts"])
async def test_nothing_joins_or_is_prepared_where_it_is_not_wanted_or_the_engine_has_better_things_to_do(
    backend: ScriptedBackend, options: dict[str, object], status: Status, prepares_nothing: bool
) -> None:
    async with preparing(copy.deepcopy(backend), **options) as scripted:
        scripted.backend.status = status
        assert await scripted.texts(at(TEXT)) == [FIRST]
        await asyncio.sleep(0.06)
    assert continued(scripted) == []
    assert idle(scripted) == [] or not prepares_nothing


async def test_tokens_of_another_model_are_never_continued() -> None:
    async with preparing(TokenBackend(DOCUMENT, round_s=0.002)) as scripted:
        answer = asyncio.create_task(scripted.texts(at(TEXT)))
        await until(lambda: scripted.backend.streamed and scripted.backend.streamed[0])
        scripted.session.discard_answers()  # the model has changed
        assert await answer == [FIRST]
        await until(lambda: len(scripted.backend.requests) == 2)
    assert continued(scripted) == [] and idle(scripted) == [ACCEPTED]
