"""A fused round: target and draft on one GPU, the whole round as one CUDA graph with one wait at its end.

    tail ─► draft ─► x1 ─► draft ─► x2 … xγ                    the draft's first step takes the text's last two tokens
    tail x1 … xγ ─► target, one pass of fixed width ─► choices
    verify: number of accepted; n, tail ◄─ the new tokens; outcome ─► pinned memory ─► the host

The draft's cache lacks at most its own last guess, namely after a round in which all were accepted. So its first step
always takes two tokens: every round has the same shape, and no pass is spent on repairs. The target's pass takes the
same two. So both caches hold a prompt's second-last token as a round's pass computes it, and a draft with the target's
weights and width agrees with it in full: prefill would round that token otherwise. The device itself advances n
and tail: in steady state the host sends nothing and reads one result. Choices are greedy, or coupled draws (accept.py:
noise that depends on seed and position only), so the text is that of plain decoding through the same passes.

ModelDrafter's own steps serve constrained rounds and rejection sampling.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from functools import partial

import torch
from torch import Tensor

from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.drafters import Guess, ModelDrafter, Pick
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.model.cuda.decoder_warm_up import elapsed_ms, try_kernels, warm_context, warm_prefill, warm_step
from speclsp.engine.model.cuda.graphs import OWNERS, on
from speclsp.engine.model.cuda.ops import choose, verify
from speclsp.engine.model.cuda.uplink import Uplink, event_now
from speclsp.engine.model.draws import MAX_SEED, Draw
from speclsp.engine.model.kv_archive import common_prefix
from speclsp.engine.model.kv_cache import MAX_GAMMA, CacheSlot, Cancelled
from speclsp.engine.model.model_shape import ROWS
from speclsp.errors import InvalidLogits

WARM_GAMMAS = (3, 5, 1, 2, 4, 8)  # captured during warm-up, most useful first


class FusedRound:
    """Rounds of a target and a draft on one device."""

    def __init__(self, target: CudaDecoder, draft: CudaDecoder) -> None:
        self.target, self.draft = target, draft
        self.graphs = draft.graphs = target.graphs  # one memory pool
        self.owner = next(OWNERS)
        self.rows, device = target.widths[-1] - 1, target.device  # of choices; the pass's first row has none
        self.header = torch.zeros(6, dtype=torch.int64, device=device)
        self.n, self.tail = self.header[:1], self.header[1:3]
        self.target_slot, self.draft_slot, self.seed = self.header[3:4], self.header[4:5], self.header[5:6]
        self.uplink = Uplink(self.header)
        self.device_header: list[int] | None = None  # the header's values on the device; None: unknown
        self.guesses = torch.full((self.rows,), -1, dtype=torch.int64, device=device)
        self.outcome = torch.zeros(1 + 3 * self.rows, dtype=torch.int64, device=device)  # as ops.verify writes it
        self.on_host = torch.zeros(self.outcome.shape, dtype=torch.int64, pin_memory=self.outcome.is_cuda)
        self.logprobs: tuple[float, ...] = ()  # accept.logprobs of the newest round's tokens

    @torch.inference_mode()
    def round(
        self,
        ids: Sequence[int],
        gamma: int,
        sampling: Sampling,
        banned: Sequence[int] = (),
        cancel: threading.Event | None = None,
        cache_slot: CacheSlot | None = None,
    ) -> tuple[list[int], int, int]:
        """One round after `ids`: (guesses, number accepted, next token). The target lacks one or two of `ids`.

        Args:
            gamma: guesses wanted, 1 or more; fewer are made if only a shorter round is captured.
            cache_slot: the completion's, in the draft's cache.

        Raises:
            Cancelled: during the draft's prefill.
            InvalidLogits: the target's logits are not finite where a token is chosen.
        """
        n = len(ids)
        if n < 2 or len(self.target.ids) not in (n - 2, n - 1):
            raise ValueError(f"a round after {n} tokens needs a target that lacks one or two of at least two tokens")
        self.catch_up_draft(ids, cancel, cache_slot)
        self.target.ban(banned)
        header = [n, ids[-2], ids[-1], self.target.slot, self.draft.slot, sampling.seed & MAX_SEED]
        if header != self.device_header:
            self.uplink.send(header)
        self.device_header = None  # unknown until the round is done: a failed round may leave any values
        mode = None if sampling.draw is None else sampling.draw._replace(seed=0)
        gamma = self._captured_gamma(min(gamma, self.rows - 1), mode)
        with on(self.target.device):
            self.graphs.run(self.graph_key(gamma, mode), partial(self.round_on_device, gamma, mode))
        outcome = self.receive()
        accepted, choice = outcome[0], outcome[1 : 1 + self.rows]
        guesses, bits = outcome[1 + self.rows :][:gamma], self.on_host[1 + 2 * self.rows :].int()
        self.logprobs = tuple(bits.view(torch.float32)[: accepted + 1].tolist())
        for row, logprob in enumerate(self.logprobs):  # NaN where the row has NaN or no finite maximum
            if not math.isfinite(logprob):
                raise InvalidLogits(n + row, logprob)
        self.target.ids.extend([*ids[len(self.target.ids) :], *guesses[:accepted]])
        self.draft.ids.extend([*ids[-2:], *guesses[: min(accepted, gamma - 1)]])  # its last guess was not fed to it
        self.device_header = [n + accepted + 1, *[ids[-1], *choice[: accepted + 1]][-2:], *header[3:]]
        return guesses, accepted, choice[accepted]

    def catch_up_draft(self, ids: Sequence[int], cancel: threading.Event | None, cache_slot: CacheSlot | None) -> None:
        """Make the draft hold all but the last two of `ids`."""
        end, known = len(ids) - 2, ids[:-2]
        if (cache_slot is not None and not cache_slot.owned) or common_prefix(self.draft.ids, ids) < end:
            self.draft.acquire_slot(known, cache_slot)
            while len(self.draft.ids) < end:
                self.draft.step(known, cancel)
        self.draft.rewind(end)

    def graph_key(self, gamma: int, mode: Draw | None) -> Hashable:
        """The key of such a round's graph."""
        return "round", self.owner, gamma, mode, bool(self.target.banned)

    def _captured_gamma(self, gamma: int, mode: Draw | None) -> int:
        """`gamma`, or the largest captured one below it, if any: a request does not wait for a capture."""
        key, replays = self.graph_key(gamma, mode), self.graphs.replays
        if self.graphs.record is None or key in replays:
            return gamma
        ready = next((fewer for fewer in range(gamma - 1, 0, -1) if self.graph_key(fewer, mode) in replays), 0)
        if ready:
            self.graphs.count_use(key, partial(self.round_on_device, gamma, mode))
        return ready or gamma

    def receive(self) -> list[int]:
        """The outcome of a round; the one wait of the round."""
        self.on_host.copy_(self.outcome, non_blocking=True)
        if (event := event_now(self.outcome)) is not None:
            event.synchronize()
        outcome: list[int] = self.on_host.tolist()
        return outcome

    # ── on the device ────────────────────────────────────────────────────────────────────────────────────────

    def round_on_device(self, gamma: int, mode: Draw | None) -> None:
        """A whole round, from and to fixed memory on the device."""
        bias = self.target.bias if self.target.banned else None

        def drafted(tokens: Tensor, start: Tensor, position: Tensor) -> Tensor:
            """The draft's token for `position`, [1], after feeding it `tokens` at `start`."""
            logits = self.draft.logits_of(tokens, start, self.draft_slot, last_only=True)
            return choose(logits, bias, mode, self.seed, position)[0]

        guesses = [drafted(self.tail, self.n - 2, self.n)]
        for i in range(1, gamma):
            guesses.append(drafted(guesses[-1], self.n + (i - 1), self.n + i))
        self.guesses.fill_(-1)
        self.guesses[:gamma] = torch.cat(guesses)
        tokens = torch.cat([self.tail, self.guesses[: self.rows - 1].clamp_min(0)])
        logits = self.target.logits_of(tokens, self.n - 2, self.target_slot)[1:]
        positions = self.n + torch.arange(self.rows, device=tokens.device)
        verify(logits, bias, mode, self.seed, positions, self.guesses, self.n, self.tail, self.outcome)


