"""From files to a decoder: a tokenizer, a config, weights in the number format asked for. Only door to transformers.

transformers is asked for what it knows best, the meaning of a config.json; the forward is our own (decoder.py), so that
rows are independent and rewinding is free. Weights are safetensors, read one tensor at a time. Nothing here opens a
connection, and no code that comes with a model is ever run.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor

from speclsp.engine.loading import checkpoint_checks
from speclsp.engine.model.cpu_linears import FloatLinear, Int8Linear, int8_is_exact, quicker_float
from speclsp.engine.model.cuda.decoder import DRAFT_WIDTHS, NF4_TARGET_WIDTHS, TARGET_WIDTHS, CudaDecoder
from speclsp.engine.model.decoder import ROWS, Decoder, Layer, Linear, ModelShape, Norm
from speclsp.engine.model.int8 import native
from speclsp.engine.model.kv_cache import SLOTS, CachedModel
from speclsp.errors import TokenizerMismatch, WeightsError
from speclsp.weights import untrusted_files
from speclsp.weights.cards import Card

Progress = Callable[[float, str], None]  # fraction done 0..1, what is being done


# ── the tokenizer ────────────────────────────────────────────────────────────────────────────────────────────


def read_tokenizer(directory: Path) -> Tokenizer:
    """tokenizer.json, set so that marker texts inside user code are plain text, never markers."""
    file = directory / "tokenizer.json"
    try:
        data = untrusted_files.read_plain(file, untrusted_files.TOKENIZER_BYTES)
        tokenizer = Tokenizer.from_buffer(data)
    except untrusted_files.Unreadable as error:
        raise WeightsError(f"{file} {error}. {checkpoint_checks.WAY_OUT}") from None
    except BaseException as error:  # tokenizers raises bare Exception, and what its Rust panics with is none
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise WeightsError(f"{file} cannot be read: {one_line(error)}. {checkpoint_checks.WAY_OUT}") from None
    checkpoint_checks.check_tokenizer(tokenizer, read_raw(directory), file)
    tokenizer.encode_special_tokens = True
    return tokenizer


def check_same_tokenizer(target: Tokenizer, draft: Tokenizer, card: Card) -> None:
    """Compare what the tokenizers do, not the sizes in the configs (Qwen2.5 pads its models differently).

    Raises:
        TokenizerMismatch: an id means another text in the draft, or text is split otherwise.
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

NORM_IS_OFFSET = {"gemma"}  # RMSNorm weights are stored as w - 1
KNOWN_TYPES = {"llama", "mistral", "qwen2", "qwen3", "gemma", "granite", "starcoder2"}


