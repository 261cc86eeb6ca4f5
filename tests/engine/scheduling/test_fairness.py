"""Round order and scheduler with several sessions: bounded waits, and every session gets its own text."""

from __future__ import annotations

import hashlib
import itertools
import random
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from queue import Queue

import pytest
from hypothesis import given
from hypothesis import strategies as st
from promises import Measured
from support.waiting import wait_until

from speclsp.engine.api import Piece, Request, Result
from speclsp.engine.model.kv_cache import MAX_SLOTS
from speclsp.engine.scheduling.round_order import MAX_ACTIVE, Entrant, RoundOrder
from speclsp.engine.scheduling.scheduled_job import DoneEvent, Event, RoundEvent, ScheduledJob
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.observability.metrics import Metrics

# ── the round order alone ──────────────────────────────────────────────────────────────────────────────────────────


def in_turn(names: str, rounds: int) -> str:
    """The sessions of the next rounds after `names` submit in this order and no other request comes."""
    order: RoundOrder[Entrant] = RoundOrder()
    for name in names:
        order.join(Entrant(session=name))
    text = ""
    for _ in range(rounds):
        entrant = order.next()
        assert entrant is not None
        order.serve(entrant)
        text += str(entrant.session)
    return text


def test_two_requests_alternate_and_the_newest_of_more_has_every_second_round():
    assert in_turn("A", 3) == "AAA"
    assert in_turn("AB", 6) == "BABABA"
    assert in_turn("ABCD", 12) == "DADBDCDADBDC"


def test_every_active_request_has_a_slot_of_the_kv_cache():
    assert MAX_ACTIVE == MAX_SLOTS


def test_of_many_requests_the_oldest_finish_first_and_at_most_max_active_alternate():
    assert set(in_turn("abcdefghijklmnop", 100)) == set("abcdefg" + "p")


@given(crowd=st.integers(MAX_ACTIVE, 64), lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5))
def test_an_editor_waits_no_longer_for_many_requests_without_a_session(crowd: int, lengths: list[int]):
    order: RoundOrder[Entrant] = RoundOrder()
    editor, length = Entrant(session="an editor"), itertools.cycle(lengths)
    left: dict[Entrant, int] = {}
    for number in range(6 * crowd):
        while len(left) < crowd:  # each ended request is replaced by another
            fresh = Entrant(session=object(), anonymous=True)
            left[fresh] = next(length)
            order.join(fresh)
        if number == 2 * crowd:
            order.join(editor)
        chosen = order.next()
        assert chosen is not None
        waited = order.round - chosen.since
        order.serve(chosen)
        if chosen is editor:
            assert waited <= 3
            continue
        left[chosen] -= 1
        if not left[chosen]:
            order.entrants.remove(chosen)
            del left[chosen]
    assert editor.rounds >= crowd // 8


@dataclass
class SessionWait:
    """A session's remaining rounds and its wait."""

    entrant: Entrant
    left: int  # rounds still to run
    waits: int = 0  # rounds since it came or since its last round


@given(
    sessions=st.integers(2, MAX_ACTIVE),
    keys=st.lists(st.lists(st.integers(0, MAX_ACTIVE - 1), max_size=3), min_size=1, max_size=80),
    length=st.integers(1, 9),
    typing=st.booleans(),
)
def test_no_session_waits_longer_than_the_bound_however_often_others_submit(
    sessions: int, keys: list[list[int]], length: int, typing: bool
):
    """`keys`: the sessions that submit before each round; each ends its older request."""
    order: RoundOrder[Entrant] = RoundOrder()
    live: dict[int, SessionWait] = {}
    most = 3 * (sessions - 1) if typing else 2 * (sessions - 1) - 1
    if sessions == 2:
        most = 1
    if not typing:  # all submit once, and none after that
        keys = [list(range(sessions)), *[[] for _ in range(length * sessions)]]
    for asking in keys:
        fresh = None
        for who in (who for who in asking if who < sessions):
            fresh = Entrant(session=who)
            old = live.pop(who, None)
            if old is not None:
                order.entrants.remove(old.entrant)
            order.join(fresh, since=old.entrant.since if old else None)
            live[who] = SessionWait(fresh, length, old.waits if old else 0)
        last, stood_back = order.last_session, order.newest_in_a_row
        chosen = order.next()
        if chosen is None:
            continue
        order.serve(chosen)
        if fresh is not None and fresh.session != last and stood_back < 2:
            assert chosen is fresh, "the newest has the very next round"
        for who, session in list(live.items()):
            if session.entrant is not chosen:
                session.waits += 1
                assert session.waits <= most, (who, sessions)
            elif session.left == 1:
                order.entrants.remove(live.pop(who).entrant)
            else:
                session.left, session.waits = session.left - 1, 0


