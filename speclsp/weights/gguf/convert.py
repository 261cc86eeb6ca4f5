"""Turns a quantized GGUF file into what the engine loads: safetensors, config.json and tokenizer.json, once.

    config     the settings in the header, in the words of the hub
    weights    slab of rows ─► dequantize ─► round to bf16 ─► write; the whole model is never in memory.
               In a model that is mostly Q4_K, tensors of Q4_K and Q6_K keep their superblocks: NAME.q4k or NAME.q6k
               in place of NAME.weight
    tokenizer  byte-level BPE rebuilt from the vocabulary, merges and token types in the header

The rest is what the hub publishes for the same model: its tensor names, its config fields, its token ids.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp import process_resources
from speclsp.errors import WeightsError
from speclsp.private_files import flush, retry_while_open
from speclsp.weights.gguf.header import REPAIR, Header, Tensor, read_header
from speclsp.weights.gguf.model_families import FAMILIES, GGUF_OUTER_NAMES, Family, GgufForm

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Q4_K = 12  # GGML's number of the kind
SUFFIXES = {Q4_K: ".q4k", 14: ".q6k"}  # of tensors that keep their superblocks, by that number
SLAB_ELEMENTS = 1 << 20  # dequantized at a time: 4 MiB of float32, small enough for the cache

CONVERTED = {name: family for name, family in FAMILIES.items() if family.gguf is not None}
CONTROL, USER_DEFINED = 3, 4  # token types of the GGUF vocabulary; 1 is an ordinary token, 5 is padding without text
# Pre-tokenizer of each kind of byte-level BPE, which splits text before merging; by GGUF's `tokenizer.ggml.pre`.
PRE_TOKENIZERS = {
    kind: r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    + digits
    + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    for kind, digits in {"qwen2": r"\p{N}", "llama-bpe": r"\p{N}{1,3}"}.items()
}


@dataclass(frozen=True, slots=True)
class WrittenTensor:
    """A file the conversion made."""

    bytes: int
    sha256: str


def convert(
    gguf_file: Path, into: Path, progress: Callable[[int, int], None] | None = None
) -> dict[str, WrittenTensor]:
    """Write config.json, tokenizer.json and model.safetensors for `gguf_file` into the directory `into`.

    `progress(done, total)` counts bytes of model.safetensors. Raises WeightsError when the file is not a whole GGUF of
    an architecture, tokenizer and quantization known here, and OSError when it cannot be written.
    """
    with gguf_file.open("rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            raise WeightsError(f"{gguf_file} is empty; {REPAIR}")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            header = read_header(data, gguf_file)
    try:
        config = model_config(header, gguf_file)
        tokenizer = tokenizer_json(header, gguf_file)
    except (ValueError, TypeError, ZeroDivisionError) as error:
        raise WeightsError(f"{gguf_file} has settings that describe no model ({error}); {REPAIR}") from None
    into.mkdir(parents=True, exist_ok=True)
    return {
        "config.json": _write_text(into / "config.json", json.dumps(config, indent=2) + "\n"),
        "tokenizer.json": _write_text(into / "tokenizer.json", tokenizer),
        "model.safetensors": _write_weights(header, config, into, gguf_file, progress),
    }


# ── config.json ──────────────────────────────────────────────────────────────────────────────────────────────────────


def model_config(header: Header, file: Path) -> dict[str, Any]:
    """config.json as Hugging Face writes it for this model."""
    settings = header.settings
    model_type = settings.get("general.architecture")
    form = gguf_form(model_type)
    if form is None:
        raise WeightsError(
            f"{file} holds a {model_type!r} model; speclsp converts only {' and '.join(sorted(CONVERTED))}. "
            "Use the model's safetensors files instead."
        )
    if "rope_freqs.weight" in header.tensors:
        raise WeightsError(
            f"{file} scales its rotary positions (rope_freqs.weight); use its safetensors files instead."
        )

    def setting(name: str) -> Any:
        if f"{model_type}.{name}" not in settings:
            raise WeightsError(f"{file} lacks {model_type}.{name}; {REPAIR}")
        return settings[f"{model_type}.{name}"]

    heads = int(setting("attention.head_count"))
    hidden = int(setting("embedding_length"))
    vocabulary = len(settings.get("tokenizer.ggml.tokens", ()))
    return {
        "architectures": [form.architecture],
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
        **dict(form.settings),
    }


def gguf_form(model_type: object) -> GgufForm | None:
    """The form of a family in GGUF files; None for one that is not converted."""
    family = CONVERTED.get(model_type) if isinstance(model_type, str) else None
    return None if family is None else family.gguf


def _shortest(stored: float) -> float:
    """A float32 as the decimal it was written from: 9.99999997e-07 -> 1e-06."""
    import numpy as np

    return float(str(np.float32(stored)))


# ── weights ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _write_weights(
    header: Header,
    config: dict[str, Any],
    into: Path,
    file: Path,
    progress: Callable[[int, int], None] | None,
) -> WrittenTensor:
    family = FAMILIES[config["model_type"]]
    named = sorted((published_name(tensor.name, family, file), tensor) for tensor in header.tensors.values())
    _check_complete([name for name, _ in named], config, file)
    index: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    total, keep = 0, _is_mostly_q4k(header)
    for name, tensor in named:
        size, entry = _stored_form(name, tensor, keep)
        index[entry.pop("name")] = {**entry, "data_offsets": [total, total + size]}
        total += size
    table = json.dumps(index, separators=(",", ":")).encode()
    table += b" " * (-len(table) % 8)

    partial = into / "model.safetensors.partial"
    digest, done = hashlib.sha256(), 0
    with partial.open("wb") as out, ThreadPoolExecutor(min(4, process_resources.cpus().workers)) as pool:
        opening = struct.pack("<Q", len(table)) + table
        out.write(opening)
        digest.update(opening)
        slabs = (slab for _, tensor in named for slab in _slabs(tensor, config, file, keep))
        for piece in _ahead(pool, slabs):
            out.write(piece)
            digest.update(piece)
            done += len(piece)
            if progress:
                progress(done, total)
    retry_while_open(lambda: partial.replace(into / "model.safetensors"))
    return WrittenTensor(8 + len(table) + total, digest.hexdigest())


def _is_mostly_q4k(header: Header) -> bool:
    """True if most weights are Q4_K; where a few are, as in the 0.5B, widening all alike is simpler and as fast."""
    weights = {tensor.name: math.prod(tensor.shape) for tensor in header.tensors.values()}
    return 2 * sum(weights[t.name] for t in header.tensors.values() if t.kind == Q4_K) > sum(weights.values())


def _stored_form(name: str, tensor: Tensor, keep: bool) -> tuple[int, dict[str, Any]]:
    """The bytes of a tensor in the safetensors file, and its entry there."""
    if keep and tensor.kind in SUFFIXES:
        rows = math.prod(tensor.shape[:-1])
        blocks = name.removesuffix(".weight") + SUFFIXES[tensor.kind]
        return tensor.size, {"name": blocks, "dtype": "U8", "shape": [rows, tensor.size // rows]}
    return 2 * math.prod(tensor.shape), {"name": name, "dtype": "BF16", "shape": list(tensor.shape)}


def _slabs(tensor: Tensor, config: dict[str, Any], file: Path, keep: bool) -> Iterator[Callable[[], memoryview]]:
    """The tensor's rows, in order, as jobs that give their bytes: bf16, or superblocks that are kept.

    The file is read, and not mapped: a read error or a file that becomes shorter would end the process (SIGBUS).
    """
    import gguf
    import numpy as np

    kind = gguf.GGMLQuantizationType(tensor.kind)
    columns = tensor.shape[-1]
    rows = math.prod(tensor.shape[:-1])
    row_bytes = tensor.size // rows
    order = _published_order(tensor, rows, config)
    step = max(1, SLAB_ELEMENTS // columns)

    def read(first: int, end: int) -> NDArray[np.uint8]:
        count, start = (end - first) * row_bytes, tensor.start + first * row_bytes
        stored = np.fromfile(file, np.uint8, count, offset=start)
        if stored.size < count:
            raise WeightsError(f"{file} cannot be read from byte {start} on; {REPAIR}")
        return stored.reshape(-1, row_bytes)

    def job(first: int) -> Callable[[], memoryview]:
        def run() -> memoryview:
            end = min(first + step, rows)
            if order is None:
                chosen = read(first, end)
            else:
                wanted = order[first:end]
                chosen = read(wanted.min(), wanted.max() + 1)[wanted - wanted.min()]
            if keep and tensor.kind in SUFFIXES:
                return chosen.reshape(-1).data
            try:
                return to_bf16(gguf.dequantize(chosen, kind)).reshape(-1).view(np.uint8).data
            except NotImplementedError:
                raise WeightsError(
                    f"{file}: {tensor.name} is quantized as {kind.name}, which speclsp cannot convert."
                ) from None

        return run

    return (job(first) for first in range(0, rows, step))


def to_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """float32 -> bfloat16 bit patterns, to nearest, ties to even; a NaN stays a NaN."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint32)
    ties = (bits >> np.uint32(16)) & np.uint32(1)
    rounded: NDArray[np.uint16] = ((bits + (ties + np.uint32(0x7FFF))) >> np.uint32(16)).astype(np.uint16)
    broken = np.isnan(values)
    if broken.any():
        rounded[broken] = 0x7FC0
    return rounded


