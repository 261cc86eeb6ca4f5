"""The list of models for clients: download and memory sizes before any fetch, and the fit for this machine."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from speclsp.config import Config, parse
from speclsp.lsp.server import model_list
from speclsp.lsp.server.model_list import as_json, listing
from speclsp.weights import cards, store


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
    target, draft = not_listed.target.parameters, not_listed.draft.parameters
    for card, fetched, device, size_bytes in (
        (listed, False, "cpu", sum(file.bytes for file in listed.target.files)),
        (not_listed, False, "cuda", 2 * (target + draft)),
        (not_listed, False, "cpu", 2 * target),
        (not_listed, True, "cuda", 0),
    ):
        row = as_json(card, fetched, device, 8000, Config())
        assert (row["fetched"], row["download_mib"]) == (fetched, round(size_bytes / 2**20))


@pytest.mark.parametrize(
    ("device", "free_mib", "quantization", "number_format", "extra_mib"),
    [
        ("cpu", 8000, "auto", "int8", cards.PROCESS_MIB),
        ("cpu", 8000, "bf16", "bf16", cards.PROCESS_MIB + cards.TORCH_MIB),
        ("cuda", 80_000, "auto", "bf16", cards.MARGIN_MIB),
        ("cuda", 8000, "auto", "nf4", cards.MARGIN_MIB),
        ("cuda", 8000, "bf16", "bf16", 0),
    ],
)
def test_the_memory_size_is_that_of_the_number_format_to_load(
    device: str, free_mib: int, quantization: str, number_format: str, extra_mib: int
):
    card, (config, _) = cards.load("qwen2.5-coder-7b"), parse({"engine.quantization": quantization})
    need_mib = as_json(card, False, device, free_mib, config)["memory_mib"]
    assert need_mib == card.memory_mib[number_format] + extra_mib


def test_a_pair_that_does_not_fit_names_the_needed_and_the_free_memory():
    card = cards.load("qwen2.5-coder-7b")
    row = as_json(card, False, "cpu", 100, Config())
    assert not row["fits"] and f"{row['memory_mib']} MiB" in row["why"] and "100 MiB" in row["why"]


def test_a_large_pair_without_a_gpu_fits_with_a_warning_that_it_is_slow():
    row = as_json(cards.load("qwen2.5-coder-7b"), False, "cpu", 10**6, Config())
    assert row["fits"] and "slow" in row["why"]
    assert as_json(cards.load(cards.WITHOUT_GPU), False, "cpu", 10**6, Config())["why"] == ""


def test_the_memory_of_the_pair_in_use_counts_as_free(monkeypatch: pytest.MonkeyPatch):
    need_mib = cards.load("qwen2.5-coder-3b").needed_mib("cpu", 0, "int8")
    monkeypatch.setattr(model_list, "machine", lambda device: ("cpu", need_mib - 10))
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
        ("print(12345)", "auto", ("cuda", 12345)),
        ("assert sys.argv[3:] == ['-i', '1']; print(777)", "cuda:1", ("cuda", 777)),
        ("print(12345)", "cpu", None),
        ("print('no devices were found'); sys.exit(6)", "auto", None),
        ("print(12345); sys.exit(6)", "auto", None),
        ("print('[N/A]')", "auto", None),
    ],
)
def test_the_gpu_memory_is_the_drivers_value_or_none(
    code: str, device: str, expected: tuple[str, int] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write_program(tmp_path / "nvidia-smi", code)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    used, free_mib = model_list.machine(device)
    assert (used, free_mib) == expected if expected is not None else used == "cpu" and free_mib > 0
