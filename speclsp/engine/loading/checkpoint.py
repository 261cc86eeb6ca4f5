"""Checkpoint reader: tokenizer, and weights in a given number format.

model_config.py reads config.json. The forward pass is our own (decoder.py), so that rows are
independent and rewinding is free. Weights are safetensors, read one tensor at a time. This module opens no
connection, and it never runs code that comes with a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from speclsp.engine.loading import checkpoint_checks
from speclsp.engine.loading.adapter_merge import Lora
from speclsp.engine.loading.checkpoint_checks import FIX, first_line
from speclsp.engine.loading.model_config import ModelConfig, expected_tensors, read_config, read_raw, read_shape
from speclsp.engine.loading.nf4_linear import linear_maker
from speclsp.engine.model import superblocks
from speclsp.engine.model.cpu_linears import int8_is_exact, quicker_float
from speclsp.engine.model.cuda.cuda_decoder import DRAFT_WIDTHS, NF4_TARGET_WIDTHS, TARGET_WIDTHS, CudaDecoder
from speclsp.engine.model.decoder import ROWS, Decoder, Layer, Linear, ModelShape, Norm
from speclsp.engine.model.int8 import building, native
from speclsp.engine.model.int8.lazy_memory import StoredEmbedding
from speclsp.engine.model.kv_cache import SLOTS, CachedModel
from speclsp.engine.scheduling.loaded_model import ReportProgress
from speclsp.errors import TokenizerMismatch, WeightsError
from speclsp.weights.cards import Card
from speclsp.weights.untrusted import untrusted_files
from speclsp.weights.untrusted.safetensors_header import StoredTensor

# ── the tokenizer ────────────────────────────────────────────────────────────────────────────────────────────


def read_tokenizer(directory: Path) -> Tokenizer:
    """The tokenizer of tokenizer.json, set so that marker texts inside user code are plain text, never markers."""
    file = directory / "tokenizer.json"
    try:
        data = untrusted_files.read_plain(file, untrusted_files.TOKENIZER_BYTES)
        tokenizer = Tokenizer.from_buffer(data)
    except untrusted_files.Unreadable as error:
        raise WeightsError(f"{file} {error}. {FIX}") from None
    except BaseException as error:  # tokenizers raises bare Exception, and a Rust panic is a BaseException
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise WeightsError(f"{file} cannot be read: {first_line(error)}. {FIX}") from None
    checkpoint_checks.check_tokenizer(tokenizer, read_raw(directory), file)
    tokenizer.encode_special_tokens = True
    return tokenizer


def check_same_tokenizer(target: Tokenizer, draft: Tokenizer, card: Card) -> None:
    """Compare the tokenizers' results, not the sizes in the configs (Qwen2.5 pads its models differently).

    Raises:
        TokenizerMismatch: an id means another text in the draft, or text is split differently.
    """
    ours, theirs = target.get_vocab(with_added_tokens=True), draft.get_vocab(with_added_tokens=True)
    name = card.draft.name if card.draft else ""
    if ours != theirs:
        differing = sorted(set(ours.items()) ^ set(theirs.items()), key=lambda item: item[1])
        token, number = differing[0]
        raise TokenizerMismatch(
            f"{card.target.name} and its draft {name} do not share a tokenizer: {len(differing)} entries differ, "
            f"the first is {token!r} ({number}). Choose a draft of the same family, or set engine.draft = false."
        )
    sample = "def f(x):\n\treturn [y**2 for y in x if y != 10]  # naïve – 東京\n\n\n    const αβ = `${a}`;\r\n"
    if target.encode(sample, add_special_tokens=False).ids != draft.encode(sample, add_special_tokens=False).ids:
        raise TokenizerMismatch(
            f"{card.target.name} and its draft {name} have the same vocabulary but split text differently. "
            "Choose a draft of the same family, or set engine.draft = false."
        )


# ── the weights ──────────────────────────────────────────────────────────────────────────────────────────────

INTEGERS = ("int8", "int5", "int4")


def read_decoder(
    directory: Path,
    number_format: str,
    device: str,
    context_tokens: int,
    vocab: int,
    progress: ReportProgress = lambda fraction, message: None,
    rows: int = ROWS,
    dtype: torch.dtype | None = None,
    slots: int = SLOTS,
    lora: Lora | None = None,
) -> CachedModel:
    """A decoder from a directory with config.json and *.safetensors.

    Args:
        number_format: "fp32" | "bf16" | "int8" | "int5" | "int4" | "nf4" for the linears; norms stay as they are.
            "int5" and "int4" are int8 where forward.c does not run, and on paths without coded weights.
        vocab: entries of the tokenizer; rows of the head beyond it are padding.
        rows: ROWS for a target, 1 for a draft.
        dtype: of activations and KV; None: float32 on a CPU, bfloat16 elsewhere.
        slots: texts whose KV is kept on a GPU.
        lora: the adapter to merge into the weights.

    Raises:
        WeightsError: not a supported model, or a file that does not match its config.
    """
    config = read_config(directory)
    shape = read_shape(config, vocab)
    tensors = checkpoint_checks.check_tensors(directory, expected_tensors(config, shape))
    if number_format in INTEGERS and native.supports(shape, config.intermediate_size):
        stored = partial(stored_embedding, tensors, shape)
        return read_native(directory, config, shape, context_tokens, progress, number_format, lora, stored)
    number_format = "int8" if number_format in INTEGERS else number_format
    if number_format == "int8" and not int8_is_exact():  # with AVX2 only, forward.c is exact and oneDNN is not
        number_format = quicker_float()
    dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
    weights = read_weights(directory, config, shape, number_format, device, rows, dtype, progress, lora)
    if device != "cpu":
        widths = DRAFT_WIDTHS if rows == 1 else NF4_TARGET_WIDTHS if number_format == "nf4" else TARGET_WIDTHS
        return CudaDecoder(
            *weights, context_tokens=context_tokens, widths=widths, device=device, dtype=dtype, slots=slots
        )
    decoder = Decoder(*weights, context_tokens=context_tokens, rows=rows, device=device, dtype=dtype)
    decoder.path, decoder.number_format = "oneDNN" if number_format == "int8" else "", number_format
    return decoder


def read_native(
    directory: Path,
    config: ModelConfig,
    shape: ModelShape,
    context_tokens: int,
    progress: ReportProgress,
    number_format: str,
    lora: Lora | None,
    stored: Callable[[], StoredEmbedding | None],
) -> CachedModel:
    """The decoder of forward.c; `number_format`: one of INTEGERS. For `stored` see building.build."""
    with open_tensors(directory, lora) as get:
        return building.build(
            shape,
            config.num_hidden_layers,
            config.intermediate_size,
            get,
            context_tokens=context_tokens,
            threads=torch.get_num_threads(),
            mlp_bits=int(number_format[3:]),
            mlp=(config.family.up, config.family.down),
            stored=stored,
            progress=lambda done: progress(done, f"loading {directory.name} ({number_format})"),
        )


def stored_embedding(tensors: Mapping[str, tuple[Path, StoredTensor]], shape: ModelShape) -> StoredEmbedding | None:
    """The embedding in the model's file; None: it is not stored in bfloat16."""
    path, stored = tensors.get("model.embed_tokens.weight", (None, None))
    if path is None or stored is None or stored.dtype != "BF16":
        return None
    file = untrusted_files.open_plain(path)
    data_start = 8 + int.from_bytes(file.read(8), "little")
    return StoredEmbedding(file, path, data_start + stored.start, shape.vocab, shape.hidden)