# ── the engine's thread, with a completer whose text names its prompt ────────────────────────────────────────────


def answer_to(prefix: str) -> str:
    return hashlib.sha256(prefix.encode()).hexdigest()[:6]


class Hasher:
    """Each round generates one character of a hash of the prefix; an optional `gate` admits rounds."""

    model = target = "hasher"
    draft = device = ""

    def __init__(self, gate: threading.Semaphore | None = None) -> None:
        self.gate = gate
        self.rounds: list[str] = []  # the prefix of each round, in order

    def complete(self, request: Request, cancel: threading.Event) -> Hashing:
        return Hashing(self, request, cancel)


class Hashing:
    def __init__(self, hasher: Hasher, request: Request, cancel: threading.Event) -> None:
        self.hasher, self.request, self.cancel = hasher, request, cancel
        self.result = Result(prompt_tokens=len(request.prefix))
        self.began = time.perf_counter()

    def __iter__(self) -> Iterator[Piece]:
        answer = answer_to(self.request.prefix)[: self.request.max_tokens]
        result = self.result
        for character in answer or "-":
            if self.hasher.gate is not None:
                self.hasher.gate.acquire()
            self.hasher.rounds.append(self.request.prefix)
            if not answer:
                break
            result.text += character
            result.tokens.append(ord(character))
            result.rounds += 1
            result.stop_type = "eos" if result.text == answer else ""
            yield Piece(text=character, tokens=(ord(character),), source="", drafted=0, accepted=0, ms=1.0)
            late = 0 < self.request.deadline_ms <= (time.perf_counter() - self.began) * 1000
            if self.cancel.is_set() or late:
                result.stop_type = "cancelled" if self.cancel.is_set() else "deadline"
                return
        result.stop_type = result.stop_type or "limit"


@dataclass
class Client:
    """An editor that submits, checks its events and submits again from there, all in the engine's thread."""

    name: str
    scheduler: Scheduler
    hasher: Hasher
    clients: int
    left: int
    dice: random.Random
    job: ScheduledJob | None = None
    wait_start: dict[str, int] = field(default_factory=dict)  # the number of rounds at submission or at its last round
    texts: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    longest_wait: int = 0

    def ask(self) -> None:
        self.left -= 1
        prefix = f"{self.name}{self.left}"
        self.wait_start[prefix], self.texts[prefix] = len(self.hasher.rounds), ""
        self.job = self.scheduler.submit(
            Request(prefix=prefix, session=self.name), lambda event, prefix=prefix: self.on_event(prefix, event)
        )

    def on_event(self, prefix: str, event: Event) -> None:
        if isinstance(event, RoundEvent):
            now = len(self.hasher.rounds)
            self.longest_wait = max(self.longest_wait, now - 1 - self.wait_start[prefix])
            self.wait_start[prefix] = now
            self.texts[prefix] += event.piece.text
            assert answer_to(prefix).startswith(self.texts[prefix]), "its own text, in order, nothing twice"
            whim = self.dice.random()
            if whim < 0.08 and self.left:
                self.ask()  # another key makes the older request stale
            elif whim < 0.1 and self.job is not None:
                self.scheduler.cancel(self.job)
        else:
            assert isinstance(event, DoneEvent)
            result = event.results[0]
            assert result.text == self.texts[prefix]
            assert prefix not in self.ended, "one end for each request"
            self.ended[prefix] = result.stop_type
            if result.stop_type == "eos":
                assert result.text == answer_to(prefix)
            if prefix == f"{self.name}{self.left}" and self.left:
                self.ask()


