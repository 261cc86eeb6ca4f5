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
from support.waiting import wait_until

from speclsp.cli.measure import complete_once
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request, Result
from speclsp.engine.decoding.accept import Sampling
from speclsp.engine.decoding.fused_round import FusedRound, warm_up
from speclsp.engine.loading import checkpoint, loading
from speclsp.engine.model import decoder
from speclsp.engine.model.cuda.decoder import CudaDecoder
from speclsp.engine.model.decoder import Decoder
from speclsp.engine.scheduling.device_errors import clear_references, is_device_failure, ran_out_of_memory
from speclsp.engine.scheduling.device_memory import DeviceMemory
from speclsp.engine.scheduling.job import DoneEvent, ErrorEvent, RoundEvent
from speclsp.engine.scheduling.loaded_model import NO_DRAFT
from speclsp.engine.scheduling.memory_pressure import CHECK_S, WAIT_S
from speclsp.engine.scheduling.residency import CALM_S, Residency
from speclsp.engine.scheduling.scheduler import NO_MEMORY, Scheduler
from speclsp.errors import InputError, OutOfMemory, WeightsError
from speclsp.observability.metrics import Metrics
from speclsp.weights import cards

pytestmark = pytest.mark.usefixtures("one_thread")

TINY = cards.models_root() / "tiny"
CONTEXT_TOKENS = 1024
CONFIG = Config(pair="tiny", engine=EngineConfig(context_tokens=CONTEXT_TOKENS, threads=1))
ASKED = Request(prefix="def add(a, b):\n", line_prefix="    return ", suffix="\n\n\nclass Point:\n", max_tokens=24)
LONG = replace(ASKED, prefix="".join(f"value_{n} = {n}\n" for n in range(200)) + ASKED.prefix)
RUNGS = ["small cache", "short context", "shorter context", NO_DRAFT]


# ── which errors they are ────────────────────────────────────────────────────────────────────────────────────


def too_much() -> Exception:
    """What torch really raises on a CPU."""
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

    seen: list[weakref.ref[Tensor]] = []

    def compute() -> None:
        held = Tensor()
        seen.append(weakref.ref(held))
        try:
            raise MemoryError(held)
        except MemoryError:
            raise RuntimeError("while that was handled") from ValueError("and because of this")

    try:
        compute()
    except RuntimeError as error:
        kept = error
    first, cause = kept.__context__, kept.__cause__
    assert seen[0]() is not None
    clear_references(kept)
    assert first is not None and first.__traceback__ is None and cause is not None and cause.__traceback__ is None
    first.args = ()
    assert seen[0]() is None


# ── the ladder ───────────────────────────────────────────────────────────────────────────────────────────────


class Held:
    """tiny in a Holding driven from this thread, with a clock that the test moves."""

    def __init__(self, **settings: Any) -> None:
        self.now_s = 0.0
        self.residency = Residency(self.load, clock=lambda: self.now_s, **settings)
        self.residency.maintain()
        assert self.residency.state == "ok"

    @staticmethod
    def load(progress: Callable[[float, str], None], with_draft: bool = True) -> Any:
        return loading.start(CONFIG, cards.load("tiny"), progress, with_draft)

    def runs_out(self) -> None:
        self.residency.report_out_of_memory()
        self.residency.maintain()

    def after(self, seconds: float) -> None:
        self.now_s += seconds
        self.residency.maintain()

    def says(self, request: Request) -> Result:
        self.residency.note_request()
        self.residency.maintain()
        assert self.residency.completer is not None, self.residency.message
        return complete_once(self.residency.completer, request)

    @property
    def is_now(self) -> tuple[str, str]:
        return self.residency.state, self.residency.memory


def plain(held: Held, request: Request) -> list[int]:
    """The tokens of plain decoding, from a cache that holds nothing."""
    held.residency.completer.empty()
    return held.says(replace(request, speculate=False)).tokens