def _ahead(pool: ThreadPoolExecutor, jobs: Iterator[Callable[[], memoryview]]) -> Iterator[memoryview]:
    """Results in order, with a few jobs under way: at most that many slabs are in memory."""
    waiting = []
    for job in jobs:
        waiting.append(pool.submit(job))
        if len(waiting) > 8:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def published_name(stored: str, family: Family, file: Path) -> str:
    """blk.0.attn_q.weight -> model.layers.0.self_attn.q_proj.weight; WeightsError for a name the family lacks."""
    if stored in GGUF_OUTER_NAMES:
        return GGUF_OUTER_NAMES[stored]
    match = re.fullmatch(r"blk\.(\d{1,4})\.(\w+)\.(weight|bias)", stored)
    names = family.gguf_layer_names
    if match and match[2] in names:
        return f"model.layers.{int(match[1])}.{names[match[2]]}.{match[3]}"
    raise WeightsError(f"{file} holds a tensor {stored[:60]!r} that is not part of a qwen2 or llama model.")


def _check_complete(names: list[str], config: dict[str, Any], file: Path) -> None:
    layers = config["num_hidden_layers"]
    if layers > len(names):  # before a list is made of them
        raise WeightsError(f"{file} declares {layers} layers and contains {len(names)} tensors; {REPAIR}")
    of_a_layer = FAMILIES[config["model_type"]].gguf_layer_names.values()
    wanted = {"model.embed_tokens.weight", "model.norm.weight"}
    for layer in range(layers):
        wanted |= {f"model.layers.{layer}.{name}.weight" for name in of_a_layer}
    missing = sorted(wanted - set(names))
    if missing:
        raise WeightsError(f"{file} lacks {len(missing)} tensors, {missing[0]} first; {REPAIR}")


