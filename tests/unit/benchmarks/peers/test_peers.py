"""`python -m benchmarks peers`: one engine runs at a time, at its best settings, and gaps are reported."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from support.engine.superblock_models import save_random_q4k_m
from support.waiting import becomes_true

from benchmarks import results_file
from benchmarks.peers import bench as peer_bench
from benchmarks.peers import bf16_weights, compare, driver_process
from benchmarks.peers.bench import PEERS, grouped
from benchmarks.peers.compare import candidates_of, chosen
from benchmarks.peers.driver_process import PeerError, PeerProcess
from benchmarks.peers.figures import Way, against, agreement
from benchmarks.speed.holes import holes, holes_and_rests
from speclsp.engine.loading import torch_checkpoint
from speclsp.engine.loading.checkpoint import open_tensors
from speclsp.weights import cards

CARD = cards.load("tiny")

FAKE = """
import subprocess, sys, time
from protocol import serve

def load(job):
    if "broken" in job["modes"]:
        raise RuntimeError("no such model")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("a library's banner on stdout")

    def answer(ids, max_tokens, mode, cold, log):
        if mode == "fails":
            raise ValueError("out of tokens")
        if mode == "dies":
            sys.exit(3)
        if mode.startswith("sulks"):
            return
        for token in range(max_tokens):
            log([token])
        print("and another")

    return answer

serve(load, ("pytest",))
"""


@pytest.fixture
def driver(tmp_path: Path) -> Path:
    """A driver of an engine that counts, beside the real protocol."""
    there = tmp_path / "drivers"
    shutil.copytree(driver_process.DRIVERS, there, ignore=shutil.ignore_patterns("__pycache__"))
    file = there / "fake_driver.py"
    file.write_text(FAKE)
    return file


def start(driver: Path, *modes: str) -> PeerProcess:
    job = {"threads": 1, "modes": {mode: {} for mode in modes}}
    return PeerProcess("fake", driver, job, Path(sys.executable), driver.parent / "logs/fake.log")


# ── one engine at a time ─────────────────────────────────────────────────────────────────────────────────────


def test_a_peer_answers_with_its_tokens_and_its_own_times(driver):
    with start(driver, "plain") as peer:
        answer = peer.ask([5, 6], 4, "plain", cold=True)
    assert answer["tokens"] == [0, 1, 2, 3]
    assert 0 <= answer["first_ms"] <= answer["total_ms"]
    assert peer.versions["pytest"] == pytest.__version__


def test_an_idle_peer_and_its_children_are_stopped(driver):
    with start(driver, "plain") as peer:
        peer.ask([1], 1, "plain", cold=True)
        family = [psutil.Process(peer.process.pid), *psutil.Process(peer.process.pid).children()]
        assert becomes_true(lambda: [process.status() for process in family] == [psutil.STATUS_STOPPED] * 2)


def test_closing_a_peer_ends_its_children(driver):
    peer = start(driver, "plain")
    (child,) = psutil.Process(peer.process.pid).children()
    peer.close()
    assert becomes_true(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_failed_answer_raises_its_error_and_the_next_one_succeeds(driver):
    with start(driver, "plain", "fails") as peer:
        with pytest.raises(PeerError, match="ValueError: out of tokens"):
            peer.ask([1], 1, "fails", cold=True)
        assert peer.ask([1], 1, "plain", cold=True)["tokens"] == [0]


def test_a_peer_that_ends_or_cannot_start_raises_an_error_with_its_name(driver):
    with start(driver, "dies") as peer, pytest.raises(PeerError, match="fake ended with 3"):
        peer.ask([1], 1, "dies", cold=True)
    with pytest.raises(PeerError, match="no such model"):
        start(driver, "broken")
    with pytest.raises(PeerError, match="cannot be started"):
        PeerProcess("fake", driver, {}, driver.parent / "no-python", driver.parent / "log")


# ── what is loaded together ──────────────────────────────────────────────────────────────────────────────────


@given(st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), max_size=8), st.integers(1, 20))
def test_every_way_is_in_one_group_and_each_group_fits_the_memory(sizes, room):
    units = [[Way("openvino", str(size), {}) for size in unit] for unit in sizes]

    def mib(unit: Sequence[Way]) -> int:
        return sum(int(way.mode) for way in unit)

    groups = grouped(units, mib, room)
    assert sorted(id(way) for group in groups for unit in group for way in unit) == sorted(
        id(way) for unit in units for way in unit
    )
    assert all(len(group) == 1 or sum(map(mib, group)) <= room for group in groups)
    assert all(len(unit) == 1 or mib(unit) <= room for group in groups for unit in group)


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_fastest_settings_of_the_sweep_are_used_or_else_the_first(monkeypatch):
    first, second, third = candidates_of("openvino", CARD)["lookup"][:3]
    rows = [
        {"settings": first, "cold": 90, "warm": 90},
        {"settings": second, "cold": 100, "warm": 50},
        {"settings": third, "failed": "it did not load"},
        {"settings": {"no": "longer tried"}, "cold": 1, "warm": 1},
    ]
    assert chosen("openvino", CARD, {"openvino": {"lookup": rows}})["lookup"] == second
    assert chosen("openvino", CARD, {})["lookup"] == first


# ── installing ───────────────────────────────────────────────────────────────────────────────────────────────


# ── figures ──────────────────────────────────────────────────────────────────────────────────────────────────


def way(name: str, totals: dict[int, list[float]], tokens: list[int] | None = None) -> Way:
    """`totals`: {group: milliseconds of each hole}; half of it to the first token."""
    made = Way(name, "plain", {}, group=max(totals))
    for kind in made.runs:
        for group, values in totals.items():
            for hole, ms in enumerate(values):
                run = {"hole": hole, "group": group, "total_ms": ms, "first_ms": ms / 2, "decode_ms": ms / 2}
                made.runs[kind].append({**run, "tokens": tokens or []})
    return made


def test_the_ratio_compares_with_the_best_peer_within_one_group():
    ours = way("speclsp", {0: [100.0], 1: [300.0]})  # the machine slowed down between the groups
    found = against(ours, [way("early", {0: [200.0]}), way("late", {1: [400.0]})])["cold_total_ms"]
    assert found == {"ratio": 0.75, "best_peer": "late plain", "ratios": {"early plain": 0.5, "late plain": 0.75}}


def test_tokens_are_compared_up_to_the_references_stop_token():
    reference = way("speclsp", {0: [1.0]}, tokens=[7, 8, 99, 1])
    same = agreement(way("a", {0: [1.0]}, tokens=[7, 8, 5, 5]), reference, frozenset({99}))
    other = agreement(way("b", {0: [1.0]}, tokens=[7, 9, 99, 1]), reference, frozenset({99}))
    assert (same["all_equal"], same["equal_tokens"], same["of_tokens"]) == (1, [2], [2])
    assert (other["first_token_equal"], other["all_equal"], other["equal_tokens"]) == (1, 0, [1])


# ── prompts ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hole_and_its_rest_restore_the_source():
    from benchmarks.speed.holes import source

    for request, rest in holes_and_rests(5, context_lines=44):
        assert request.prefix + request.line_prefix + rest + request.suffix in source(request.filename[: -len(".py")])
    assert [request for request, _ in holes_and_rests(5)] == holes(5)


# ── the whole command ────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def checkout(driver: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout whose only peers are one that counts and one that is not installed."""
    fake = peer_bench.Peer("fake_driver.py", "", 1.0, 1)
    candidates = {"speclsp": {"plain": [{"speculate": False}], "speculative": [{}]}}
    candidates |= {"fake": {"plain": [{}, {"more": 1}], "sulks": [{}]}, "absent": {"plain": [{}]}}
    (driver.parent / "candidates.json").write_text(json.dumps(candidates))
    monkeypatch.setattr(peer_bench, "PEERS", {"speclsp": PEERS["speclsp"], "fake": fake, "absent": fake})
    monkeypatch.setattr(compare, "OTHERS", ["fake", "absent"])
    monkeypatch.setenv("SPECLSP_PEERS_DIR", str(tmp_path / "installed"))
    (tmp_path / "installed/fake/venv/bin").mkdir(parents=True)
    (tmp_path / "installed/fake/requirements.txt").touch()
    (tmp_path / "installed/fake/venv/bin/python").symlink_to(sys.executable)
    for module in (peer_bench, compare):
        monkeypatch.setattr(module, "DRIVERS", driver.parent)
    return tmp_path


