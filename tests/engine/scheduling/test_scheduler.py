"""Scheduler: loading, failures, supersession, cancellation and prefills, with a scripted completer."""

from __future__ import annotations

import threading
from queue import Queue

import pytest
from support.engine.scripted_completer import ScriptedCompleter, submit, wait_for_end
from support.waiting import wait_until

from speclsp.engine.api import Request
from speclsp.engine.scheduling.scheduled_job import DoneEvent, ErrorEvent, Event, alternatives
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import InputError, InvalidLogits


def test_a_failed_request_fails_alone(
    scheduler: Scheduler, talker: ScriptedCompleter, caplog: pytest.LogCaptureFixture
):
    talker.error = ValueError("secret source text")
    failed = wait_for_end(submit(scheduler, "a"))
    assert isinstance(failed, ErrorEvent)
    assert failed.error.__traceback__ is None, "a traceback would keep the model's tensors"
    assert "ValueError at" in caplog.text
    assert "secret" not in caplog.text
    for error in (InputError("too long"), InvalidLogits(7, float("nan"))):
        talker.error = error
        assert str(wait_for_end(submit(scheduler, "b")).error) == str(error)
    assert "a request failed: the highest logit for token 7 is nan" in caplog.text
    talker.error = None
    assert wait_for_end(submit(scheduler, "c")).results[0].text == "c"


def test_a_newer_request_of_the_session_ends_all_its_older_ones(scheduler: Scheduler, talker: ScriptedCompleter):
    talker.gate.clear()
    older = [submit(scheduler, "running", session="s")]
    wait_until(lambda: scheduler.counts() == (1, 0))
    other = submit(scheduler, "other", session="t")
    older.append(submit(scheduler, "waiting", session="s"))
    newest = submit(scheduler, "newest", session="s")
    assert [wait_for_end(answer).results[0].stop_type for answer in older] == ["cancelled", "cancelled"]
    talker.gate.set()
    assert (wait_for_end(newest).results[0].text, wait_for_end(other).results[0].text) == ("newest", "other")
    assert "waiting" not in talker.served


def test_a_cancelled_request_is_not_run_and_cancelling_twice_has_no_effect(
    scheduler: Scheduler, talker: ScriptedCompleter
):
    talker.gate.clear()
    submit(scheduler, "running")
    wait_until(lambda: scheduler.counts() == (1, 0))
    events: Queue[Event] = Queue()
    job = scheduler.submit(Request(prefix="dropped"), events.put)
    scheduler.cancel(job)
    scheduler.cancel(job)
    assert wait_for_end(events).results[0].stop_type == "cancelled"
    assert scheduler.counts() == (1, 0)
    assert scheduler.metrics.total("cancelled_total") == 1
    talker.gate.set()


def test_closing_ends_running_waiting_and_later_requests(scheduler: Scheduler, talker: ScriptedCompleter):
    talker.gate.clear()
    answers = [submit(scheduler, "running")]
    wait_until(lambda: scheduler.counts() == (1, 0))
    answers.append(submit(scheduler, "waiting"))
    scheduler.close()
    answers.append(submit(scheduler, "late"))
    assert [wait_for_end(answer).results[0].stop_type for answer in answers] == ["cancelled"] * 3


def test_alternatives_have_a_higher_temperature_and_their_own_seeds():
    requests = list(alternatives(Request(temperature=0.0, seed=7, n=3)))
    assert [(request.n, request.temperature, request.seed) for request in requests] == [
        (1, 0.0, 7),
        (2, 0.8, 8),
        (3, 0.8, 9),
    ]
    assert [request.temperature for request in alternatives(Request(temperature=1.2, n=2))] == [1.2, 1.2]


def test_alternatives_share_one_deadline(scheduler: Scheduler, talker: ScriptedCompleter):
    talker.gate.clear()
    threading.Timer(0.06, talker.gate.set).start()
    done = wait_for_end(submit(scheduler, "x", n=3, deadline_ms=40))
    assert isinstance(done, DoneEvent)
    assert (len(done.results), talker.deadlines) == (1, [40]), "the first took all the time there was"
    wait_for_end(submit(scheduler, "x", n=2, deadline_ms=5000))
    assert talker.deadlines[1] == 5000
    assert 0 < talker.deadlines[2] <= 5000


def reading(scheduler: Scheduler, line: str, **fields: object) -> Queue[Event]:
    return submit(scheduler, "above\n", line_prefix=line, session="s", max_tokens=0, **fields)


def asking(scheduler: Scheduler, line: str, **fields: object) -> Queue[Event]:
    return submit(scheduler, "above\n", line_prefix=line, session="s", **fields)


@pytest.mark.parametrize("typed", ["", "x", "xy z"])
def test_the_request_that_a_prefill_expects_does_not_cancel_it(
    scheduler: Scheduler, talker: ScriptedCompleter, typed: str
):
    talker.gate.clear()
    ahead = reading(scheduler, "a")
    wait_until(lambda: talker.served == ["above\n"])
    request = asking(scheduler, "a" + typed)
    talker.gate.set()
    assert wait_for_end(ahead).results[0].stop_type == "eos", "not cancelled"
    assert wait_for_end(request).results[0].stop_type == "eos"
    assert scheduler.metrics.total("cancelled_total") == 0
    assert scheduler.metrics.total("requests_total") == 1, "nobody waited for the reading"


@pytest.mark.parametrize(
    ("line", "fields"), [("b", {}), ("a", {"suffix": "c"}), ("a", {"filename": "other.py"}), ("", {})]
)
def test_an_unexpected_request_ends_the_prefill(
    scheduler: Scheduler, talker: ScriptedCompleter, line: str, fields: dict[str, object]
):
    talker.gate.clear()
    ahead = reading(scheduler, "a")
    wait_until(lambda: talker.served == ["above\n"])
    request = asking(scheduler, line, **fields)
    assert wait_for_end(ahead).results[0].stop_type == "cancelled"
    talker.gate.set()
    assert wait_for_end(request).results[0].stop_type == "eos"


def test_only_the_expected_request_waits_for_a_prefill(scheduler: Scheduler, talker: ScriptedCompleter):
    talker.gate.clear()
    ahead = reading(scheduler, "a")
    wait_until(lambda: talker.served == ["above\n"])
    other = submit(scheduler, "other", session="o")
    assert wait_for_end(ahead).results[0].stop_type == "cancelled"
    wait_until(lambda: talker.served == ["above\n", "other"])
    waiting = reading(scheduler, "a")
    submit(scheduler, "third")
    talker.gate.set()
    wait_for_end(other), wait_for_end(waiting)
    assert talker.served == ["above\n", "other", "third", "above\n"], "what somebody waits for goes first"


def test_a_prefill_that_has_not_started_is_cancelled_by_its_request(scheduler: Scheduler, talker: ScriptedCompleter):
    talker.gate.clear()
    running = submit(scheduler, "running")
    wait_until(lambda: talker.served == ["running"])
    ahead = reading(scheduler, "a")
    request = asking(scheduler, "a")
    assert wait_for_end(ahead).results[0].stop_type == "cancelled"
    talker.gate.set()
    wait_for_end(running), wait_for_end(request)
    assert talker.served == ["running", "above\n"]
