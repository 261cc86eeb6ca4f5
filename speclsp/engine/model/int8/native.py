"""The int8 and int4 decoder of forward.c: each pass is one C call, without the interpreter's lock.

For models of Llama's and Qwen's shape on ARM64, and on x86-64 with AVX2 or better, if the package was built with the
libraries (hatch_build.py). Other models run in decoder.py, which has the same operations, with cpu_linears.py.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int32

import numpy as np

from speclsp.engine.model.bfloat16 import Array, BFloat16, Floats, narrow, widen
from speclsp.engine.model.int8.library import CShape, library
from speclsp.engine.model.int8.pages import copied, zeros
from speclsp.engine.model.kv_archive import KvArchive
from speclsp.engine.model.kv_cache import MAX_GAMMA, MAX_SLOTS, SLOTS, CachedModel, Cancelled
from speclsp.engine.model.model_shape import ModelShape
from speclsp.engine.model.superblocks import CODED_SOURCES, KINDS, Q4K, Q6K, WeightMatrix
from speclsp.errors import WeightsError

PREFILL_TOKENS = 320  # in one step; within it, `cancel` is checked several times per layer
MAX_UNBROKEN_ROWS = 24  # of a pass that ignores `cancel`: 50 ms of the 0.5B on two cores without AMX
MAX_ROWS = PREFILL_TOKENS + MAX_GAMMA + 1  # the last step of prefill and the first round share a pass
PASS_ROWS = MAX_ROWS + 1  # with the token before them, whose state a reader lacks
PATHS = {  # fastest first: the library, and the least value of its speclsp_path
    "AMX": ("_forward", 3),
    "AVX-512 BF16": ("_forward", 2),  # VNNI as well
    "AVX-512 VNNI": ("_forward", 1),
    "AVX-VNNI": ("_forward_avx2", 2),
    "AVX2": ("_forward_avx2", 1),
    "NEON dotprod": ("_forward_neon", 2),
    "NEON": ("_forward_neon", 1),
}
SETTINGS = {  # values of engine.cpu_path
    "amx": "AMX",
    "avx512-bf16": "AVX-512 BF16",
    "avx512-vnni": "AVX-512 VNNI",
    "avx-vnni": "AVX-VNNI",
    "avx2": "AVX2",
    "neon-dotprod": "NEON dotprod",
    "neon": "NEON",
}
# bits of an int8 weight; an output has 32 more for each 256 inputs, with AMX only once
INT8_BITS = {path: 8.0 if path == "AMX" else 8.125 for path in PATHS}
# bits of a weight in forward.c's blocks; AMX's tiles multiply int8, and elsewhere Q6_K takes as long as int8, or longer
BLOCK_BITS = {path: {Q4K: 4.875} for path in PATHS if path != "AMX"} | {"AVX2": {Q4K: 4.75, Q6K: 6.625}}
CODED_PATHS = tuple(path for path in PATHS if path != "AMX")  # paths that compute with coded weights
# steps of 1 to 4 rows are faster in int4 (docs/engine.md); on ARM64 that was not measured
FASTER_IN_INT4 = tuple(path for path in CODED_PATHS if not path.startswith("NEON"))
CODED_BITS = {CODED_SOURCES[4]: 4.625, CODED_SOURCES[6]: 6.625}  # of a weight, with its group's step and base
QKV, OUT, UP, DOWN = range(4)
NORM_ATTENTION, NORM_MLP, NORM_Q, NORM_K = range(4)
PARTS = ("qkv", "out", "up", "down", "head", "attention", "rows")  # of a pass, timed separately
PARTS_OF_LINEAR = 4  # weights, scales, offsets, bias
LAST, EMBEDDING = -1, -2  # the "layer" of the head and the last norm, and of the embedding
_forced = ""  # of PATHS: see `use`


@functools.cache
def paths() -> tuple[str, ...]:
    """The instruction sets this machine can use, fastest first; empty if the package was built without libraries."""
    usable = []
    for name, (file, number) in PATHS.items():
        built = library(file)
        if built is not None and built.speclsp_path() >= number:
            usable.append(name)
    return tuple(usable)


def use(setting: str) -> None:
    """Set the path of every decoder built after this: a value of engine.cpu_path; "auto" is the fastest.

    Raises:
        WeightsError: this machine, or this package, does not have it.
    """
    global _forced
    if setting != "auto" and SETTINGS[setting] not in paths():
        usable = [name for name, path in SETTINGS.items() if path in paths()]
        raise WeightsError(
            f'engine.cpu_path = "{setting}", which this machine does not have. It has: {", ".join(["auto", *usable])}.'
        )
    _forced = SETTINGS.get(setting, "")


def best_path() -> str:
    """The path in use: that of `use`, or the fastest; "" when there is none."""
    return _forced or next(iter(paths()), "")


def supports(shape: ModelShape, inner: int) -> bool:
    """True if this machine and its library can run a model of that shape."""
    plain = (shape.embed_scale, shape.residual_scale, shape.logits_scale) == (1.0, 1.0, 1.0)
    return bool(
        best_path()
        and plain
        and shape.gated
        and shape.activation == "silu"
        and not shape.layer_norm
        and shape.head_dim in (32, 64, 128)
        and shape.hidden % 16 == 0
        and inner % 16 == 0
    )


def fetch(numbers: Array) -> None:
    """Read a byte of every page of `numbers`, a mapped file, without the interpreter's lock."""
    library_of(best_path()).speclsp_fetch(numbers.ctypes.data, numbers.nbytes)


