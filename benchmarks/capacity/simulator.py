"""Developers on a fleet of servers with continuous batching: a simulation, seeded, in virtual time.

    developers ─► requests at their times ─► router ─► replicas, each by itself:
        round ─► unwanted requests leave ─► prompts are read, oldest first, within the round's token budget
              └► every sequence that has been read gets 1 to γ + 1 tokens ─► finished requests are answered

roofline.py gives the time of a round. A replica caches a developer's last prompt until another one needs its memory.
The tokens that a prompt shares with the cached one are not read again. A request ends with its last token, or when the
next key ends it.
"""

from __future__ import annotations

import math
import random
import zlib
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from benchmarks.capacity.roofline import Serving

ROUND_TOKENS = 2048  # rows of a pass at most: vLLM's max_num_batched_tokens for serving, in its order of size
MAX_SEQUENCES = 256  # at a time, vLLM's max_num_seqs
NEVER_MS = math.inf


@dataclass(frozen=True, slots=True)
class FleetRequest:
    """A request that reaches a server."""

    at_ms: float  # since its session, or the simulation, began
    prompt_tokens: int
    output_tokens: int  # tokens until the language server has all it needs
    wanted_ms: float  # until a key ends it
    cached_tokens: Mapping[int, int] = field(default_factory=dict)  # by how many of the developer's prompts ago
    developer: int = 0


@dataclass(frozen=True, slots=True)
class Session:
    """A stretch of typing, as it was recorded."""

    seconds: float
    requests: Sequence[FleetRequest]


@dataclass(slots=True)
class Outcome:
    """Times of a request, from its arrival; NEVER_MS where the next key cancelled it."""

    first_ms: float = NEVER_MS
    last_ms: float = NEVER_MS
    left_ms: float = NEVER_MS  # answered or ended by the key
    tokens: int = 0
    rounds: int = 0
    read_tokens: int = 0  # of the prompt, those not found in the cache


@dataclass(slots=True)
class Replica:
    """One server's sums over a run."""

    busy_ms: float = 0.0
    idle_ms: float = 0.0
    end_ms: float = 0.0
    rounds: int = 0
    sequence_rounds: int = 0  # sequences decoded, summed over the rounds
    decoding_ms: float = 0.0  # rounds with at least one of them
    present_ms: float = 0.0  # requests present, integrated over time
    read_tokens: int = 0
    made_tokens: int = 0

    @property
    def mean_batch(self) -> float:
        """Sequences decoding in a round that decodes."""
        return self.sequence_rounds / max(1, self.rounds)


@dataclass(slots=True)
class Work:
    """A request in a replica."""

    number: int
    unread: int
    left: int
    dice: int


class Cache:
    """Prefix cache of a replica: each developer's last prompt, in tokens; the least recently used is evicted first."""

    def __init__(self, tokens: float) -> None:
        self._free, self._prompt_tokens = tokens, OrderedDict[int, int]()

    def read(self, request: FleetRequest, age: int) -> int:
        """Number of prompt tokens that must be read. From now on the prompt is cached."""
        is_cached = request.developer in self._prompt_tokens
        self._free += self._prompt_tokens.pop(request.developer, 0)
        self._prompt_tokens[request.developer] = request.prompt_tokens
        self._free -= request.prompt_tokens
        while self._free < 0 and len(self._prompt_tokens) > 1:
            self._free += self._prompt_tokens.popitem(last=False)[1]
        return request.prompt_tokens - (cached(request, age) if is_cached else 0)


def cached(request: FleetRequest, age: int) -> int:
    """Tokens that the prompt shares with those of so many requests ago: the nearest recorded age that is no newer."""
    lengths = [at for at in request.cached_tokens if at >= age] or list(request.cached_tokens)[-1:]
    return request.cached_tokens[lengths[0]] if lengths else 0