class FusedDrafter(ModelDrafter):
    """The draft model; its guesses are already verified if a whole round can run on the device.

    Args:
        fused: runs the rounds; its draft makes the guesses.
        constrained: returns True if the tokens after `ids` are constrained; None: they never are.
    """

    def __init__(
        self,
        fused: FusedRound,
        sampling: Sampling,
        stop: frozenset[int] = frozenset(),
        banned: Sequence[int] = (),
        constrained: Callable[[Sequence[int]], bool] | None = None,
        cancel: threading.Event | None = None,
    ) -> None:
        super().__init__(fused.draft, stop, cancel=cancel)
        self.fused, self.sampling, self.banned, self.constrained = fused, sampling, tuple(banned), constrained

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        constrained = self.constrained is not None and self.constrained(ids)
        has_tail = len(self.fused.target.ids) < len(ids) - 2  # the round's pass includes more prompt tokens
        if k <= 0 or constrained or has_tail or self.sampling.rejection or len(ids) < 2:
            return super().propose(ids, k, pick)
        try:
            guesses, n, token = self.fused.round(ids, k, self.sampling, self.banned, self.cancel, self.cache_slot)
        except Cancelled:  # `generate` sees the cancellation too, after this round
            return Guess([])
        return Guess(guesses, verified=(n, token), logprobs=self.fused.logprobs)


