"""Model loading: from a card to a running engine.

    card ─► weights on disk ─► tokenizers agree? ─► plan ─► Decoder(target) [, Decoder(draft)] ─► costs ─► engine

`load` does it in one call, and `start` for the engine process (residency.py). load_plan.py makes the plan.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp import process_resources
from speclsp.config import Config
from speclsp.engine.decoding import policy
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading import adapter_choice
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.checkpoint import check_same_tokenizer, read_decoder, read_tokenizer
from speclsp.engine.loading.load_plan import (
    check_torch,
    cpu_threads,
    describe_device,
    explain_out_of_memory,
    pick_device,
    pick_draft_format,
    pick_plan,
    within_training,
)
from speclsp.engine.model.cuda.memory_plan import MemoryPlan
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.library import load_problem
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.scheduling.loaded_model import LoadedModel, ReportProgress
from speclsp.weights import store
from speclsp.weights.cards import Card
from speclsp.weights.locations import models_dir_problem
from speclsp.weights.store_messages import STAGES

if TYPE_CHECKING:
    from speclsp.engine.decoding.fused_round import FusedRound

log = logging.getLogger("speclsp.engine")


def load(config: Config, card: Card, progress: ReportProgress = lambda fraction, message: None) -> CompletionEngine:
    """Read, check, quantize and warm up a model and its draft.

    Raises:
        WeightsError: files are missing, altered, or not a supported model; the message names them and the fix.
        TokenizerMismatch: draft and target do not share a tokenizer.
        OutOfMemory: they do not fit on the device.
    """
    parts = prepare(config, card, progress)
    if parts.note:
        log.warning("%s", parts.note)
    return parts.build_engine(progress)


def start(config: Config, card: Card, progress: ReportProgress = lambda fraction, message: None) -> LoadedModel:
    """As `load`, for residency.py."""
    parts = prepare(config, card, progress)
    engine = parts.build_engine(progress)
    return LoadedModel(
        completer=engine,
        device=parts.device,
        clear_caches=engine.empty,
        note=parts.note,
        adapter=parts.loras[0].file.use() if parts.loras[0] else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedParts:
    """A model whose loading is decided; no weights are in memory yet."""

    config: Config
    card: Card
    device: str
    threads: int  # that compute on a CPU
    target_dir: Path
    draft_dir: Path | None  # None: the model has no draft, or there is no memory for it
    plan: MemoryPlan
    prompter: Prompter
    draft_format: str
    loras: Sequence[Lora | None]  # the target's adapter, then the draft's if it is loaded
    note: str  # why a GPU, a compiled library or an adapter is not used

    def read_target(self, progress: ReportProgress) -> CachedModel:
        """Read the target's weights."""
        return self._read(self.target_dir, self.plan.number_format, progress, lora=self.loras[0])

    def read_draft(self, progress: ReportProgress) -> CachedModel:
        """Read the draft's weights."""
        assert self.draft_dir is not None
        return self._read(self.draft_dir, self.draft_format, progress, rows=1, lora=self.loras[1])

    def _read(self, directory: Path, number_format: str, progress: ReportProgress, **options: Any) -> CachedModel:
        plan, vocab = self.plan, len(self.prompter.vocabulary)
        with explain_out_of_memory(self.card, plan, self.device):
            return read_decoder(
                directory, number_format, self.device, plan.context_tokens, vocab, progress, slots=plan.slots,
                threads=self.threads, **options,
            )  # fmt: skip

    def described(self, model: int, *facts: str) -> str:
        """The number format, the kernels and the adapter of a model, for display; `model`: 0 or 1, as in `loras`."""
        lora = self.loras[model]
        return ", ".join(filter(None, (*facts, f"adapter {lora.label}" if lora else "")))

    def build_engine(self, progress: ReportProgress) -> CompletionEngine:
        """Read the target and, if it is loaded, the draft, and warm them up; in the thread that runs completions."""
        target = self.read_target(share(progress, 0.5, 0.8))
        draft = self.read_draft(share(progress, 0.8, 0.9)) if self.draft_dir else None
        progress(0.92, "measuring this machine")
        costs, fused = self.warm_up(target, draft)
        progress(1.0, "ready")
        return CompletionEngine(
            card=self.card,
            config=self.config.engine,
            device=describe_device(self.device, self.threads),
            target_decoder=target,
            draft_decoder=draft,
            target_format=self.described(0, target.number_format or self.plan.number_format, target.path),
            draft_format=self.described(1, self.draft_format) if self.draft_dir else "",
            prompter=self.prompter,
            costs=costs,
            fused=fused,
        )

    def warm_up(self, target: CachedModel, draft: CachedModel | None) -> tuple[Costs, FusedRound | None]:
        """Measure the passes on this machine; on a GPU, capture whole rounds."""
        with explain_out_of_memory(self.card, self.plan, self.device):
            if self.device == "cpu":
                return policy.measure(target, draft), None
            from speclsp.engine.decoding.fused_round import warm_up
            from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder

            assert isinstance(target, CudaDecoder)
            return warm_up(target, draft if isinstance(draft, CudaDecoder) else None)


