"""Out of memory in a request: only that request fails, no state of it stays, and the engine uses less memory."""

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
from speclsp.engine.model import decoder
from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.model.decoder import Decoder
from speclsp.engine.scheduling.device_errors import clear_references, is_device_failure, ran_out_of_memory
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.memory_ladder import CALM_S, CHECK_S, NO_DRAFT, WAIT_S
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
LEVELS = ["small cache", "short context", NO_DRAFT]


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


@pytest.mark.parametrize("error", FULL.values(), ids=FULL)
def test_every_known_out_of_memory_error_is_recognised(error: Exception):
    assert ran_out_of_memory(error) and not is_device_failure(error)


@pytest.mark.parametrize("error", BROKEN, ids=str)
def test_a_device_failure_differs_from_out_of_memory(error: Exception):
    assert is_device_failure(error) and not ran_out_of_memory(error)


@pytest.mark.parametrize("error", OTHERS, ids=repr)
def test_an_ordinary_error_is_neither_out_of_memory_nor_a_device_failure(error: Exception):
    assert not is_device_failure(error) and not ran_out_of_memory(error)


def test_a_cleared_error_keeps_no_object_alive():
    class Tensor:
        pass

    references: list[weakref.ref[Tensor]] = []

    def compute() -> None:
        subject = Tensor()
        references.append(weakref.ref(subject))
        try:
            raise MemoryError(subject)
        except MemoryError:
            raise RuntimeError("while that was handled") from ValueError("and because of this")

    try:
        compute()
    except RuntimeError as error:
        kept = error
    first, cause = kept.__context__, kept.__cause__
    assert references[0]() is not None
    clear_references(kept)
    assert first is not None and first.__traceback__ is None and cause is not None and cause.__traceback__ is None
    first.args = ()
    assert references[0]() is None


# ── the levels ───────────────────────────────────────────────────────────────────────────────────────────────


def plain(subject: ManagedModel, request: Request) -> list[int]:
    """The tokens of plain decoding from an empty cache."""
    subject.residency.completer.empty()
    return subject.says(replace(request, speculate=False)).tokens


@pytest.mark.promise(18)
def test_at_every_release_step_the_text_equals_plain_decoding(promise: Measured):
    subject = ManagedModel(CONFIG)
    engine = subject.residency.completer
    whole = subject.says(LONG)
    assert whole.prompt_tokens > CONTEXT_TOKENS // 2
    prompts = [whole.prompt_tokens]
    subject.runs_out()
    assert subject.is_now == ("ok", "full"), "at first what was read is forgotten, and no more"
    assert not any(engine.target_decoder.slot_ids) and engine.target_decoder.kv_mib == 0.0
    assert subject.says(LONG).tokens == whole.tokens
    for level in LEVELS:
        subject.after(1.0)
        subject.runs_out()
        assert subject.is_now == ("ok", level)
        assert subject.residency.message == f"memory ran out: {level}"
        result = subject.says(LONG)
        prompts.append(result.prompt_tokens)
        assert result.tokens == plain(subject, LONG) and result.tokens
        assert subject.says(ASKED).tokens == plain(subject, ASKED)
    assert prompts[1] == prompts[0] and prompts[2] <= CONTEXT_TOKENS // 4
    assert engine.draft == ""
    left = weakref.ref(engine.target_decoder)
    del engine
    subject.runs_out()
    assert subject.is_now == ("asleep", NO_DRAFT) and subject.residency.completer is None
    gc.collect()
    assert left() is None
    assert subject.says(ASKED).tokens == plain(subject, ASKED), "the next request loads it again"
    assert subject.is_now == ("ok", NO_DRAFT), "as small as it was"
    promise.measured(f"{len(LEVELS) + 2} rungs of the ladder: token for token what plain decoding says", holds=True)


@pytest.mark.parametrize("min_free_memory_mib", [0, 1], ids=["only our own", "others too"])
def test_after_a_time_without_pressure_the_steps_are_restored_one_at_a_time(min_free_memory_mib: int):
    subject = ManagedModel(CONFIG, min_free_memory_mib=min_free_memory_mib)
    whole = subject.says(LONG)
    for _ in range(1 + len(LEVELS)):
        subject.runs_out()
    assert subject.is_now == ("ok", NO_DRAFT)
    levels: list[str] = []
    for _ in range(int(6 * CALM_S / CHECK_S)):
        subject.after(CHECK_S)
        if subject.residency.memory not in levels[-1:]:
            levels.append(subject.residency.memory)
            assert subject.residency.message == ("" if levels[-1] == "full" else f"memory ran out: {levels[-1]}")
    assert levels == [*reversed(LEVELS), "full"]
    assert subject.says(LONG).tokens == whole.tokens and subject.says(LONG).prompt_tokens == whole.prompt_tokens
    assert subject.residency.completer.draft
    subject.runs_out()
    assert subject.is_now == ("ok", "full"), "what was long ago does not count"


def test_rare_out_of_memory_clears_the_caches_and_releases_no_step():
    subject = ManagedModel(CONFIG)
    for _ in range(5):
        subject.runs_out()
        subject.after(CALM_S)
        assert subject.is_now == ("ok", "full") and not subject.residency.message


