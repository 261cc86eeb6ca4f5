"""The acceptance of earlier suggestions scales the cost of a wrong one, within bounds, and is forgotten."""

from __future__ import annotations

import asyncio
import math
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.config import stats_path
from speclsp.lsp.completion import acceptance
from speclsp.lsp.completion.confidence import (
    BY_WORDS,
    HALF_LIFE_S,
    LEFT_AS,
    LEVELS,
    MAX_SHIFT,
    TAKEN_AS,
    WORD_WEIGHT,
    AcceptanceHistory,
    Curve,
)
from speclsp.lsp.completion.trace import Trace
from speclsp.lsp.documents.document import CursorContext, Documents
from speclsp.lsp.server.usage_stats import UsageStats
from speclsp.observability import usage_db

CURVE = Curve(first={"intercept": 1.0, "total": 1.5}, later={"intercept": 1.0, "total": 1.5}, expected=0.5)


COUNTS = st.dictionaries(
    st.sampled_from(("accepted", "partly", "typed", "ignored", "undone", "shown")), st.integers(0, 10_000)
)


@given(COUNTS, COUNTS, st.sampled_from(("low", "medium")))
def test_the_learned_scale_is_bounded_and_decays(first: dict[str, int], second: dict[str, int], eagerness: str):
    now = [0.0]
    history = AcceptanceHistory(clock=lambda: now[0])
    usual = history.bar("python", eagerness, CURVE).cost
    assert usual == pytest.approx(LEVELS[eagerness].lines)
    history.learn("python", first)
    now[0] += HALF_LIFE_S
    history.learn("python", second)
    learned = history.bar("python", eagerness, CURVE).cost
    assert abs(math.log(learned / usual)) <= MAX_SHIFT + 1e-9
    assert history.bar("go", eagerness, CURVE).cost == pytest.approx(usual), "each language for itself"
    off = [abs(learned - usual)]
    for _ in range(40):
        now[0] += HALF_LIFE_S
        off.append(abs(history.bar("python", eagerness, CURVE).cost - usual))
    assert off == sorted(off, reverse=True) and off[-1] < 1e-6


@given(COUNTS, st.integers(1, 1000))
def test_an_accepted_suggestion_never_raises_the_cost_and_an_ignored_one_never_lowers_it(
    counts: dict[str, int], more: int
):
    history = AcceptanceHistory(clock=lambda: 0.0)
    history.learn("python", counts)
    before = history.bar("python", "medium", CURVE).cost
    history.learn("python", {"accepted": more})
    assert history.bar("python", "medium", CURVE).cost <= before + 1e-12
    history.learn("python", {"accepted": -more, "ignored": more})
    assert history.bar("python", "medium", CURVE).cost >= before - 1e-12


@given(COUNTS)
def test_without_a_cost_nothing_is_learned(counts: dict[str, int]):
    history = AcceptanceHistory(clock=lambda: 0.0)
    history.learn("python", counts)
    assert history.bar("python", "high", CURVE).cost == 0


@given(COUNTS, st.integers(0, 60), st.integers(0, 60))
def test_who_accepts_single_words_often_gets_the_value_of_words_in_that_language(
    counts: dict[str, int], partly: int, words: int
):
    now = [0.0]
    history = AcceptanceHistory(clock=lambda: now[0])
    history.learn("python", counts)
    assert not history.bar("python", "medium", CURVE).words
    history.learn("python", {"partly": partly, "words": words})
    taken = partly + sum(counts.get(name, 0) for name in TAKEN_AS)
    is_often = words >= WORD_WEIGHT and words >= taken / 4
    bar = history.bar("python", "medium", CURVE)
    assert bar.words == is_often and not history.bar("go", "medium", CURVE).words
    assert bar.least == LEVELS["medium"].least == 0.1, "for words too"
    now[0] += 20 * HALF_LIFE_S
    assert not history.bar("python", "medium", CURVE).words


def test_the_outcomes_it_learns_from_are_counted_in_the_statistics():
    assert BY_WORDS == (acceptance.WORDS,)
    assert {*TAKEN_AS, *LEFT_AS} <= set(usage_db.Figures().as_json())


def usage_stats(enabled: bool, documents: Documents | None = None) -> tuple[UsageStats, AcceptanceHistory]:
    """Usage statistics of a server with these open documents."""
    history = AcceptanceHistory(clock=lambda: 0.0)
    return UsageStats(documents or Documents(), lambda: "tiny", lambda: enabled, lambda: history), history


async def end_request(usage: UsageStats, loads: bool) -> None:
    """Count one request and end; `loads`: whether the stored counts of the last weeks are read."""
    before = asyncio.all_tasks()
    usage.request_ended(Trace(document="x", language="python", version=1, characters=9, wanted=1, outcome="shown"))
    reads = asyncio.all_tasks() - before
    assert len(reads) == loads
    await asyncio.gather(*reads)
    usage.end()


@pytest.mark.parametrize("enabled", [True, False])
def test_outcomes_are_learned_even_with_statistics_disabled(enabled: bool):
    documents = Documents()
    document = documents.open("file:///a.py", "python", 1, "x = ")
    usage, history = usage_stats(enabled, documents)
    snapshot = document.snapshot_at(document.offset({"line": 0, "character": 4}, "utf-16"))
    end = {"line": 0, "character": 4}
    item = {"insertText": "total", "range": {"start": end, "end": end}}
    usage.answered(CursorContext(document, snapshot, 0, 0), [item], "utf-16")
    document.apply([{"range": {"start": end, "end": end}, "text": "total"}], "utf-16")
    assert history.counts("python") == (1.0, 0.0)
    usage.end()
    assert stats_path().exists() == enabled


async def test_the_statistics_of_the_last_weeks_are_learned_with_decay_if_they_are_enabled():
    today = date.today()
    weeks = [usage_db.week_of(today - timedelta(weeks=ago)) for ago in (0, 1, 30)]
    rows = [(week, "python", "tiny", name, 8) for week in weeks for name in ("accepted", "ignored", "shown")]
    assert usage_db.write(stats_path(), rows) == ""
    usage, history = usage_stats(enabled=True)
    await end_request(usage, loads=True)
    assert history.counts("python") == pytest.approx((12.0, 12.0))
    usage, history = usage_stats(enabled=False)
    await end_request(usage, loads=False)
    assert history.counts("python") == (0.0, 0.0)


async def test_unreadable_statistics_are_not_learned_from():
    stats_path().parent.mkdir(parents=True, exist_ok=True)
    stats_path().write_bytes(b"no database" * 100)
    usage, history = usage_stats(enabled=True)
    await end_request(usage, loads=True)
    assert history.counts("python") == (0.0, 0.0)
