"""Out of memory in a request: only that request fails, and no state of it stays."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from queue import Queue
from typing import Any

import pytest
import torch
from promises import Measured
from support.engine.managed_model import ASKED, ManagedModel, loader, tiny
from support.waiting import wait_until

from speclsp.engine.api import Request
from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound, warm_up
from speclsp.engine.loading import checkpoint
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.model.kv_cache import CachedModel
from speclsp.engine.scheduling.device_errors import clear_references, is_device_failure, ran_out_of_memory
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.scheduled_job import DoneEvent, ErrorEvent, RoundEvent
from speclsp.engine.scheduling.scheduler import NO_MEMORY, Scheduler
from speclsp.errors import InputError, OutOfMemory, WeightsError
from speclsp.observability.metrics import Metrics
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = cards.models_root() / "tiny"
CONTEXT_TOKENS = 1024
CONFIG = tiny(CONTEXT_TOKENS)
LONG = replace(ASKED, prefix="".join(f"value_{n} = {n}\n" for n in range(200)) + ASKED.prefix)


# ── recognised errors ────────────────────────────────────────────────────────────────────────────────────


def too_much() -> Exception:
    """Raises torch's own error on a CPU."""
    try:
        torch.empty(2**60, dtype=torch.uint8)
    except RuntimeError as error:
        clear_references(error)
        return error
    raise AssertionError("this machine has a lot of memory")


FULL = {
    "a GPU's": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."),
    "the driver's": torch.AcceleratorError("CUDA error: out of memory"),
    "cuBLAS's": RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    "a CPU's": too_much(),
    "Windows's": RuntimeError("[enforce fail at alloc_cpu.cpp:121] data. DefaultCPUAllocator: not enough memory"),
    "C++'s": RuntimeError("std::bad_alloc"),
    "Python's": MemoryError(),
    "the system's": OSError(12, "Cannot allocate memory"),
    "ours": OutOfMemory("pair", 3000, 2900, "cpu", "small"),
}
BROKEN = (
    torch.AcceleratorError("CUDA error: unspecified launch failure"),
    RuntimeError("CUDA error: an illegal memory access was encountered"),
    RuntimeError("CUDA driver error: device not ready"),
    RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
)
OTHERS = (RuntimeError("shapes cannot be multiplied"), ValueError("out of memory"), WeightsError("CUDA error"))


@pytest.mark.parametrize("error", (*FULL.values(), *BROKEN, *OTHERS), ids=repr)
def test_an_error_means_that_memory_ran_out_or_that_the_device_failed_or_neither(error: Exception):
    assert ran_out_of_memory(error) is (error in FULL.values())
    assert is_device_failure(error) is (error in BROKEN)


# ── cleared caches, and a reload ─────────────────────────────────────────────────────────────────────────────


def plain(subject: ManagedModel, request: Request) -> list[int]:
    """The tokens of plain decoding from an empty cache."""
    subject.residency.completer.empty()
    return subject.says(replace(request, speculate=False)).tokens


@pytest.mark.promise(18)
def test_at_every_release_step_the_text_equals_plain_decoding(promise: Measured, monkeypatch: pytest.MonkeyPatch):
    subject = ManagedModel(CONFIG)
    engine = subject.residency.completer
    whole = subject.says(LONG)
    freed, kind = list[int](), type(engine.target_decoder)
    free = kind.free_slot
    monkeypatch.setattr(kind, "free_slot", lambda decoder, slot: freed.append(slot) or free(decoder, slot))
    subject.runs_out()
    assert subject.residency.state == "ok", "at first what was read is forgotten, and no more"
    assert not any(engine.target_decoder.slot_ids) and engine.target_decoder.slot in freed
    monkeypatch.undo()
    assert subject.says(LONG).tokens == whole.tokens == plain(subject, LONG)
    left = weakref.ref(engine.target_decoder)
    del engine
    subject.after(1.0)
    subject.runs_out()
    assert (subject.residency.state, subject.residency.completer) == ("asleep", None)
    gc.collect()
    assert left() is None
    again = subject.says(LONG)
    assert (again.tokens, again.prompt_tokens) == (whole.tokens, whole.prompt_tokens), "the next request loads it again"
    assert again.tokens == plain(subject, LONG)
    promise.measured("caches cleared, unloaded, loaded again: token for token what plain decoding says", holds=True)


def test_a_completion_under_way_prefills_again_after_its_cache_is_cleared_and_ends_the_same():
    subject = ManagedModel(CONFIG)
    expected = subject.says(LONG).tokens
    running = iter(completion := subject.residency.completer.complete(LONG, threading.Event()))
    for piece in running:
        if piece.tokens:
            break
    for _ in range(2):
        subject.residency.report_out_of_memory()
        subject.residency.maintain(busy=True)
        next(running)
    assert subject.residency.state == "ok", "the model stays for it"
    assert [*running] and completion.result.tokens == expected
    del running, completion
    subject.residency.maintain()
    assert subject.residency.state == "asleep"


# ── through the engine's thread, with torch's own error in every place ───────────────────────────────────────


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    running = Scheduler(loader(CONFIG), Metrics(), "tiny")
    running.thread.start()
    wait_until(lambda: running.residency.state == "ok")
    yield running
    running.close()
    running.thread.join(30)


def end(scheduler: Scheduler, request: Request) -> DoneEvent | ErrorEvent:
    events: Queue[Any] = Queue()
    scheduler.submit(request, events.put)
    while isinstance(event := events.get(timeout=60), RoundEvent):
        pass
    return event


