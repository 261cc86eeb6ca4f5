"""Model loading: from a card to a running engine.

    card ─► weights on disk ─► plan ─► prepared weights? map them, else prepare them ─► tokenizer, vocabulary
         ─► Decoder(target) [, Decoder(draft)] ─► costs, saved or measured ─► engine

`load` does it in one call, and `start` for the engine process (residency.py). load_plan.py makes the plan. Prepared
weights are those of forward.c, so of most models on a CPU (prepared_weights.py). Other decoders read the model's files.
"""

from __future__ import annotations

import filecmp
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp.config import Config
from speclsp.engine.decoding import policy
from speclsp.engine.decoding.completion import CompletionEngine
from speclsp.engine.decoding.drafters import ModelDrafter
from speclsp.engine.decoding.policy import Costs
from speclsp.engine.decoding.prompt import Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading import adapter_choice
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.checkpoint import (
    INTEGERS,
    check_same_tokenizer,
    compact_tokenizer,
    read_decoder,
    read_prepared,
    read_tokenizer,
)
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
from speclsp.engine.loading.model_config import read_config, read_shape
from speclsp.engine.loading.prepared import prepared_weights, saved_costs
from speclsp.engine.loading.prepared.prepared_weights import PreparedWeights
from speclsp.engine.loading.prepared.saved_costs import SavedCosts
from speclsp.engine.model.cuda.memory_plan import MemoryPlan
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.building import Packed
from speclsp.engine.model.int8.library import load_problem
from speclsp.engine.model.int8.native import NativeDecoder
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.scheduling.loaded_model import LoadedModel, ReportProgress
from speclsp.process_resources import gpus
from speclsp.weights import auto_choice, locations, store
from speclsp.weights.cards import Card, Weights
from speclsp.weights.store_messages import STAGES

if TYPE_CHECKING:
    from speclsp.engine.decoding.fused_round import FusedRound

TOKENIZER = "tokenizer.json"

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
    return parts.build_engine(progress)[0]


