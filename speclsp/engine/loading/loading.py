"""Model loading: from a card to a running engine, with memory checks and warm-up.

    card ─► weights on disk ─► tokenizers agree? ─► fits? ─► Decoder(target) [, Decoder(draft)] ─► costs ─► engine

`load` does it in one call. `start` is for the engine process (residency.py). If the target takes long to read, it
reads the draft first, which answers alone in the meantime. It also returns the steps that release memory again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp import process_resources
from speclsp.config import Config, EngineConfig
from speclsp.engine.decoding import policy
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading import adapter_choice
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.checkpoint import (
    INTEGERS,
    check_same_tokenizer,
    read_decoder,
    read_tokenizer,
)
from speclsp.engine.loading.draft_only import DraftOnlyEngine
from speclsp.engine.loading.memory_check import check_memory, explain_out_of_memory
from speclsp.engine.loading.model_config import matrix_bytes, read_config, read_shape
from speclsp.engine.model.cuda import memory_plan
from speclsp.engine.model.cuda.memory_plan import MemoryPlan
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.library import load_problem
from speclsp.engine.model.kv_cache import SLOTS, CachedModel
from speclsp.engine.scheduling.loaded_model import LoadedModel, PendingTarget, ReportProgress
from speclsp.engine.scheduling.memory_ladder import NO_DRAFT, SHORT_CONTEXT, SMALL_CACHE, ReleaseStep
from speclsp.errors import WeightsError
from speclsp.weights import auto_choice, store
from speclsp.weights.cards import Card
from speclsp.weights.locations import models_dir_problem
from speclsp.weights.store_messages import STAGES

if TYPE_CHECKING:
    from speclsp.engine.decoding.fused_round import FusedRound

log = logging.getLogger("speclsp.engine")

SMALL_PARAMETERS = 50_000_000  # below this, one thread computes, and without forward.c the format is float32
MIN_CONTEXT_TOKENS = 256  # memory pressure cuts prompts no shorter than this
LONG_PARAMETERS = 400_000_000  # from here on, the draft answers alone while the target is read


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
    return parts.whole_engine(progress)


def start(
    config: Config, card: Card, progress: ReportProgress = lambda fraction, message: None, with_draft: bool = True
) -> LoadedModel:
    """As `load`, for residency.py. `with_draft` false: the draft is not loaded yet, and may be restored later."""
    parts = prepare(config, card, progress, with_draft)
    if parts.draft_dir is None or not with_draft:
        return parts.loaded(parts.build_engine(parts.read_target(share(progress, 0.5, 0.9)), None, progress))
    if card.target.parameters < LONG_PARAMETERS:
        return parts.loaded(parts.whole_engine(progress))
    alone = DraftFirst(parts, parts.read_draft(share(progress, 0.5, 0.6)), progress)
    return LoadedModel(
        completer=alone.completer(),
        pending_target=PendingTarget(read=alone.read, finish=alone.finish),
        clear_caches=alone.draft.empty,
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

    def whole_engine(self, progress: ReportProgress) -> CompletionEngine:
        """Read the target and, if it is loaded, the draft; in the thread that will run completions."""
        target = self.read_target(share(progress, 0.5, 0.8))
        draft = self.read_draft(share(progress, 0.8, 0.9)) if self.draft_dir else None
        return self.build_engine(target, draft, progress)

    def described(self, model: int, *facts: str) -> str:
        """The number format, the kernels and the adapter of a model, for display; `model`: 0 or 1, as in `loras`."""
        lora = self.loras[model]
        return ", ".join(filter(None, (*facts, f"adapter {lora.label}" if lora else "")))

    def build_engine(
        self, target: CachedModel, draft: CachedModel | None, progress: ReportProgress
    ) -> CompletionEngine:
        """Build and warm up the engine; in the thread that will run completions."""
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

    def loaded(self, engine: CompletionEngine) -> LoadedModel:
        """The engine, with the steps that release its memory to other programs."""

        def restore_draft() -> None:
            draft = self.read_draft(lambda fraction, message: None)
            engine.restore_draft(draft, *self.warm_up(engine.target_decoder, draft))

        steps, plan = [], self.plan
        if plan.slots > 1:
            shrink, grow = (lambda: engine.set_slot_count(1)), (lambda: engine.set_slot_count(plan.slots))
            steps.append(ReleaseStep(name=SMALL_CACHE, release=shrink, restore=grow))
        if (tokens := max(MIN_CONTEXT_TOKENS, plan.context_tokens // 4)) <= plan.context_tokens // 2:
            shorten = partial(engine.set_context_tokens, tokens)
            lengthen = partial(engine.set_context_tokens, plan.context_tokens)
            steps.append(ReleaseStep(name=SHORT_CONTEXT, release=shorten, restore=lengthen, changes_text=True))
        if self.draft_dir is not None:
            steps.append(ReleaseStep(name=NO_DRAFT, release=engine.drop_draft, restore=restore_draft))
        return LoadedModel(
            completer=engine,
            device=self.device,
            steps=tuple(steps),
            clear_caches=engine.empty,
            note=self.note,
            adapter=self.loras[0].file.use() if self.loras[0] else {},
        )


class DraftFirst:
    """Loads the target in the background while the draft's decoder answers alone."""

    def __init__(self, parts: LoadedParts, draft: CachedModel, progress: ReportProgress) -> None:
        self.parts, self.draft, self.progress = parts, draft, progress
        self.target: CachedModel | None = None
        if parts.device != "cpu":
            from speclsp.engine.decoding.fused_round import prepare_alone

            with explain_out_of_memory(parts.card, parts.plan, parts.device):
                prepare_alone(draft)

    def completer(self) -> DraftOnlyEngine:
        """The completer for the time until the target is read."""
        parts = self.parts
        return DraftOnlyEngine(
            card=parts.card,
            config=parts.config.engine,
            device=describe_device(parts.device, parts.threads),
            target_decoder=self.draft,
            draft_decoder=None,
            target_format=parts.described(1, parts.draft_format),
            prompter=parts.prompter,
            costs=Costs(verify_ms={1: 1.0}),  # never read: nothing is drafted
        )

    def read(self) -> None:
        """Read the target's weights; in a separate thread."""
        self.target = self.parts.read_target(share(self.progress, 0.6, 0.9))

    def finish(self) -> LoadedModel:
        """Both models as one engine; the draft's cached tokens are dropped."""
        assert self.target is not None
        self.draft.forget()
        return self.parts.loaded(self.parts.build_engine(self.target, self.draft, self.progress))