def guard(numbers: Array, message: str, remove: str) -> None:
    """End the process with code 75 and `message` on stderr when a page of `numbers`, a mapped file, cannot be read.

    The file `remove` is removed then, except on Windows.
    """
    library_of(best_path()).speclsp_guard(numbers.ctypes.data, numbers.nbytes, message.encode(), os.fsencode(remove))


def library_of(path: str) -> ctypes.CDLL:
    """The library of one of `paths()`."""
    loaded = library(PATHS[path][0])
    assert loaded is not None, "paths() lists only libraries that load"
    return loaded


class NativeDecoder(CachedModel):
    """A causal LM in int8 and the tokens its KV cache holds: decoder.Decoder's interface, forward.c's arithmetic.

    Weights are set one at a time (`set_linear`, `set_norm`); each is quantized and packed at once.

    Args:
        inner: the width of the gated MLP.
        embedding: [vocab or more, hidden], stored rows; None: a linear, EMBEDDING or the head, has them.
        threads: that compute, including the caller's.
        path: one of `paths()`; "": that of `best_path()`.
    """

    tail_tokens = PREFILL_TOKENS
    prefill_is_exact = True
    contended_step_tokens = PREFILL_TOKENS // 2  # 125 ms of the 0.5B on two cores; same cost per token as longer steps
    number_format = "int8"  # "int4": the MLP has 4 bits

    def __init__(
        self,
        shape: ModelShape,
        layers: int,
        inner: int,
        embedding: WeightMatrix | None,
        *,
        context_tokens: int,
        threads: int,
        slots: int = SLOTS,
        path: str = "",
    ) -> None:
        super().__init__(context_tokens, PREFILL_TOKENS, slots, MAX_SLOTS)
        self.archive = KvArchive()
        self.shape, self.threads, self.path = shape, threads, path or best_path()
        self.positions = positions_for(context_tokens)
        self._library = library_of(self.path)
        self._kv_shape = (layers, shape.kv_heads, self.positions, shape.head_dim)
        self._kv: dict[int, tuple[BFloat16, BFloat16]] = {}
        self.layer_weights, self.head_weights = 0, 0  # each is one multiply-add a token
        self.weight_bytes = 0  # that one pass reads
        self.linears: dict[tuple[int, int], tuple[int, int, int]] = {}  # (layer, which): outputs, inputs, source
        self.norms: dict[tuple[int, int], Floats] = {}
        self.numbers: object = None  # keeps the memory of borrowed numbers
        self.check: Callable[[], None] = lambda: None  # is called before each pass; raises if these were altered
        self._cos, self._sin = rotations(shape, self.positions)
        self.embedding: WeightMatrix | None = None
        self.embedding_bytes = 0  # of its own, outside the head
        embedding_at, source = None, 0
        if embedding is not None:
            self.embedding = embedding.first(shape.vocab).contiguous()
            self.embedding_bytes = self.embedding.tensor.nbytes
            embedding_at, source = address(self.embedding.tensor), embedding.source
        c_shape = CShape(
            layers=layers, hidden=shape.hidden, heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
            inner=inner, vocab=shape.vocab, positions=self.positions, rows=PASS_ROWS,
            embedding=source,
            eps=shape.eps, attention_scale=shape.attention_scale or shape.head_dim**-0.5,
        )  # fmt: skip
        self._model = self._library.speclsp_new(
            ctypes.byref(c_shape), embedding_at, address(self._cos), address(self._sin), threads, PATHS[self.path][1]
        )
        if not self._model:
            raise MemoryError("no memory for the forward pass's buffers")

    def set_linear(self, layer: int, which: int, weights: WeightMatrix, bias: Array | None) -> None:
        """Pack a linear's weights, [out, in]; `layer` may be LAST or EMBEDDING. Floats get `weights.bits`."""
        kind = weights.kind
        rows = np.ascontiguousarray(weights.tensor if kind else narrow(weights.tensor))
        out, width = len(rows), kind.width(rows) if kind else rows.shape[1]
        self._count(layer, which, out, width, weights.source)
        float_bias = None if bias is None else np.ascontiguousarray(widen(bias))
        bias_at = None if float_bias is None else address(float_bias)
        if self._library.speclsp_linear(self._model, layer, which, address(rows), bias_at, out, width, weights.source):
            raise MemoryError(f"no memory for {out * width / 2**20:.0f} Mi weights")

    def _count(self, layer: int, which: int, out: int, width: int, source: int) -> None:
        """Add a linear, [out, width], to the model's weights and bytes."""
        self.linears[layer, which] = out, width, source
        size = int(out * width * bits_of(source, self.path) / 8)
        if layer == EMBEDDING:
            self.embedding_bytes = size
        else:
            self.weight_bytes += size
            self.head_weights += out * width if layer == LAST else 0
            self.layer_weights += out * width if layer != LAST else 0

    def packed(self, layer: int, which: int) -> list[Array]:
        """The packed numbers of a linear as bytes: weights, scales, offsets, and bias or nothing. Views."""
        at, sizes = (ctypes.c_void_p * PARTS_OF_LINEAR)(), (ctypes.c_int64 * PARTS_OF_LINEAR)()
        self._library.speclsp_parts(self._model, layer, which, at, sizes)
        return [bytes_at(start, size) for start, size in zip(at, sizes, strict=True)]

    def release(self, layer: int, which: int) -> None:
        """Free the packed numbers of a linear, which computes nothing until `borrow`."""
        self._library.speclsp_release(self._model, layer, which)

    def borrow(self, layer: int, which: int, out: int, width: int, source: int, parts: Sequence[Array]) -> bool:
        """Compute a linear, [out, width], with numbers of `packed` in the caller's memory; False: they do not fit."""
        at = (ctypes.c_void_p * PARTS_OF_LINEAR)(*[part.ctypes.data for part in parts])
        sizes = (ctypes.c_int64 * PARTS_OF_LINEAR)(*[part.nbytes for part in parts])
        self._count(layer, which, out, width, source)
        return not self._library.speclsp_borrow(self._model, layer, which, out, width, source, at, sizes)

    def set_norm(self, layer: int, which: int, weight: Array) -> None:
        """Copy a norm's weights, [n]; layer LAST is the last norm."""
        self.norms[layer, which] = own = np.ascontiguousarray(widen(weight))
        if self._library.speclsp_norm(self._model, layer, which, address(own), own.size):
            raise MemoryError("no memory for a norm's weights")

    def __del__(self) -> None:
        if getattr(self, "_model", None):
            self._library.speclsp_free(self._model)
            self._model = None

    # ── interface for generate.py and drafters.py ────────────────────────────────────────────────────────────────

    def forward(self, new: Sequence[int]) -> Floats:
        """Append `new`; their logits, [T, vocab]."""
        starts = range(0, len(new), MAX_ROWS)
        parts = [self._pass(part := new[start : start + MAX_ROWS], len(part), None) for start in starts]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def forward_with_tail(self, new: Sequence[int], wanted: int, cancel: threading.Event | None = None) -> Floats:
        # a narrow round is short, and its tokens are worth its time: it does not stop half-way
        return self._pass(new, wanted, cancel if len(new) > MAX_UNBROKEN_ROWS else None)

    def extend(self, new: Sequence[int], cancel: threading.Event | None = None) -> None:
        self._pass(new, 0, cancel)

    def copy(self, source: int, target: int, tokens: int) -> None:
        self.restore_slot(target, self.kv(source), tokens)

    def save_slot(self, slot: int, tokens: int) -> tuple[Array, Array]:
        keys, values = (copied(part[:, :, : whole_blocks(tokens)]) for part in self.kv(slot))
        return keys, values

    def restore_slot(self, slot: int, kv: tuple[Array, Array], tokens: int) -> None:
        rows = whole_blocks(tokens)
        for from_, to in zip(kv, self.kv(slot), strict=True):
            to[:, :, :rows] = from_[:, :, :rows]

    def kv(self, slot: int) -> tuple[BFloat16, BFloat16]:
        """A slot's keys and values, [layers, J, positions, D], in forward.c's layout."""
        if slot not in self._kv:
            self._kv[slot] = zeros(self._kv_shape), zeros(self._kv_shape)
        return self._kv[slot]

    def free_slot(self, slot: int) -> None:
        self._kv.pop(slot, None)

    @property
    def layers(self) -> int:
        """The number of layers."""
        return self._kv_shape[0]

    @property
    def weight_mib(self) -> float:
        """Memory of the linears' weights and the embedding in MiB."""
        return (self.weight_bytes + self.embedding_bytes) / 2**20

    def read_weights(self, rows: int = 1) -> None:
        """Only a pass's matrix products, from arbitrary inputs: the memory-bandwidth bound of a round."""
        self._library.speclsp_read_weights(self._model, rows)

    def profile(self) -> dict[str, float]:
        """Milliseconds by part of a pass, summed over the passes since the last call."""
        parts = (c_double * len(PARTS))()
        self._library.speclsp_profile(self._model, parts)
        return dict(zip(PARTS, parts, strict=True))

    def _pass(self, new: Sequence[int], wanted: int, cancel: threading.Event | None) -> Floats:
        """One call of forward.c; the logits of the last `wanted` tokens."""
        logits = np.empty((wanted, self.shape.vocab), np.float32)
        start, t = len(self.ids), len(new)
        if start + t > self.context_tokens:
            raise ValueError(f"{start + t} tokens do not fit a KV cache of {self.context_tokens}")
        self.check()
        keys, values = self.kv(self.slot)
        c_flag = getattr(cancel, "c_flag", None)  # of api.Cancel
        flag = None if c_flag is None else ctypes.byref(c_flag)
        stopped = self._library.speclsp_forward(
            self._model,
            (c_int32 * t)(*new),
            t,
            start,
            address(keys),
            address(values),
            self.positions,
            address(logits),
            wanted,
            flag,
        )
        if stopped:
            raise Cancelled
        self.ids.extend(new)
        return logits


