"""One completion, from a request in text to pieces of text: prompt, drafters, rounds, characters, stop texts.

Request ─► prompt.build ─► generate ─► text, as soon as it is certain ─► Piece … Piece, Result

Several may be under way, a round of each in turn, in any order: what they share is the cache, where each has a slot,
and what the policy learned, which decides how long a text takes and not what it says.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from time import perf_counter
from weakref import WeakSet

from speclsp.config import EngineConfig
from speclsp.engine.api import Likely, Piece, Request, Result
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.branches import Branches, Branching
from speclsp.engine.decoding.drafters import Drafter, ModelDrafter, NGramDrafter, ReuseDrafter
from speclsp.engine.decoding.fused_round import FusedDrafter, FusedRound
from speclsp.engine.decoding.generate import PAUSE, BranchPoint, Limits, Prefill, Round, generate
from speclsp.engine.decoding.policy import Costs, FixedPolicy, MeasuredPolicy
from speclsp.engine.decoding.prompt import Prompt, Prompter
from speclsp.engine.decoding.token_healing import Healing, RespelledTokens
from speclsp.engine.decoding.vocabulary import TextStream
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.errors import InputError
from speclsp.weights.cards import Card

# A step on a GPU may meet a shape for the first time and compile its kernels; the watchdog waits 20 times as long.
COMPILING_MS = 1500.0


@dataclass(slots=True, kw_only=True)
class CompletionEngine:
    """A loaded pair: makes completions, a round at a time, from one thread. See seam.Completer."""

    card: Card
    config: EngineConfig
    device: str
    target_decoder: CachedModel
    draft_decoder: CachedModel | None
    target_format: str  # and the kernels it runs on, in words
    draft_format: str = field(default="", kw_only=True)
    prompter: Prompter
    costs: Costs
    fused: FusedRound | None = None  # both models on one GPU
    policy: MeasuredPolicy = field(init=False)
    under_way: WeakSet[RunningCompletion] = field(init=False, default_factory=WeakSet)

    def __post_init__(self) -> None:
        self.policy = MeasuredPolicy(self.costs, self.config.max_gamma, self.config.model_gamma)

    @property
    def pair(self) -> str:
        return self.card.name

    @property
    def target(self) -> str:
        return f"{self.card.target.name} ({self.target_format})"

    @property
    def draft(self) -> str:
        if self.draft_decoder is None or self.card.draft is None:
            return ""
        return f"{self.card.draft.name} ({self.draft_format})"

    def complete(self, request: Request, cancel: threading.Event) -> RunningCompletion:
        """Start a completion; iterate it for Pieces.

        Raises:
            InputError: the request cannot be served.
        """
        check(request)
        prompt = self.prompter.build(request)
        check_begin(request, prompt.heal, self.prompter)
        running = RunningCompletion(self, request, prompt, cancel)
        self.under_way.add(running)
        return running

    def keep_slots(self, slots: int) -> None:
        """Keep the cache for so many texts from now on; between rounds. See CachedModel.keep_slots."""
        for decoder in filter(None, (self.target_decoder, self.draft_decoder)):
            decoder.keep_slots(slots)

    def empty(self) -> None:
        """Forget every text that was read; completions under way read theirs again. Between rounds."""
        for decoder in filter(None, (self.target_decoder, self.draft_decoder)):
            decoder.empty()

    def keep_context(self, tokens: int) -> None:
        """Prompts of at most so many tokens from now on, cut to that. Between completions."""
        for decoder in filter(None, (self.target_decoder, self.draft_decoder)):
            decoder.keep_context(tokens)
        self.prompter.context_tokens = tokens

    @property
    def step_ms(self) -> float:
        """What a step of prefill or a round takes at most, as measured: see seam.Completer."""
        costs, target, gamma = self.costs, self.target_decoder, self.config.max_gamma
        prefill_ms = (target.prefill_tokens + target.ride_tokens) * (costs.prefill_ms + costs.draft_prefill_ms)
        step_ms = prefill_ms + gamma * costs.draft_ms + costs.verify(gamma + 1)
        return step_ms if self.device.startswith("cpu") else max(step_ms, COMPILING_MS)

    @property
    def passes(self) -> int:
        """Steps of prefill so far, of both models: a round may take some for the draft."""
        return sum(decoder.steps_done for decoder in (self.target_decoder, self.draft_decoder) if decoder is not None)

    def drop_draft(self) -> None:
        """Let go of the draft model, between rounds: completions under way go on without it."""
        self.draft_decoder = self.fused = None
        for running in self.under_way:
            running.drafters[:] = [drafter for drafter in running.drafters if drafter.free]

    def take_draft(self, decoder: CachedModel, costs: Costs, fused: FusedRound | None = None) -> None:
        """The draft model is back, for completions that begin from now on; `costs` are measured anew."""
        self.draft_decoder, self.fused = decoder, fused
        self.costs = self.policy.costs = costs

    def ngrams(self, prompt: Prompt) -> Drafter:
        """What followed before: by tokens, and where a partial word is respelled by its text."""
        ngram = NGramDrafter(prompt.elsewhere)
        if not prompt.heal:
            return ngram
        prompter = self.prompter
        return RespelledTokens(
            ngram, prompt.heal, prompt.elsewhere, len(prompt.ids), prompter.vocabulary, prompter.encode_once
        )

    def drafters(self, request: Request, prompt: Prompt, cancel: threading.Event) -> list[Drafter]:
        """Who may guess, cheapest first."""
        if not request.speculate or request.gamma == 0:
            return []
        drafters: list[Drafter] = []
        if prompt.previous:
            drafters.append(ReuseDrafter(prompt.previous, start=len(prompt.ids)))
        drafters.append(self.ngrams(prompt))
        stop = self.prompter.stop_tokens
        looked_at = request.logprobs is not None or bool(request.branches)
        if self.fused is not None and not looked_at:  # its rounds bring no logits to the host
            healing = Healing(prompt.heal, self.prompter.vocabulary)
            drafters.append(
                FusedDrafter(
                    self.fused,
                    sampling_of(request),
                    stop,
                    banned=tuple(stop) if request.ignore_eos else (),
                    constrained=lambda ids: healing.allowed(ids[len(prompt.ids) :]) is not None,
                    cancel=cancel,
                )
            )
        elif self.draft_decoder is not None:
            drafters.append(ModelDrafter(self.draft_decoder, stop, cancel=cancel))
        return [drafter for drafter in drafters if not request.sources or drafter.source in request.sources]


@dataclass(eq=False)  # no slots: the engine knows it weakly, and Python 3.10 has no weakref_slot
class RunningCompletion:
    """A completion under way. `result` is up to date after each Piece and final after the last.

    A Piece without tokens, and with no `stop_type` in the result, is a pause between two steps of prefill.
    """

    engine: CompletionEngine
    request: Request
    prompt: Prompt
    cancel: threading.Event
    result: Result = field(default_factory=Result)
    drafters: list[Drafter] = field(default_factory=list)

    def __iter__(self) -> Iterator[Piece]:
        began_s = perf_counter()
        engine, request, prompt, result = self.engine, self.request, self.prompt, self.result
        result.prompt_tokens, result.left_out_tokens = len(prompt.ids), len(prompt.elsewhere)
        stream = TextStream(engine.prompter.vocabulary, prompt.heal)
        pending = ""  # text that may still turn out to be the start of a stop text
        sampler, branches = self.sampler(), None
        if isinstance(sampler, Branching):
            prompter = engine.prompter
            branches = Branches(sampler, prompter.vocabulary, request.begin, prompt.heal, prompter.stop_tokens)
        for step in self.rounds(began_s, sampler):
            if step is PAUSE:
                yield Piece(text="", tokens=(), source="", drafted=0, accepted=0, ms=0.0)
                continue
            if step.tokens and not result.tokens:
                result.ttft_ms = (perf_counter() - began_s) * 1e3
            held_chars, fresh, accepted_chars, at, used = len(pending), "", 0, None, 0
            ends = [0]
            for token in step.tokens:  # one by one: a stop text ends plain and speculative decoding at the same token
                fresh += stream.push([token])
                ends.append(len(fresh))
                used += 1
                if used == min(step.accepted, len(step.tokens)):
                    accepted_chars = held_chars + len(fresh)
                if (at := first_stop(pending + fresh, request.stop)) is not None:
                    break
            stop = step.stop if at is None else "word"
            fresh += stream.push([], final=bool(stop))
            pending += fresh
            keep = 0 if stop else longest_stop_start(pending, request.stop)
            text = pending[: len(pending) - keep if at is None else at]
            pending = pending[len(text) :]
            accepted = min(step.accepted, used)
            self.count(step, used, accepted)
            likely = self.likely(step.tokens[:used], step.likely)
            result.likely += likely
            result.text += text
            result.stop_type = stop
            yield Piece(
                text=text,
                tokens=tuple(step.tokens[:used]),
                source=step.source,
                drafted=step.drafted,
                accepted=accepted,
                ms=step.ms,
                accepted_chars=min(len(text), accepted_chars),
                likely=likely,
                logprobs=step.logprobs[:used],
                characters=tuple(end - start for start, end in pairwise(ends)) if step.logprobs else (),
                branches=branches.step(step.tokens[:used], stop == "eos") if branches is not None else None,
            )
            if stop:
                return

    def sampler(self) -> Sampler:
        """What chooses the tokens."""
        request = self.request
        sampling = sampling_of(request)
        return Branching(sampling, request.branches) if request.branches else Sampler(sampling)

    def rounds(self, began_s: float, sampler: Sampler) -> Iterator[Round]:
        """The request's rounds, plain or speculative; before them, what it was told to begin with."""
        engine, request, prompt = self.engine, self.request, self.prompt
        if not request.cache_prompt:
            for decoder in filter(None, (engine.target_decoder, engine.draft_decoder)):
                decoder.forget(all_of_it=False)
        prompter = engine.prompter
        limits = Limits(
            max_tokens=request.max_tokens - len(request.begin),
            stop_tokens=prompter.stop_tokens,
            banned_tokens=tuple(sorted(prompter.stop_tokens)) if request.ignore_eos else (),
            deadline_ms=request.deadline_ms,
            started_s=began_s,
        )
        if request.max_tokens:  # reading ahead teaches nothing
            engine.policy.start()
        prefill = Prefill()
        self.drafters = engine.drafters(request, prompt, self.cancel)
        policy = engine.policy if request.gamma is None else FixedPolicy(request.gamma)
        begin = list(request.begin)
        heal = prompt.heal[sum(len(prompter.vocabulary.bytes[token]) for token in begin) :]
        given = bool(begin)
        try:
            for step in generate(
                engine.target_decoder,
                self.drafters,
                policy,
                [*prompt.ids, *begin],
                limits,
                sampler,
                self.cancel,
                Healing(heal, prompter.vocabulary) if heal else None,
                prefill,
                request.logprobs,
                request.round_logprobs,
                careful=request.idle,
            ):
                self.result.cached_tokens = min(prefill.cached_tokens, len(prompt.ids))
                self.result.prompt_ms = prefill.ms
                self.result.prefilled_tokens = prefill.computed_tokens
                if given and step is not PAUSE:
                    given, sure = False, (0.0,) * len(begin) if request.round_logprobs else ()
                    yield Round(tokens=begin, source="", drafted=0, accepted=0, ms=0.0, logprobs=sure)
                yield step
        finally:
            self.drafters.clear()  # with their seats in the draft's cache

    def likely(self, tokens: Sequence[int], places: Sequence[BranchPoint]) -> tuple[Likely, ...]:
        """What the target thought of each token, with their texts. A respelled one has the text before the cursor."""
        text = self.engine.prompter.vocabulary.text
        return tuple(
            Likely(
                token=token,
                text=text(token),
                logprob=place.logprob,
                top=tuple((other, text(other), logprob) for other, logprob in place.top),
            )
            for token, place in zip(tokens, places, strict=False)
        )

    def count(self, step: Round, used: int, accepted: int) -> None:
        """Add a round to the result: the first `used` of its tokens, of which `accepted` were guesses."""
        result = self.result
        given = len(result.tokens) < len(self.request.begin)
        result.tokens += step.tokens[:used]
        result.decode_ms += step.ms
        result.rounds += (bool(step.tokens) and not given) or bool(step.ms)
        result.drafted += step.drafted
        result.accepted += accepted
        if step.drafted:
            counts = result.by_source.setdefault(step.source, {"drafted": 0, "accepted": 0})
            counts["drafted"] += step.drafted
            counts["accepted"] += accepted