@pytest.mark.parametrize("clients", range(2, 9))
@pytest.mark.promise(21)
def test_ten_thousand_interleaved_requests_get_their_own_texts_in_turn(clients: int, promise: Measured):
    """1440 requests for each number of clients, 10,080 in all. Clients end every eleventh early."""
    hasher = Hasher()
    scheduler = Scheduler(lambda progress: hasher, Metrics())
    per_client = 1440 // clients
    crowd = [
        Client(f"{name}.", scheduler, hasher, clients, per_client, random.Random(name)) for name in "abcdefgh"[:clients]
    ]
    for client in crowd:
        client.ask()
    scheduler.thread.start()
    wait_until(lambda: all(len(client.ended) == per_client for client in crowd), 60)
    wait_until(lambda: scheduler.counts() == (0, 0))
    scheduler.close()
    scheduler.thread.join(10)
    for client in crowd:
        ends = list(client.ended.values())
        assert set(ends) <= {"eos", "cancelled"} and ends.count("eos") > per_client // 2, "nobody starved"
        assert client.longest_wait <= (1 if clients == 2 else 3 * (clients - 1))
    assert scheduler.metrics.total("requests_total") == per_client * clients
    if clients == 2:
        waited = max(client.longest_wait for client in crowd)
        promise.measured(
            f"10,080 interleaved requests of 2 to 8 clients: 0 mixed up; of two none waits longer than {waited} round",
            holds=waited <= 1,
        )


class Room:
    """A scheduler whose rounds the test admits one by one."""

    def __init__(self) -> None:
        self.gate = threading.Semaphore(0)
        self.hasher = Hasher(self.gate)
        self.scheduler = Scheduler(lambda progress: self.hasher, Metrics())
        self.scheduler.thread.start()
        self.scheduler.residency.ready_event.wait(5)

    def ask(self, prefix: str, **fields: object) -> tuple[ScheduledJob, Queue[Event]]:
        events: Queue[Event] = Queue()
        fields.setdefault("session", prefix)
        return self.scheduler.submit(Request(prefix=prefix, **fields), events.put), events

    def rounds(self, count: int) -> list[str]:
        """Admits `count` rounds; returns their prefixes."""
        before = len(self.hasher.rounds)
        for _ in range(count):
            self.gate.release()
        wait_until(lambda: len(self.hasher.rounds) == before + count)
        return self.hasher.rounds[before:]

    def close(self) -> None:
        self.scheduler.close()
        self.gate.release(1000)
        self.scheduler.thread.join(60)
        assert not self.scheduler.thread.is_alive()


@pytest.fixture
def room() -> Iterator[Room]:
    with closing(Room()) as gated:
        yield gated


def result_of(events: Queue[Event]) -> Result:
    while isinstance(event := events.get(timeout=60), RoundEvent):
        pass
    assert isinstance(event, DoneEvent)
    return event.results[0]


def begin(room: Room, prefix: str, **fields: object) -> tuple[ScheduledJob, Queue[Event]]:
    """Submits alone, so that its first round is under way, blocked by the gate."""
    job, events = room.ask(prefix, **fields)
    wait_until(lambda: job.started)
    return job, events


@pytest.mark.promise(21)
def test_a_new_request_has_the_round_after_the_one_under_way(room: Room):
    begin(room, "first")
    assert room.rounds(2) == ["first", "first"]
    room.ask("second")  # during the third round of the first one
    assert room.rounds(4) == ["first", "second", "first", "second"]
    room.ask("third")
    assert room.rounds(3) == ["first", "third", "second"], "and then whoever has waited longest"


@pytest.mark.promise(9)
def test_a_paused_request_that_is_cancelled_ends_before_another_round_with_its_text_so_far(room: Room):
    job, events = begin(room, "dropped")
    room.ask("other")
    assert room.rounds(2) == ["dropped", "other"]
    wait_until(lambda: room.scheduler.counts() == (2, 0))
    room.scheduler.cancel(job)
    rounds = room.rounds(1)  # the round that was under way
    result = result_of(events)
    assert result.stop_type == "cancelled"
    assert result.text == answer_to("dropped")[: 1 + rounds.count("dropped")]
    assert set(room.rounds(3)) == {"other"}


def test_a_deadline_also_passes_during_the_rounds_of_others(room: Room):
    _, events = begin(room, "hurried", deadline_ms=5)
    room.ask("other")
    assert room.rounds(1) == ["hurried"]
    time.sleep(0.01)
    assert room.rounds(1) == ["other"]
    result = result_of(events)
    assert (result.stop_type, result.text) == ("deadline", answer_to("hurried")[:1]), "without another round"


def test_alternatives_follow_each_other_and_others_come_in_between(room: Room):
    _, events = begin(room, "two", n=2)
    room.ask("other")
    assert room.rounds(12) == ["two", "other"] * 6
    assert room.rounds(6) == ["two"] * 6
    indices = []
    while isinstance(event := events.get(timeout=60), RoundEvent):
        indices.append(event.index)
    assert indices == [0] * 6 + [1] * 6
    assert [result.text for result in event.results] == [answer_to("two")] * 2