def serve(
    requests: Sequence[FleetRequest],
    serving: Serving,
    age: int = 1,
    seed: int = 0,
    numbers: Sequence[int] | None = None,
) -> tuple[list[Outcome], Replica]:
    """Serve one replica's requests in the order of arrival. `numbers` identify them and seed their random draws."""
    outcomes, replica = [Outcome() for _ in requests], Replica()
    cache, waiting, running = Cache(serving.cache_tokens), deque[Work](), list[Work]()
    names = numbers or range(len(requests))
    arriving, now_ms = 0, 0.0
    while arriving < len(requests) or waiting or running:
        if not waiting and not running and requests[arriving].at_ms > now_ms:
            replica.idle_ms += requests[arriving].at_ms - now_ms
            now_ms = requests[arriving].at_ms
        while arriving < len(requests) and requests[arriving].at_ms <= now_ms:
            request = requests[arriving]
            unread = max(1, cache.read(request, age))
            outcomes[arriving].read_tokens = unread
            dice = zlib.crc32(b"%d %d" % (seed, names[arriving]))
            waiting.append(Work(arriving, unread, max(1, request.output_tokens), dice))
            replica.present_ms += now_ms - request.at_ms
            arriving += 1
        for group in (waiting, running):
            unwanted = [
                work for work in group if requests[work.number].at_ms + requests[work.number].wanted_ms <= now_ms
            ]
            for work in unwanted:
                group.remove(work)
                outcomes[work.number].left_ms = now_ms - requests[work.number].at_ms
        if not waiting and not running:
            continue
        now_ms += one_round(requests, outcomes, replica, waiting, running, serving, now_ms)
    replica.end_ms = now_ms
    return outcomes, replica


def one_round(
    requests: Sequence[FleetRequest],
    outcomes: list[Outcome],
    replica: Replica,
    waiting: deque[Work],
    running: list[Work],
    serving: Serving,
    now_ms: float,
) -> float:
    """Run one round of prefill and decoding for every request that fits; returns its duration."""
    gamma, decoding = serving.gamma_at(len(running)), len(running)
    budget, prefilled, admitted = max(1, ROUND_TOKENS - decoding * (gamma + 1)), 0, list[Work]()
    while waiting and prefilled < budget and decoding + len(admitted) < MAX_SEQUENCES:
        some = min(waiting[0].unread, budget - prefilled)
        waiting[0].unread -= some
        prefilled += some
        if waiting[0].unread:
            break
        admitted.append(waiting.popleft())
    context = sum(requests[work.number].prompt_tokens for work in running) / decoding if decoding else 0.0
    ms = serving.round_ms(decoding, gamma, context, prefilled)
    present = len(waiting) + len(running) + len(admitted)
    replica.present_ms += present * ms
    replica.busy_ms += ms
    replica.read_tokens += prefilled
    if decoding:
        replica.rounds += 1
        replica.sequence_rounds += decoding
        replica.decoding_ms += ms
    still = list[Work]()
    for place, work in enumerate([*running, *admitted]):
        outcome, decoded = outcomes[work.number], place < decoding
        tokens = min(work.left, 1 + accepted(work, serving.alpha, gamma) if decoded else 1)
        work.left -= tokens
        outcome.tokens += tokens
        outcome.rounds += decoded
        replica.made_tokens += tokens
        since_ms = now_ms + ms - requests[work.number].at_ms
        outcome.first_ms = min(outcome.first_ms, since_ms)
        if work.left:
            still.append(work)
        else:
            outcome.last_ms = outcome.left_ms = since_ms
    running[:] = still
    return ms