class Witness:
    """An object that lives as long as the frames of a forward pass."""


PLACES = {  # (the model, its decoder's method)
    "prefill": ("target_decoder", "extend"),
    "verify": ("target_decoder", "forward"),
    "the draft's prefill": ("draft_decoder", "extend"),
    "draft": ("draft_decoder", "forward"),
}


@pytest.mark.promise(18)
@pytest.mark.parametrize(("place", "kind"), zip(PLACES, ("a CPU's", "C++'s", "a GPU's", "Python's"), strict=True))
def test_out_of_memory_anywhere_fails_only_its_request_and_leaves_no_state(
    scheduler: Scheduler, place: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    request = replace(ASKED, prefix="x = 1\n" * 60 + ASKED.prefix, sources=("model",), gamma=2, heal=False)
    good = end(scheduler, request)
    assert isinstance(good, DoneEvent)
    model, name = PLACES[place]
    decoder = getattr(scheduler.residency.completer, model)
    real, references = getattr(type(decoder), name), []

    def full(self: CachedModel, *given: Any, **named: Any) -> Any:
        subject = Witness()
        if self is decoder:
            references.append(weakref.ref(subject))
            raise type(FULL[kind])(*FULL[kind].args)
        return real(self, *given, **named)

    monkeypatch.setattr(type(decoder), name, full)
    fresh = replace(request, prefix="y = 2\n" * 60 + ASKED.prefix)
    failed = end(scheduler, fresh)
    assert isinstance(failed, ErrorEvent) and str(failed.error) == NO_MEMORY
    wait_until(lambda: not any(scheduler.counts()))
    assert references and [reference() for reference in references] == [None] * len(references), (
        "the traceback kept a pass's tensors"
    )
    monkeypatch.setattr(type(decoder), name, real)
    again = end(scheduler, request)
    assert isinstance(again, DoneEvent) and again.results[0].tokens == good.results[0].tokens
    assert scheduler.metrics.total("oom_total") == 1 and scheduler.residency.state == "ok"


def test_an_ordinary_failure_does_not_clear_the_caches(scheduler: Scheduler):
    assert isinstance(end(scheduler, ASKED), DoneEvent)
    failed = end(scheduler, replace(ASKED, begin=(-1,)))
    assert isinstance(failed, ErrorEvent) and isinstance(failed.error, InputError)
    assert any(scheduler.residency.completer.target_decoder.slot_ids)
    assert scheduler.metrics.total("oom_total") == 0


# ── the GPU's decoder, run on a CPU ────────────────────────────────────────────────────────────────────


def on_gpu(which: str) -> CudaDecoder:
    dtype, is_draft = torch.float32, which == "draft"
    decoder = checkpoint.read_decoder(TINY / which, "fp32", "cpu:0", 512, 2048, is_draft=is_draft, dtype=dtype)
    assert isinstance(decoder, CudaDecoder)
    return decoder


IDS = torch.randint(0, 2000, (200,), generator=torch.Generator().manual_seed(2)).tolist()


def rounds(pair: FusedRound, ids: list[int], count: int) -> list[int]:
    """`ids` and the tokens that `count` rounds add."""
    text = list(ids)
    pair.target.catch_up(text[:-1])
    for _ in range(count):
        guesses, accepted, token = pair.round(text, 3, Sampling())
        text += [*guesses[:accepted], token]
    return text


@pytest.fixture(scope="module")
def pair() -> FusedRound:
    runner = warm_up(on_gpu("target"), on_gpu("draft"), repeats=1)[1]
    assert runner is not None
    return runner


@pytest.mark.promise(18)
@pytest.mark.parametrize("at", range(1, 6))  # three guesses, the verification, and reading the accepted tokens
def test_a_gpu_round_that_fails_anywhere_does_not_affect_the_next_round(
    at: int, pair: FusedRound, monkeypatch: pytest.MonkeyPatch
):
    other = [7, *IDS[::-1]]
    texts = [rounds(pair, ids, 2) for ids in (IDS, other)]
    expected = [rounds(pair, text, 3) for text in texts]
    pair.target.forget()
    pair.draft.forget()
    text, calls = rounds(pair, IDS, 2), []

    def full(real: Callable[..., Any]) -> Callable[..., Any]:
        def fails(*given: Any, **named: Any) -> Any:
            calls.append(real)
            if len(calls) == at:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return real(*given, **named)

        return fails

    pair.target.catch_up(other[:-1])
    pair.catch_up_draft(other, None, None)  # from here on only the round
    with monkeypatch.context() as patch:
        patch.setattr(CudaDecoder, "logits_of", full(CudaDecoder.logits_of))
        patch.setattr(FusedRound, "receive", full(FusedRound.receive))
        with pytest.raises(torch.OutOfMemoryError):
            pair.round(other, 3, Sampling())
    assert rounds(pair, text, 3) == expected[0], "the one before goes on"
    assert rounds(pair, rounds(pair, other, 2), 3) == expected[1]


def test_a_device_answers_only_if_a_small_computation_succeeds_on_it(monkeypatch: pytest.MonkeyPatch):
    assert DeviceMemory("cpu").works()

    def answers(error: Exception) -> bool:
        def ones(*shape: Any, **how: Any) -> Any:
            raise error

        monkeypatch.setattr(torch, "ones", ones)
        return DeviceMemory("cuda").works()

    assert not answers(BROKEN[0])
    assert answers(FULL["a GPU's"]), "it is full, and well"