def sampling_of(request: Request) -> Sampling:
    """How a request wants its tokens chosen."""
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        seed=request.seed,
        method=request.sampling,
    )


def check(request: Request) -> None:
    """Refuse what cannot be sampled.

    Raises:
        InputError: names the field, what was found and what is wanted.
    """
    for name, ok, wanted in (
        ("max_tokens", request.max_tokens >= 0, "0 (prefill only) or more"),
        ("temperature", 0.0 <= request.temperature <= 100.0, "0 to 100"),
        ("top_p", 0.0 < request.top_p <= 1.0, "above 0 and at most 1"),
        ("top_k", request.top_k >= 0, "0 or more"),
        ("deadline_ms", request.deadline_ms >= 0, "0 or more"),
        ("sampling", request.sampling in ("coupled", "rejection"), '"coupled" or "rejection"'),
        ("logprobs", request.logprobs is None or request.logprobs >= 0, "0 or more"),
        ("gamma", request.gamma is None or 0 <= request.gamma <= 64, "0 to 64"),
    ):
        if not ok:
            raise InputError(f"{name} = {getattr(request, name)!r} is not valid: expected {wanted}.")


def check_begin(request: Request, heal: bytes, prompter: Prompter) -> None:
    """Refuse a beginning that no completion of the request can have.

    Raises:
        InputError: as `check`.
    """
    begin, spelled = request.begin, prompter.vocabulary.bytes
    if not begin:
        return
    if not all(0 <= token < len(spelled) and token not in prompter.stop_tokens for token in begin):
        raise InputError("begin names a token that is none of the text's: expected what `branches` tells.")
    if len(begin) >= request.max_tokens:
        raise InputError(f"begin has {len(begin)} tokens: expected fewer than {request.max_tokens}, the most wanted.")
    said = b"".join(spelled[token] for token in begin)
    if not (said.startswith(heal) or heal.startswith(said)):
        raise InputError("begin does not spell the partial word before the cursor: expected what `branches` tells.")


def first_stop(text: str, stops: tuple[str, ...]) -> int | None:
    """Where the first stop text starts; None when there is none."""
    found = [at for stop in stops if stop and (at := text.find(stop)) >= 0]
    return min(found, default=None)


def longest_stop_start(text: str, stops: tuple[str, ...]) -> int:
    """How many of the last characters could be the beginning of a stop text."""
    longest = len(text)  # however long a stop text is
    sizes = (s for stop in stops for s in range(min(len(stop) - 1, longest), 0, -1) if text.endswith(stop[:s]))
    return max(sizes, default=0)