def prepare(config: Config, card: Card, progress: ReportProgress, with_draft: bool = True) -> LoadedParts:
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
    fetch = partial(weights_progress, share(progress, 0.0, 0.5))
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


def within_training(config: Config, card: Card) -> tuple[Config, str]:
    """The settings with a context that the model was trained for, and the sentence about a longer one; "" otherwise.

    A model that was trained for less than the default, as tiny, keeps the setting.
    """
    wanted, trained = config.engine.context_tokens, card.context_tokens
    if wanted <= trained or trained < EngineConfig().context_tokens:
        return config, ""
    note = f"engine.context_tokens = {wanted} is above the {trained} tokens that {card.name} was trained for, "
    return replace(config, engine=replace(config.engine, context_tokens=trained)), note + f"so {trained} are used."


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────


def share(progress: ReportProgress, start: float, end: float) -> ReportProgress:
    """A progress that maps 0..1 to `start`..`end` of another."""
    return lambda fraction, message: progress(start + (end - start) * fraction, message)


def weights_progress(progress: ReportProgress, step: store.Progress) -> None:
    """Report a step of fetching or checking weights, with sizes in MB."""
    done = step.done_bytes / step.total_bytes if step.total_bytes else 0.0
    sizes = f": {step.done_bytes // 10**6} of {step.total_bytes // 10**6} MB" if step.total_bytes else ""
    progress(min(done, 1.0), f"{STAGES[step.stage]} {step.detail}{sizes}")


# ── the device and the number format ─────────────────────────────────────────────────────────────────────────


def pick_device(wanted: str) -> str:
    """ "auto" is CUDA when there is a device, else the CPU.

    Raises:
        WeightsError: CUDA is requested and there is none.
    """
    device, reason, fix = process_resources.find_gpu(wanted)
    if wanted.startswith("cuda") and device == "cpu":
        raise WeightsError(f'device = "{wanted}": {reason}: {fix}, or set device = "auto".')
    return device


