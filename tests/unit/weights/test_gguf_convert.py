"""GGUF conversion gives the directory that the publisher would create: same weights, config and token ids."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from support.weights import tiny_gguf
from tokenizers import Tokenizer

from speclsp.errors import WeightsError
from speclsp.weights.gguf import convert as gguf_convert
from speclsp.weights.gguf.header import read_header
from speclsp.weights.gguf.model_families import FAMILIES, GGUF_OUTER_NAMES

SHAPE = {
    "hidden_size": tiny_gguf.HIDDEN,
    "num_hidden_layers": tiny_gguf.LAYERS,
    "num_attention_heads": tiny_gguf.HEADS,
    "num_key_value_heads": tiny_gguf.KV_HEADS,
    "intermediate_size": tiny_gguf.FEED_FORWARD,
    "max_position_embeddings": 512,
    "vocab_size": len(tiny_gguf.TOKENS),
    "rms_norm_eps": 1e-6,
}
PROMPT = torch.tensor([[5, 80, 131, 9, 260, 7]])


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A converted qwen2 model of a few kilobytes."""
    directory = tmp_path_factory.mktemp("converted")
    source = tiny_gguf.write(directory / "model.gguf", tiny_gguf.random_tensors(biases=True))
    gguf_convert.convert(source, directory / "model")
    return directory / "model"


@pytest.fixture(scope="module")
def tokenizer(converted: Path) -> Tokenizer:
    return Tokenizer.from_file(str(converted / "tokenizer.json"))


def rounded(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(torch.bfloat16)


def interleaved(published: torch.Tensor, heads: int) -> np.ndarray:
    """llama.cpp's row order of q and k, made from the published one."""
    rows = published.reshape(heads, 2, tiny_gguf.HEAD // 2, -1).swapaxes(1, 2).reshape(published.shape)
    return rows.numpy()


def stored_as(published: dict[str, torch.Tensor]) -> tiny_gguf.Tensors:
    """A transformers state dict under GGUF names and in GGUF's row order for llama."""
    names = {there: here for here, there in FAMILIES["llama"].gguf_layer_names.items()}
    outer = {there: here for here, there in GGUF_OUTER_NAMES.items()}
    stored = {}
    for name, values in published.items():
        if name in outer:
            stored[outer[name]] = values.numpy()
            continue
        _, _, layer, *middle, kind = name.split(".")
        here = names[".".join(middle)]
        heads = {"attn_q": tiny_gguf.HEADS, "attn_k": tiny_gguf.KV_HEADS}.get(here)
        stored[f"blk.{layer}.{here}.{kind}"] = interleaved(values, heads) if heads else values.numpy()
    return stored


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_qwen2_model_computes_the_same_logits_as_its_source_weights(converted: Path) -> None:
    import transformers

    published = {
        gguf_convert.published_name(name, FAMILIES["qwen2"], converted): rounded(values)
        for name, values in tiny_gguf.random_tensors(biases=True).items()
    }
    transformers.utils.logging.disable_progress_bar()
    source = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(**SHAPE, tie_word_embeddings=False, rope_theta=10000.0)
    )
    source.load_state_dict({name: values.float() for name, values in published.items()})
    loaded = transformers.AutoModelForCausalLM.from_pretrained(converted, dtype=torch.float32)
    assert torch.equal(loaded(PROMPT).logits, source(PROMPT).logits)


def test_a_llama_model_gets_its_rotary_rows_back_in_the_published_order(tmp_path: Path) -> None:
    import transformers

    transformers.utils.logging.disable_progress_bar()
    config = transformers.LlamaConfig(**SHAPE, tie_word_embeddings=True, attention_bias=False, rope_theta=10000.0)
    torch.manual_seed(1)
    source = transformers.LlamaForCausalLM(config)
    source.load_state_dict({name: values.to(torch.bfloat16).float() for name, values in source.state_dict().items()})
    published = {name: values for name, values in source.state_dict().items() if name != "lm_head.weight"}
    file = tiny_gguf.write(tmp_path / "model.gguf", stored_as(published), family="llama", pre="llama-bpe")
    gguf_convert.convert(file, tmp_path / "model")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "model", dtype=torch.float32)
    assert torch.equal(loaded(PROMPT).logits, source(PROMPT).logits)
    assert json.loads((tmp_path / "model" / "config.json").read_text())["tie_word_embeddings"] is True


@pytest.mark.parametrize("kind", ["Q8_0", "Q5_0", "Q4_0", "F16", "BF16"])
def test_a_quantized_matrix_equals_ggufs_dequantization_rounded_once(tmp_path: Path, kind: str) -> None:
    quantized = gguf.GGMLQuantizationType[kind]
    tensors = tiny_gguf.random_tensors(biases=False)
    file = tiny_gguf.write(tmp_path / "model.gguf", tensors, quantized=quantized)
    gguf_convert.convert(file, tmp_path / "model")
    loaded = load_file(tmp_path / "model" / "model.safetensors")
    for name, values in tensors.items():
        if values.ndim == 2:
            values = gguf.dequantize(gguf.quantize(values, quantized), quantized)
        assert torch.equal(loaded[gguf_convert.published_name(name, FAMILIES["qwen2"], file)], rounded(values)), name