# ── warm-up ───────────────────────────────────────────────────────────────────────────────────────────────


def warm_up(target: CudaDecoder, draft: CudaDecoder | None = None, repeats: int = 5) -> tuple[Costs, FusedRound | None]:
    """Run, capture and time every pass that the first completions need. The caches are empty afterwards.

    A step's cost is its time from call to tokens: graph, launch and wait.
    """
    fused = None if draft is None else FusedRound(target, draft)
    context = warm_context(target)
    for decoder in (target, *([draft] if draft else [])):
        try_kernels(decoder)
    costs = Costs(verify_ms={}, prefill_ms=warm_prefill(target, context, repeats))
    width = target.widths[-1]
    step_ms = warm_step(target, width, len(context), repeats)
    for rows in range(ROWS, MAX_GAMMA + 2 * ROWS, ROWS):  # as many as a round can have
        costs.verify_ms[rows - ROWS + 1] = costs.verify_ms[rows] = step_ms * -(-rows // width)  # padded to ROWS
    if fused is not None and draft is not None:
        costs.missing_ms = {ModelDrafter.source: warm_prefill(draft, context, repeats)}
        for narrow in draft.widths:
            warm_step(draft, narrow, len(context), repeats)
        costs.guess_ms = {ModelDrafter.source: warm_rounds(fused, context, repeats)}
    for decoder in (target, *([draft] if draft else [])):
        decoder.forget()
    return costs, fused


def warm_rounds(fused: FusedRound, context: Sequence[int], repeats: int) -> float:
    """Capture whole rounds; milliseconds that one more guess adds to a round."""

    def once(gamma: int) -> None:
        fused.target.rewind(len(context) - 1)
        fused.round(context, gamma, Sampling())

    fused.target.catch_up(context[:-1])
    round_ms = {}
    for gamma in (gamma for gamma in WARM_GAMMAS if gamma < fused.rows):
        once(gamma)  # runs, and requests the capture
        fused.graphs.capture_pending()
        round_ms[gamma] = elapsed_ms(fused.target.device, partial(once, gamma), repeats)
    low, high = min(round_ms), max(round_ms)
    return max((round_ms[high] - round_ms[low]) / (high - low), 1e-3)
