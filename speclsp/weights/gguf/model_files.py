"""config.json and tokenizer.json of a GGUF, made from its header: what the hub publishes for the same model.

    config     the settings in the header, in the words of the hub
    tokenizer  byte-level BPE rebuilt from the vocabulary, merges and token types in the header

The weights stay in the GGUF: engine/model/gguf_tensors.py reads them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from speclsp.errors import WeightsError
from speclsp.weights.gguf.header import REPAIR, Header, read_header

FAMILY = "qwen2"  # of the listed models with a GGUF, by GGUF and in config.json
CONTROL, USER_DEFINED = 3, 4  # token types of the GGUF vocabulary; 1 is an ordinary token, 5 is padding without text
PRE_TOKENIZER = (  # of byte-level BPE: it splits text before merging
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def model_files(gguf_file: Path) -> dict[str, bytes]:
    """config.json and tokenizer.json for `gguf_file`, by name.

    Raises WeightsError when it is not a whole GGUF of an architecture, tokenizer and number formats known here, and
    OSError.
    """
    with gguf_file.open("rb") as file:
        header = read_header(file, gguf_file)
    with implausible_settings(gguf_file):
        config, tokenizer = model_config(header, gguf_file), tokenizer_json(header, gguf_file)
    return {"config.json": (json.dumps(config, indent=2) + "\n").encode(), "tokenizer.json": tokenizer.encode()}


@contextmanager
def implausible_settings(file: Path) -> Iterator[None]:
    """Raise WeightsError in place of the error that a setting causes, by its type or value."""
    try:
        yield
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise WeightsError(f"{file} has settings that describe no model ({error}); {REPAIR}") from None


# ── config.json ──────────────────────────────────────────────────────────────────────────────────────────────────────


def model_config(header: Header, file: Path) -> dict[str, Any]:
    """config.json as Hugging Face writes it for this model."""
    settings = header.settings
    model_type = settings.get("general.architecture")
    if model_type != FAMILY:
        raise WeightsError(
            f"{file} holds a {model_type!r} model; speclsp reads GGUF files of {FAMILY} only. "
            "Use the model's safetensors files instead."
        )

    def setting(name: str) -> Any:
        if f"{model_type}.{name}" not in settings:
            raise WeightsError(f"{file} lacks {model_type}.{name}; {REPAIR}")
        return settings[f"{model_type}.{name}"]

    heads = int(setting("attention.head_count"))
    hidden = int(setting("embedding_length"))
    vocabulary = len(settings.get("tokenizer.ggml.tokens", ()))
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": model_type,
        "vocab_size": header.tensors["token_embd.weight"].shape[0]
        if "token_embd.weight" in header.tensors
        else vocabulary,
        "hidden_size": hidden,
        "intermediate_size": int(setting("feed_forward_length")),
        "num_hidden_layers": int(setting("block_count")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(settings.get(f"{model_type}.attention.head_count_kv", heads)),
        "head_dim": int(settings.get(f"{model_type}.attention.key_length", hidden // heads)),
        "max_position_embeddings": int(setting("context_length")),
        "rms_norm_eps": _shortest(setting("attention.layer_norm_rms_epsilon")),
        "rope_theta": _shortest(settings.get(f"{model_type}.rope.freq_base", 10000.0)),
        "hidden_act": "silu",
        "attention_dropout": 0.0,
        "tie_word_embeddings": "output.weight" not in header.tensors,
        "bos_token_id": settings.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": settings.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
    }


def _shortest(stored: float) -> float:
    """A float32 as the decimal it was written from: 9.99999997e-07 -> 1e-06."""
    import numpy as np

    return float(str(np.float32(stored)))


# ── tokenizer.json ───────────────────────────────────────────────────────────────────────────────────────────────────


def tokenizer_json(header: Header, file: Path) -> str:
    """The byte-level BPE of the GGUF as a tokenizer.json; every token keeps its id."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    settings = header.settings
    kind, pre = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre != FAMILY:
        raise WeightsError(
            f"{file} has a tokenizer of kind {kind!r} / {pre!r}; speclsp reads 'gpt2' with {FAMILY!r}. "
            "Use the model's safetensors files instead."
        )
    tokens, types, merges = (settings.get(f"tokenizer.ggml.{name}", []) for name in ("tokens", "token_type", "merges"))
    if len(tokens) != len(types) or not tokens:
        raise WeightsError(f"{file} has {len(tokens)} tokens and {len(types)} token types; {REPAIR}")
    ordinary = {token: i for i, (token, kind) in enumerate(zip(tokens, types, strict=True)) if kind == 1}
    added = [
        (token, kind == CONTROL) for token, kind in zip(tokens, types, strict=True) if kind in (CONTROL, USER_DEFINED)
    ]
    if len(ordinary) + sum(kind != 1 for kind in types) != len(tokens):
        raise WeightsError(f"{file} names the same token twice; {REPAIR}")
    pairs = [tuple(merge.split(" ", 1)) for merge in merges]
    for pair in pairs:  # the tokenizers library dies of some that do not fit
        if len(pair) != 2 or not {*pair, "".join(pair)} <= ordinary.keys():
            raise WeightsError(f"{file} merges {' and '.join(map(repr, pair))}, which its vocabulary lacks; {REPAIR}")
    tokenizer = Tokenizer(models.BPE(vocab=ordinary, merges=pairs))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZER), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for text, special in added:
        tokenizer.add_tokens([AddedToken(text, special=special, normalized=False)])
    for text, _ in added:
        if tokenizer.token_to_id(text) != tokens.index(text):
            raise WeightsError(f"{file}: token {text[:60]!r} cannot keep its id {tokens.index(text)}; {REPAIR}")
    return str(tokenizer.to_str())