def read_decoder(
    directory: Path,
    number_format: str,
    device: str,
    context_tokens: int,
    vocab: int,
    progress: Progress = lambda fraction, message: None,
    rows: int = ROWS,
    dtype: torch.dtype | None = None,
    slots: int = SLOTS,
) -> CachedModel:
    """A decoder from a directory with config.json and *.safetensors.

    Args:
        number_format: "fp32" | "bf16" | "int8" | "nf4" for the linears; norms and embedding stay as they are.
        vocab: entries of the tokenizer; rows of the head beyond it are padding.
        rows: ROWS for a target, 1 for a draft.
        dtype: of activations and KV; None: float32 on a CPU, bfloat16 elsewhere.
        slots: texts whose KV is kept on a GPU.

    Raises:
        WeightsError: not a model we know how to run, or a file that does not match its config.
    """
    config = read_config(directory)
    shape = read_shape(config, vocab)
    checkpoint_checks.check_tensors(directory, config, shape)
    dtype = dtype or (torch.float32 if device == "cpu" else torch.bfloat16)
    make = linear_maker(number_format, device, rows)
    offset = 1.0 if config.model_type in NORM_IS_OFFSET else 0.0
    with tensors_of(directory) as get:
        if number_format == "int8" and native.runs(shape, getattr(config, "intermediate_size", 0)):
            return native.build(
                shape,
                config.num_hidden_layers,
                config.intermediate_size,
                get,
                context_tokens=context_tokens,
                threads=torch.get_num_threads(),
                progress=lambda done: progress(done, f"loading {directory.name} (int8)"),
            )

        if number_format == "int8" and not int8_is_exact():  # AVX2 alone: forward.c is exact there, oneDNN is not
            number_format = quicker_float()
            make = linear_maker(number_format, device, rows)

        def linear(names: list[str]) -> Linear:
            parts = [get(f"{name}.weight") for name in names]
            biases = [get(f"{name}.bias", optional=True) for name in names]
            bias = torch.cat([b for b in biases if b is not None]) if biases[0] is not None else None
            return make(torch.cat(parts) if len(parts) > 1 else parts[0], bias)

        def norm(name: str, optional: bool = False) -> Norm | None:
            weight, bias = get(f"{name}.weight", optional=optional), get(f"{name}.bias", optional=True)
            if weight is None:
                return None
            bias = None if bias is None else bias.to(device, dtype)
            return Norm(weight=(weight.float() + offset).to(device, dtype), bias=bias)

        layers = []
        for i in range(config.num_hidden_layers):
            progress(i / config.num_hidden_layers, f"loading {directory.name} ({number_format})")
            at = f"model.layers.{i}"
            mlp = ["gate_proj", "up_proj"] if shape.gated else ["c_fc"]
            layers.append(
                Layer(
                    norm_attention=required(norm(f"{at}.input_layernorm")),
                    qkv=linear([f"{at}.self_attn.{x}_proj" for x in "qkv"]),
                    out=linear([f"{at}.self_attn.o_proj"]),
                    norm_mlp=required(norm(f"{at}.post_attention_layernorm")),
                    up=linear([f"{at}.mlp.{x}" for x in mlp]),
                    down=linear([f"{at}.mlp.{'down_proj' if shape.gated else 'c_proj'}"]),
                    norm_q=norm(f"{at}.self_attn.q_norm", optional=True),
                    norm_k=norm(f"{at}.self_attn.k_norm", optional=True),
                )
            )
        embedding = required(get("model.embed_tokens.weight")).to(device)
        head_weight = get("lm_head.weight", optional=True)
        head_weight = embedding if head_weight is None else head_weight
        # 4 bits cost a head more quality than time: the logits are the last thing to round (ENGINE.md B.0.6)
        head_maker = linear_maker("int8" if device == "cpu" and int8_is_exact() else "bf16", device, rows)
        head = (head_maker if number_format == "nf4" else make)(head_weight[:vocab], None)
        final = required(norm("model.norm"))
    if device != "cpu":
        widths = DRAFT_WIDTHS if rows == 1 else NF4_TARGET_WIDTHS if number_format == "nf4" else TARGET_WIDTHS
        return CudaDecoder(
            shape,
            layers,
            embedding,
            final,
            head,
            context_tokens=context_tokens,
            widths=widths,
            device=device,
            dtype=dtype,
            slots=slots,
        )
    made = Decoder(
        shape, layers, embedding, final, head, context_tokens=context_tokens, rows=rows, device=device, dtype=dtype
    )
    made.path, made.number_format = "oneDNN" if number_format == "int8" else "", number_format
    return made


def read_config(directory: Path) -> Any:
    """config.json as transformers understands it.

    Raises:
        WeightsError: unreadable, not a type we run, or it wants code of its own.
    """
    raw = read_raw(directory)
    if "auto_map" in raw:
        raise WeightsError(f"{directory} wants to run code of its own (auto_map); speclsp never does.")
    kind = raw.get("model_type")
    if not isinstance(kind, str) or kind not in KNOWN_TYPES:
        raise WeightsError(f"{directory} is a {str(kind)[:40]!r} model; speclsp runs {', '.join(sorted(KNOWN_TYPES))}.")
    with quiet_imports():
        from transformers import AutoConfig

        try:
            return AutoConfig.for_model(**raw)
        except Exception as error:  # each config class checks itself, in its own way
            raise WeightsError(
                f"{directory / 'config.json'} contradicts itself: {one_line(error)}. {checkpoint_checks.WAY_OUT}"
            ) from None