@pytest.mark.promise(18)
def test_it_goes_down_rung_by_rung_and_at_every_one_says_what_plain_decoding_says(promise: Measured):
    held = Held()
    engine = held.residency.completer
    whole = held.says(LONG)
    assert whole.prompt_tokens > CONTEXT_TOKENS // 2
    prompts = [whole.prompt_tokens]
    held.runs_out()
    assert held.is_now == ("ok", "full"), "at first what was read is forgotten, and no more"
    assert not any(engine.target_decoder.slot_ids) and engine.target_decoder.kv_mib == 0.0
    assert held.says(LONG).tokens == whole.tokens
    for rung in RUNGS:
        held.after(1.0)
        held.runs_out()
        assert held.is_now == ("ok", rung)
        assert held.residency.message == f"memory ran out: {rung}"
        made = held.says(LONG)
        prompts.append(made.prompt_tokens)
        assert made.tokens == plain(held, LONG) and made.tokens
        assert held.says(ASKED).tokens == plain(held, ASKED)
    assert prompts[1] == prompts[0] and prompts[2] <= CONTEXT_TOKENS // 2 and prompts[3] <= CONTEXT_TOKENS // 4
    assert engine.draft == ""
    left = weakref.ref(engine.target_decoder)
    del engine
    held.runs_out()
    assert held.is_now == ("asleep", NO_DRAFT) and held.residency.completer is None
    gc.collect()
    assert left() is None
    assert held.says(ASKED).tokens == plain(held, ASKED), "the next request loads it again"
    assert held.is_now == ("ok", NO_DRAFT), "as small as it was"
    promise.measured(f"{len(RUNGS) + 2} rungs of the ladder: token for token what plain decoding says", holds=True)


@pytest.mark.parametrize("keep_free_mib", [0, 1], ids=["only our own", "others too"])
def test_after_a_calm_time_the_steps_are_restored_one_at_a_time(keep_free_mib: int):
    held = Held(keep_free_mib=keep_free_mib)
    whole = held.says(LONG)
    for _ in range(1 + len(RUNGS)):
        held.runs_out()
    assert held.is_now == ("ok", NO_DRAFT)
    seen: list[str] = []
    for _ in range(int(6 * CALM_S / CHECK_S)):
        held.after(CHECK_S)
        if held.residency.memory not in seen[-1:]:
            seen.append(held.residency.memory)
            assert held.residency.message == ("" if seen[-1] == "full" else f"memory ran out: {seen[-1]}")
    assert seen == [*reversed(RUNGS), "full"]
    assert held.says(LONG).tokens == whole.tokens and held.says(LONG).prompt_tokens == whole.prompt_tokens
    assert held.residency.completer.draft
    held.runs_out()
    assert held.is_now == ("ok", "full"), "what was long ago does not count"


def test_rare_out_of_memory_clears_the_caches_and_releases_no_step():
    held = Held()
    for _ in range(5):
        held.runs_out()
        held.after(CALM_S)
        assert held.is_now == ("ok", "full") and not held.residency.message


def test_other_programs_need_and_our_own_share_one_order_of_steps():
    held = Held(keep_free_mib=500)
    machine = held.residency.steps.device_memory
    machine.free_mib = lambda: 400
    held.after(CHECK_S)
    assert held.is_now == ("ok", "small cache")
    held.after(CHECK_S)
    assert held.is_now == ("ok", NO_DRAFT), "for others nothing that changes a suggestion"
    machine.free_mib = lambda: 10**6
    held.runs_out()
    for rung in ("short context", "shorter context"):
        held.runs_out()
        assert held.is_now == ("ok", rung)
    for _ in range(int(5 * (CALM_S + WAIT_S) / CHECK_S)):
        held.after(CHECK_S)
    assert held.is_now == ("ok", "full")
    assert held.says(LONG).prompt_tokens > CONTEXT_TOKENS // 2


def test_a_completion_under_way_prefills_again_after_a_release_and_ends_the_same():
    held = Held()
    expected = held.says(LONG).tokens
    running = iter(completion := held.residency.completer.complete(LONG, threading.Event()))
    for piece in running:
        if piece.tokens:
            break
    for _ in range(2):
        held.residency.report_out_of_memory()
        held.residency.maintain(busy=True)
        next(running)
    assert held.is_now == ("ok", "small cache") and not held.residency.quiesce_requested
    held.residency.report_out_of_memory()
    held.residency.maintain(busy=True)
    assert held.is_now == ("ok", "small cache") and held.residency.quiesce_requested, "a shorter context waits for it"
    assert [*running] and completion.result.tokens == expected
    held.residency.maintain()
    assert held.is_now == ("ok", "short context")


def test_a_step_that_cannot_be_restored_is_tried_again_later(monkeypatch: pytest.MonkeyPatch):
    held = Held()
    held.runs_out()
    held.runs_out()
    tried: list[float] = []

    def refuse(slots: int) -> None:
        tried.append(held.now_s)
        raise MemoryError

    monkeypatch.setattr(type(held.residency.completer), "set_slot_count", lambda engine, slots: refuse(slots))
    for _ in range(int(3.5 * CALM_S / CHECK_S)):
        held.after(CHECK_S)
    assert len(tried) == 3 and held.is_now == ("ok", "small cache")


