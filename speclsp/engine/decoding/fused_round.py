"""A target and its draft on one GPU, whose whole round is one CUDA graph with one wait at its end.

    tail ─► draft ─► x1 ─► draft ─► x2 … xγ                    the draft's first step takes the text's last two tokens
    last x1 … xγ ─► target, one pass of fixed width ─► choices
    accept: how many hold; n, tail ◄─ the new ones; mail ─► pinned memory ─► the host

The draft's cache lacks at most its own last guess (after a round in which all held), so two tokens in its first step
make every round alike, and no pass is spent on repairs. The device itself advances n and tail: in steady state the host
sends nothing and reads one letter. Choices are greedy, or coupled draws (accept.py: noise that depends on seed and
position only), so the text is that of plain decoding through the same passes.

A first round that takes prompt tokens along, rounds in which what comes next is constrained, and rejection sampling go
through ModelDraft's own steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from speclsp.engine.decoding.accept import MOST_SEED, Sampling, noise_rows, warp
from speclsp.engine.decoding.drafters import Guess, ModelDrafter, Pick
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.model.cuda.decoder import PREFILL_WIDTHS, CudaDecoder, Uplink, Work, event_now, on
from speclsp.engine.model.decoder import ROWS
from speclsp.engine.model.kv_cache import CacheSlot, Cancelled, common_prefix

WARM_GAMMAS = (3, 5, 1, 2, 4, 8)  # captured while warming up, most wanted first


class FusedRound:
    """Rounds of a target and a draft that live on one device."""

    def __init__(self, target: CudaDecoder, draft: CudaDecoder) -> None:
        self.target, self.draft = target, draft
        self.graphs = draft.graphs = target.graphs  # one memory pool
        self.rows, device = target.widths[-1], target.device
        self.header = torch.zeros(6, dtype=torch.int64, device=device)
        self.n, self.tail = self.header[:1], self.header[1:3]
        self.target_slot, self.draft_slot, self.seed = self.header[3:4], self.header[4:5], self.header[5:6]
        self.uplink = Uplink(self.header)
        self.known: list[int] | None = None  # what the header holds on the device
        self.banned: frozenset[int] = frozenset()
        self.bias = torch.zeros(target.shape.vocab, device=device)  # -inf where banned
        self.guesses = torch.full((self.rows,), -1, dtype=torch.int64, device=device)
        self.letters = 1 + 2 * self.rows  # of the mail: what `accept` writes; the bits of logprobs follow it
        self.mail = torch.zeros(self.letters + self.rows, dtype=torch.int64, device=device)
        self.read = torch.zeros(self.mail.shape, dtype=torch.int64, pin_memory=self.mail.is_cuda)
        self.logprobs: tuple[float, ...] = ()  # accept.logprobs of the newest round's tokens

    @torch.inference_mode()
    def round(
        self,
        ids: Sequence[int],
        gamma: int,
        sampling: Sampling,
        banned: Sequence[int] = (),
        cancel: threading.Event | None = None,
        seat: CacheSlot | None = None,
    ) -> tuple[list[int], int, int]:
        """One round after `ids`, of which the target holds all but the last: guesses, how many hold, the next token.

        Args:
            gamma: guesses wanted, 1 or more; fewer are made where only fewer are captured.
            seat: the completion's, in the draft's cache.

        Raises:
            Cancelled: while the draft caught up.
        """
        n = len(ids)
        if n < 2 or len(self.target.ids) != n - 1:
            raise ValueError(f"a round after {n} tokens needs a target that holds all but the last of at least two")
        self._catch_up(ids, cancel, seat)
        self._ban(banned)
        letter = [n, ids[-2], ids[-1], self.target.slot, self.draft.slot, sampling.seed & MOST_SEED]
        if letter != self.known:
            self.uplink.send(letter)
        self.known = None  # until the device has done it: a round that fails half-way leaves what nobody knows
        mode = Sampling() if sampling.greedy else replace(sampling, seed=0)
        gamma = self._ready(min(gamma, self.rows - 1), mode)
        with on(self.target.device):
            self.graphs.run(self._key(gamma, mode), partial(self._round, gamma, mode))
        mail = self._receive()
        held, choice, guesses = mail[0], mail[1 : 1 + self.rows], mail[1 + self.rows : self.letters][:gamma]
        self.logprobs = tuple(self.read[self.letters :].int().view(torch.float32)[: held + 1].tolist())
        self.target.ids.extend([ids[-1], *guesses[:held]])
        self.draft.ids.extend([*ids[-2:], *guesses[: min(held, gamma - 1)]])  # its own last guess it has not been fed
        self.known = [n + held + 1, *[ids[-1], *choice[: held + 1]][-2:], *letter[3:]]
        return guesses, held, choice[held]

    def _catch_up(self, ids: Sequence[int], cancel: threading.Event | None, seat: CacheSlot | None) -> None:
        """Make the draft hold all but the last two of `ids`."""
        held, known = len(ids) - 2, ids[:-2]
        if (seat is not None and not seat.taken) or common_prefix(self.draft.ids, ids) < held:
            self.draft.settle(known, seat)
            while len(self.draft.ids) < held:
                self.draft.step(known, cancel)
        self.draft.rewind(held)

    def _ban(self, banned: Sequence[int]) -> None:
        if self.banned != frozenset(banned):
            self.banned = frozenset(banned)
            self.bias.zero_()
            self.bias[list(banned)] = -torch.inf

    def _key(self, gamma: int, mode: Sampling) -> Hashable:
        return "round", id(self), gamma, mode, bool(self.banned)

    def _ready(self, gamma: int, mode: Sampling) -> int:
        """`gamma`, or the largest below it that is captured, if any is: a request does not wait for a capture."""
        key, replays = self._key(gamma, mode), self.graphs.replays
        if self.graphs.record is None or key in replays:
            return gamma
        ready = next((fewer for fewer in range(gamma - 1, 0, -1) if self._key(fewer, mode) in replays), 0)
        if ready:
            self.graphs.wish(key, partial(self._round, gamma, mode))
        return ready or gamma

    def _receive(self) -> list[int]:
        """The one wait of a round."""
        self.read.copy_(self.mail, non_blocking=True)
        if (event := event_now(self.mail)) is not None:
            event.synchronize()
        letter: list[int] = self.read.tolist()
        return letter

    # ── on the device ────────────────────────────────────────────────────────────────────────────────────────

    def _round(self, gamma: int, mode: Sampling) -> None:
        """All of a round, from and to fixed places on the device."""
        guesses = [self._draft_step(self.tail, self.n - 2, self.n, mode)]
        for i in range(1, gamma):
            guesses.append(self._draft_step(guesses[-1], self.n + (i - 1), self.n + i, mode))
        self.guesses.fill_(-1)
        self.guesses[:gamma] = torch.cat(guesses)
        tokens = torch.cat([self.tail[1:], self.guesses[: self.rows - 1].clamp_min(0)])
        logits = self.target.logits_of(tokens, self.n - 1, self.target_slot)
        positions = self.n + torch.arange(self.rows, device=tokens.device)
        choice, mail = self._choose(logits, positions, mode), self.mail[: self.letters]
        self.target.ops.accept(choice, self.guesses, self.n, self.tail, mail)
        logits = logits + self.bias if self.banned else logits
        told = logits.gather(1, choice[:, None])[:, 0] - logits.logsumexp(dim=-1)
        self.mail[self.letters :] = told.float().view(torch.int32)

    def _draft_step(self, tokens: Tensor, start: Tensor, position: Tensor, mode: Sampling) -> Tensor:
        """The draft's token for `position`, [1], after feeding it `tokens` at `start`."""
        return self._choose(self.draft.logits_of(tokens, start, self.draft_slot, last_only=True), position, mode)

    def _choose(self, logits: Tensor, positions: Tensor, mode: Sampling) -> Tensor:
        """accept.Sampler.choose without leaving the device: [T, vocab] -> [T]."""
        if self.banned:
            logits = logits + self.bias
        if mode.greedy:
            return logits.argmax(dim=-1)
        return (warp(logits, mode) / noise_rows(self.seed, positions, logits.shape[-1])).argmax(dim=-1)