def start(config: Config, card: Card, progress: ReportProgress = lambda fraction, message: None) -> LoadedModel:
    """As `load`, for residency.py."""
    parts = prepare(config, card, progress)
    engine, saved = parts.build_engine(progress)
    return LoadedModel(
        completer=engine,
        device=parts.device,
        clear_caches=engine.empty,
        before_unload=saved.save if saved else lambda: None,
        note=parts.note,
        adapter=parts.target.lora.file.use() if parts.target.lora else {},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedModel:
    """One of the models to load: its files, number format and adapter."""

    weights: Weights
    directory: Path
    number_format: str
    lora: Lora | None = None
    is_draft: bool = False

    @property
    def is_prepared(self) -> bool:
        """True if forward.c computes it, on a CPU, with weights that are prepared once."""
        if self.number_format not in INTEGERS:
            return False
        config = read_config(self.directory)
        return native.supports(read_shape(config, vocab=1), config.intermediate_size)

    @property
    def root(self) -> Path:
        """The directory of its prepared weights."""
        return locations.prepared(self.weights.name)

    @property
    def key(self) -> dict[str, Any]:
        """All that its prepared weights depend on."""
        adapter = self.lora.file.sha256 if self.lora else ""
        return prepared_weights.key_of(self.directory, adapter, self.number_format, native.best_path())

    def described(self, *facts: str) -> str:
        """The number format, the kernels and the adapter, for display."""
        return ", ".join(filter(None, (*facts, f"adapter {self.lora.label}" if self.lora else "")))


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedParts:
    """A model whose loading is decided; its weights are mapped at most."""

    config: Config
    card: Card
    device: str
    threads: int  # that compute on a CPU
    target: PlannedModel
    draft: PlannedModel | None  # None: the model has no draft, or it is off
    opened: PreparedWeights | None  # of the target
    plan: MemoryPlan
    prompter: Prompter
    note: str  # why a GPU, a compiled library or an adapter is not used

    def build_engine(self, progress: ReportProgress) -> tuple[CompletionEngine, SavedCosts | None]:
        """Load the target and, if there is one, the draft; in the thread that runs completions."""
        saved = self.saved_costs()
        with explain_out_of_memory(self.card, self.plan, self.device):
            target = self.read(self.target, self.opened, saved, share(progress, 0.5, 0.8))
            draft = self.read(self.draft, None, saved, share(progress, 0.8, 0.9)) if self.draft else None
            costs, fused = saved.costs if saved else None, None
            if costs is None:
                progress(0.92, "measuring this machine")
                costs, fused = self.warm_up(target, draft)
        progress(1.0, "ready")
        engine = CompletionEngine(
            card=self.card,
            config=self.config.engine,
            device=describe_device(self.device, self.threads),
            target_decoder=target,
            draft_decoder=draft,
            target_format=self.target.described(target.number_format or self.plan.number_format, target.path),
            draft_format=self.draft.described(self.draft.number_format) if self.draft else "",
            prompter=self.prompter,
            costs=costs,
            fused=fused,
        )
        return engine, saved or self.save_costs(target, costs)

    def read(
        self, model: PlannedModel, opened: PreparedWeights | None, saved: SavedCosts | None, progress: ReportProgress
    ) -> CachedModel:
        """The decoder of a model. Its weights are prepared if they should be and are not yet."""
        plan, vocabulary = self.plan, self.prompter.vocabulary

        def from_files(packed: Packed = lambda decoder, layer, which: None) -> CachedModel:
            return read_decoder(
                model.directory, model.number_format, self.device, plan.context_tokens, len(vocabulary), progress,
                slots=plan.slots, threads=self.threads, is_draft=model.is_draft, lora=model.lora,
                packed=packed,
            )  # fmt: skip

        def packed_into(writer: prepared_weights.Writer) -> NativeDecoder:
            writer.add_file(TOKENIZER, compact_tokenizer(vocabulary.tokenizer, model.directory))
            for name, table in vocabulary.tables.items():
                writer.add_table(name, table)
            decoder = from_files(writer.add_linear)
            assert isinstance(decoder, NativeDecoder)
            return decoder

        if opened is None and model.is_prepared:
            opened = prepared_weights.open_prepared(model.root, model.key)
            if opened is None:
                opened, why = prepared_weights.make(model.root, model.key, packed_into)
                if why:
                    log.warning("%s", why)
        return from_files() if opened is None else self.borrow(model, opened, saved)

    def borrow(self, model: PlannedModel, opened: PreparedWeights, saved: SavedCosts | None) -> NativeDecoder:
        """A decoder with the mapped numbers; with the same numbers in memory where that is faster."""

        def decoder_with(numbers: PreparedWeights) -> NativeDecoder:
            return read_prepared(
                model.directory, numbers, self.plan.context_tokens, len(self.prompter.vocabulary), self.threads,
                model.number_format,
            )  # fmt: skip

        if saved is not None and not saved.mapped:
            return decoder_with(opened.in_memory())
        mapped = decoder_with(opened)
        if saved is None and saved_costs.is_worth_measuring(mapped):
            in_memory = decoder_with(opened.in_memory())
            if not saved_costs.mapping_is_fast(mapped, in_memory):
                return in_memory
        return mapped

    def saved_costs(self) -> SavedCosts | None:
        """The costs of earlier starts with these prepared weights; None where a cost is missing."""
        saved = saved_costs.read(self.opened.directory / saved_costs.FILE, self.threads) if self.opened else None
        return None if saved and self.draft and ModelDrafter.source not in saved.costs.guess_ms else saved

    def save_costs(self, target: CachedModel, costs: Costs) -> SavedCosts | None:
        """Keep measured costs beside the target's prepared weights; None where it has none."""
        numbers = target.numbers if isinstance(target, NativeDecoder) else None
        if not isinstance(numbers, PreparedWeights):
            return None
        file = numbers.directory / saved_costs.FILE
        saved = SavedCosts(file, auto_choice.machine_name(self.threads), numbers.mapped, costs)
        saved.save()
        return saved

    def warm_up(self, target: CachedModel, draft: CachedModel | None) -> tuple[Costs, FusedRound | None]:
        """Measure the passes on this machine; on a GPU, capture whole rounds."""
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
    check_torch(config.engine.quantization, device, card)
    fetch = partial(weights_progress, share(progress, 0.0, 0.5))
    models_dir, offline = config.models_dir, config.engine.offline
    target_dir = store.ensure(card.target, models_dir=models_dir, offline=offline, progress=fetch)
    draft = card.draft if auto_choice.uses_draft(config, device) else None
    draft_dir = store.ensure(draft, models_dir=models_dir, offline=offline, progress=fetch) if draft else None
    plan = pick_plan(config, card, device, target_dir, draft_dir)
    lora, note = adapter_choice.choose(config.engine.adapter, models_dir, card.target, target_dir)
    target = PlannedModel(weights=card.target, directory=target_dir, number_format=plan.number_format, lora=lora)
    opened = prepared_weights.open_prepared(target.root, target.key) if target.is_prepared else None
    if opened is not None:
        opened.begin_fetching()  # while the tokenizer is read
    tokenizer = read_tokenizer(opened.directory if opened else target_dir, checked=opened is not None)
    if draft_dir is not None and not have_same_tokenizer_file(target_dir, draft_dir):
        check_same_tokenizer(tokenizer, read_tokenizer(draft_dir), card)
    vocabulary = Vocabulary(tokenizer, opened.tables() if opened else None)
    library_note = load_problem(native.best_path()) if device == "cpu" else ""
    device_note = gpus.pick_device(config.device)[1]
    notes = (device_note, library_note, note, context_note, locations.models_dir_problem(models_dir))
    return LoadedParts(
        config=config,
        card=card,
        device=device,
        threads=cpu_threads(config, card.target.parameters),
        target=target,
        draft=PlannedModel(
            weights=draft,
            directory=draft_dir,
            number_format=pick_draft_format(draft.parameters, device),
            is_draft=True,
        )
        if draft and draft_dir
        else None,
        opened=opened,
        plan=plan,
        prompter=Prompter(card, tokenizer, vocabulary, plan.context_tokens),
        note=" ".join(filter(None, notes)),
    )


def have_same_tokenizer_file(target_dir: Path, draft_dir: Path) -> bool:
    """True if both directories have the same tokenizer.json: then nothing else needs comparing."""
    return filecmp.cmp(target_dir / TOKENIZER, draft_dir / TOKENIZER, shallow=False)


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────────────


def share(progress: ReportProgress, start: float, end: float) -> ReportProgress:
    """A progress that maps 0..1 to `start`..`end` of another."""
    return lambda fraction, message: progress(start + (end - start) * fraction, message)


def weights_progress(progress: ReportProgress, step: store.Progress) -> None:
    """Report a step of fetching or checking weights, with sizes in MB."""
    done = step.done_bytes / step.total_bytes if step.total_bytes else 0.0
    sizes = f": {step.done_bytes // 10**6} of {step.total_bytes // 10**6} MB" if step.total_bytes else ""
    progress(min(done, 1.0), f"{STAGES[step.stage]} {step.detail}{sizes}")
