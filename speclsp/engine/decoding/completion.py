"""One completion, from a request in text to pieces of text: prompt, drafters, rounds, characters, stop texts.

Request ─► Prompter.build ─► generate ─► text, as soon as it is certain ─► Piece … Piece, Result

Several completions may run at once, one round each in turn, in any order. They share the cache, where each owns a
slot, and the policy's estimates, which decide how long a text takes but not its content.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from time import perf_counter
from typing import TYPE_CHECKING

from speclsp.config import EngineConfig
from speclsp.engine.api import Piece, Request, Result
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.branches import BranchReporter, RecordingSampler
from speclsp.engine.decoding.drafters import Drafter, ModelDrafter, NGramDrafter, ReuseDrafter
from speclsp.engine.decoding.generate import PAUSE, Limits, Observer, PrefillStats, Round, generate
from speclsp.engine.decoding.policy import MAX_MODEL_GAMMA, Costs, FixedPolicy, MeasuredPolicy
from speclsp.engine.decoding.prompt import Prompt, Prompter
from speclsp.engine.decoding.stop_texts import StopTexts
from speclsp.engine.decoding.token_healing import Healing, RespelledTokens
from speclsp.engine.decoding.vocabulary import TextStream
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.errors import InvalidLogits
from speclsp.weights.cards import Card

if TYPE_CHECKING:
    from speclsp.engine.decoding.fused_round import FusedRound

# A step on a GPU may see a shape for the first time and compile its kernels; the watchdog waits 20 times as long.
COMPILING_MS = 1500.0


@dataclass(slots=True, kw_only=True)
class CompletionEngine:
    """A loaded target and draft: makes completions, a round at a time, from one thread. See api.Completer."""

    card: Card
    config: EngineConfig
    device: str
    target_decoder: CachedModel
    draft_decoder: CachedModel | None
    target_format: str  # number format and kernels, for display
    draft_format: str = ""
    prompter: Prompter
    costs: Costs
    fused: FusedRound | None = None  # both models on one GPU
    policy: MeasuredPolicy = field(init=False)

    def __post_init__(self) -> None:
        self.policy = MeasuredPolicy(self.costs, self.config.max_draft_tokens)

    @property
    def model(self) -> str:
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
            InputError: no completion can start with `begin`.
        """
        prompt = self.prompter.build(request)
        self.prompter.check_begin(request, prompt.heal)
        request = replace(request, begin=request.begin[: prompt.max_tokens])
        return RunningCompletion(self, request, prompt, cancel)

    def empty(self) -> None:
        """Forget every cached text; running completions have theirs computed again. Between rounds."""
        for decoder in self.decoders():
            decoder.empty()

    def decoders(self) -> list[CachedModel]:
        """The target's decoder, and the draft's if there is one."""
        return [decoder for decoder in (self.target_decoder, self.draft_decoder) if decoder is not None]

    @property
    def step_ms(self) -> float:
        """The longest a step of prefill or a round should take, as measured: see api.Completer."""
        costs, target, gamma = self.costs, self.target_decoder, self.config.max_draft_tokens
        prefill_ms = (target.prefill_tokens + target.tail_tokens) * (costs.prefill_ms + sum(costs.missing_ms.values()))
        from_model = min(gamma, MAX_MODEL_GAMMA)
        step_ms = prefill_ms + from_model * costs.guess(ModelDrafter.source) + costs.verify(gamma + 1)
        return step_ms if self.device.startswith("cpu") else max(step_ms, COMPILING_MS)

    @property
    def passes(self) -> int:
        """Steps of prefill so far, of both models: a round may include some for the draft."""
        return sum(decoder.steps_done for decoder in self.decoders())

    @property
    def context_tokens(self) -> int:
        return self.prompter.context_tokens

    @property
    def trained_tokens(self) -> int:
        return self.card.context_tokens

    def truncate(self, request: Request) -> Request:
        """See api.Completer."""
        return self.prompter.truncate(request)

    def make_drafters(self, request: Request, prompt: Prompt, cancel: threading.Event) -> list[Drafter]:
        """The drafters for one request, cheapest first."""
        if not request.speculate or request.gamma == 0:
            return []
        drafters: list[Drafter] = []
        prompter, stop = self.prompter, self.prompter.stop_tokens
        if prompt.previous:
            drafters.append(ReuseDrafter(prompt.previous, start=len(prompt.ids)))
        ngram = NGramDrafter(prompt.left_out)
        if prompt.heal:  # by characters, while a partial word is respelled
            drafters.append(
                RespelledTokens(
                    ngram, prompt.heal, prompt.left_out, len(prompt.ids), prompter.vocabulary, prompter.encode_once
                )
            )
        else:
            drafters.append(ngram)
        if self.fused is not None and not request.branches:  # a fused round brings no logits to the host
            from speclsp.engine.decoding.fused_round import FusedDrafter  # and torch with it, which a GPU has loaded

            healing = Healing(prompt.heal, prompter.vocabulary)
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


