"""One thread, the newest request first: loading, failing and taking turns, with a completer made for the test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from queue import Queue

import pytest
from support.engine.engine_process import wait_until
from support.engine.scripted_completer import Talker, ask, end

from speclsp.engine.api import Request
from speclsp.engine.scheduling.scheduler import DoneEvent, ErrorEvent, Event, Scheduler, alternatives
from speclsp.errors import InputError, WeightsError
from speclsp.observability.metrics import Metrics


@pytest.fixture
def talker() -> Talker:
    return Talker()


@pytest.fixture
def turns(talker: Talker) -> Iterator[Scheduler]:
    turns = Scheduler(lambda progress: talker, Metrics())
    turns.thread.start()
    wait_until(lambda: turns.holding.completer is not None)
    yield turns
    turns.close()
    turns.thread.join(5)
    assert not turns.thread.is_alive()


def load_with(load: Callable[[Callable[[float, str], None]], Talker]) -> Scheduler:
    turns = Scheduler(load, Metrics(), pair="talker")
    turns.thread.start()
    return turns


def test_loading_says_how_far_it_is(talker: Talker):
    gate = threading.Event()

    def load(progress: Callable[[float, str], None]) -> Talker:
        progress(0.4, "loading weights")
        gate.wait(5)
        progress(7.0, "done")
        return talker

    turns = load_with(load)
    wait_until(lambda: (turns.holding.progress, turns.holding.message) == (0.4, "loading weights"))
    assert turns.holding.completer is None
    gate.set()
    wait_until(lambda: turns.holding.completer is talker)
    assert turns.holding.progress == 1.0, "never past the end"
    turns.close()


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

    turns = load_with(load)
    wait_until(lambda: turns.holding.state == "error")
    assert turns.holding.message == line
    turns.close()


def test_a_failed_request_fails_alone(turns: Scheduler, talker: Talker, caplog: pytest.LogCaptureFixture):
    talker.error = ValueError("secret source text")
    failed = end(ask(turns, "a"))
    assert isinstance(failed, ErrorEvent)
    assert failed.error.__traceback__ is None, "a traceback would keep the model's tensors"
    assert "ValueError at" in caplog.text
    assert "secret" not in caplog.text
    talker.error = InputError("too long")
    assert str(end(ask(turns, "b")).error) == "too long"
    talker.error = None
    assert end(ask(turns, "c")).results[0].text == "c"


def test_the_newest_waiting_request_is_next(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    answers = [ask(turns, "first")]
    wait_until(lambda: turns.counts() == (1, 0))
    answers += [ask(turns, name) for name in ("second", "third", "fourth")]
    talker.gate.set()
    assert [end(answer).results[0].stop_type for answer in answers] == ["eos"] * 4
    assert talker.served == ["first", "fourth", "third", "second"]


def test_a_newer_request_of_the_session_ends_all_its_older_ones(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    older = [ask(turns, "running", session="s")]
    wait_until(lambda: turns.counts() == (1, 0))
    other = ask(turns, "other", session="t")
    older.append(ask(turns, "waiting", session="s"))
    newest = ask(turns, "newest", session="s")
    assert [end(answer).results[0].stop_type for answer in older] == ["cancelled", "cancelled"]
    talker.gate.set()
    assert (end(newest).results[0].text, end(other).results[0].text) == ("newest", "other")
    assert "waiting" not in talker.served


def test_a_dropped_request_is_not_run_and_dropping_twice_is_nothing(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    ask(turns, "running")
    wait_until(lambda: turns.counts() == (1, 0))
    told: Queue[Event] = Queue()
    job = turns.ask(Request(prefix="dropped"), told.put)
    turns.drop(job)
    turns.drop(job)
    assert end(told).results[0].stop_type == "cancelled"
    assert turns.counts() == (1, 0)
    assert turns.metrics.total("cancelled_total") == 1
    talker.gate.set()


def test_closing_ends_what_runs_what_waits_and_what_comes_after(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    answers = [ask(turns, "running")]
    wait_until(lambda: turns.counts() == (1, 0))
    answers.append(ask(turns, "waiting"))
    turns.close()
    answers.append(ask(turns, "late"))
    assert [end(answer).results[0].stop_type for answer in answers] == ["cancelled"] * 3


def test_alternatives_are_warmer_and_have_seeds_of_their_own():
    made = list(alternatives(Request(temperature=0.0, seed=7, n=3)))
    assert [(one.n, one.temperature, one.seed) for one in made] == [(1, 0.0, 7), (2, 0.8, 8), (3, 0.8, 9)]
    assert [one.temperature for one in alternatives(Request(temperature=1.2, n=2))] == [1.2, 1.2]


def test_alternatives_share_one_deadline(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    threading.Timer(0.06, talker.gate.set).start()
    done = end(ask(turns, "x", n=3, deadline_ms=40))
    assert isinstance(done, DoneEvent)
    assert (len(done.results), talker.deadlines) == (1, [40]), "the first took all the time there was"
    end(ask(turns, "x", n=2, deadline_ms=5000))
    assert talker.deadlines[1] == 5000
    assert 0 < talker.deadlines[2] <= 5000


def test_every_round_is_told_with_the_number_of_its_completion(turns: Scheduler):
    told = ask(turns, "x", n=2)
    assert [told.get(timeout=5).index for _ in range(2)] == [0, 1]
    assert len(told.get(timeout=5).results) == 2


def reading(turns: Scheduler, line: str, **fields: object) -> Queue[Event]:
    return ask(turns, "above\n", line_prefix=line, session="s", max_tokens=0, **fields)


def asking(turns: Scheduler, line: str, **fields: object) -> Queue[Event]:
    return ask(turns, "above\n", line_prefix=line, session="s", **fields)


def outcomes(turns: Scheduler) -> dict[str, int]:
    lines = (line for line in turns.metrics.render().splitlines() if line.startswith("speclsp_prefill_ahead_total{"))
    return {line.split('"')[1]: int(line.split()[-1]) for line in lines}


@pytest.mark.parametrize("typed", ["", "x", "xy z"])
def test_the_request_that_was_read_ahead_for_joins_that_work_and_does_not_cancel_it(
    turns: Scheduler, talker: Talker, typed: str
):
    talker.gate.clear()
    ahead = reading(turns, "a")
    wait_until(lambda: talker.served == ["above\n"])
    asked = asking(turns, "a" + typed)
    talker.gate.set()
    assert end(ahead).results[0].stop_type == "eos", "not cancelled"
    assert end(asked).results[0].stop_type == "eos"
    assert outcomes(turns) == {"used": 1}
    assert turns.metrics.total("cancelled_total") == 0
    assert turns.metrics.total("requests_total") == 1, "nobody waited for the reading"


@pytest.mark.parametrize(
    ("line", "fields"), [("b", {}), ("a", {"suffix": "c"}), ("a", {"filename": "other.py"}), ("", {})]
)
def test_a_key_that_goes_elsewhere_ends_the_reading(
    turns: Scheduler, talker: Talker, line: str, fields: dict[str, object]
):
    talker.gate.clear()
    ahead = reading(turns, "a")
    wait_until(lambda: talker.served == ["above\n"])
    asked = asking(turns, line, **fields)
    assert end(ahead).results[0].stop_type == "cancelled"
    talker.gate.set()
    assert end(asked).results[0].stop_type == "eos"
    assert outcomes(turns) == {"wasted": 1}


def test_a_reading_goes_on_while_the_user_types_on_and_is_counted_once(turns: Scheduler):
    for typed in ("a", "ab", "abc"):
        end(reading(turns, typed))
    end(asking(turns, "abcd"))
    end(reading(turns, "abcde"))
    end(asking(turns, "q"))
    assert outcomes(turns) == {"used": 1, "wasted": 1}


def test_only_the_request_it_was_meant_for_waits_for_a_reading(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    ahead = reading(turns, "a")
    wait_until(lambda: talker.served == ["above\n"])
    other = ask(turns, "other", session="o")
    assert end(ahead).results[0].stop_type == "cancelled"
    wait_until(lambda: talker.served == ["above\n", "other"])
    waiting = reading(turns, "a")
    ask(turns, "third")
    talker.gate.set()
    end(other), end(waiting)
    assert talker.served == ["above\n", "other", "third", "above\n"], "what somebody waits for goes first"


def test_a_reading_that_has_not_begun_is_left_to_the_request(turns: Scheduler, talker: Talker):
    talker.gate.clear()
    running = ask(turns, "running")
    wait_until(lambda: talker.served == ["running"])
    ahead = reading(turns, "a")
    asked = asking(turns, "a")
    assert end(ahead).results[0].stop_type == "cancelled"
    talker.gate.set()
    end(running), end(asked)
    assert talker.served == ["running", "above\n"]
