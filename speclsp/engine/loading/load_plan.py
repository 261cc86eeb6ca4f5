"""Plan of a load: device, number format, memory plan and threads. The errors name the limit and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from speclsp import process_resources
from speclsp.config import Config, EngineConfig
from speclsp.engine.loading.checkpoint import INTEGERS
from speclsp.engine.loading.model_config import matrix_bytes, read_config, read_shape
from speclsp.engine.model.cuda import memory_plan
from speclsp.engine.model.cuda.memory_plan import MemoryPlan
from speclsp.engine.model.int8 import native
from speclsp.engine.model.int8.library import load_problem
from speclsp.engine.model.kv_cache import SLOTS
from speclsp.engine.scheduling.device_errors import ran_out_of_memory
from speclsp.errors import OutOfMemory, WeightsError
from speclsp.process_resources import gpu_extra, gpus
from speclsp.weights import auto_choice
from speclsp.weights.cards import TORCH_FORMATS, Card

SMALL_PARAMETERS = 50_000_000  # below this, one thread computes, and a GPU's draft is float32


def within_training(config: Config, card: Card) -> tuple[Config, str]:
    """The settings with a context that the model was trained for, and the sentence about a longer one; "" otherwise.

    A model that was trained for less than the default, as tiny, keeps the setting.
    """
    wanted, trained = config.engine.context_tokens, card.context_tokens
    if wanted <= trained or trained < EngineConfig().context_tokens:
        return config, ""
    note = f"engine.context_tokens = {wanted} is above the {trained} tokens that {card.name} was trained for, "
    return replace(config, engine=replace(config.engine, context_tokens=trained)), note + f"so {trained} are used."


def pick_device(wanted: str) -> str:
    """ "auto" is CUDA when there is a device, else the CPU.

    Raises:
        WeightsError: CUDA is requested and there is none.
    """
    device, reason, fix = gpus.find_gpu(wanted)
    if wanted.startswith("cuda") and device == "cpu":
        raise WeightsError(f'device = "{wanted}": {reason}: {fix}, or set device = "auto".')
    return device


def check_torch(wanted: str, device: str, card: Card) -> None:
    """Raise WeightsError if a model, a number format or this processor needs PyTorch, and it is not installed."""
    if device != "cpu":
        return
    if problem := auto_choice.torch_problem(card, device):
        raise WeightsError(problem)
    if wanted in TORCH_FORMATS:
        problem = gpu_extra.problem(f'engine.quantization = "{wanted}"', ', or set it to "auto"')
    elif not native.best_path():
        problem = gpu_extra.problem("Without a compiled forward pass for this processor, a model")
    else:
        return
    if problem:
        raise WeightsError(f"{load_problem(native.best_path())} {problem}".strip())


def pick_format(wanted: str, device: str, prefers_int4: bool = False) -> str:
    """The number format of the target's linears: "fp32" | "bf16" | "int8" | "int4" | "nf4".

    Int8 is float32 in a decoder that cannot compute it exactly (torch_checkpoint.py).

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
    return "int4" if prefers_int4 and path in native.FASTER_IN_INT4 else "int8"


def pick_draft_format(parameters: int, device: str) -> str:
    """The number format of a draft's linears: int8 on a CPU; on a GPU fp32 for a tiny draft, else nf4."""
    if device == "cpu":
        return "int8"
    return "fp32" if 0 < parameters < SMALL_PARAMETERS else "nf4"


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
    number_format = pick_format(wanted, device, auto_choice.prefers_int4(card))
    if device == "cpu":
        check_limit(card, number_format, with_draft=draft_dir is not None)
        return MemoryPlan(number_format=number_format, context_tokens=context_tokens, slots=SLOTS)
    return memory_plan.fit(
        card,
        gpu_formats(config, card, device, number_format),
        context_tokens,
        kv_bytes(target_dir) + (kv_bytes(draft_dir) if draft_dir is not None else 0),
        process_resources.free_mib(device),
        device,
        matrix_bytes(read_config(target_dir)),
    )


def gpu_formats(config: Config, card: Card, device: str, number_format: str) -> tuple[str, ...]:
    """The target's number formats on a GPU, best first; nf4 first if "auto" chose the model for its speed in nf4."""
    if config.engine.quantization != "auto":
        return (number_format,)
    if config.model == "auto" and "bf16" in card.memory_mib:
        return auto_choice.gpu_formats(card, gpus.measured_gb_per_s(device))
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


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────


def check_limit(card: Card, number_format: str, with_draft: bool) -> None:
    """Raise OutOfMemory if a model needs more than this process may use on a CPU at all, however much is free."""
    need_mib = card.needed_mib("cpu", 0, number_format)
    if card.draft is not None and with_draft:  # in int8; the card's figure has the target alone
        need_mib += card.draft.parameters // 2**20
    whole = process_resources.whole_memory()
    if need_mib > whole.free_mib:
        smaller = auto_choice.smaller(card, whole.free_mib, "cpu")
        fix = whole.limit_fix(need_mib) or "use a machine with more memory"
        raise OutOfMemory(card.name, need_mib, whole.free_mib, "cpu", smaller, fix)


@contextmanager
def explain_out_of_memory(card: Card, plan: MemoryPlan, device: str) -> Iterator[None]:
    """Raise OutOfMemory, which names the fix, in place of any error of that kind."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not ran_out_of_memory(error):
            raise
        need_mib = plan.need_mib or card.needed_mib(device, 0, plan.number_format)
        free_mib = process_resources.free_mib(device)
        smaller = auto_choice.smaller(card, free_mib, device)
        fix = process_resources.memory().limit_fix(need_mib) if device == "cpu" else ""
        raise OutOfMemory(card.name, need_mib, free_mib, device, smaller, fix) from None
