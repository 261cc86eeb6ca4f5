"""Warm-up of a GPU's decoder: its kernels are tried, and its passes are captured and timed."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from statistics import median
from time import perf_counter

import torch

from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
from speclsp.engine.model.cuda.graphs import Work
from speclsp.engine.model.cuda.memory_plan import PREFILL_WIDTHS
from speclsp.engine.model.cuda.ops import TORCH

log = logging.getLogger("speclsp.engine.cuda")


def try_kernels(decoder: CudaDecoder) -> None:
    """Compute by torch's operations if the Triton kernels fail on this device."""
    if decoder.ops is TORCH:
        return
    try:
        decoder.extend(warm_context(decoder))
        decoder.forward([1])
    except (torch.OutOfMemoryError, torch.AcceleratorError):
        raise
    except Exception as error:  # the compiler has several kinds of its own
        log.warning("Triton kernels are not used: %s: %s", type(error).__name__, str(error)[:200])
        decoder.ops = TORCH
    finally:
        decoder.rewind(0)


def warm_context(decoder: CudaDecoder) -> list[int]:
    """Tokens for a prefill pass as wide as the decoder's context allows."""
    most = min(PREFILL_WIDTHS[-1], decoder.context_tokens - 2 * decoder.widths[-1] - 2)
    return [1 + i % 100 for i in range(most)]


def warm_prefill(decoder: CudaDecoder, context: Sequence[int], repeats: int) -> float:
    """Capture prefill and cut it into groups of layers; milliseconds per token."""

    def widest() -> None:
        decoder.rewind(0)
        decoder.extend(context)

    widest()
    decoder.split_layers(elapsed_ms(decoder.device, widest, repeats))
    for t in (*(min(width, len(context)) for width in PREFILL_WIDTHS), *decoder.widths):
        decoder.rewind(0)
        decoder.extend(context[:t])
    decoder.graphs.capture_pending()
    return elapsed_ms(decoder.device, widest, repeats) / len(context)


def warm_step(decoder: CudaDecoder, rows: int, length: int, repeats: int) -> float:
    """Capture and time a pass over `rows` tokens, from call to the tokens it chooses."""

    def step() -> None:
        decoder.rewind(length)
        decoder.choose([1] * rows, rows, None, ())

    step()
    decoder.graphs.capture_pending()
    return elapsed_ms(decoder.device, step, repeats)


def elapsed_ms(device: str, work: Work, repeats: int) -> float:
    """The median time of `work`, including the device's part."""
    times = []
    for _ in range(repeats):
        began_s = perf_counter()
        work()
        if device.startswith("cuda"):
            torch.cuda.synchronize(device)
        times.append((perf_counter() - began_s) * 1e3)
    return median(times)
