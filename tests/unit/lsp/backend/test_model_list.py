"""The list of models for clients: download and memory sizes before any fetch, and the fit for this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from speclsp.config import Config, parse
from speclsp.lsp.server import model_list
from speclsp.lsp.server.model_list import MachineFacts, as_json, listing, needed_mib
from speclsp.weights import cards, store

CPU, GPU = MachineFacts("cpu", 8000), MachineFacts("cuda", 8000)


def test_every_card_is_listed_once_with_licence_title_sizes_and_fit():
    reply = listing(Config(), "tiny")
    rows = {row["name"]: row for row in reply["models"]}
    assert reply["current"] == "tiny"
    assert sorted(rows) == sorted(cards.names()) and len(rows) == len(reply["models"])
    for name, row in rows.items():
        card = cards.load(name)
        assert row["licence"] == card.licence and row["title"] == card.title
        assert row["memory_mib"] > 0 and row["download_mib"] >= 0
        assert row["fits"] or row["why"]
    assert rows["tiny"]["fetched"] and rows["tiny"]["fits"] and rows["tiny"]["why"] == ""
    large = rows["llama-3.1-70b"]
    assert not large["fetched"] and large["download_mib"] > 100_000
    is_for_tests = [row["name"] in ("tiny", "echo") for row in reply["models"]]
    assert is_for_tests == sorted(is_for_tests), "what is for tests comes last"


def test_the_download_size_is_that_of_the_listed_files_or_of_the_parameters():
    listed, not_listed = cards.load("qwen2.5-coder-0.5b-instruct"), cards.load("starcoder2-7b")
    assert model_list.download_mib(listed, True) == round(sum(file.bytes for file in listed.target.files) / 2**20)
    target, draft = not_listed.target.parameters, not_listed.draft.parameters
    assert model_list.download_mib(not_listed, True) == round(2 * (target + draft) / 2**20)
    assert model_list.download_mib(not_listed, False) == round(2 * target / 2**20)


def test_a_fetched_pair_has_no_download_size():
    row = as_json(cards.load("starcoder2-7b"), True, CPU, Config())
    assert row["fetched"] and row["download_mib"] == 0


@pytest.mark.parametrize(
    ("here", "number_format"), [(CPU, "int8"), (MachineFacts("cuda", 80_000), "bf16"), (GPU, "nf4")]
)
def test_the_memory_size_is_that_of_the_number_format_to_load(here: MachineFacts, number_format: str):
    card = cards.load("qwen2.5-coder-7b")
    process_mib = cards.PROCESS_MIB if here.device == "cpu" else 0
    extra_mib = process_mib or cards.MARGIN_MIB
    assert needed_mib(card, here, Config()) == card.memory_mib[number_format] + extra_mib
    forced, _ = parse({"engine.quantization": "bf16"})
    torch_mib = cards.TORCH_MIB if process_mib else 0
    assert needed_mib(card, here, forced) == card.memory_mib["bf16"] + process_mib + torch_mib


def test_a_pair_that_does_not_fit_names_the_needed_and_the_free_memory():
    card = cards.load("qwen2.5-coder-7b")
    row = as_json(card, False, MachineFacts("cpu", 100), Config())
    assert not row["fits"] and f"{row['memory_mib']} MiB" in row["why"] and "100 MiB" in row["why"]


def test_a_large_pair_without_a_gpu_fits_with_a_warning_that_it_is_slow():
    row = as_json(cards.load("qwen2.5-coder-7b"), False, MachineFacts("cpu", 10**6), Config())
    assert row["fits"] and "slow" in row["why"]
    assert as_json(cards.load(cards.WITHOUT_GPU), False, MachineFacts("cpu", 10**6), Config())["why"] == ""


def test_the_memory_of_the_pair_in_use_counts_as_free(monkeypatch: pytest.MonkeyPatch):
    need_mib = cards.load("qwen2.5-coder-3b").needed_mib("cpu", 0, "int8")
    monkeypatch.setattr(model_list, "machine", lambda device: MachineFacts("cpu", need_mib - 10))
    monkeypatch.setattr(store, "path", lambda *_, **__: None)

    def fits(current: str) -> bool:
        rows = listing(Config(), current)["models"]
        return next(row["fits"] for row in rows if row["name"] == "qwen2.5-coder-3b")

    assert fits("qwen2.5-coder-3b") and not fits("nothing known")


def write_program(path: Path, code: str) -> None:
    """A program at `path`, with an extension on Windows, that runs Python code."""
    script = path.with_suffix(".py")
    script.write_text(f"import sys\n{code}\n", "utf-8")
    if sys.platform == "win32":
        path.with_suffix(".bat").write_text(f'@"{sys.executable}" "{script}" %*\n', "utf-8")
    else:
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
        path.chmod(0o755)


@pytest.mark.parametrize(
    ("code", "device", "expected"),
    [
        ("print(12345)", "auto", MachineFacts("cuda", 12345)),
        ("assert sys.argv[3:] == ['-i', '1']; print(777)", "cuda:1", MachineFacts("cuda", 777)),
        ("print(12345)", "cpu", None),
        ("print('no devices were found'); sys.exit(6)", "auto", None),
        ("print(12345); sys.exit(6)", "auto", None),
        ("print('[N/A]')", "auto", None),
    ],
)
def test_the_gpu_memory_is_the_drivers_value_or_none(
    code: str, device: str, expected: MachineFacts | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_program(tmp_path / "nvidia-smi", code)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    machine = model_list.machine(device)
    if expected is None:
        assert machine.device == "cpu" and machine.free_mib > 0
    else:
        assert machine == expected
