"""Releasing and restoring the memory of real models: it returns to the system, and the text stays the same."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from promises import Measured
from support.engine.managed_model import ASKED, ManagedModel, tiny
from support.engine.random_models import NATIVE, save_random
from support.waiting import wait_until

from speclsp.cli.measure import complete_once
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Result
from speclsp.engine.decoding.accept import Sampler, Sampling
from speclsp.engine.decoding.generate import Limits, generate
from speclsp.engine.decoding.policy import FixedPolicy
from speclsp.engine.loading import checkpoint, loading
from speclsp.engine.loading.draft_only import MAX_TOKENS
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.memory_ladder import CHECK_S, NO_DRAFT, WAIT_S
from speclsp.engine.scheduling.scheduled_job import DoneEvent, RoundEvent
from speclsp.engine.scheduling.scheduler import Scheduler
from speclsp.errors import WeightsError
from speclsp.observability.metrics import Metrics
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = cards.models_root() / "tiny"
IDS = torch.randint(0, 2000, (400,), generator=torch.Generator().manual_seed(2)).tolist()
CONFIG = tiny(512)


# ── the GPU's decoder, run on a CPU ────────────────────────────────────────────────────────────────────


def on_gpu(which: str = "target", rows: int = 8) -> CudaDecoder:
    """The tiny model's decoder for a GPU; "cpu:0" is the CPU under a name that reading.py treats as a GPU's."""
    decoder = checkpoint.read_decoder(TINY / which, "fp32", "cpu:0", 512, 2048, rows=rows, dtype=torch.float32)
    assert isinstance(decoder, CudaDecoder)
    return decoder


def test_a_gpus_cache_shrinks_to_the_text_used_last_and_grows_again():
    decoder, whole_mib = on_gpu(), on_gpu().kv_mib
    texts = [[i, *IDS[100 * i : 100 * i + 120]] for i in range(3)]
    logits = {}
    for number, text in enumerate(texts):
        decoder.catch_up(text)
        logits[number] = decoder.forward([7])
        decoder.rewind(len(text))
    assert decoder.catch_up(texts[1]) == len(texts[1])
    decoder.set_slot_count(1)
    assert decoder.kv_mib == pytest.approx(whole_mib / 3)
    assert decoder.catch_up(texts[1]) == len(texts[1]), "what was worked on last is still there"
    assert torch.equal(decoder.forward([7]), logits[1])
    assert decoder.catch_up(texts[0]) == 0, "the others are not"
    assert torch.equal(decoder.forward([7]), logits[0])
    decoder.set_slot_count(3)
    assert decoder.kv_mib == whole_mib
    decoder.rewind(len(texts[0]))
    assert decoder.catch_up(texts[0]) == len(texts[0])
    for number in (1, 2):
        assert decoder.catch_up(texts[number]) == 0
        assert torch.equal(decoder.forward([7]), logits[number])
        decoder.rewind(len(texts[number]))
    assert [decoder.catch_up(text) for text in texts] == [len(text) for text in texts]


def test_cuda_graphs_of_the_old_memory_are_not_replayed_on_the_new():
    decoder, pools = on_gpu(), []
    decoder.graphs.make_recorder = lambda: pools.append(1) or (lambda work: work)
    decoder.graphs.record = decoder.graphs.make_recorder()
    for _ in range(5):
        decoder.forward([1, 2, 3])
    assert decoder.graphs.replays
    decoder.set_slot_count(1)
    assert not decoder.graphs.replays and not decoder.graphs.pending and len(pools) == 2
    decoder.catch_up(IDS[:50])
    fresh = on_gpu()
    fresh.catch_up(IDS[:50])
    assert torch.equal(decoder.forward([4]), fresh.forward([4]))


def test_a_gpu_without_room_for_a_larger_cache_keeps_the_small_one(monkeypatch: pytest.MonkeyPatch):
    decoder = on_gpu()
    decoder.catch_up(IDS[:50])
    decoder.set_slot_count(1)
    with monkeypatch.context() as patch:

        def full(*shape: Any, **how: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

        patch.setattr(torch.Tensor, "new_zeros", full)
        with pytest.raises(torch.OutOfMemoryError):
            decoder.set_slot_count(3)
    assert (decoder.slots, decoder.catch_up(IDS[:50])) == (1, 50)
    decoder.forward([1])


# ── the model in the engine's memory ──────────────────────────────────────────────────────────────────────────


def models_alive(subject: ManagedModel) -> Callable[[], int]:
    """A function that counts how many of the present decoders are still in memory."""
    engine = subject.residency.completer
    references = [
        weakref.ref(decoder) for decoder in (engine.target_decoder, engine.draft_decoder) if decoder is not None
    ]
    return lambda: sum(decoder() is not None for decoder in references)


@pytest.mark.promise(20)
def test_unloading_frees_both_models_and_reloading_gives_the_same_text():
    subject = ManagedModel(CONFIG, idle_s=60.0)
    before = subject.says()
    assert before.text and not before.draft_only
    alive = models_alive(subject)
    assert alive() == 2
    subject.after(60.0)
    assert (subject.residency.state, alive()) == ("asleep", 0)
    after = subject.says()
    assert (after.text, after.tokens, after.cached_tokens) == (before.text, before.tokens, 0)


def test_every_release_step_frees_its_memory_and_never_changes_the_text():
    subject = ManagedModel(CONFIG, min_free_memory_mib=500)
    engine = subject.residency.completer
    texts = [replace(ASKED, prefix=f"# {i}\n" + "x = 1\n" * 60 + ASKED.prefix) for i in range(3)]
    plain = [subject.says(text).tokens for text in texts]
    kv_mib = engine.target_decoder.kv_mib
    alive = models_alive(subject)

    def same() -> bool:
        return [subject.says(text).tokens for text in texts] == plain

    subject.machine.free = 400
    subject.after(CHECK_S)
    assert (subject.residency.memory, alive()) == ("small cache", 2)
    assert engine.target_decoder.kv_mib == pytest.approx(kv_mib / 3)
    assert same()
    subject.after(CHECK_S)
    assert (subject.residency.memory, alive(), engine.draft, engine.draft_decoder) == (NO_DRAFT, 1, "", None)
    assert same() and "model" not in subject.says(replace(ASKED, gamma=2)).by_source
    del engine
    subject.after(CHECK_S)
    assert (subject.residency.state, subject.residency.completer, alive()) == ("asleep", None, 0)

    subject.machine.free = 10**6
    for _ in range(3 * int(WAIT_S / CHECK_S + 2)):
        if subject.residency.state == "asleep":
            subject.residency.note_request()
        subject.after(CHECK_S)
    assert (subject.residency.state, subject.residency.memory) == ("ok", "full")
    assert same() and subject.says(replace(ASKED, sources=("model",), gamma=2)).by_source["model"]["drafted"] > 0


class Gate:
    """Reads the draft at once, and the target only when the test opens the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.error: Exception | None = None
        self.threads: list[threading.Thread] = []
        real = loading.read_decoder

        def read(directory: Path, *given: Any, **named: Any) -> Any:
            if directory.name == "target":
                self.threads.append(threading.current_thread())
                assert self.open.wait(60)
                if self.error is not None:
                    raise self.error
            return real(directory, *given, **named)

        monkeypatch.setattr(loading, "read_decoder", read)
        monkeypatch.setattr(loading, "LONG_PARAMETERS", 1_000_000)  # so that tiny's target counts as a long load


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


