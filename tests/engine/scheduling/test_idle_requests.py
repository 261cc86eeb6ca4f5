"""Idle requests run only on an idle engine, delay no other request, reload no model and keep the prompt cached."""

from __future__ import annotations

from queue import Queue

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.engine.scripted_completer import ScriptedCompleter, submit, wait_for_end
from support.engine.tiny_tasks import HOLES
from support.waiting import wait_until

from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Cancel, Request
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.loading import loading
from speclsp.engine.model.kv_cache import LOW_PRIORITY_TOKENS
from speclsp.engine.scheduling.scheduled_job import Event
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.observability.metrics import Metrics
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")


def prepare(scheduler: Scheduler, session: str = "s") -> Queue[Event]:
    return submit(scheduler, "next", session=session, idle=True)


def stop_of(events: Queue[Event]) -> str:
    return wait_for_end(events).results[0].stop_type


def test_an_idle_request_runs_when_the_engine_is_idle_and_is_not_counted(scheduler: Scheduler) -> None:
    assert stop_of(submit(scheduler, "shown", session="s")) == "eos"
    assert stop_of(prepare(scheduler)) == "eos", "the same window's own earlier requests are no reason against it"
    assert scheduler.metrics.total("requests_total") == 1
    assert scheduler.metrics.render().count("speclsp_latency_ms_count 1") == 1


@pytest.mark.parametrize("session", ["s", "another window"])
def test_any_other_request_ends_an_idle_request(scheduler: Scheduler, talker: ScriptedCompleter, session: str) -> None:
    talker.gate.clear()
    events = prepare(scheduler)
    wait_until(lambda: scheduler.counts() == (1, 0))
    request = submit(scheduler, "typed", session=session)
    assert stop_of(events) == "cancelled"
    talker.gate.set()
    assert wait_for_end(request).results[0].text == "typed"


def test_an_idle_request_is_refused_while_another_request_runs(scheduler: Scheduler, talker: ScriptedCompleter) -> None:
    talker.gate.clear()
    request = submit(scheduler, "typed", session="s")
    wait_until(lambda: scheduler.counts() == (1, 0))
    assert [stop_of(prepare(scheduler)), stop_of(prepare(scheduler, "t"))] == ["cancelled"] * 2
    talker.gate.set()
    assert wait_for_end(request).results[0].text == "typed" and "next" not in talker.served


def test_an_idle_request_does_not_reload_an_unloaded_model(talker: ScriptedCompleter) -> None:
    scheduler = Scheduler(lambda progress: talker, Metrics(), idle_s=0.05)
    scheduler.thread.start()
    wait_until(lambda: scheduler.residency.state == "asleep")
    assert stop_of(prepare(scheduler)) == "cancelled"
    assert scheduler.residency.completer is None and talker.served == []
    scheduler.close()
    scheduler.thread.join(60)


# ── the cache ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def engine() -> CompletionEngine:
    options = EngineConfig(context_tokens=1024, threads=1, quantization="fp32")
    loaded = loading.load(Config(model="tiny", engine=options), cards.load("tiny"))
    assert isinstance(loaded, CompletionEngine)
    return loaded


LINES = st.sampled_from(["        pass", "        return self._items", "    def size(self):", "        self.x = 1"])


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(HOLES), st.integers(0, 6), st.lists(LINES, max_size=5), st.integers(1, 12), st.sampled_from("xq(")
)
def test_a_cancelled_idle_request_costs_the_next_key_none_of_its_cached_prompt(
    engine: CompletionEngine, hole: tuple[str, str], above: int, accepted: list[str], rounds: int, key: str
) -> None:
    engine.empty()
    prefix = "import os\nfrom a import b\n" * above + hole[0]
    head, _, line = prefix.rpartition("\n")

    def make(prefix: str, line: str, rounds: int = 99, idle: bool = False) -> tuple[int, int]:
        request = Request(prefix=prefix, line_prefix=line, suffix=hole[1], max_tokens=12, idle=idle)
        running = engine.complete(request, Cancel())
        for number, piece in enumerate(running):
            if piece.tokens and number >= rounds:
                break
        return running.result.prompt_tokens, running.result.prefilled_tokens

    make(head + "\n", line)
    _, alone = make(head + "\n", line + key)  # the cost of the key without a request in between
    engine.empty()
    make(head + "\n", line)
    text = "\n".join([line + "done()", *accepted])
    above_it, _, last = text.rpartition("\n")
    make(head + "\n" + (above_it + "\n" if above_it else ""), last, rounds, idle=True)
    prompt, computed = make(head + "\n", line + key)
    assert computed < alone + LOW_PRIORITY_TOKENS, f"of a prompt of {prompt} tokens"
