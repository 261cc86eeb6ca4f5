"""One thread, the newest request first: loading, failing and taking turns, with a completer made for the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest
from support.engine.scripted_completer import Talker, ask, end
from support.waiting import wait_until

from speclsp.engine.api import Request
from speclsp.engine.scheduling.job import DoneEvent, ErrorEvent, Event, alternatives
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import InputError, WeightsError
from speclsp.observability.metrics import Metrics


@pytest.fixture
def talker() -> Talker:
    return Talker()


@pytest.fixture
def scheduler(talker: Talker) -> Iterator[Scheduler]:
    scheduler = Scheduler(lambda progress: talker, Metrics())
    scheduler.thread.start()
    wait_until(lambda: scheduler.residency.completer is not None)
    yield scheduler
    scheduler.close()
    scheduler.thread.join(5)
    assert not scheduler.thread.is_alive()


def load_with(load: Callable[[Callable[[float, str], None]], Talker]) -> Scheduler:
    scheduler = Scheduler(load, Metrics(), pair="talker")
    scheduler.thread.start()
    return scheduler


def test_loading_says_how_far_it_is(talker: Talker):
    gate = threading.Event()

    def load(progress: Callable[[float, str], None]) -> Talker:
        progress(0.4, "loading weights")
        gate.wait(5)
        progress(7.0, "done")
        return talker

    scheduler = load_with(load)
    wait_until(lambda: (scheduler.residency.progress, scheduler.residency.message) == (0.4, "loading weights"))
    assert scheduler.residency.completer is None
    gate.set()
    wait_until(lambda: scheduler.residency.completer is talker)
    assert scheduler.residency.progress == 1.0, "never past the end"
    scheduler.close()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (WeightsError("model.safetensors is cut short: pull again."), "model.safetensors is cut short: pull again."),
        (RuntimeError("two\nlines"), "RuntimeError: two lines"),
        (MemoryError(), "MemoryError: "),
    ],
)
def test_a_pair_that_cannot_be_loaded_is_explained_in_one_line(error: Exception, line: str):
    def load(progress: object) -> Talker:
        raise error

    scheduler = load_with(load)
    wait_until(lambda: scheduler.residency.state == "error")
    assert scheduler.residency.message == line
    scheduler.close()


def test_a_failed_request_fails_alone(scheduler: Scheduler, talker: Talker, caplog: pytest.LogCaptureFixture):
    talker.error = ValueError("secret source text")
    failed = end(ask(scheduler, "a"))
    assert isinstance(failed, ErrorEvent)
    assert failed.error.__traceback__ is None, "a traceback would keep the model's tensors"
    assert "ValueError at" in caplog.text
    assert "secret" not in caplog.text
    talker.error = InputError("too long")
    assert str(end(ask(scheduler, "b")).error) == "too long"
    talker.error = None
    assert end(ask(scheduler, "c")).results[0].text == "c"


def test_the_newest_waiting_request_is_next(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    answers = [ask(scheduler, "first")]
    wait_until(lambda: scheduler.counts() == (1, 0))
    answers += [ask(scheduler, name) for name in ("second", "third", "fourth")]
    talker.gate.set()
    assert [end(answer).results[0].stop_type for answer in answers] == ["eos"] * 4
    assert talker.served == ["first", "fourth", "third", "second"]


def test_a_newer_request_of_the_session_ends_all_its_older_ones(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    older = [ask(scheduler, "running", session="s")]
    wait_until(lambda: scheduler.counts() == (1, 0))
    other = ask(scheduler, "other", session="t")
    older.append(ask(scheduler, "waiting", session="s"))
    newest = ask(scheduler, "newest", session="s")
    assert [end(answer).results[0].stop_type for answer in older] == ["cancelled", "cancelled"]
    talker.gate.set()
    assert (end(newest).results[0].text, end(other).results[0].text) == ("newest", "other")
    assert "waiting" not in talker.served


def test_a_dropped_request_is_not_run_and_dropping_twice_is_nothing(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    ask(scheduler, "running")
    wait_until(lambda: scheduler.counts() == (1, 0))
    told: Queue[Event] = Queue()
    job = scheduler.submit(Request(prefix="dropped"), told.put)
    scheduler.cancel(job)
    scheduler.cancel(job)
    assert end(told).results[0].stop_type == "cancelled"
    assert scheduler.counts() == (1, 0)
    assert scheduler.metrics.total("cancelled_total") == 1
    talker.gate.set()


def test_closing_ends_what_runs_what_waits_and_what_comes_after(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    answers = [ask(scheduler, "running")]
    wait_until(lambda: scheduler.counts() == (1, 0))
    answers.append(ask(scheduler, "waiting"))
    scheduler.close()
    answers.append(ask(scheduler, "late"))
    assert [end(answer).results[0].stop_type for answer in answers] == ["cancelled"] * 3


def test_alternatives_are_warmer_and_have_seeds_of_their_own():
    made = list(alternatives(Request(temperature=0.0, seed=7, n=3)))
    assert [(one.n, one.temperature, one.seed) for one in made] == [(1, 0.0, 7), (2, 0.8, 8), (3, 0.8, 9)]
    assert [one.temperature for one in alternatives(Request(temperature=1.2, n=2))] == [1.2, 1.2]


def test_alternatives_share_one_deadline(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    threading.Timer(0.06, talker.gate.set).start()
    done = end(ask(scheduler, "x", n=3, deadline_ms=40))
    assert isinstance(done, DoneEvent)
    assert (len(done.results), talker.deadlines) == (1, [40]), "the first took all the time there was"
    end(ask(scheduler, "x", n=2, deadline_ms=5000))
    assert talker.deadlines[1] == 5000
    assert 0 < talker.deadlines[2] <= 5000


def test_every_round_is_told_with_the_number_of_its_completion(scheduler: Scheduler):
    told = ask(scheduler, "x", n=2)
    assert [told.get(timeout=5).index for _ in range(2)] == [0, 1]
    assert len(told.get(timeout=5).results) == 2


def reading(scheduler: Scheduler, line: str, **fields: object) -> Queue[Event]:
    return ask(scheduler, "above\n", line_prefix=line, session="s", max_tokens=0, **fields)


def asking(scheduler: Scheduler, line: str, **fields: object) -> Queue[Event]:
    return ask(scheduler, "above\n", line_prefix=line, session="s", **fields)


def outcomes(scheduler: Scheduler) -> dict[str, int]:
    lines = (
        line for line in scheduler.metrics.render().splitlines() if line.startswith("speclsp_prefill_ahead_total{")
    )
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines}


@pytest.mark.parametrize("typed", ["", "x", "xy z"])
def test_the_request_that_was_read_ahead_for_joins_that_work_and_does_not_cancel_it(
    scheduler: Scheduler, talker: Talker, typed: str
):
    talker.gate.clear()
    ahead = reading(scheduler, "a")
    wait_until(lambda: talker.served == ["above\n"])
    asked = asking(scheduler, "a" + typed)
    talker.gate.set()
    assert end(ahead).results[0].stop_type == "eos", "not cancelled"
    assert end(asked).results[0].stop_type == "eos"
    assert outcomes(scheduler) == {"used": 1}
    assert scheduler.metrics.total("cancelled_total") == 0
    assert scheduler.metrics.total("requests_total") == 1, "nobody waited for the reading"


@pytest.mark.parametrize(
    ("line", "fields"), [("b", {}), ("a", {"suffix": "c"}), ("a", {"filename": "other.py"}), ("", {})]
)
def test_a_key_that_goes_elsewhere_ends_the_reading(
    scheduler: Scheduler, talker: Talker, line: str, fields: dict[str, object]
):
    talker.gate.clear()
    ahead = reading(scheduler, "a")
    wait_until(lambda: talker.served == ["above\n"])
    asked = asking(scheduler, line, **fields)
    assert end(ahead).results[0].stop_type == "cancelled"
    talker.gate.set()
    assert end(asked).results[0].stop_type == "eos"
    assert outcomes(scheduler) == {"wasted": 1}


def test_a_reading_goes_on_while_the_user_types_on_and_is_counted_once(scheduler: Scheduler):
    for typed in ("a", "ab", "abc"):
        end(reading(scheduler, typed))
    end(asking(scheduler, "abcd"))
    end(reading(scheduler, "abcde"))
    end(asking(scheduler, "q"))
    assert outcomes(scheduler) == {"used": 1, "wasted": 1}


def test_only_the_request_it_was_meant_for_waits_for_a_reading(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    ahead = reading(scheduler, "a")
    wait_until(lambda: talker.served == ["above\n"])
    other = ask(scheduler, "other", session="o")
    assert end(ahead).results[0].stop_type == "cancelled"
    wait_until(lambda: talker.served == ["above\n", "other"])
    waiting = reading(scheduler, "a")
    ask(scheduler, "third")
    talker.gate.set()
    end(other), end(waiting)
    assert talker.served == ["above\n", "other", "third", "above\n"], "what somebody waits for goes first"


def test_a_reading_that_has_not_begun_is_left_to_the_request(scheduler: Scheduler, talker: Talker):
    talker.gate.clear()
    running = ask(scheduler, "running")
    wait_until(lambda: talker.served == ["running"])
    ahead = reading(scheduler, "a")
    asked = asking(scheduler, "a")
    assert end(ahead).results[0].stop_type == "cancelled"
    talker.gate.set()
    end(running), end(asked)
    assert talker.served == ["running", "above\n"]