def opened(subject: ManagedModel, gate: Gate) -> None:
    """Reads the target to the end; it takes over."""
    gate.open.set()
    gate.threads[-1].join(60)
    subject.residency.maintain()


def test_while_the_target_loads_the_draft_answers_single_lines_marked_draft_only(gate: Gate):
    subject = ManagedModel(CONFIG)
    assert (subject.residency.state, subject.residency.draft_only) == ("loading", True)
    assert "still loading" in subject.residency.completer.target and subject.residency.completer.draft
    requests = [
        ASKED,
        replace(ASKED, max_tokens=64, ignore_eos=True),
        replace(ASKED, line_prefix="", prefix="def f(x):\n"),
        replace(ASKED, raw_prompt="import os\nimport "),
        replace(ASKED, temperature=0.8, seed=3),
        *(replace(ASKED, prefix=f"{word} = 1\n" * 60) for word in ("x", "yy", "zzz")),
    ]
    for request in requests:
        result = subject.says(request)
        assert result.draft_only and "\n" not in result.text and len(result.tokens) <= MAX_TOKENS
        assert (result.drafted, result.by_source) == (0, {})
    opened(subject, gate)
    assert (subject.residency.state, subject.residency.draft_only) == ("ok", False)
    engine = subject.residency.completer
    assert not any(engine.draft_decoder.slot_ids) and not any(engine.target_decoder.slot_ids), "it starts from nothing"
    whole = complete_once(loading.load(CONFIG, cards.load("tiny")), ASKED)
    after = subject.says()
    assert (after.tokens, after.draft_only, after.cached_tokens) == (whole.tokens, False, 0)


def test_draft_only_answers_are_those_of_the_draft_model(gate: Gate):
    subject = ManagedModel(CONFIG)
    request = replace(ASKED, max_tokens=12, ignore_eos=True)
    result = subject.says(request)
    card = cards.load("tiny")
    itself = replace(card, target=card.draft, draft=None)
    gate.open.set()
    alone = loading.load(CONFIG, itself)
    line = complete_once(alone, replace(request, stop=("\n",), speculate=False))
    assert (result.text, result.tokens) == (line.text, line.tokens)