def prepare(config: Config, card: Card, progress: ReportProgress) -> LoadedParts:
    """Fetch the weights to disk, check that draft and target match, and decide what is loaded in which format.

    Raises:
        WeightsError: files are missing or altered.
        TokenizerMismatch: draft and target do not share a tokenizer.
        OutOfMemory: they do not fit on the device.
    """
    device = pick_device(config.device)
    config, context_note = within_training(config, card)
    if device == "cpu":
        native.use(config.engine.cpu_path)
    check_torch(config.engine.quantization, device)
    fetch = partial(weights_progress, share(progress, 0.0, 0.5))
    models_dir, offline = config.models_dir, config.engine.offline
    target_dir = store.ensure(card.target, models_dir=models_dir, offline=offline, progress=fetch)
    draft = card.draft if config.engine.draft else None
    draft_dir = store.ensure(draft, models_dir=models_dir, offline=offline, progress=fetch) if draft else None
    tokenizer = read_tokenizer(target_dir)
    vocabulary = Vocabulary(tokenizer)
    if draft_dir is not None:
        check_same_tokenizer(tokenizer, read_tokenizer(draft_dir), card)
    plan = pick_plan(config, card, device, target_dir, draft_dir)
    if not plan.draft:
        draft_dir = None
    models = [(card.target, target_dir), *([(draft, draft_dir)] if draft and draft_dir else [])]
    loras, note = adapter_choice.choose(config.engine.adapter, models_dir, models)
    library_note = load_problem(native.best_path()) if device == "cpu" else ""
    device_note = process_resources.pick_device(config.device)[1]
    notes = (device_note, library_note, note, context_note, models_dir_problem(models_dir))
    return LoadedParts(
        config=config,
        card=card,
        device=device,
        threads=cpu_threads(config, card.target.parameters),
        target_dir=target_dir,
        draft_dir=draft_dir,
        plan=plan,
        prompter=Prompter(card, tokenizer, vocabulary, plan.context_tokens),
        draft_format=pick_draft_format(card.draft_quantization, draft.parameters, device)
        if draft_dir and draft
        else "",
        loras=loras,
        note=" ".join(filter(None, notes)),
    )


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────


def share(progress: ReportProgress, start: float, end: float) -> ReportProgress:
    """A progress that maps 0..1 to `start`..`end` of another."""
    return lambda fraction, message: progress(start + (end - start) * fraction, message)


def weights_progress(progress: ReportProgress, step: store.Progress) -> None:
    """Report a step of fetching or checking weights, with sizes in MB."""
    done = step.done_bytes / step.total_bytes if step.total_bytes else 0.0
    sizes = f": {step.done_bytes // 10**6} of {step.total_bytes // 10**6} MB" if step.total_bytes else ""
    progress(min(done, 1.0), f"{STAGES[step.stage]} {step.detail}{sizes}")