def bench(*words: str) -> int:
    parser = argparse.ArgumentParser()
    compare.add_arguments(parser)
    return compare.main(parser.parse_args([*words, "--model", "tiny", "--holes", "2", "--tokens", "6"]))


def result(checkout: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((checkout / "results" / f"{name}.json").read_text())
    return found


@pytest.mark.soak
@pytest.mark.slow
def test_every_way_runs_on_every_hole_and_failures_are_reported(checkout, capsys):
    assert bench("--peers", "fake,absent") == 1, "something is missing"
    found = result(checkout, f"peers-tiny-{results_file.cpu_kind()}")
    assert set(found["ways"]) == {"speclsp plain", "speclsp speculative", "fake plain"}
    runs = json.loads((checkout / "raw/peers-tiny-runs.json").read_text())
    assert set(runs) == set(found["ways"])
    assert all([run["hole"] for run in way["cold"]] == [0, 1] for way in runs.values())
    assert all(len(way["warm"]) == 2 for way in runs.values())
    assert found["ways"]["speclsp speculative"]["agreement"]["all_equal"] == 2
    assert found["ways"]["fake plain"]["agreement"]["equal_tokens"] == [0, 0]
    assert "install-peers absent --model tiny" in found["not_measured"]["absent"]
    assert "made 0 of 6 tokens" in found["not_measured"]["fake sulks"]
    output = capsys.readouterr().out
    assert "x fake plain" in output
    assert "not measured: absent" in output


@pytest.mark.slow
def test_other_engines_read_a_model_in_superblocks_as_bf16(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    ours = tmp_path / "ours"
    save_random_q4k_m(ours)
    monkeypatch.setattr(bf16_weights.store, "ensure", lambda weights, models_dir: ours)
    monkeypatch.setenv("SPECLSP_PEERS_DIR", str(tmp_path / "peers"))
    folder = bf16_weights.bf16_folder(CARD.target)
    assert folder != ours and bf16_weights.bf16_folder(CARD.target) == folder
    tensors = load_file(folder / "model.safetensors")
    assert not [name for name in tensors if name.endswith((".q4k", ".q6k"))]
    with open_tensors(ours) as get:
        assert all(torch.equal(tensor, torch_checkpoint.tensor(get(name))) for name, tensor in tensors.items())
    monkeypatch.setattr(bf16_weights.store, "ensure", lambda weights, models_dir: folder)
    assert bf16_weights.bf16_folder(CARD.target) == folder, "a model without superblocks is read where it is"