def test_a_target_that_cannot_be_read_leaves_an_error_and_no_draft(gate: Gate):
    subject = ManagedModel(CONFIG)
    draft = weakref.ref(subject.residency.completer.target_decoder)
    gate.error = WeightsError("the target's file is cut short: pull again.")
    opened(subject, gate)
    assert (subject.residency.state, subject.residency.message) == ("error", str(gate.error))
    gc.collect()
    assert subject.residency.completer is None and draft() is None


FORMATS = ["fp32", "bf16", "nf4", *(["int8"] if NATIVE else []), "cuda"]


@pytest.mark.parametrize("number_format", FORMATS)
def test_a_draft_decodes_plainly_by_itself_in_every_format(number_format: str, tmp_path: Path):
    save_random("llama", tmp_path, hidden_size=128, intermediate_size=128, num_attention_heads=4)
    device = "cpu:0" if number_format == "cuda" else "cpu"
    written = "fp32" if number_format == "cuda" else number_format
    draft = checkpoint.read_decoder(tmp_path, written, device, 512, 97, rows=1, dtype=torch.float32)
    prompt = [1 + token % 90 for token in IDS[:70]]
    steps = generate(draft, [], FixedPolicy(0), prompt, Limits(max_tokens=20), Sampler(Sampling()), threading.Event())
    tokens = [token for step in steps for token in step.tokens]
    draft.forget()
    ids = list(prompt)
    for _ in range(20):  # computes every token again, in one pass over the whole text
        draft.forget()
        draft.catch_up(ids[:-1])
        ids.append(int(draft.forward(ids[-1:])[0].argmax()))
    assert tokens == ids[len(prompt) :]


def test_the_scheduler_completes_every_request_while_the_target_takes_over(gate: Gate):
    scheduler = Scheduler(
        lambda progress, with_draft=True: loading.start(CONFIG, cards.load("tiny"), progress), Metrics()
    )
    scheduler.thread.start()
    events: Queue[Any] = Queue()
    ends: list[Result] = []

    def ask_and_wait(number: int) -> Result:
        scheduler.submit(replace(ASKED, prefix=f"# {number}\n{ASKED.prefix}", ignore_eos=True), events.put)
        while isinstance(event := events.get(timeout=60), RoundEvent):
            pass
        assert isinstance(event, DoneEvent), event
        ends.append(event.results[0])
        return ends[-1]

    try:
        wait_until(lambda: scheduler.residency.draft_only)
        assert ask_and_wait(0).draft_only
        gate.open.set()
        wait_until(lambda: not ask_and_wait(len(ends)).draft_only)
        assert {end.stop_type for end in ends} <= {"word", "limit"}, "none was cut short"
        assert scheduler.residency.state == "ok" and len(ends[-1].tokens) == ASKED.max_tokens
    finally:
        gate.open.set()
        scheduler.close()
        scheduler.thread.join(30)


# ── memory returned to the system ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.promise(20)
def test_released_memory_returns_to_the_system(tmp_path: Path, promise: Measured):
    save_random("qwen2", tmp_path, hidden_size=512, intermediate_size=2048, num_hidden_layers=8, vocab_size=2000)
    DeviceMemory("cpu").trim()  # garbage of other tests
    bare_mib = DeviceMemory("cpu").held_mib()

    class Weights:
        """A completer that only holds a model."""

        model = target = draft = device = ""

        def __init__(self) -> None:
            self.weights = checkpoint.read_decoder(tmp_path, "fp32", "cpu", 512, 2000)

    subject = ManagedModel(CONFIG, load=lambda progress: Weights(), idle_s=60.0)
    loaded_mib = DeviceMemory("cpu").held_mib()
    assert loaded_mib - bare_mib > 80, "130 MiB of weights"
    subject.after(60.0)
    left_mib = DeviceMemory("cpu").held_mib() - bare_mib
    assert left_mib < 0.3 * (loaded_mib - bare_mib), "all but what the allocators' rounding keeps"
    promise.measured(f"asleep: {left_mib} of {loaded_mib - bare_mib} MiB of weights stay", holds=True)


# ── through the engine's thread ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.soak
@pytest.mark.real
def test_the_real_model_leaves_memory_and_comes_back_the_same(coder_0_5b: Path, record_property: Any):
    torch.set_num_threads(2)
    config = Config(models_dir=str(coder_0_5b.parent), engine=EngineConfig(offline=True))
    card = cards.load("qwen2.5-coder-0.5b-instruct")
    subject = ManagedModel(
        CONFIG, load=lambda progress, with_draft=True: loading.start(config, card, progress), idle_s=60.0
    )
    before, full_mib = subject.says(), DeviceMemory("cpu").held_mib()
    subject.after(60.0)
    freed_mib = full_mib - DeviceMemory("cpu").held_mib()
    assert freed_mib > 400, "half a billion weights of a byte each"
    after = subject.says()
    assert (after.text, after.tokens) == (before.text, before.tokens)
    again_mib = DeviceMemory("cpu").held_mib()
    assert again_mib < full_mib + 200, "waking leaves nothing behind twice"
    record_property("freed_mib", freed_mib)