def accepted(work: Work, alpha: float, gamma: int) -> int:
    """Number of accepted guesses, each with probability `alpha`; the sequence has its own dice, whatever its batch."""
    if gamma == 0 or alpha <= 0:
        return 0
    work.dice = (work.dice * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
    chance = ((work.dice >> 11) + 0.5) / 2**53
    return gamma if alpha >= 1 else min(gamma, int(math.log(chance) / math.log(alpha)))


# ── developers ───────────────────────────────────────────────────────────────────────────────────────────────


def developers(
    sessions: Sequence[Session], count: int, active: float, horizon_ms: float, seed: int = 0
) -> Iterator[FleetRequest]:
    """Requests of `count` developers within the horizon, each typing that share of it; ordered by developer."""
    pause_ms = sum(entry.seconds for entry in sessions) / len(sessions) * 1000 * (1 - active) / active
    for developer in range(count):
        dice = random.Random(f"{seed} {developer}")
        now_ms, into_ms, typing = 0.0, 0.0, dice.random() < active
        if typing:  # somewhere in the middle of a session
            session = dice.choices(sessions, weights=[entry.seconds for entry in sessions])[0]
            into_ms = dice.random() * session.seconds * 1000
        while now_ms < horizon_ms:
            if typing:
                for request in session.requests:
                    at_ms = now_ms + request.at_ms - into_ms
                    if request.at_ms >= into_ms and at_ms < horizon_ms:
                        yield replace(request, at_ms=at_ms, developer=developer)
                now_ms += session.seconds * 1000 - into_ms
            elif pause_ms:
                now_ms += dice.expovariate(1 / pause_ms)
            typing, into_ms, session = not typing, 0.0, dice.choice(sessions)


def route(requests: Sequence[FleetRequest], replicas: int, affinity: bool) -> list[list[int]]:
    """Requests by replica: with affinity, all of a developer's on one replica; else round-robin."""
    numbers: list[list[int]] = [[] for _ in range(replicas)]
    for number, request in enumerate(requests):
        to = zlib.crc32(b"developer %d" % request.developer) if affinity else number
        numbers[to % replicas].append(number)
    return numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Results of a simulated fleet."""

    requests: Sequence[FleetRequest]
    outcomes: Sequence[Outcome]
    replicas: Sequence[Replica]
    horizon_ms: float

    def answered_within(self, target_ms: float, network_ms: float) -> float:
        """Of the requests that were wanted for so long, the share whose last token had come by then."""
        waited = [
            outcome.last_ms + network_ms <= target_ms
            for request, outcome in zip(self.requests, self.outcomes, strict=True)
            if request.wanted_ms >= target_ms
        ]
        return sum(waited) / len(waited) if waited else 1.0

    def shown(self, network_ms: float) -> float:
        """Of all requests, the share answered before the next key."""
        pairs = zip(self.requests, self.outcomes, strict=True)
        return sum(outcome.last_ms + network_ms <= request.wanted_ms for request, outcome in pairs) / max(
            1, len(self.requests)
        )

    def quantile_ms(self, of: str, share: float, wanted_ms: float) -> float:
        """Of the requests wanted at least so long: the time that `share` of them do not exceed to "first" or "last"."""
        pairs = zip(self.requests, self.outcomes, strict=True)
        times = sorted(getattr(outcome, f"{of}_ms") for request, outcome in pairs if request.wanted_ms >= wanted_ms)
        return times[max(0, math.ceil(share * len(times)) - 1)] if times else NEVER_MS

    @property
    def busy(self) -> float:
        """Share of the time that the replicas were at work."""
        return sum(replica.busy_ms for replica in self.replicas) / sum(
            max(replica.end_ms, self.horizon_ms) for replica in self.replicas
        )

    @property
    def mean_batch(self) -> float:
        rounds = sum(replica.rounds for replica in self.replicas)
        return sum(replica.sequence_rounds for replica in self.replicas) / max(1, rounds)


def run(
    requests: Sequence[FleetRequest], serving: Serving, replicas: int, horizon_ms: float, affinity: bool = True
) -> Run:
    """Serve the requests in the order of their times."""
    in_time = sorted(requests, key=lambda one: one.at_ms)
    outcomes: list[Outcome] = [Outcome()] * len(in_time)
    served = []
    for numbers in route(in_time, replicas, affinity):
        share = [in_time[number] for number in numbers]
        mine, replica = serve(share, serving, 1 if affinity else replicas, numbers=numbers)
        served.append(replica)
        for number, outcome in zip(numbers, mine, strict=True):
            outcomes[number] = outcome
    return Run(requests=in_time, outcomes=outcomes, replicas=served, horizon_ms=horizon_ms)