def _published_order(tensor: Tensor, rows: int, config: dict[str, Any]) -> NDArray[np.intp] | None:
    """The stored row of each published row. GGUF may interleave the rotary halves of q and k."""
    import numpy as np

    form = gguf_form(config["model_type"])
    if form is None or not form.interleaves_rotary or tensor.name.split(".")[-2] not in ("attn_q", "attn_k"):
        return None
    if len(tensor.shape) == 1:
        raise WeightsError(f"{tensor.name}: speclsp does not convert a llama model with attention biases.")
    order: NDArray[np.intp] = np.arange(rows).reshape(-1, config["head_dim"] // 2, 2).swapaxes(1, 2).reshape(-1)
    return order


# ── tokenizer.json ───────────────────────────────────────────────────────────────────────────────────────────────────


def tokenizer_json(header: Header, file: Path) -> str:
    """The byte-level BPE of the GGUF as a tokenizer.json; every token keeps its id."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    settings = header.settings
    kind, pre = settings.get("tokenizer.ggml.model"), settings.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pre not in PRE_TOKENIZERS:
        raise WeightsError(
            f"{file} has a tokenizer of kind {kind!r} / {pre!r}; converted are 'gpt2' with "
            f"{' or '.join(map(repr, PRE_TOKENIZERS))}. Use the model's safetensors files instead."
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
    tokenizer = Tokenizer(models.BPE(vocab=ordinary, merges=pairs, ignore_merges=pre == "llama-bpe"))
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRE_TOKENIZERS[pre]), behavior="isolated"),
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


def _write_text(path: Path, text: str) -> WrittenTensor:
    raw = text.encode("utf-8")
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(raw)
    flush(partial)
    retry_while_open(lambda: partial.replace(path))
    return WrittenTensor(len(raw), hashlib.sha256(raw).hexdigest())
