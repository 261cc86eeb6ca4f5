"""The tiny trained models have the properties that the engine's tests rely on: small, one tokenizer, a good draft."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TINY = Path(__file__).resolve().parents[3] / "models" / "tiny"
NAMES = ("target", "draft")
TOKENIZER = Tokenizer.from_file(str(TINY / "target" / "tokenizer.json"))


@pytest.fixture(scope="module")
def models() -> dict[str, PreTrainedModel]:
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    loaded = {name: AutoModelForCausalLM.from_pretrained(TINY / name, dtype=torch.float32) for name in NAMES}
    return {name: model.eval() for name, model in loaded.items()}


@pytest.fixture(scope="module")
def script() -> ModuleType:
    """models/tiny/train.py as a module: its sources, its rows and its metric. models/ is no package."""
    spec = importlib.util.spec_from_file_location("tiny_train", TINY / "train.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)  # models/ goes into the wheel unchanged
        patch.syspath_prepend(TINY)  # for corpus.py
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def test_the_whole_directory_stays_within_6_mb():
    for name in NAMES:
        assert {file.name for file in (TINY / name).iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}
    tracked = [file for file in TINY.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert sum(file.stat().st_size for file in tracked) <= 6_000_000


@given(st.text(alphabet="ab \n", min_size=1), st.randoms(use_true_random=False), st.integers(1, 200))
def test_a_training_task_is_prefix_middle_and_suffix_of_one_text(script, text, rng, chars):
    prefix, middle, suffix = script.hole(text, rng, chars)
    assert prefix + middle + suffix in text


def test_the_draft_agrees_with_the_target_on_half_of_the_held_out_tokens(models, script):
    kept = {name: text for name, text in script.sources().items() if script.held_out(name)}
    rows = script.held_out_rows(kept, TOKENIZER, limit=6)
    assert script.agreement(models["target"], models["draft"], rows) >= 0.5