# ── through the engine's thread, with torch's own error in every place ───────────────────────────────────────


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    made = Scheduler(Held.load, Metrics(), pair="tiny")
    made.thread.start()
    wait_until(lambda: made.residency.state == "ok")
    yield made
    made.close()
    made.thread.join(30)


def end(scheduler: Scheduler, request: Request) -> DoneEvent | ErrorEvent:
    told: Queue[Any] = Queue()
    scheduler.submit(request, told.put)
    while isinstance(event := told.get(timeout=60), RoundEvent):
        pass
    return event


class Witness:
    """Lives as long as the frames of a forward pass."""


PLACES = {  # (the decoder's rows, its method)
    "prefill": (decoder.ROWS, "extend"),
    "verify": (decoder.ROWS, "forward"),
    "the draft's prefill": (1, "extend"),
    "draft": (1, "forward"),
}


@pytest.mark.promise(18)
@pytest.mark.parametrize(
    ("place", "kind"),
    [*((place, "a CPU's") for place in PLACES), ("prefill", "a GPU's"), ("verify", "C++'s"), ("draft", "Python's")],
)
def test_wherever_it_runs_out_that_request_alone_fails_and_nothing_of_it_stays(
    scheduler: Scheduler, place: str, kind: str, monkeypatch: pytest.MonkeyPatch
):
    asked = replace(ASKED, prefix="x = 1\n" * 60 + ASKED.prefix, sources=("model",), gamma=2, heal=False)
    good = end(scheduler, asked)
    assert isinstance(good, DoneEvent)
    rows, name = PLACES[place]
    real, seen = getattr(Decoder, name), []

    def full(self: Decoder, *given: Any, **named: Any) -> Any:
        held = Witness()
        if self.rows == rows:
            seen.append(weakref.ref(held))
            raise type(FULL[kind])(*FULL[kind].args)
        return real(self, *given, **named)

    monkeypatch.setattr(Decoder, name, full)
    fresh = replace(asked, prefix="y = 2\n" * 60 + ASKED.prefix)
    failed = end(scheduler, fresh)
    assert isinstance(failed, ErrorEvent) and str(failed.error) == NO_MEMORY
    wait_until(lambda: not any(scheduler.counts()))
    assert seen and [one() for one in seen] == [None] * len(seen), "the traceback kept a pass's tensors"
    monkeypatch.setattr(Decoder, name, real)
    again = end(scheduler, asked)
    assert isinstance(again, DoneEvent) and again.results[0].tokens == good.results[0].tokens
    assert scheduler.metrics.total("oom_total") == 1 and scheduler.residency.state == "ok"


def test_an_ordinary_failure_does_not_clear_the_caches(scheduler: Scheduler):
    assert isinstance(end(scheduler, ASKED), DoneEvent)
    failed = end(scheduler, replace(ASKED, max_tokens=10_000))
    assert isinstance(failed, ErrorEvent) and isinstance(failed.error, InputError)
    assert any(scheduler.residency.completer.target_decoder.slot_ids)
    assert scheduler.metrics.total("oom_total") == 0


# ── on a GPU, by its decoder run on a CPU ────────────────────────────────────────────────────────────────────


def on_gpu(which: str) -> CudaDecoder:
    rows = {"target": 8, "draft": 1}[which]
    made = checkpoint.read_decoder(TINY / which, "fp32", "cpu:0", 512, 2048, rows=rows, dtype=torch.float32)
    assert isinstance(made, CudaDecoder)
    return made


IDS = torch.randint(0, 2000, (200,), generator=torch.Generator().manual_seed(2)).tolist()


def rounds(pair: FusedRound, ids: list[int], count: int) -> list[int]:
    """`ids`, and what so many rounds add."""
    text = list(ids)
    pair.target.catch_up(text[:-1])
    for _ in range(count):
        guesses, held, token = pair.round(text, 3, Sampling())
        text += [*guesses[:held], token]
    return text


@pytest.fixture(scope="module")
def pair() -> FusedRound:
    made = warm_up(on_gpu("target"), on_gpu("draft"), repeats=1)[1]
    assert made is not None
    return made


@pytest.mark.promise(18)
@pytest.mark.parametrize("at", range(1, 6))  # three guesses, the verification, and reading what was accepted
def test_a_round_on_a_gpu_that_fails_anywhere_leaves_nothing_that_another_could_trip_over(
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
    pair._catch_up(other, None, None)  # what follows is the round alone
    with monkeypatch.context() as patch:
        patch.setattr(CudaDecoder, "logits_of", full(CudaDecoder.logits_of))
        patch.setattr(FusedRound, "_receive", full(FusedRound._receive))
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
