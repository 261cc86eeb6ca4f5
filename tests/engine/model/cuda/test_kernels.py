"""Each Triton kernel computes the same as its function in ops.py. On a CPU, under Triton's interpreter.

The interpreter must be selected before Triton is first imported, so a child process runs this file again.
"""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from support.soak import in_soak

from speclsp.engine.model.cuda import ops

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if INTERPRETED:
    from speclsp.engine.decoding.accept import Sampling
    from speclsp.engine.decoding.fused_round import FusedRound
    from speclsp.engine.loading import checkpoint
    from speclsp.engine.model.cuda import kernels
    from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
    from speclsp.weights import cards
else:
    HEADS = [(4, 7, 128, 16), (2, 7, 64, 1), (2, 6, 128, 256), (1, 8, 256, 16), (2, 4, 80, 2)]  # J, G, D, rows
    FLOATS = ("cos", "sin", "part", "max")
    # numpy multiplies in tl.dot's place; OpenBLAS's kernels for Haswell and Zen sum a tile's rows in several orders
    ONE_ORDER = {"OPENBLAS_CORETYPE": "Prescott"} if platform.machine() in ("x86_64", "AMD64") else {}
    NO_MULTIPLES = ("eps", "scale", "rows", "parts")
    SHARED_KIB = {80: 163, 89: 99, 90: 227}  # the limit of one program, by compute capability

    def test_the_kernels_under_tritons_interpreter(soak: bool):
        options = ["-q", "-x", "-p", "no:cacheprovider", *(["--soak"] if soak else [])]
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *options, Path(__file__).name],
            env=os.environ | {"TRITON_INTERPRET": "1"} | ONE_ORDER,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=280,
        )
        assert run.returncode == 0, run.stdout + run.stderr

    @pytest.mark.parametrize("compute_capability", [89, *in_soak(80, 90)])
    def test_the_kernels_compile_for_ampere_ada_and_hopper(
        compute_capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
    ):
        """Compiling needs no GPU and checks more than the interpreter: types, and the shared memory of a tile."""
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, compile

        from speclsp.engine.model.cuda import kernels

        compiled = [
            (kernels.add_norm_kernel, {"ADD": True, "BLOCK": 4096}),
            (kernels.rope_write_kernel, {"H": 28, "J": 4, "D": 128, "ROTARY": 128, "BLOCK": 128}),
            (kernels.silu_mul_kernel, {"BLOCK": 1024}),
        ]
        for kv_heads, group, width, rows in HEADS if soak else HEADS[1:3]:
            block_d = kernels.power_of_two(width)
            block_q, block_k = kernels.tiles(rows * group, block_d * 2)
            tile = {"BLOCK_Q": block_q, "BLOCK_K": block_k, "PART": 128, "PRECISION": "tf32"}
            shape = {"J": kv_heads, "G": group, "D": width, "BLOCK_D": block_d}
            compiled.append((kernels.attend_part_kernel, shape | tile))
            compiled.append((kernels.combine_kernel, shape | {"BLOCK_P": 64}))
        for kernel, constants in compiled:
            types, attributes = {}, {}
            for at, name in enumerate(kernel.arg_names):
                types[name] = "constexpr" if name in constants else type_of(name, kernel)
                if name not in constants and name not in NO_MULTIPLES:
                    attributes[at,] = [["tt.divisibility", 16]]  # as at run time
            source = ASTSource(fn=kernel, signature=types, constexprs=constants, attrs=attributes)
            binary = compile(source, target=GPUTarget("cuda", compute_capability, 32))
            assert "cubin" in binary.asm
            assert binary.metadata.shared <= SHARED_KIB[compute_capability] * 1024, (kernel, constants)

    def type_of(argument: str, kernel: Any) -> str:
        """The type that the functions pass: bfloat16, except counts and sums."""
        if not argument.endswith("_ptr"):
            return "fp32" if argument in ("eps", "scale") else "i32"
        name = argument.removesuffix("_ptr")
        if name in ("start", "slot"):
            return "*i64"
        return "*fp32" if name in FLOATS or (name == "sum" and "add_norm" not in kernel.__name__) else "*bf16"