class DecoderWeights(NamedTuple):
    """A model's shape and weights: the positional arguments of Decoder and CudaDecoder."""

    shape: ModelShape
    layers: list[Layer]
    embedding: Tensor
    norm: Norm
    head: Linear


def read_weights(
    directory: Path,
    config: ModelConfig,
    shape: ModelShape,
    number_format: str,
    device: str,
    rows: int,
    dtype: torch.dtype,
    progress: ReportProgress,
    lora: Lora | None,
) -> DecoderWeights:
    """A model's weights by their published names, in `number_format`, on `device`."""
    make = linear_maker(number_format, device, rows)
    family = config.family

    def linear(names: list[str]) -> Linear:
        parts = [get(f"{name}.weight") for name in names]
        biases = [get(f"{name}.bias", optional=True) for name in names]
        bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
        return make(torch.cat(parts) if len(parts) > 1 else parts[0], bias)

    def norm(name: str, optional: bool = False) -> Any:  # a Norm; None if it is optional and missing
        weight, bias = get(f"{name}.weight", optional=optional), get(f"{name}.bias", optional=True)
        if weight is None:
            return None
        bias = None if bias is None else bias.to(device, dtype)
        return Norm(weight=(weight.float() + family.norm_offset).to(device, dtype), bias=bias)

    def layer(number: int) -> Layer:
        progress(number / config.num_hidden_layers, f"loading {directory.name} ({number_format})")
        at = f"model.layers.{number}"
        return Layer(
            norm_attention=norm(f"{at}.input_layernorm"),
            qkv=linear([f"{at}.self_attn.{x}_proj" for x in "qkv"]),
            out=linear([f"{at}.self_attn.o_proj"]),
            norm_mlp=norm(f"{at}.post_attention_layernorm"),
            up=linear([f"{at}.{x}" for x in family.up]),
            down=linear([f"{at}.{family.down}"]),
            norm_q=norm(f"{at}.self_attn.q_norm", optional=True),
            norm_k=norm(f"{at}.self_attn.k_norm", optional=True),
        )

    with open_tensors(directory, lora) as get:
        layers = [layer(number) for number in range(config.num_hidden_layers)]
        embedding = get("model.embed_tokens.weight").to(device)
        head_weight = get("lm_head.weight", optional=True)
        head_weight = embedding if head_weight is None else head_weight
        # 4 bits cost a head more quality than time: the logits are the last thing to round
        head_maker = linear_maker("int8" if device == "cpu" and int8_is_exact() else "bf16", device, rows)
        head = (head_maker if number_format == "nf4" else make)(head_weight[: shape.vocab], None)
        return DecoderWeights(shape, layers, embedding, norm("model.norm"), head)