def whole_blocks(tokens: int) -> int:
    """Positions in blocks of 32, which forward.c reads at once."""
    return -(-tokens // 32) * 32


def positions_for(context_tokens: int) -> int:
    """Positions of a slot."""
    return whole_blocks(context_tokens + 1)


def bytes_at(start: int | None, size: int) -> Array:
    """A view of memory as bytes."""
    if not start or not size:
        return np.empty(0, np.uint8)
    return np.ctypeslib.as_array(ctypes.cast(start, ctypes.POINTER(ctypes.c_uint8)), (size,))


def bits_of(source: int, path: str) -> float:
    """Bits of a weight in memory, by its source in forward.c."""
    kind = next((kind for kind in KINDS if kind.source == source), None)
    return BLOCK_BITS[path][kind] if kind else CODED_BITS.get(source, INT8_BITS[path])


def rotations(shape: ModelShape, positions: int) -> tuple[Floats, Floats]:
    """Cosines and sines of the rotary position embedding, [positions, D/2], rounded from double precision."""
    angle = np.outer(np.arange(positions, dtype=np.float32), shape.inv_freq).astype(np.float64)
    cos, sin = (np.ascontiguousarray(part, np.float32) for part in (np.cos(angle), np.sin(angle)))
    return cos, sin


def address(array: Array) -> int:
    """The address of a contiguous array's data."""
    assert array.flags.c_contiguous
    return int(array.ctypes.data)