DTYPES = [torch.float32, torch.bfloat16]
DOT_DTYPES = [torch.float32, torch.float16]  # the interpreter has no bfloat16 product
TOLERANCE = {
    torch.float32: {"atol": 2e-5, "rtol": 2e-5},
    torch.float16: {"atol": 4e-3, "rtol": 4e-3},
    torch.bfloat16: {"atol": 3e-2, "rtol": 2e-2},
}
EDGE = 254  # the boundary of a part: the rows that start here lie on both sides of it


def random(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def before_nan(*shape: int) -> torch.Tensor:
    """Random numbers in memory that goes on with NaN."""
    size = math.prod(shape)
    memory = torch.full((size + 2**15,), math.nan)
    memory[:size] = random(size)
    return memory[:size].view(shape)


def near(actual: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(actual, wanted, **TOLERANCE[wanted.dtype])


if INTERPRETED:

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(("rows", "hidden"), [(1, 192), (16, 896)])
    def test_add_norm(rows: int, hidden: int, dtype: torch.dtype):
        x, delta = random(rows, hidden, dtype=dtype), random(rows, hidden, dtype=dtype, seed=1)
        weight = random(hidden, dtype=dtype, seed=2)
        for added in (None, delta):
            total, normed = kernels.TRITON.add_norm(x, added, weight, 1e-6)
            wanted_total, wanted = ops.TORCH.add_norm(x, added, weight, 1e-6)
            near(total, wanted_total)  # the interpreter truncates to bfloat16 where a GPU rounds
            near(normed, wanted)

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize(("heads", "kv_heads", "width", "rotary"), [(3, 1, 64, 64), (4, 2, 80, 32)])
    def test_rope_write(heads: int, kv_heads: int, width: int, rotary: int, dtype: torch.dtype):
        qkv = random(5, heads + 2 * kv_heads, width, dtype=dtype)
        q, k, v = torch.split(qkv, [heads, kv_heads, kv_heads], dim=1)
        angle = random(400, rotary // 2, seed=3).repeat(1, 2)
        start, slot = torch.tensor([EDGE]), torch.tensor([1])
        caches = [torch.zeros(2, kv_heads, 400, width, dtype=dtype) for _ in range(4)]
        turned = kernels.TRITON.rope_write(q, k, v, angle.cos(), angle.sin(), start, slot, *caches[:2])
        wanted = ops.TORCH.rope_write(q, k, v, angle.cos(), angle.sin(), start, slot, *caches[2:])
        near(turned, wanted)
        near(caches[0], caches[2])
        assert torch.equal(caches[1], caches[3])
        assert not caches[0][0].any() and not caches[0][1, :, :EDGE].any(), "nothing but its own rows is written"

    def attention(rows: int, heads: int, kv_heads: int, width: int, dtype: torch.dtype, capacity: int):
        keys, values = (random(2, kv_heads, capacity, width, dtype=dtype, seed=s) for s in (4, 5))
        return random(rows, heads, width, dtype=dtype, seed=6), keys, values

    @pytest.mark.parametrize("dtype", DOT_DTYPES)
    @pytest.mark.parametrize("start", [EDGE, *in_soak(0)])
    @pytest.mark.parametrize(
        ("rows", "heads", "kv_heads", "width"),
        [(1, 14, 2, 64), (16, 3, 1, 64), (2, 4, 4, 80), *in_soak((16, 12, 2, 128))],
    )
    def test_attend(rows: int, heads: int, kv_heads: int, width: int, start: int, dtype: torch.dtype):
        q, keys, values = attention(rows, heads, kv_heads, width, dtype, 384)
        where = torch.tensor([start]), torch.tensor([1])
        out = kernels.TRITON.attend(q, keys, values, *where, width**-0.5)
        near(out, ops.TORCH.attend(q, keys, values, *where, width**-0.5))

    def test_attend_of_a_prefill_step():
        q, keys, values = attention(32, 6, 2, 64, torch.float32, 1024)
        where = torch.tensor([500]), torch.tensor([0])
        near(kernels.TRITON.attend(q, keys, values, *where, 0.125), ops.TORCH.attend(q, keys, values, *where, 0.125))

    def test_attend_reads_nothing_beyond_the_capacity():
        """The capacity is no multiple of a part, and NaN follows it."""
        keys, values = before_nan(1, 1, 192, 64), before_nan(1, 1, 192, 64)
        q, where = random(2, 3, 64, seed=6), (torch.tensor([150]), torch.tensor([0]))
        near(kernels.TRITON.attend(q, keys, values, *where, 0.125), ops.TORCH.attend(q, keys, values, *where, 0.125))

    def test_an_attention_row_depends_on_the_keys_before_it_only(soak: bool):
        """It depends neither on other rows nor on entries of rejected drafts beyond it."""
        heads, kv_heads, rows = (6, 2, (0, 11)) if soak else (3, 1, (11,))  # the interpreter is slow
        q, keys, values = attention(16, heads, kv_heads, 64, torch.float16, 384)
        slot = torch.tensor([0])
        whole = kernels.TRITON.attend(q, keys, values, torch.tensor([EDGE]), slot, 0.125)
        for row in rows:
            other_q, other_keys, other_values = q.clone(), keys.clone(), values.clone()
            other_q[:row] = 7.0
            other_keys[:, :, EDGE + row + 1 :] = 9.0
            other_values[:, :, EDGE + row + 1 :] = -9.0
            out = kernels.TRITON.attend(other_q, other_keys, other_values, torch.tensor([EDGE]), slot, 0.125)
            assert torch.equal(out[row], whole[row])
            shifted = torch.cat([q[row:], q[:row]])  # the same row as the first of a later pass
            out = kernels.TRITON.attend(shifted, other_keys, other_values, torch.tensor([EDGE + row]), slot, 0.125)
            assert torch.equal(out[0], whole[row])

    @pytest.mark.parametrize("dtype", DTYPES)
    def test_silu_mul(dtype: torch.dtype):
        gate_up = random(3, 2 * 1216, dtype=dtype)
        near(kernels.TRITON.silu_mul(gate_up), ops.TORCH.silu_mul(gate_up))

    def first_layer_of(name: str, is_draft: bool) -> CudaDecoder:
        """A decoder of only one layer, as the interpreter is slow."""
        directory = cards.models_root() / "tiny" / name
        decoder = checkpoint.read_decoder(directory, "fp32", "cpu:0", 128, 2048, is_draft=is_draft, dtype=torch.float32)
        assert isinstance(decoder, CudaDecoder)
        decoder.layers = decoder.layers[:1]
        decoder.keys, decoder.values = decoder.keys[:1], decoder.values[:1]
        return decoder

    def test_a_decoder_on_the_kernels_decodes_as_on_torch_and_its_rounds_equal_plain_decoding():
        target, draft = (first_layer_of(name, name == "draft") for name in ("target", "draft"))
        ids = [301, 44, 765]
        wanted = target.forward(ids)
        target.rewind(0)
        for decoder in (target, draft):
            decoder.ops = kernels.TRITON
        logits = target.forward(ids)
        torch.testing.assert_close(logits, wanted, atol=1e-3, rtol=1e-3)
        plain = list(ids)
        for _ in range(2):
            target.rewind(len(plain) - 1)
            chosen_here = target.choose(plain[-1:], 1, None, ())
            assert chosen_here is not None
            plain.append(chosen_here[0][0])
        fused, fast = FusedRound(target, draft), list(ids)
        while len(fast) < len(plain):
            target.rewind(len(fast) - 1)
            guesses, accepted, token = fused.round(fast, 2, Sampling())
            fast += [*guesses[:accepted], token]
        assert fast[: len(plain)] == plain