def pick_format(wanted: str, device: str, parameters: int, prefers_int4: bool = False) -> str:
    """The number format of the target's linears: "fp32" | "bf16" | "int8" | "int4" | "nf4".

    Args:
        prefers_int4: "auto" is int4 on paths where its rounds are faster than those of int8 (docs/engine.md).

    Raises:
        WeightsError: that format does not run on that device.
    """
    if wanted in INTEGERS and device != "cpu":
        raise WeightsError(f'engine.quantization = "{wanted}" runs on a CPU only: set "bf16", "nf4" or "auto".')
    path = native.best_path()
    if wanted in INTEGERS and path not in native.CODED_PATHS:
        return "int8"
    if wanted != "auto":
        return wanted
    if device != "cpu":
        return "bf16"
    if path:
        return "int4" if prefers_int4 and path in native.FASTER_IN_INT4 else "int8"
    if 0 < parameters < SMALL_PARAMETERS:
        return "fp32"
    from speclsp.engine.model.cpu_linears import int8_is_exact, quicker_float

    return "int8" if int8_is_exact() else quicker_float()


def pick_draft_format(wanted: str, parameters: int, device: str) -> str:
    """int8 where forward.c runs: it is faster. Elsewhere fp32 for a tiny draft, and the card's number format.

    (0.5B on two cores: 20 ms a token in int8, 37 to 50 in nf4.)
    """
    if device == "cpu" and native.best_path():
        return "int8"
    return "fp32" if 0 < parameters < SMALL_PARAMETERS else wanted or "nf4"


def describe_device(device: str, threads: int) -> str:
    """The device for display: "cpu (2 threads)" or the GPU's name."""
    if device == "cpu":
        return f"cpu ({threads} threads)"
    import torch

    return torch.cuda.get_device_name(device)


def pick_plan(config: Config, card: Card, device: str, target_dir: Path, draft_dir: Path | None) -> MemoryPlan:
    """The memory plan: on a GPU the best one that fits (memory_plan.fit), on a CPU the configured one.

    Raises:
        OutOfMemory: it does not fit.
    """
    wanted, context_tokens = config.engine.quantization, config.engine.context_tokens
    number_format = pick_format(wanted, device, card.target.parameters, auto_choice.prefers_int4(card))
    if device == "cpu":
        files = [file for directory in (target_dir, draft_dir) if directory for file in directory.glob("*.safetensors")]
        mapped_mib = sum(file.stat().st_size for file in files) >> 20
        check_memory(card, number_format, device, with_draft=draft_dir is not None, mapped_mib=mapped_mib)
        return MemoryPlan(
            number_format=number_format, context_tokens=context_tokens, slots=SLOTS, draft=draft_dir is not None
        )
    return memory_plan.fit(
        card,
        gpu_formats(config, card, device, number_format),
        context_tokens,
        kv_bytes(target_dir),
        kv_bytes(draft_dir) if draft_dir is not None else 0,
        process_resources.free_mib(device),
        device,
        matrix_bytes(read_config(target_dir)),
    )


def gpu_formats(config: Config, card: Card, device: str, number_format: str) -> tuple[str, ...]:
    """The target's number formats on a GPU, best first; nf4 first if "auto" chose the model for its speed in nf4."""
    if config.engine.quantization != "auto":
        return (number_format,)
    if config.model == "auto" and "bf16" in card.memory_mib:
        return auto_choice.gpu_formats(card, process_resources.measured_gb_per_s(device))
    return (number_format, "nf4")


def kv_bytes(directory: Path) -> int:
    """Bytes of one token in a model's KV cache, in 16 bits per value."""
    config = read_config(directory)
    shape = read_shape(config, vocab=1)
    return int(2 * 2 * config.num_hidden_layers * shape.kv_heads * shape.head_dim)


def cpu_threads(config: Config, parameters: int = 0) -> int:
    """Threads that compute on a CPU: by default a power of two, so that elementwise work splits at vector boundaries.

    A tiny model gets one: on a busy machine, waiting for a second one takes longer than its work.
    """
    workers = 1 if 0 < parameters < SMALL_PARAMETERS else process_resources.cpus().workers
    return config.engine.threads or 1 << (workers.bit_length() - 1)
