"""config.json and tokenizer.json of a GGUF are those that its publisher would create: same settings and token ids."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.weights import tiny_gguf
from tokenizers import Tokenizer

from speclsp.errors import WeightsError
from speclsp.weights.gguf.header import read_header
from speclsp.weights.gguf.model_files import model_files


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A qwen2 model of a few kilobytes."""
    return tiny_gguf.write(tmp_path_factory.mktemp("gguf") / "model.gguf", tiny_gguf.random_tensors(biases=True))


@pytest.fixture(scope="module")
def tokenizer(source: Path) -> Tokenizer:
    return Tokenizer.from_str(model_files(source)["tokenizer.json"].decode())


def test_the_config_has_the_settings_of_the_header_in_the_words_of_the_hub(source: Path) -> None:
    config = json.loads(model_files(source)["config.json"])
    assert config["architectures"] == ["Qwen2ForCausalLM"] and config["rms_norm_eps"] == 1e-6
    assert (config["vocab_size"], config["tie_word_embeddings"]) == (len(tiny_gguf.TOKENS), False)
    assert (config["num_hidden_layers"], config["head_dim"]) == (tiny_gguf.LAYERS, tiny_gguf.HEAD)


# ── tokenizer ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_token_keeps_its_id_and_padding_has_none(tokenizer: Tokenizer) -> None:
    vocabulary = tokenizer.get_vocab()
    assert vocabulary == {token: i for i, token in enumerate(tiny_gguf.TOKENS) if token != "[PAD0]"}


def test_control_tokens_are_special_and_others_are_not(tokenizer: Tokenizer) -> None:
    added = {token.content: token.special for token in tokenizer.get_added_tokens_decoder().values()}
    assert added == dict.fromkeys(tiny_gguf.SPECIAL, True) | {"<tool_call>": False}


def test_text_is_cut_into_words_before_it_is_merged(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("    return def").tokens == ["ĠĠ", "Ġ", "Ġ", "return", "Ġ", "def"]
    assert tokenizer.encode("<|fim_middle|>def").tokens == ["<|fim_middle|>", "def"]


@given(st.text())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_encoded_text_decodes_to_its_normal_form(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == unicodedata.normalize("NFC", text)


# ── files that cannot be read ───────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_architecture_or_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    tensors = tiny_gguf.random_tensors(biases=False)
    falcon = tiny_gguf.write(tmp_path / "falcon.gguf", tensors, family="falcon")
    with pytest.raises(WeightsError, match="'falcon' model; speclsp reads GGUF files of qwen2 only"):
        model_files(falcon)
    sentencepiece = tiny_gguf.write(tmp_path / "spm.gguf", tensors, model="llama", pre="default")
    with pytest.raises(WeightsError, match="tokenizer of kind 'llama' / 'default'"):
        model_files(sentencepiece)


@given(st.data())
@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.promise(31)
def test_a_damaged_header_is_one_error_with_a_reason(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.getbasetemp() / "damaged"
    directory.mkdir(exist_ok=True)
    whole = directory / "whole.gguf"
    if not whole.exists():
        tiny_gguf.write(whole, tiny_gguf.random_tensors(biases=True))
    raw = bytearray(whole.read_bytes())
    with whole.open("rb") as file:
        header_bytes = min(tensor.start for tensor in read_header(file, whole).tensors.values())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        at = data.draw(st.integers(0, header_bytes - 1))
        raw[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    cut = directory / "cut.gguf"
    cut.write_bytes(raw)
    try:
        model_files(cut)
    except WeightsError as error:
        assert "\n" not in str(error) and str(cut) in str(error)