@dataclass(eq=False, slots=True)
class RunningCompletion:
    """A running completion. `result` is up to date after each Piece and final after the last.

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
        prompt, prompter, result = self.prompt, self.engine.prompter, self.result
        result.prompt_tokens = len(prompt.ids)
        result.left_out_tokens, result.truncated = prompt.left_out_tokens, prompt.truncated
        text = StopTexts(TextStream(prompter.vocabulary, prompt.heal), self.request.stop)
        sampler, branches = self.make_sampler(), None
        if isinstance(sampler, RecordingSampler):
            branches = BranchReporter(
                sampler, prompter.vocabulary, self.request.begin, prompt.heal, prompter.stop_tokens
            )
        for step in self.rounds(began_s, sampler):
            if step is PAUSE:
                yield Piece(text="", tokens=(), source="", drafted=0, accepted=0, ms=0.0)
                continue
            if step.tokens and not result.tokens:
                result.ttft_ms = (perf_counter() - began_s) * 1e3
            yield self.piece(step, text, branches)
            if result.stop_type:
                return

    def piece(self, step: Round, text: StopTexts, branches: BranchReporter | None) -> Piece:
        """A round's tokens up to the first stop text, with the text that is certain now; adds it to the result."""
        result, decoded_chars = self.result, len(self.result.text) + len(text.withheld)
        added = text.add(step.tokens, step.stop)
        tokens = step.tokens[: added.tokens]
        accepted = min(step.accepted, added.tokens)
        self.count_round(step, tokens, accepted)
        result.text += added.text
        result.ends += [decoded_chars + end for end in added.ends[1:]]
        result.stop_type = added.stop
        return Piece(
            text=added.text,
            tokens=tuple(tokens),
            source=step.source,
            drafted=step.drafted,
            accepted=accepted,
            ms=step.ms,
            logprobs=step.logprobs[: added.tokens],
            characters=tuple(end - start for start, end in pairwise(added.ends)) if step.logprobs else (),
            branches=branches.step(tokens, added.stop == "eos") if branches is not None else None,
        )

    def make_sampler(self) -> Sampler:
        """The sampler that chooses this completion's tokens."""
        sampling = sampling_of(self.request)
        branches = self.request.branches
        return RecordingSampler(sampling, branches) if branches else Sampler(sampling)

    def rounds(self, began_s: float, sampler: Sampler) -> Iterator[Round]:
        """The request's rounds, plain or speculative; before them, as one round, the tokens of `Request.begin`."""
        engine, request, prompt = self.engine, self.request, self.prompt
        if not request.cache_prompt:
            for decoder in engine.decoders():
                decoder.forget(include_owned=False)
        if request.max_tokens:  # a prefill ahead of the request teaches nothing
            engine.policy.start()
        prefill = PrefillStats()
        self.drafters = engine.make_drafters(request, prompt, self.cancel)
        begin = list(request.begin)
        begin_is_due = bool(begin)
        try:
            for step in generate(
                engine.target_decoder,
                self.drafters,
                engine.policy if request.gamma is None else FixedPolicy(request.gamma),
                [*prompt.ids, *begin],
                self.limits(began_s),
                sampler,
                self.cancel,
                Observer(prefill=prefill, logprobs=request.round_logprobs),
            ):
                self.result.cached_tokens = min(prefill.cached_tokens, len(prompt.ids))
                self.result.prompt_ms = prefill.ms
                self.result.prefilled_tokens = prefill.computed_tokens
                if begin_is_due and step is not PAUSE:
                    begin_is_due = False
                    yield self.begin_round()
                yield step
        except InvalidLogits:
            engine.empty()  # what made them may be in the cache
            raise
        finally:
            self.drafters.clear()  # and with them their slots in the draft's cache

    def begin_round(self) -> Round:
        """The tokens of `Request.begin` as a round: nothing else could come."""
        request, tokens = self.request, list(self.request.begin)
        return Round(
            tokens=tokens,
            source="",
            drafted=0,
            accepted=0,
            ms=0.0,
            logprobs=(0.0,) * len(tokens) if request.round_logprobs else (),
        )

    def limits(self, began_s: float) -> Limits:
        """The request's limits, as `generate` takes them; `Request.begin` counts as generated already."""
        request, prompter = self.request, self.engine.prompter
        begin_bytes = sum(len(prompter.vocabulary.bytes[token]) for token in request.begin)
        heal = self.prompt.heal[begin_bytes:]
        return Limits(
            max_tokens=self.prompt.max_tokens - len(request.begin),
            stop_tokens=prompter.stop_tokens,
            banned_tokens=tuple(sorted(prompter.stop_tokens)) if request.ignore_eos else (),
            constraint=Healing(heal, prompter.vocabulary) if heal else None,
            deadline_ms=request.deadline_ms,
            started_s=began_s,
            low_priority=request.idle,
        )

    def count_round(self, step: Round, tokens: Sequence[int], accepted: int) -> None:
        """Add a round to the result: the `tokens` kept of it, of which `accepted` were guesses."""
        result = self.result
        from_begin = len(result.tokens) < len(self.request.begin)
        result.tokens += tokens
        result.decode_ms += step.ms
        result.rounds += (bool(step.tokens) and not from_begin) or bool(step.ms)
        result.drafted += step.drafted
        result.accepted += accepted
        if step.drafted:
            counts = result.by_source.setdefault(step.source, {"drafted": 0, "accepted": 0})
            counts["drafted"] += step.drafted
            counts["accepted"] += accepted


def sampling_of(request: Request) -> Sampling:
    """The sampling parameters of a request."""
    return Sampling(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        seed=request.seed,
        method=request.sampling,
    )
