"""From a card to a running engine: weights found, checked against the memory there is, read, warmed up.

    card ─► weights on disk ─► tokenizers agree? ─► fits? ─► Decoder(target) [, Decoder(draft)] ─► costs ─► engine

`load` does it in one go. `start` is what the engine's process uses (holding.py): where the target takes long, it reads
the draft first, which answers alone meanwhile, and it says what can be given back to other programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import torch

from speclsp.config import Config
from speclsp.engine.decoding import policy
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.fused_round import FusedRound, warm_up
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading.checkpoint import (
    Progress,
    check_same_tokenizer,
    read_config,
    read_decoder,
    read_shape,
    read_tokenizer,
)
from speclsp.engine.loading.draft_only import DraftOnlyEngine
from speclsp.engine.model.cpu_linears import int8_is_exact, quicker_float
from speclsp.engine.model.cuda import decoder
from speclsp.engine.model.cuda.decoder import CudaDecoder
from speclsp.engine.model.int8 import native
from speclsp.engine.model.kv_cache import SLOTS, CachedModel
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.loaded_model import NO_DRAFT, LoadedModel, PendingTarget, ReleaseStep
from speclsp.errors import OutOfMemory, WeightsError
from speclsp.weights import cards, store
from speclsp.weights.cards import Card

SMALL_PARAMETERS = 50_000_000  # below this, "auto" keeps float32: it costs nothing and nothing is rounded
LEAST_CONTEXT_TOKENS = 256  # a prompt is cut no shorter than that for want of memory
LONG_PARAMETERS = 400_000_000  # from here on, reading the target takes long enough to let the draft answer meanwhile


def load(config: Config, card: Card, progress: Progress = lambda fraction, message: None) -> CompletionEngine:
    """Read, check, quantize and warm up a pair.

    Raises:
        WeightsError: files are missing, altered, or not a model we can run; the message says which and what to do.
        TokenizerMismatch: draft and target do not share a tokenizer.
        OutOfMemory: they do not fit on the device.
    """
    parts = find(config, card, progress)
    target = parts.read_target(share(progress, 0.5, 0.8))
    return parts.join(target, parts.read_draft(share(progress, 0.8, 0.9)) if parts.draft_dir else None, progress)


def start(
    config: Config, card: Card, progress: Progress = lambda fraction, message: None, with_draft: bool = True
) -> LoadedModel:
    """As `load`, and what residency.py needs to know. `with_draft` false: it is left out, and may be taken later."""
    parts = find(config, card, progress, with_draft)
    if parts.draft_dir is None or not with_draft:
        return parts.loaded(parts.join(parts.read_target(share(progress, 0.5, 0.9)), None, progress))
    if card.target.parameters < LONG_PARAMETERS:
        target = parts.read_target(share(progress, 0.5, 0.8))
        return parts.loaded(parts.join(target, parts.read_draft(share(progress, 0.8, 0.9)), progress))
    alone = Alone(parts, parts.read_draft(share(progress, 0.5, 0.6)), progress)
    return LoadedModel(
        completer=alone.completer(),
        pending_target=PendingTarget(read=alone.read, finish=alone.finish),
        clear_caches=alone.draft.empty,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedParts:
    """A pair of which everything is known, and nothing in memory yet."""

    config: Config
    card: Card
    device: str
    target_dir: Path
    draft_dir: Path | None  # None: the pair has no draft, or there is no room for it
    plan: decoder.MemoryPlan
    prompter: Prompter
    draft_format: str

    def read_target(self, progress: Progress) -> CachedModel:
        """The target's decoder."""
        with out_of_memory_in_words(self.card, self.plan, self.device):
            return read_decoder(
                self.target_dir,
                self.plan.number_format,
                self.device,
                self.plan.context_tokens,
                len(self.prompter.vocabulary),
                progress,
                slots=self.plan.slots,
            )

    def read_draft(self, progress: Progress) -> CachedModel:
        """The draft's."""
        assert self.draft_dir is not None
        with out_of_memory_in_words(self.card, self.plan, self.device):
            return read_decoder(
                self.draft_dir,
                self.draft_format,
                self.device,
                self.plan.context_tokens,
                len(self.prompter.vocabulary),
                progress,
                rows=1,
                slots=self.plan.slots,
            )

    def join(self, target: CachedModel, draft: CachedModel | None, progress: Progress) -> CompletionEngine:
        """The engine, warmed up; in the thread that will complete."""
        progress(0.92, "measuring this machine")
        costs, fused = self.warm_up(target, draft)
        progress(1.0, "ready")
        return CompletionEngine(
            card=self.card,
            config=self.config.engine,
            device=describe_device(self.device),
            target_decoder=target,
            draft_decoder=draft,
            target_format=", ".join(filter(None, (target.number_format or self.plan.number_format, target.path))),
            draft_format=self.draft_format,
            prompter=self.prompter,
            costs=costs,
            fused=fused,
        )

    def warm_up(self, target: CachedModel, draft: CachedModel | None) -> tuple[Costs, FusedRound | None]:
        """What passes take here; on a GPU whole rounds are captured."""
        with out_of_memory_in_words(self.card, self.plan, self.device):
            if isinstance(target, CudaDecoder):
                return warm_up(target, draft if isinstance(draft, CudaDecoder) else None)
            return policy.measure(target, draft), None

    def loaded(self, engine: CompletionEngine) -> LoadedModel:
        """The engine, and what of it can be given back to other programs."""

        def take_draft() -> None:
            draft = self.read_draft(lambda fraction, message: None)
            engine.take_draft(draft, *self.warm_up(engine.target_decoder, draft))

        steps, context_tokens = [], self.plan.context_tokens
        if self.plan.slots > 1:
            fewer, all_of_them = (lambda: engine.keep_slots(1)), (lambda: engine.keep_slots(self.plan.slots))
            steps.append(ReleaseStep(name="small cache", release=fewer, restore=all_of_them))
        for name, part in (("short context", 2), ("shorter context", 4)):
            if (tokens := self.plan.context_tokens // part) >= LEAST_CONTEXT_TOKENS:
                give, take = partial(engine.keep_context, tokens), partial(engine.keep_context, context_tokens)
                steps.append(ReleaseStep(name=name, release=give, restore=take, between_rounds=False, for_others=False))
                context_tokens = tokens
        if self.draft_dir is not None:
            steps.append(ReleaseStep(name=NO_DRAFT, release=engine.drop_draft, restore=take_draft))
        return LoadedModel(completer=engine, device=self.device, steps=tuple(steps), clear_caches=engine.empty)


class Alone:
    """The draft's decoder, which answers alone while the target's is read."""

    def __init__(self, parts: LoadedParts, draft: CachedModel, progress: Progress) -> None:
        self.parts, self.draft, self.progress = parts, draft, progress
        self.target: CachedModel | None = None
        if isinstance(draft, CudaDecoder):
            draft.graphs.record = None  # nothing is captured while another thread allocates; `join` makes new graphs

    def completer(self) -> DraftOnlyEngine:
        """What completes meanwhile."""
        parts = self.parts
        engine = CompletionEngine(
            card=parts.card,
            config=parts.config.engine,
            device=describe_device(parts.device),
            target_decoder=self.draft,
            draft_decoder=None,
            target_format=parts.draft_format,
            prompter=parts.prompter,
            costs=Costs(verify_ms={1: 1.0}),  # nothing is drafted, so nothing is decided by them
        )
        return DraftOnlyEngine(engine)

    def read(self) -> None:
        """Read the target, in a thread of its own."""
        self.target = self.parts.read_target(share(self.progress, 0.6, 0.9))

    def finish(self) -> LoadedModel:
        """Both as one engine; of what the draft did alone nothing is kept."""
        assert self.target is not None
        self.draft.forget()
        return self.parts.loaded(self.parts.join(self.target, self.draft, self.progress))


def find(config: Config, card: Card, progress: Progress, with_draft: bool = True) -> LoadedParts:
    """Have the weights on disk, see that draft and target suit each other, and decide what is loaded, and how.

    Raises:
        WeightsError: files are missing or altered.
        TokenizerMismatch: draft and target do not share a tokenizer.
        OutOfMemory: they do not fit on the device.
    """
    device = pick_device(config.device)
    if device == "cpu":
        torch.set_num_threads(config.engine.threads or power_of_two(psutil.cpu_count(logical=False) or 1))
    fetch = weights_progress(progress, 0.0, 0.5)
    models_dir, offline = config.models_dir, config.engine.offline
    target_dir = store.ensure(card.target, models_dir=models_dir, offline=offline, progress=fetch)
    draft = card.draft if config.engine.draft else None
    draft_dir = store.ensure(draft, models_dir=models_dir, offline=offline, progress=fetch) if draft else None
    tokenizer = read_tokenizer(target_dir)
    vocabulary = Vocabulary(tokenizer)
    if draft_dir is not None:
        check_same_tokenizer(tokenizer, read_tokenizer(draft_dir), card)
    plan = pick_plan(config, card, device, target_dir, draft_dir if with_draft else None)
    if with_draft and not plan.draft:
        draft_dir = None
    return LoadedParts(
        config=config,
        card=card,
        device=device,
        target_dir=target_dir,
        draft_dir=draft_dir,
        plan=plan,
        prompter=Prompter(card, tokenizer, vocabulary, plan.context_tokens),
        draft_format=pick_draft_format(card.draft_quantization, draft.parameters, device)
        if draft_dir and draft
        else "",
    )


# ── the device and the number format ─────────────────────────────────────────────────────────────────────────


def pick_device(wanted: str) -> str:
    """ "auto" is CUDA when there is a device, else the CPU.

    Raises:
        WeightsError: CUDA was asked for and there is none.
    """
    available = torch.cuda.is_available()
    if wanted.startswith("cuda") and not available:
        raise WeightsError(
            f'device = "{wanted}", and torch {torch.__version__} sees no CUDA device: set device = "auto".'
        )
    return "cuda" if wanted == "auto" and available else "cpu" if wanted == "auto" else wanted


def pick_format(wanted: str, device: str, parameters: int) -> str:
    """How the target's linears are kept: "fp32" | "bf16" | "int8" | "nf4".

    Raises:
        WeightsError: that format does not run on that device.
    """
    if wanted == "int8" and device != "cpu":
        raise WeightsError('engine.quantization = "int8" runs on a CPU only: set "bf16", "nf4" or "auto".')
    if wanted != "auto":
        return wanted
    if device != "cpu":
        return "bf16"
    if 0 < parameters < SMALL_PARAMETERS:
        return "fp32"
    return "int8" if native.best_path() or int8_is_exact() else quicker_float()


def pick_draft_format(wanted: str, parameters: int, device: str) -> str:
    """The card's choice for its draft; a tiny one is not worth quantizing, and int8 is quicker where forward.c runs.

    (0.5B on two cores: 20 ms a token in int8, 37 to 50 in nf4.)
    """
    if 0 < parameters < SMALL_PARAMETERS:
        return "fp32"
    return "int8" if device == "cpu" and native.best_path() else wanted or "nf4"


def describe_device(device: str) -> str:
    """In words, for people: "cpu (2 threads)" or the card's name."""
    return f"cpu ({torch.get_num_threads()} threads)" if device == "cpu" else torch.cuda.get_device_name(device)


def check_memory(card: Card, target_format: str, device: str, with_draft: bool = True) -> None:
    """Refuse, in words, what would be killed half-way."""
    need_mib = card.memory_mib.get(target_format, 0)
    if card.draft is not None and not with_draft:  # the card counts both
        need_mib = int(need_mib * card.target.parameters / (card.target.parameters + card.draft.parameters))
    free_mib = DeviceMemory(device).free_mib()
    if need_mib > free_mib:
        raise OutOfMemory(card.name, need_mib, free_mib, device, cards.WITHOUT_GPU)


def pick_plan(config: Config, card: Card, device: str, target_dir: Path, draft_dir: Path | None) -> decoder.MemoryPlan:
    """What is loaded: on a GPU what fits of what is wanted (cuda.fit), on a CPU what is wanted.

    Raises:
        OutOfMemory: it does not fit.
    """
    wanted, context_tokens = config.engine.quantization, config.engine.context_tokens
    number_format = pick_format(wanted, device, card.target.parameters)
    if device == "cpu":
        check_memory(card, number_format, device, with_draft=draft_dir is not None)
        return decoder.MemoryPlan(
            number_format=number_format, context_tokens=context_tokens, slots=SLOTS, draft=draft_dir is not None
        )
    return decoder.fit(
        card,
        (number_format, "nf4") if wanted == "auto" else (number_format,),
        context_tokens,
        kv_bytes(target_dir),
        kv_bytes(draft_dir) if draft_dir is not None else 0,
        DeviceMemory(device).free_mib(),
        device,
    )


def kv_bytes(directory: Path) -> int:
    """Of one token in a model's KV cache, in 16 bits."""
    config = read_config(directory)
    shape = read_shape(config, vocab=1)
    return int(2 * 2 * config.num_hidden_layers * shape.kv_heads * shape.head_dim)


@contextmanager
def out_of_memory_in_words(card: Card, plan: decoder.MemoryPlan, device: str) -> Iterator[None]:
    """Say what to do when the device has less room than it said.

    Raises:
        OutOfMemory: in place of torch's own error.
    """
    try:
        yield
    except torch.OutOfMemoryError:
        free_mib = DeviceMemory(device).free_mib()
        raise OutOfMemory(card.name, plan.need_mib, free_mib, device, decoder.smaller_card(card, free_mib)) from None


def power_of_two(threads: int) -> int:
    """The largest power of two not above `threads`: elementwise work then splits at vector boundaries."""
    return 1 << (threads.bit_length() - 1)


# ── progress ────────────────────────────────────────────────────────────────────────────────────────────────


def share(progress: Progress, start: float, end: float) -> Progress:
    """The part of a progress that goes from `start` to `end`."""
    return lambda fraction, message: progress(start + (end - start) * fraction, message)


STAGES = {"fetch": "fetching", "check": "checking", "convert": "converting"}


def weights_progress(progress: Progress, start: float, end: float) -> Callable[[Any], None]:
    """Fetching, checking and converting as one part of the whole, with the sizes for the one who waits."""

    def report(step: Any) -> None:
        done = step.done_bytes / step.total_bytes if step.total_bytes else 0.0
        sizes = f": {step.done_bytes // 10**6} of {step.total_bytes // 10**6} MB" if step.total_bytes else ""
        progress(start + (end - start) * min(done, 1.0), f"{STAGES.get(step.stage, step.stage)} {step.detail}{sizes}")

    return report