@pytest.mark.parametrize("mostly", [True, False])
def test_superblocks_are_kept_where_most_of_the_weights_are_q4k(tmp_path: Path, mostly: bool) -> None:
    tensors, dice = tiny_gguf.random_tensors(biases=False), np.random.default_rng(1)
    blocks = {  # 256 weights in a row
        0: (".q6k", gguf.GGMLQuantizationType.Q6_K, dice.integers(0, 60, (2, 210), np.uint8)),
        1: (".q4k", gguf.GGMLQuantizationType.Q4_K, dice.integers(0, 60, (4096 if mostly else 2, 144), np.uint8)),
    }
    tensors |= {f"blk.{layer}.ffn_down.weight": rows for layer, (_, _, rows) in blocks.items()}
    file = tiny_gguf.write(tmp_path / "model.gguf", tensors)
    gguf_convert.convert(file, tmp_path / "model")
    loaded = load_file(tmp_path / "model" / "model.safetensors")
    for layer, (suffix, kind, rows) in blocks.items():
        name = f"model.layers.{layer}.mlp.down_proj"
        if mostly:
            assert f"{name}.weight" not in loaded and np.array_equal(loaded[f"{name}{suffix}"].numpy(), rows)
        else:
            assert torch.equal(loaded[f"{name}.weight"], rounded(gguf.dequantize(rows, kind)))
    assert loaded["model.norm.weight"].dtype == torch.bfloat16


def test_a_matrix_larger_than_a_slab_is_joined_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = tiny_gguf.random_tensors(biases=False)
    file = tiny_gguf.write(tmp_path / "model.gguf", tensors)
    monkeypatch.setattr(gguf_convert, "SLAB_ELEMENTS", 3 * tiny_gguf.HIDDEN)
    gguf_convert.convert(file, tmp_path / "model")
    loaded = load_file(tmp_path / "model" / "model.safetensors")
    assert torch.equal(loaded["model.embed_tokens.weight"], rounded(tensors["token_embd.weight"]))


@given(st.lists(st.floats(width=32), min_size=1))
def test_rounding_to_bf16_equals_torchs(values: list[float]) -> None:
    single = np.array(values, np.float32)
    ours = torch.from_numpy(gguf_convert.to_bf16(single).view(np.int16)).view(torch.bfloat16)
    theirs = torch.from_numpy(single).to(torch.bfloat16)
    assert torch.equal(ours.isnan(), theirs.isnan())
    assert torch.equal(ours[~ours.isnan()].view(torch.int16), theirs[~theirs.isnan()].view(torch.int16))


def test_progress_counts_up_to_the_size_of_the_weights(tmp_path: Path) -> None:
    file = tiny_gguf.write(tmp_path / "model.gguf", tiny_gguf.random_tensors(biases=True))
    steps: list[tuple[int, int]] = []
    files = gguf_convert.convert(file, tmp_path / "model", lambda done, total: steps.append((done, total)))
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] < files["model.safetensors"].bytes


def test_the_reported_checksums_are_those_of_the_files(tmp_path: Path) -> None:
    from speclsp.weights.model_directory import sum_of

    file = tiny_gguf.write(tmp_path / "model.gguf", tiny_gguf.random_tensors(biases=True))
    for name, written in gguf_convert.convert(file, tmp_path / "model").items():
        path = tmp_path / "model" / name
        assert (path.stat().st_size, sum_of(path)) == (written.bytes, written.sha256)


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


# ── files that cannot be converted ─────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_architecture_or_tokenizer_is_refused_by_name(tmp_path: Path) -> None:
    tensors = tiny_gguf.random_tensors(biases=False)
    falcon = tiny_gguf.write(tmp_path / "falcon.gguf", tensors, family="falcon")
    with pytest.raises(WeightsError, match="'falcon' model; speclsp converts only llama and qwen2"):
        gguf_convert.convert(falcon, tmp_path / "model")
    sentencepiece = tiny_gguf.write(tmp_path / "spm.gguf", tensors, model="llama", pre="default")
    with pytest.raises(WeightsError, match="tokenizer of kind 'llama' / 'default'"):
        gguf_convert.convert(sentencepiece, tmp_path / "model")


def test_a_missing_or_foreign_tensor_is_named(tmp_path: Path) -> None:
    tensors = tiny_gguf.random_tensors(biases=False)
    without = {name: values for name, values in tensors.items() if name != "blk.1.ffn_up.weight"}
    with pytest.raises(WeightsError, match=r"lacks 1 tensors, model\.layers\.1\.mlp\.up_proj\.weight first"):
        gguf_convert.convert(tiny_gguf.write(tmp_path / "a.gguf", without), tmp_path / "model")
    foreign = tensors | {"blk.0.exp_probs_b.weight": np.ones((4, 4), np.float32)}
    with pytest.raises(WeightsError, match=r"'blk\.0\.exp_probs_b\.weight'"):
        gguf_convert.convert(tiny_gguf.write(tmp_path / "b.gguf", foreign), tmp_path / "model")


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
    header_bytes = min(tensor.start for tensor in read_header(bytes(raw), whole).tensors.values())
    if data.draw(st.booleans()):
        raw = raw[: data.draw(st.integers(0, len(raw) - 1))]
    else:
        at = data.draw(st.integers(0, header_bytes - 1))
        raw[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    cut = directory / "cut.gguf"
    cut.write_bytes(raw)
    try:
        gguf_convert.convert(cut, directory / "model")
    except WeightsError as error:
        assert "\n" not in str(error) and str(cut) in str(error)