@contextmanager
def open_tensors(directory: Path, lora: Lora | None = None) -> Iterator[Any]:
    """Yield get(name, optional=False), which reads one tensor at a time from all *.safetensors of a directory.

    A weight that is stored as superblocks is dequantized; `get` of the blocks' name returns the blocks. `lora` is
    merged into its weights, which have no blocks then.
    """
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{directory} has no *.safetensors. {FIX}")
    file_of: dict[str, Any] = {}  # by tensor name
    for file in files:
        try:
            handle: Any = safe_open(str(file), framework="pt")
        except (SafetensorError, OSError) as error:
            raise WeightsError(f"{file} is not a readable safetensors file ({first_line(error)}). {FIX}") from None
        file_of.update(dict.fromkeys(handle.keys(), handle))

    def get(name: str, optional: bool = False) -> Any:  # a tensor; None if it is optional and missing
        if name in file_of:
            return file_of[name].get_tensor(name)
        for kind in superblocks.KINDS if name.endswith(".weight") else ():
            if kind.name(name) in file_of:
                return kind.dequantize(file_of[kind.name(name)].get_tensor(kind.name(name)))
        if optional:
            return None
        raise WeightsError(f"{directory} has no tensor {name}. {FIX}")

    def adapted(name: str, optional: bool = False) -> Any:
        if lora is None or not lora.adapts(name):
            return get(name, optional)
        return lora.merged(name, get(name)) if name.endswith(".weight") else None

    yield adapted
