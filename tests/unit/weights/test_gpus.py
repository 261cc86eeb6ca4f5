"""The GPU that computes, or one sentence about why none does.

No GPU is needed: faults are planted in torch's functions.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch

from speclsp.engine.loading import load_plan
from speclsp.errors import WeightsError
from speclsp.process_resources import gpu_extra, gpus
from speclsp.process_resources.gpus import pick_device
from speclsp.weights import auto_choice

Plant = Callable[..., None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """A machine with GPUs as torch reports them; arguments plant faults."""

    def working(
        machine: Sequence[tuple[str, tuple[int, int], int]] = (("NVIDIA H200", (9, 0), 140),),
        driver: bool = True,
        cuda: str | None = "12.6",
        available: Callable[[], bool] = lambda: True,
        visible: str | None = None,
        triton: bool = True,
    ) -> None:
        monkeypatch.setattr(gpu_extra, "has_gpu_driver", lambda: driver)
        monkeypatch.setattr(torch.version, "cuda", cuda)
        monkeypatch.setattr(torch.cuda, "is_available", available)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: len(machine))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda at: machine[at][0])
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda at: machine[at][1])

        def free_and_total(at: int) -> tuple[int, int]:
            return (machine[at][2] << 30, machine[at][2] << 30) if machine[at][2] else fail_to_answer()

        monkeypatch.setattr(torch.cuda, "mem_get_info", free_and_total)
        monkeypatch.setattr(gpus, "find_spec", lambda name: object() if triton else None)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        gpus.search_gpu.cache_clear()

    yield working
    gpus.search_gpu.cache_clear()


def old_driver() -> bool:
    warnings.warn("The NVIDIA driver on your system is too old (found version 11040).", stacklevel=1)
    return False


def fail_to_answer() -> Any:
    raise RuntimeError("CUDA error: unknown error\nCompile with TORCH_USE_CUDA_DSA")


PASCAL = ("NVIDIA GeForce GTX 1080", (6, 1), 8)
GONE = ("NVIDIA L40S", (8, 9), 0)  # it does not answer
LARGE, SMALL = ("NVIDIA L40S", (8, 9), 44), ("NVIDIA RTX 3060", (8, 6), 11)


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ({"cuda": None}, "is built without CUDA, so the CPU computes: install the other build with `pip install torch"),
        ({"visible": "-1", "available": lambda: False}, 'load it, or unset CUDA_VISIBLE_DEVICES, which is "-1".'),
        ({"available": old_driver}, "cannot use the NVIDIA driver (The NVIDIA driver on your system is too old"),
        ({"available": lambda: False}, "it finds no GPU), so the CPU computes: update the driver"),
        ({"available": fail_to_answer}, "does not answer (CUDA error: unknown error), so the CPU computes: restart"),
        ({"machine": [PASCAL]}, "NVIDIA GeForce GTX 1080 computes without bfloat16, so the CPU computes"),
    ],
)
def test_a_gpu_that_cannot_compute_is_named_in_one_sentence_and_the_cpu_computes(
    plant: Plant, faults: dict[str, Any], sentence: str
):
    plant(**faults)
    device, problem = pick_device("auto")
    assert device == "cpu"
    assert sentence in problem and "\n" not in problem and len(problem) < 400
    assert auto_choice.device_of("auto") == "cpu"
    with pytest.raises(WeightsError, match='device = "cuda"') as refused:
        load_plan.pick_device("cuda")
    error = str(refused.value)
    assert error.count("set device") <= 2 and ', or set device = "auto".' in error
    assert "so the CPU computes" not in error, "nothing computes: the error ends the load"


@pytest.mark.parametrize(
    ("faults", "error"),
    [
        ({"driver": False}, 'device = "cuda": This machine has no NVIDIA driver: install it, or set device = "auto".'),
        ({"visible": ""}, 'device = "cuda": CUDA_VISIBLE_DEVICES is empty: unset it, or set device = "auto".'),
    ],
)
def test_without_a_driver_or_with_all_gpus_hidden_torch_is_not_asked_and_nothing_is_reported(
    plant: Plant, faults: dict[str, Any], error: str
):
    plant(available=fail_to_answer, **faults)
    assert pick_device("auto") == pick_device("cpu") == ("cpu", "")
    with pytest.raises(WeightsError) as refused:
        load_plan.pick_device("cuda")
    assert str(refused.value) == error


def test_a_gpu_that_is_not_there_is_one_error_with_those_that_are(plant: Plant):
    plant(machine=[SMALL, LARGE])
    with pytest.raises(WeightsError) as refused:
        load_plan.pick_device("cuda:3")
    assert str(refused.value) == (
        'device = "cuda:3": PyTorch finds no cuda:3: set cuda:0 to cuda:1, or set device = "auto".'
    )


def test_auto_is_one_gpu_in_a_process_however_its_memory_fills(plant: Plant, monkeypatch: pytest.MonkeyPatch):
    plant(machine=[SMALL, LARGE])
    assert pick_device("auto")[0] == "cuda:1"
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda at: ((2 - at) << 30, 44 << 30))
    assert auto_choice.device_of("auto") == load_plan.pick_device("auto") == "cuda:1"
    gpus.search_gpu.cache_clear()
    assert pick_device("auto")[0] == "cuda:0"


@pytest.mark.parametrize(("system", "package"), [("linux", "triton"), ("win32", "triton-windows")])
def test_without_triton_the_gpu_computes_and_the_sentence_names_the_fix(
    plant: Plant, monkeypatch: pytest.MonkeyPatch, system: str, package: str
):
    plant(triton=False)
    monkeypatch.setattr(sys, "platform", system)
    device, problem = pick_device("auto")
    assert device == "cuda" and f"run `pip install {package}`." in problem


@pytest.mark.parametrize(
    ("machine", "wanted", "device"),
    [
        ([SMALL, LARGE], "auto", "cuda:1"),
        ([SMALL, LARGE], "cuda:0", "cuda:0"),
        ([LARGE, LARGE], "auto", "cuda:0"),
        ([PASCAL, SMALL], "auto", "cuda:1"),
        ([PASCAL, SMALL], "cuda:0", "cpu"),
        ([GONE, SMALL], "auto", "cuda:1"),
    ],
)
def test_of_several_gpus_the_one_with_most_free_memory_computes_and_a_named_one_is_kept(
    plant: Plant, machine: list[tuple[str, tuple[int, int], int]], wanted: str, device: str
):
    plant(machine=machine)
    assert pick_device(wanted)[0] == device
    assert bool(pick_device(wanted)[1]) == (device == "cpu")
