"""The int8 forward of forward.c: a decoder whose passes are one call each, outside the interpreter's lock.

For shapes of the Llama and Qwen kind on x86-64 with AMX, AVX-512 VNNI or AVX2, where the package was built with its
libraries (hatch_build.py). Everything else runs through decoder.py, whose operations these are, with cpu.py's linears.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Sequence
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_void_p
from pathlib import Path

import torch
from torch import Tensor

from speclsp.engine.model.decoder import ModelShape
from speclsp.engine.model.kv_cache import MOST_SLOTS, SLOTS, CachedModel, Cancelled

PREFILL_TOKENS = 320  # in one step; within it, `cancel` is looked at several times in every layer
MOST_GAMMA = 64  # guesses in a round
MOST_ROWS = PREFILL_TOKENS + MOST_GAMMA + 1  # the last step of prefill takes the first round along
PATHS = {  # quickest first: the library, and what its speclsp_path says at least
    "AMX": ("_forward.so", 2),
    "AVX-512 VNNI": ("_forward.so", 1),
    "AVX2": ("_forward_avx2.so", 1),
}
QKV, OUT, UP, DOWN = range(4)
NORM_ATTENTION, NORM_MLP, NORM_Q, NORM_K = range(4)
PARTS = ("qkv", "out", "up", "down", "head", "attention", "rows")  # of a pass, timed apart
LAST = -1  # the "layer" of the head and the last norm


SIZES = ("layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "positions", "rows")


class CShape(Structure):
    """Shape of forward.c."""

    _fields_ = [
        *(
            (name, c_int32)
            for name in ["layers", "hidden", "heads", "kv_heads", "head_dim", "inner", "vocab", "positions", "rows"]
        ),
        ("eps", c_float),
        ("attention_scale", c_float),
    ]


@functools.cache
def library(name: str) -> ctypes.CDLL | None:
    """forward.c, compiled for one kind of vectors; None where it was not."""
    file = Path(__file__).with_name(name)
    if not file.is_file():
        return None
    try:
        found = ctypes.CDLL(str(file))
    except OSError:
        return None
    signatures: dict[str, tuple[object, list[object]]] = {
        "path": (c_int32, []),
        "new": (c_void_p, [POINTER(CShape), c_void_p, c_void_p, c_void_p, c_int32, c_int32]),
        "linear": (c_int32, [c_void_p, c_int32, c_int32, c_void_p, c_void_p, c_int32, c_int32]),
        "norm": (c_int32, [c_void_p, c_int32, c_int32, c_void_p, c_int32]),
        "forward": (
            c_int32,
            [c_void_p, c_void_p, c_int32, c_int32, c_void_p, c_void_p, c_int32, c_void_p, c_int32, c_void_p],
        ),
        "read_weights": (None, [c_void_p, c_int32]),
        "profile": (None, [c_void_p, POINTER(c_double)]),
        "free": (None, [c_void_p]),
    }
    for short, (result, arguments) in signatures.items():
        function = getattr(found, f"speclsp_{short}")
        function.restype, function.argtypes = result, arguments
    return found


@functools.cache
def paths() -> tuple[str, ...]:
    """The ways this machine can take, quickest first; none where the package was built without the libraries."""
    found = []
    for name, (file, number) in PATHS.items():
        built = library(file)
        if built is not None and built.speclsp_path() >= number:
            found.append(name)
    return tuple(found)


def best_path() -> str:
    """The quickest of them: "AMX", "AVX-512 VNNI", "AVX2", or "" when there is none."""
    return next(iter(paths()), "")


def runs(shape: ModelShape, inner: int) -> bool:
    """Whether this machine and this library run such a model."""
    plain = (shape.embed_scale, shape.residual_scale, shape.logits_scale) == (1.0, 1.0, 1.0)
    return bool(
        best_path()
        and plain
        and shape.gated
        and shape.activation == "silu"
        and not shape.layer_norm
        and shape.head_dim in (32, 64, 128)
        and shape.inv_freq.numel() * 2 == shape.head_dim
        and shape.hidden % 16 == 0
        and inner % 16 == 0
    )


class NativeDecoder(CachedModel):
    """A causal LM in int8 and the tokens its KV cache holds: decoder.Decoder's face, forward.c's arithmetic.

    Weights come one at a time (`set_linear`, `set_norm`); each is quantized and packed as it comes.

    Args:
        inner: the width of the gated MLP.
        threads: that compute, the caller's among them.
        path: one of `paths()`; the machine's best unless a test wants another.
    """

    ride_tokens = PREFILL_TOKENS
    polite_tokens = PREFILL_TOKENS // 2  # 125 ms of the 0.5B on two cores; a token costs no more than in longer steps
    number_format = "int8"

    def __init__(
        self,
        shape: ModelShape,
        layers: int,
        inner: int,
        embedding: Tensor,  # [vocab or more, hidden] bfloat16
        *,
        context_tokens: int,
        threads: int,
        slots: int = SLOTS,
        path: str = "",
    ) -> None:
        super().__init__(context_tokens, PREFILL_TOKENS, slots, MOST_SLOTS)
        self.shape, self.threads, self.path = shape, threads, path or best_path()
        file, number = PATHS[self.path]
        found = library(file)
        assert found is not None, "paths() says which there are"
        self.positions = positions_for(context_tokens)
        self._library = found
        self._kv_shape = (layers, shape.kv_heads, self.positions, shape.head_dim)
        self._kv: dict[int, tuple[Tensor, Tensor]] = {}
        angle = torch.outer(torch.arange(self.positions, dtype=torch.float32), shape.inv_freq.float().cpu())
        self._cos, self._sin = angle.cos() * shape.rope_scale, angle.sin() * shape.rope_scale  # [positions, D/2]
        # a copy: a view of the file would keep all of it mapped, half a GiB of the 0.5B that nobody reads again
        self._embedding = embedding[: shape.vocab].to(torch.bfloat16, copy=True).contiguous()
        c_shape = CShape(
            layers=layers,
            hidden=shape.hidden,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            inner=inner,
            vocab=shape.vocab,
            positions=self.positions,
            rows=MOST_ROWS,
            eps=shape.eps,
            attention_scale=shape.attention_scale or shape.head_dim**-0.5,
        )
        self._model = found.speclsp_new(
            ctypes.byref(c_shape), address(self._embedding), address(self._cos), address(self._sin), threads, number
        )
        if not self._model:
            raise MemoryError("no memory for the forward pass's buffers")

    def set_linear(self, layer: int, which: int, weight: Tensor, bias: Tensor | None) -> None:
        """Quantize and pack a linear's weights, [out, in]; layer LAST is the head."""
        half = weight.to(torch.bfloat16).contiguous()
        float_bias = None if bias is None else bias.float().contiguous()
        bias_at = None if float_bias is None else address(float_bias)
        if self._library.speclsp_linear(self._model, layer, which, address(half), bias_at, *half.shape):
            raise MemoryError(f"no memory for {half.numel() / 2**20:.0f} MiB of int8 weights")

    def set_norm(self, layer: int, which: int, weight: Tensor) -> None:
        """Copy a norm's weights, [n]; layer LAST is the last norm."""
        own = weight.float().contiguous()
        if self._library.speclsp_norm(self._model, layer, which, address(own), own.numel()):
            raise MemoryError("no memory for a norm's weights")

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.speclsp_free(self._model)
            self._model = None

    # ── what generate.py and draft.py use ────────────────────────────────────────────────────────────────────────

    def forward(self, new: Sequence[int]) -> Tensor:
        """Append `new`; their logits, [T, vocab], float32."""
        starts = range(0, len(new), MOST_ROWS)
        parts = [self._pass(part := new[start : start + MOST_ROWS], len(part), None) for start in starts]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def ride(self, new: Sequence[int], wanted: int, cancel: threading.Event | None = None) -> Tensor:
        # a round alone is over before its tokens would be worth less than its time: only prefill stops half-way
        return self._pass(new, wanted, cancel if len(new) > MOST_GAMMA + 1 else None)

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self._pass(new, 0, cancel)

    def copy(self, source: int, target: int, tokens: int) -> None:
        rows = -(-tokens // 32) * 32
        for from_, to in zip(self.kv(source), self.kv(target), strict=True):
            to[:, :, :rows] = from_[:, :, :rows]

    def kv(self, slot: int) -> tuple[Tensor, Tensor]:
        """A slot's keys and values, [layers, J, positions, D] bfloat16, in the blocks that forward.c speaks of."""
        if slot not in self._kv:
            keys, values = (torch.zeros(self._kv_shape, dtype=torch.bfloat16) for _ in range(2))
            self._kv[slot] = keys, values
        return self._kv[slot]

    def release(self, slot: int) -> None:
        self._kv.pop(slot, None)

    def keep_context(self, tokens: int) -> None:
        super().keep_context(tokens)
        self.positions = positions_for(tokens)
        layers, kv_heads, _, width = self._kv_shape
        self._kv_shape = (layers, kv_heads, self.positions, width)

    @property
    def kv_mib(self) -> float:
        """What the KV cache takes, in MiB."""
        return sum(part.numel() * part.element_size() for kv in self._kv.values() for part in kv) / 2**20

    def read_weights(self, rows: int = 1) -> None:
        """A pass's matrix products alone, from inputs that mean nothing: the floor a round is measured against."""
        self._library.speclsp_read_weights(self._model, rows)

    def profile(self) -> dict[str, float]:
        """Milliseconds that passes since the last call spent, by part."""
        parts = (c_double * len(PARTS))()
        self._library.speclsp_profile(self._model, parts)
        return dict(zip(PARTS, parts, strict=True))

    def _pass(self, new: Sequence[int], wanted: int, cancel: threading.Event | None) -> Tensor:
        """One call of forward.c; the logits of the last `wanted` tokens."""
        logits = torch.empty(wanted, self.shape.vocab)
        start, t = len(self.ids), len(new)
        if start + t > self.context_tokens:
            raise ValueError(f"{start + t} tokens do not fit a KV cache of {self.context_tokens}")
        ids = (c_int32 * t)(*new)
        keys, values = self.kv(self.slot)
        word = getattr(cancel, "word", None)
        flag = None if word is None else ctypes.byref(word)
        stopped = self._library.speclsp_forward(
            self._model, ids, t, start, address(keys), address(values), self.positions, address(logits), wanted, flag
        )
        if stopped:
            raise Cancelled
        self.ids.extend(new)
        return logits


def build(
    shape: ModelShape,
    config_layers: int,
    inner: int,
    read: Callable[..., Tensor | None],
    *,
    context_tokens: int,
    threads: int,
    path: str = "",
    progress: Callable[[float], None] = lambda fraction: None,
) -> NativeDecoder:
    """Read a Llama- or Qwen-shaped model's weights by their published names.

    Args:
        read: a tensor by name; with `optional=True`, None when there is none.
    """

    def get(name: str) -> Tensor:
        found = read(name)
        assert found is not None  # without `optional` it raises
        return found

    def optional(name: str) -> Tensor | None:
        return read(name, optional=True)

    embedding = get("model.embed_tokens.weight")
    made = NativeDecoder(
        shape, config_layers, inner, embedding, context_tokens=context_tokens, threads=threads, path=path
    )

    for number in range(config_layers):
        at = f"model.layers.{number}"
        for which, names in (
            (QKV, [f"{at}.self_attn.{p}_proj" for p in "qkv"]),
            (OUT, [f"{at}.self_attn.o_proj"]),
            (UP, [f"{at}.mlp.gate_proj", f"{at}.mlp.up_proj"]),
            (DOWN, [f"{at}.mlp.down_proj"]),
        ):
            weight = torch.cat([get(f"{name}.weight") for name in names])
            biases = [bias for name in names if (bias := optional(f"{name}.bias")) is not None]
            made.set_linear(number, which, weight, torch.cat(biases) if biases else None)
        made.set_norm(number, NORM_ATTENTION, get(f"{at}.input_layernorm.weight"))
        made.set_norm(number, NORM_MLP, get(f"{at}.post_attention_layernorm.weight"))
        for which, name in ((NORM_Q, "q_norm"), (NORM_K, "k_norm")):
            own = optional(f"{at}.self_attn.{name}.weight")
            if own is not None:
                made.set_norm(number, which, own)
        progress((number + 1) / config_layers)
    head = optional("lm_head.weight")
    made.set_linear(LAST, 0, (embedding if head is None else head)[: shape.vocab], None)
    made.set_norm(LAST, 0, get("model.norm.weight"))
    return made


def positions_for(context_tokens: int) -> int:
    """Of a slot: whole blocks of what forward.c reads at once."""
    return -(-(context_tokens + 1) // 32) * 32


def address(tensor: Tensor) -> int:
    """Where a contiguous tensor's data starts."""
    assert tensor.is_contiguous()
    return tensor.data_ptr()