def test_other_programs_need_and_our_own_share_one_order_of_steps():
    subject = ManagedModel(CONFIG, min_free_memory_mib=500)
    subject.machine.free = 400
    subject.after(CHECK_S)
    assert subject.is_now == ("ok", "small cache")
    subject.after(CHECK_S)
    assert subject.is_now == ("ok", NO_DRAFT), "for others nothing that changes a suggestion"
    subject.machine.free = 10**6
    subject.runs_out()
    subject.runs_out()
    assert subject.is_now == ("ok", "short context")
    for _ in range(int(5 * (CALM_S + WAIT_S) / CHECK_S)):
        subject.after(CHECK_S)
    assert subject.is_now == ("ok", "full")
    assert subject.says(LONG).prompt_tokens > CONTEXT_TOKENS // 2


def test_a_completion_under_way_prefills_again_after_a_release_and_ends_the_same():
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
    assert subject.is_now == ("ok", "small cache") and not subject.residency.quiesce_requested
    subject.residency.report_out_of_memory()
    subject.residency.maintain(busy=True)
    assert subject.is_now == ("ok", "small cache") and subject.residency.quiesce_requested, (
        "a shorter context waits for it"
    )
    assert [*running] and completion.result.tokens == expected
    subject.residency.maintain()
    assert subject.is_now == ("ok", "short context")


def test_a_step_that_cannot_be_restored_is_tried_again_later(monkeypatch: pytest.MonkeyPatch):
    subject = ManagedModel(CONFIG)
    subject.runs_out()
    subject.runs_out()
    tried: list[float] = []

    def refuse(slots: int) -> None:
        tried.append(subject.now_s)
        raise MemoryError

    monkeypatch.setattr(type(subject.residency.completer), "set_slot_count", lambda engine, slots: refuse(slots))
    for _ in range(int(3.5 * CALM_S / CHECK_S)):
        subject.after(CHECK_S)
    assert len(tried) == 3 and subject.is_now == ("ok", "small cache")


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


PLACES = {  # (the decoder's rows, its method)
    "prefill": (decoder.ROWS, "extend"),
    "verify": (decoder.ROWS, "forward"),
    "the draft's prefill": (1, "extend"),
    "draft": (1, "forward"),
}


@pytest.mark.promise(18)
@pytest.mark.parametrize(("place", "kind"), zip(PLACES, ("a CPU's", "C++'s", "a GPU's", "Python's"), strict=True))
def test_out_of_memory_anywhere_fails_only_its_request_and_leaves_no_state(
    scheduler: Scheduler, place: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    request = replace(ASKED, prefix="x = 1\n" * 60 + ASKED.prefix, sources=("model",), gamma=2, heal=False)
    good = end(scheduler, request)
    assert isinstance(good, DoneEvent)
    rows, name = PLACES[place]
    real, references = getattr(Decoder, name), []

    def full(self: Decoder, *given: Any, **named: Any) -> Any:
        subject = Witness()
        if self.rows == rows:
            references.append(weakref.ref(subject))
            raise type(FULL[kind])(*FULL[kind].args)
        return real(self, *given, **named)

    monkeypatch.setattr(Decoder, name, full)
    fresh = replace(request, prefix="y = 2\n" * 60 + ASKED.prefix)
    failed = end(scheduler, fresh)
    assert isinstance(failed, ErrorEvent) and str(failed.error) == NO_MEMORY
    wait_until(lambda: not any(scheduler.counts()))
    assert references and [reference() for reference in references] == [None] * len(references), (
        "the traceback kept a pass's tensors"
    )
    monkeypatch.setattr(Decoder, name, real)
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
    rows = {"target": 8, "draft": 1}[which]
    decoder = checkpoint.read_decoder(TINY / which, "fp32", "cpu:0", 512, 2048, rows=rows, dtype=torch.float32)
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


@pytest.mark.parametrize("which", ["target", "draft"])
def test_a_gpus_cache_shrinks_to_a_shorter_context_and_grows_again(which: str):
    decoder = on_gpu(which)
    whole_mib = decoder.kv_mib
    decoder.catch_up(IDS[:100])
    logits = decoder.forward([7])
    for tokens in (128, 512):
        decoder.graphs.replays["old"] = lambda: None
        decoder.set_context_tokens(tokens)
        assert decoder.context_tokens == tokens and not any(decoder.slot_ids) and not decoder.graphs.replays
        assert (decoder.kv_mib < whole_mib) == (tokens < 256)
        assert decoder.catch_up(IDS[:100]) == 0
        assert torch.equal(decoder.forward([7]), logits)
        with pytest.raises(ValueError, match="do not fit"):
            decoder.catch_up([1] * (tokens + 1))
    assert decoder.kv_mib == whole_mib


def test_a_gpu_without_room_for_the_longer_context_keeps_the_short_one(monkeypatch: pytest.MonkeyPatch):
    decoder = on_gpu("target")
    decoder.set_context_tokens(128)
    with monkeypatch.context() as patch:

        def full(*shape: Any, **how: Any) -> Any:
            raise torch.OutOfMemoryError("CUDA out of memory")

        patch.setattr(torch.Tensor, "new_zeros", full)
        with pytest.raises(torch.OutOfMemoryError):
            decoder.set_context_tokens(512)
    assert decoder.context_tokens == 128
    decoder.catch_up(IDS[:100])
    decoder.forward([1])


def test_a_device_answers_only_if_a_small_computation_succeeds_on_it(monkeypatch: pytest.MonkeyPatch):
    assert DeviceMemory("cpu").works()

    def answers(error: Exception) -> bool:
        def ones(*shape: Any, **how: Any) -> Any:
            raise error

        monkeypatch.setattr(torch, "ones", ones)
        return DeviceMemory("cuda").works()

    assert not answers(BROKEN[0])
    assert answers(FULL["a GPU's"]), "it is full, and well"
