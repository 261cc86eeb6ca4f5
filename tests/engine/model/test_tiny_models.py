"""The tiny trained models have the properties that the engine's tests rely on: small, one tokenizer, a good draft."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.engine.tiny_tasks import HOLES
from tokenizers import Tokenizer, pre_tokenizers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TINY = Path(__file__).resolve().parents[3] / "models" / "tiny"
NAMES = ("target", "draft")
MARKERS = (
    *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>"),
    *("<|repo_name|>", "<|file_sep|>"),
)
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


def complete(model: PreTrainedModel, ids: list[int], max_tokens: int) -> list[int]:
    """Plain greedy decoding, without a cache; ends with <|endoftext|> or at `max_tokens`."""
    ids_out: list[int] = []
    while len(ids_out) < max_tokens and (not ids_out or ids_out[-1] != TOKENIZER.token_to_id("<|endoftext|>")):
        with torch.inference_mode():
            ids_out.append(int(model(torch.tensor([ids + ids_out]), use_cache=False).logits[0, -1].argmax()))
    return ids_out


def test_the_whole_directory_stays_within_6_mb():
    for name in NAMES:
        assert {file.name for file in (TINY / name).iterdir()} == {"config.json", "tokenizer.json", "model.safetensors"}
    tracked = [file for file in TINY.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert sum(file.stat().st_size for file in tracked) <= 6_000_000


def test_both_models_have_the_shape_of_qwen2_and_the_draft_is_much_smaller(models):
    for model in models.values():
        names = {name for name, _ in model.named_parameters()}
        assert model.config.model_type == "qwen2"
        assert model.config.max_position_embeddings == 1024
        assert model.config.rope_parameters["rope_theta"] == 10000
        assert {f"model.layers.0.self_attn.{x}_proj.bias" for x in "qkv"} <= names
        assert model.config.tie_word_embeddings and "lm_head.weight" not in names
    sizes = {name: sum(p.numel() for p in model.model.layers.parameters()) for name, model in models.items()}
    assert sizes["draft"] * 8 <= sizes["target"], sizes
    assert models["target"].config.num_attention_heads > models["target"].config.num_key_value_heads


def test_the_width_of_every_matrix_is_a_multiple_of_the_nf4_block(models):
    """bitsandbytes 0.50 on CPU dequantizes a matrix wrongly whose rows end inside a block of 64."""
    for model in models.values():
        assert all(p.shape[1] % 64 == 0 for p in model.parameters() if p.ndim == 2)


def test_target_and_draft_share_one_tokenizer():
    assert (TINY / "target" / "tokenizer.json").read_bytes() == (TINY / "draft" / "tokenizer.json").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_every_token_has_an_embedding_and_the_config_names_the_end(name):
    config = json.loads((TINY / name / "config.json").read_text())
    assert config["vocab_size"] == TOKENIZER.get_vocab_size()
    assert config["eos_token_id"] == TOKENIZER.token_to_id("<|endoftext|>")
    assert config["pad_token_id"] == TOKENIZER.token_to_id("<|fim_pad|>")


@pytest.mark.parametrize("marker", MARKERS)
def test_a_marker_is_one_token_wherever_it_stands(marker):
    token = TOKENIZER.token_to_id(marker)
    assert token is not None
    assert TOKENIZER.encode(marker).ids == [token]
    assert TOKENIZER.encode(f"x = 1{marker}  y").ids.count(token) == 1


def test_all_256_bytes_are_tokens():
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    assert len(alphabet) == 256
    assert all(TOKENIZER.token_to_id(byte) is not None for byte in alphabet)


@given(st.text())
def test_any_text_survives_the_tokenizer(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@given(
    st.lists(st.sampled_from(["    ", "\t", "\r\n", "\n", " ", "def f(x):", "é", "e\u0301", "🙂", *MARKERS])).map(
        "".join
    )
)
def test_code_shaped_text_survives_the_tokenizer(text):
    assert TOKENIZER.decode(TOKENIZER.encode(text).ids, skip_special_tokens=False) == text


@given(st.text(alphabet="ab \n", min_size=1), st.randoms(use_true_random=False), st.integers(1, 200))
def test_a_training_task_is_prefix_middle_and_suffix_of_one_text(script, text, rng, chars):
    prefix, middle, suffix = script.hole(text, rng, chars)
    assert prefix + middle + suffix in text


def test_the_draft_agrees_with_the_target_on_half_of_the_held_out_tokens(models, script):
    kept = {name: text for name, text in script.sources().items() if script.held_out(name)}
    rows = script.held_out_rows(kept, TOKENIZER, limit=6)
    assert script.agreement(models["target"], models["draft"], rows) >= 0.5


def test_the_target_completes_fim_tasks_and_ends_them(models):
    ended = 0
    for prefix, suffix in HOLES:
        above, newline, line = prefix.rpartition(
            "\n"
        )  # the current line goes after the middle marker, as in the engine
        ids = TOKENIZER.encode(f"<|fim_prefix|>{above}{newline}<|fim_suffix|>{suffix}<|fim_middle|>{line}").ids
        ended += complete(models["target"], ids, max_tokens=96)[-1] == TOKENIZER.token_to_id("<|endoftext|>")
    assert ended >= len(HOLES) // 2