def read_raw(directory: Path) -> dict[str, Any]:
    """config.json as it is, its sizes believable. Raises WeightsError."""
    file = directory / "config.json"
    try:
        raw = untrusted_files.read_json(file, untrusted_files.CONFIG_BYTES)
    except untrusted_files.Unreadable as error:
        raise WeightsError(f"{file} {error}. {checkpoint_checks.WAY_OUT}") from None
    checkpoint_checks.check_numbers(raw, file)
    return raw


def read_shape(config: Any, vocab: int) -> ModelShape:
    """What decoder.py needs to know, from a transformers config."""
    with quiet_imports():
        from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rope: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    kind = rope.get("rope_type", "default")
    if kind == "default":
        theta = float(rope.get("rope_theta", getattr(config, "rope_theta", 10000.0)))
        inv_freq, rope_scale = 1.0 / theta ** (torch.arange(0, head_dim, 2).float() / head_dim), 1.0
    else:
        try:
            inv_freq, rope_scale = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
        except Exception as error:  # each of them fails in its own way
            raise WeightsError(
                f"config.json asks for positions of the kind {str(kind)[:40]!r}, which cannot be made of what it says "
                f"({type(error).__name__}: {one_line(error)}). {checkpoint_checks.WAY_OUT}"
            ) from None
    activation = getattr(config, "hidden_act", "silu")
    if config.model_type == "gemma":
        activation = getattr(config, "hidden_activation", None) or "gelu_pytorch_tanh"
    names = {"silu": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh"}
    if activation not in names:
        raise WeightsError(f"activation {activation!r} is not one of {', '.join(names)}.")
    starcoder = config.model_type == "starcoder2"
    return ModelShape(
        vocab=min(vocab, config.vocab_size),
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=head_dim,
        eps=config.norm_epsilon if starcoder else config.rms_norm_eps,
        inv_freq=inv_freq,
        rope_scale=float(rope_scale),
        activation=names[activation],
        gated=not starcoder,
        layer_norm=starcoder,
        embed_scale=math.sqrt(config.hidden_size)
        if config.model_type == "gemma"
        else getattr(config, "embedding_multiplier", 1.0),
        residual_scale=getattr(config, "residual_multiplier", 1.0),
        attention_scale=getattr(config, "attention_multiplier", 0.0),
        logits_scale=1.0 / getattr(config, "logits_scaling", 1.0),
    )


NF4_BLOCK = 64  # weights that share a scale
WIDE_ROWS = 16  # from here on dequantizing the weights costs less than the 4-bit kernel


class Nf4Linear:
    """y = x Wᵀ + b with W in 4-bit NormalFloat (QLoRA, arXiv 2305.14314), blocks of 64, by bitsandbytes in bf16.

    Its CPU kernel takes time for every row (ms per 100 M parameters on two cores: 5 for 1 row, 79 for 64). So a draft's
    prefill dequantizes the weights for each pass and multiplies in bf16 (22 for 64 rows), from a second copy of 0.56
    bytes a parameter. A target's rows must not depend on the pass they are in: it runs in slices of ROWS rows, always.

    Args:
        rows: ROWS for a target, 1 for a draft.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, device: str, rows: int) -> None:
        with quiet_imports():
            from bitsandbytes import functional
            from bitsandbytes.nn import Linear4bit, Params4bit

        out_features, in_features = weight.shape
        module = Linear4bit(
            in_features,
            out_features,
            bias=bias is not None,
            compute_dtype=torch.bfloat16,
            compress_statistics=False,
            quant_type="nf4",
        )
        module.weight = Params4bit(
            weight.to(torch.bfloat16),
            requires_grad=False,
            compress_statistics=False,
            quant_type="nf4",
            blocksize=NF4_BLOCK,
        )
        if bias is not None:
            module.bias = torch.nn.Parameter(bias.to(torch.bfloat16), requires_grad=False)
        self.rows, self.bias = rows, module.bias
        self.wide: Callable[[], Tensor] | None = None
        if device == "cpu" and rows == 1:
            packed, state = functional.quantize_4bit(weight.to(torch.bfloat16), quant_type="nf4", blocksize=NF4_BLOCK)
            self.wide = lambda: functional.dequantize_4bit(packed, state)
        self.module = module.to(device).eval()

    def __call__(self, x: Tensor) -> Tensor:
        inside = x.to(torch.bfloat16)
        if self.wide is not None and len(x) > WIDE_ROWS:
            return torch.nn.functional.linear(inside, self.wide(), self.bias).to(x.dtype)
        if self.rows == ROWS and len(x) > ROWS:
            return torch.cat([self.module(rows) for rows in torch.split(inside, ROWS)]).to(x.dtype)
        y: Tensor = self.module(inside)
        return y.to(x.dtype)


def linear_maker(number_format: str, device: str, rows: int) -> Callable[[Tensor, Tensor | None], Linear]:
    """weight [out, in], bias -> a Linear of that number format on that device.

    On a GPU the passes have fixed widths (cuda.py); on a CPU the linears cut them into slices of `rows`.
    """
    rows = rows if device == "cpu" else 1
    slice_rows = ROWS if rows == ROWS else 0

    def make(weight: Tensor, bias: Tensor | None) -> Linear:
        if number_format == "int8":
            return Int8Linear(weight, bias)
        if number_format == "nf4" and weight.shape[1] % NF4_BLOCK == 0:  # bitsandbytes 0.50.2 on CPU misplaces others
            return Nf4Linear(weight, bias, device, rows)
        dtype = torch.float32 if number_format == "fp32" else torch.bfloat16
        placed = None if bias is None else bias.to(device)
        return FloatLinear(weight.to(device, dtype), placed, rows=slice_rows)

    return make


@contextmanager
def tensors_of(directory: Path) -> Iterator[Any]:
    """Yield get(name, optional=False) over all *.safetensors of a directory, one tensor in memory at a time."""
    files = sorted(directory.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{directory} has no *.safetensors. {checkpoint_checks.WAY_OUT}")
    where: dict[str, Any] = {}
    for file in files:
        try:
            handle: Any = safe_open(str(file), framework="pt")
        except (SafetensorError, OSError) as error:
            raise WeightsError(
                f"{file} is not a readable safetensors file ({one_line(error)}). {checkpoint_checks.WAY_OUT}"
            ) from None
        where.update(dict.fromkeys(handle.keys(), handle))

    def get(name: str, optional: bool = False) -> Tensor | None:
        if name in where:
            tensor: Tensor = where[name].get_tensor(name)
            return tensor
        if optional:
            return None
        raise WeightsError(f"{directory} has no tensor {name}. {checkpoint_checks.WAY_OUT}")

    yield get


def required(value: Any) -> Any:
    """What `get` without optional gives is never None; this says so to the type checker."""
    assert value is not None
    return value


# ── small print ────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Import transformers or bitsandbytes without letting them fetch kernels from a hub or chat on stderr.

    Both try the package `kernels` first, which downloads code at run time: here it does not exist.
    """
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if "kernels" not in sys.modules:
        sys.modules["kernels"] = None  # type: ignore[assignment]
    logging.getLogger("bitsandbytes").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def one_line(error: BaseException) -> str:
    """The first line of an error's own words."""
    return (str(error).splitlines() or [type(error).__name__])[0]