class FusedDrafter(ModelDrafter):
    """The draft model, whose guesses come verified wherever a whole round can run on the device.

    Args:
        pair: holds the draft.
        constrained: whether what follows the tokens given is limited; None: it never is.
    """

    def __init__(
        self,
        pair: FusedRound,
        sampling: Sampling,
        stop: frozenset[int] = frozenset(),
        banned: Sequence[int] = (),
        constrained: Callable[[Sequence[int]], bool] | None = None,
        p_min: float = 0.4,
        cancel: threading.Event | None = None,
    ) -> None:
        super().__init__(pair.draft, stop, p_min, cancel)
        self.pair, self.sampling, self.banned, self.constrained = pair, sampling, tuple(banned), constrained

    def propose(self, ids: Sequence[int], k: int, pick: Pick) -> Guess:
        limited = self.constrained is not None and self.constrained(ids)
        riding = len(self.pair.target.ids) != len(ids) - 1  # prompt tokens that the first round's pass takes along
        if k <= 0 or limited or riding or self.sampling.rejection or len(ids) < 2:
            return super().propose(ids, k, pick)
        try:
            guesses, held, token = self.pair.round(ids, k, self.sampling, self.banned, self.cancel, self.seat)
        except Cancelled:  # the loop sees it too, after this round
            return Guess([])
        return Guess(guesses, settled=(held, token), logprobs=self.pair.logprobs)


