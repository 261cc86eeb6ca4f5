"""`model = "auto"` on a CPU: the largest model that answers in time, from a speed measured once per machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speclsp.config import Config
from speclsp.weights import auto_choice
from speclsp.weights.auto_choice import CpuSpeed
from speclsp.weights.cards import Weights

SMALL, MIDDLE = "qwen2.5-coder-0.5b-instruct", "qwen2.5-coder-1.5b-instruct"


def mirrored(weights: Weights) -> bool:
    """Only what the package index has: the two instruct models."""
    return weights.mirror is not None


# Read GB/s and G int8 multiply-adds/s. The first two were measured; the others follow from cores and memory.
MACHINES = {
    "EPYC Zen 5, 2 cores, AVX-512": (CpuSpeed("a", 40.0, 544.0), SMALL),
    "EPYC Zen 4, 2 cores, AVX-512": (CpuSpeed("b", 19.0, 430.0), SMALL),
    "desktop, 8 cores, 60 GB/s": (CpuSpeed("c", 60.0, 1900.0), MIDDLE),
    "laptop, 4 cores, AVX2, 25 GB/s": (CpuSpeed("d", 25.0, 250.0), SMALL),
    "workstation, 32 cores, 250 GB/s": (CpuSpeed("e", 250.0, 9000.0), MIDDLE),
}


@pytest.mark.parametrize("machine", MACHINES)
def test_auto_picks_the_largest_model_that_answers_in_time(machine: str):
    speed, expected = MACHINES[machine]
    card, why = auto_choice.choose(24_000, "cpu", mirrored, speed, 250)
    assert card.name == expected
    assert why.startswith(expected) and why.endswith(".")


def test_a_cpu_gets_no_model_with_files_of_16_bits():
    speed, _ = MACHINES["workstation, 32 cores, 250 GB/s"]
    card, why = auto_choice.choose(64_000, "cpu", lambda weights: True, speed, 250)
    assert card.name == MIDDLE and card.target.format == "gguf"
    assert "at most 250 ms here (55 ms predicted)" in why


def test_a_patient_user_gets_a_larger_model():
    speed, _ = MACHINES["EPYC Zen 4, 2 cores, AVX-512"]
    assert auto_choice.choose(24_000, "cpu", mirrored, speed, 1000)[0].name == MIDDLE


def test_a_model_that_does_not_fit_the_memory_is_passed_over():
    card, why = auto_choice.choose(3_000, "cpu", mirrored, MACHINES["desktop, 8 cores, 60 GB/s"][0], 250)
    assert card.name == SMALL
    assert "qwen2.5-coder-1.5b-instruct needs" in why


def test_without_a_measurement_auto_picks_the_small_model_and_says_so():
    card, why = auto_choice.choose(24_000, "cpu", mirrored)
    assert card.name == SMALL and "was not measured" in why


def test_a_measurement_is_kept_for_this_machine_only():
    assert auto_choice.recorded() is None
    speed = CpuSpeed(auto_choice.machine_name(), 20.0, 400.0)
    auto_choice.record(speed)
    assert auto_choice.recorded() == speed
    assert auto_choice.recorded(threads=1) is None, "measured with all threads"
    auto_choice.record(replace(speed, machine="another"))
    assert auto_choice.recorded() is None


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"machine": 1, "read_gb_s": "fast", "int8_g_s": 1}', "x" * 9999])
def test_a_file_that_a_person_has_edited_counts_as_none(content: str):
    auto_choice.record(CpuSpeed(auto_choice.machine_name(), 20.0, 400.0))
    auto_choice.path().write_text(content)
    assert auto_choice.recorded() is None


def test_predictions_grow_with_the_model_and_the_prompt():
    speed = CpuSpeed("m", 20.0, 400.0)
    assert speed.usual_ms(10**9) < speed.usual_ms(2 * 10**9)
    assert speed.usual_ms(10**9) < speed.first_ms(10**9)
    assert Config().engine.auto_model_ms == 250