# ── warming up ───────────────────────────────────────────────────────────────────────────────────────────────


def warm_up(target: CudaDecoder, draft: CudaDecoder | None = None, repeats: int = 5) -> tuple[Costs, FusedRound | None]:
    """Run, capture and time every pass that the first completions need. The caches are empty afterwards.

    A step's cost is what a completion pays for it, from call to tokens: graph, launch and wait.
    """
    pair = None if draft is None else FusedRound(target, draft)
    most = min(PREFILL_WIDTHS[-1], target.context_tokens - 2 * target.widths[-1] - 2)
    context = [1 + i % 100 for i in range(most)]
    costs = Costs(verify_ms={}, prefill_ms=warm_prefill(target, context, repeats))
    width = target.widths[-1]
    step_ms = warm_step(target, width, len(context), repeats)
    for rows in range(ROWS, 4 * ROWS + 1, ROWS):
        costs.verify_ms[rows - ROWS + 1] = costs.verify_ms[rows] = step_ms * -(-rows // width)  # padded to ROWS
    if pair is not None and draft is not None:
        costs.draft_prefill_ms = warm_prefill(draft, context, repeats)
        for narrow in draft.widths:
            warm_step(draft, narrow, len(context), repeats)
        costs.draft_ms = warm_rounds(pair, context, repeats)
    for decoder in (target, *([draft] if draft else [])):
        decoder.forget()
    return costs, pair


def warm_prefill(decoder: CudaDecoder, context: Sequence[int], repeats: int) -> float:
    """Capture prefill and cut it into groups; milliseconds of one token."""

    def widest() -> None:
        decoder.rewind(0)
        decoder.extend(context)

    widest()
    decoder.divide(elapsed_ms(decoder.device, widest, repeats))
    for t in (*(min(width, len(context)) for width in PREFILL_WIDTHS), *decoder.widths):
        decoder.rewind(0)
        decoder.extend(context[:t])
    decoder.graphs.capture_wanted()
    return elapsed_ms(decoder.device, widest, repeats) / len(context)


def warm_step(decoder: CudaDecoder, rows: int, length: int, repeats: int) -> float:
    """Capture and time a pass with logits over `rows` tokens, from call to tokens."""

    def step() -> None:
        decoder.rewind(length)
        decoder.forward([1] * rows).argmax(dim=-1).tolist()

    step()
    decoder.graphs.capture_wanted()
    return elapsed_ms(decoder.device, step, repeats)


def warm_rounds(pair: FusedRound, context: Sequence[int], repeats: int) -> float:
    """Capture whole rounds; milliseconds that one more guess adds to one."""

    def once(gamma: int) -> None:
        pair.target.rewind(len(context) - 1)
        pair.round(context, gamma, Sampling())

    pair.target.catch_up(context[:-1])
    took_ms = {}
    for gamma in (gamma for gamma in WARM_GAMMAS if gamma < pair.rows):
        once(gamma)  # run, or where fewer guesses are captured, wished for
        pair.graphs.capture_wanted()
        took_ms[gamma] = elapsed_ms(pair.target.device, partial(once, gamma), repeats)
    low, high = min(took_ms), max(took_ms)
    return max((took_ms[high] - took_ms[low]) / (high - low), 1e-3)


def elapsed_ms(device: str, work: Work, repeats: int) -> float:
    """The median time of `work`, until the device has done it."""
    times = []
    for _ in range(repeats):
        began_s = perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        times.append((perf_counter() - began_s) * 1e3)
    return median(times)
