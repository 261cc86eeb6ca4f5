"""A layer in five kernels computes what the operations of ops.py compute, and its rows do not depend on their number.

Under Triton's interpreter, in a child process, as in test_kernels.py. nf4 is compared with bitsandbytes' CPU build.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from support.soak import in_soak
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from speclsp.engine.loading import nf4_linear
from speclsp.engine.model.cuda import ops, packed_weights
from speclsp.engine.model.cuda.packed_weights import PackedLinear, pack_int8

sys.path.insert(0, str(Path(__file__).parent))
from test_kernels import INTERPRETED, before_nan, random

if INTERPRETED:
    from benchmarks.speed.gpu.models import TINY, build
    from benchmarks.speed.gpu.timing import Bench, Limit
    from speclsp.engine.loading import checkpoint
    from speclsp.engine.model.cuda import kernels
    from speclsp.engine.model.cuda.cuda_decoder import CudaDecoder
    from speclsp.engine.model.cuda.fused_layers import MANY_FEATURES, FusedLayers, tiling
    from speclsp.engine.model.decoder import Norm
    from speclsp.weights import cards
else:
    from test_kernels import SHARED_KIB, run_under_interpreter

    def test_the_layer_kernels_under_tritons_interpreter(soak: bool):
        run_under_interpreter(Path(__file__), soak)

    POINTERS = {
        **dict.fromkeys(("scale", "squares", "out_squares", "part", "max", "sum", "cos", "sin"), "*fp32"),
        **dict.fromkeys(("start", "slot", "token"), "*i64"),
        "counter": "*i32",
        "table": "*fp16",
    }
    WEIGHTS = {16: "*bf16", 8: "*i8", 4: "*u8"}
    PRODUCT = {"IN": 896, "SQUARES": 128, "M": 16, "K": 128, "PRECISION": "tf32"}

    def product(bits: int, columns: int, kind: str, split: int = 1) -> dict[str, Any]:
        flags = {"NORM": kind != "residual", "BIAS": kind == "bias", "GATED": kind == "gated"}
        return PRODUCT | flags | {"BITS": bits, "N": columns, "RESIDUAL": kind == "residual", "SPLIT": split}

    @pytest.mark.parametrize("compute_capability", [90, *in_soak(80, 89)])
    def test_the_layer_kernels_compile_and_fit_shared_memory(
        compute_capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soak: bool
    ):
        """With programmatic dependent launch where there is one: its instructions, and the prefetch before the wait."""
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, compile

        from speclsp.engine.model.cuda import attention_kernels, layer_kernels

        pdl = compute_capability >= 90
        heads = [(2, 7, 64, 64), *([(4, 7, 128, 64), (2, 6, 128, 64)] if soak else [])]
        few = [product(4, 32, "residual", 4), product(16, 32, "gated"), product(8, 64, "bias")]
        rest = [
            product(16, 64, "bias"),
            product(16, 32, "residual", 4),
            product(4, 32, "gated"),
            product(4, 32, "bias"),
        ]
        kernels = [
            *((layer_kernels.linear_kernel, constants | {"PDL": pdl}) for constants in (*few, *(rest if soak else []))),
            *(
                (
                    attention_kernels.attention_kernel,
                    {"J": j, "G": g, "D": d, "PARTS": 20, "PART": 128, "BLOCK_Q": q, "BLOCK_K": 64, "BLOCK_D": d}
                    | {"PDL": pdl, "PRECISION": "tf32"},
                )
                for j, g, d, q in heads
            ),
            (layer_kernels.embed_kernel, {"BITS": 8, "SQUARES": 128, "BLOCK": 1024}),
        ]
        for kernel, constants in kernels:
            signature, attributes = {}, {}
            for at, name in enumerate(kernel.arg_names):
                pointer = POINTERS.get(name.removesuffix("_ptr"), "*bf16")
                pointer = WEIGHTS[constants.get("BITS", 16)] if name == "weight_ptr" else pointer
                number = "fp32" if name in ("eps", "scale") else "i32"
                signature[name] = "constexpr" if name in constants else pointer if name.endswith("_ptr") else number
                if name.endswith("_ptr"):
                    attributes[at,] = [["tt.divisibility", 16]]
            source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
            options = {"num_warps": 4, "num_stages": 4} if kernel is layer_kernels.linear_kernel else {}
            options |= {"launch_pdl": True} if constants.get("PDL") else {}
            binary = compile(source, target=GPUTarget("cuda", compute_capability, 32), options=options)
            assert "cubin" in binary.asm
            assert binary.metadata.shared <= SHARED_KIB[compute_capability] * 1024, (kernel, constants)
            waits = "griddepcontrol.wait" in binary.asm["ptx"]
            assert waits == bool(constants.get("PDL"))
            if kernel is layer_kernels.linear_kernel and pdl:
                assert binary.asm["ptx"].index("prefetch.global.L2") < binary.asm["ptx"].index("griddepcontrol.wait")

    def test_repacked_nf4_has_the_values_of_bitsandbytes():
        """Codes and scales are its own; the codebook is rounded to float16, a quarter of bfloat16's rounding."""
        from bitsandbytes import functional

        weight = random(96, 384, seed=3).bfloat16()
        packed = nf4_linear.packed_nf4(weight, None, "cpu")
        codes, state = functional.quantize_4bit(weight, quant_type="nf4", blocksize=64)
        exact = functional.dequantize_4bit(codes, state).float()
        assert torch.equal(replace(packed, table=state.code).dequantized(torch.float32).bfloat16().float(), exact)
        values = packed.dequantized(torch.float32)
        assert ((values - exact).abs() <= exact.abs() * (2**-8 + 2**-11)).all()
        assert packed.weight.numel() * 2 == weight.numel()
        x, bias = random(5, 384, seed=4).bfloat16(), random(96, seed=5).bfloat16()
        wanted = F.linear(x, exact.bfloat16(), bias)
        assert (replace(packed, bias=bias)(x) - wanted).float().norm() < 2**-8 * wanted.float().norm()

    def test_int8_rows_are_within_half_a_step_and_are_read_as_an_embedding():
        weight = random(40, 128, seed=3)
        packed = pack_int8(weight)
        assert packed.scale is not None
        values = packed.dequantized(torch.float32)
        assert ((values - weight).abs() <= 0.5001 * packed.scale[:, None]).all()
        at = torch.tensor([3, 0, 39])
        assert torch.equal(packed.rows(at, torch.float32), values[at])
        assert torch.equal(packed(random(2, 128, seed=9)), F.linear(random(2, 128, seed=9), values))

    class LargestResult(TorchDispatchMode):
        """Records the bytes of the largest tensor that an operation returns."""

        most_bytes = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                self.most_bytes = max(self.most_bytes, result.numel() * result.element_size())
            return result

    @pytest.mark.parametrize("bits", [8, 4])
    def test_a_matrix_is_dequantized_in_slices_of_rows_with_the_same_bits(bits: int, monkeypatch: pytest.MonkeyPatch):
        weight = random(96, 384, seed=3).bfloat16()
        packed = nf4_linear.packed_nf4(weight, None, "cpu") if bits == 4 else pack_int8(weight)
        whole = packed.dequantized(torch.bfloat16)
        monkeypatch.setattr(packed_weights, "SLICE_WEIGHTS", 7 * 384)
        with LargestResult() as largest:
            assert torch.equal(packed.dequantized(torch.bfloat16), whole)
        assert largest.most_bytes == 2 * weight.numel(), "nothing is larger than the matrix in 16 bits"


if INTERPRETED:
    HIDDEN, INNER = 384, 640

    @pytest.fixture(scope="module")
    def decoder() -> CudaDecoder:
        """The tiny target, cut to one layer, as the interpreter is slow."""
        directory = cards.models_root() / "tiny" / "target"
        read = checkpoint.read_decoder(directory, "fp32", "cpu:0", 512, 2048, rows=8, dtype=torch.float32)
        assert isinstance(read, CudaDecoder)
        read.layers = read.layers[:1]
        read.keys, read.values = read.keys[:1], read.values[:1]
        return read

    @pytest.fixture(scope="module")
    def fused(decoder: CudaDecoder) -> FusedLayers:
        decoder.use(kernels.TRITON)
        assert decoder.fused is not None
        layers = decoder.fused
        layers.squares, layers.parts = 16, torch.empty(10**6)
        return layers

    def weights(bits: int, out: int, inside: int, bias: bool = False) -> PackedLinear:
        weight = random(out, inside, seed=out) * inside**-0.5
        own_bias = random(out, seed=7) if bias else None
        if bits == 4:
            return replace(nf4_linear.packed_nf4(weight, None, "cpu"), bias=own_bias)
        return pack_int8(weight, own_bias) if bits == 8 else PackedLinear(16, weight, bias=own_bias)

    def squares_of(x: Tensor, fused: FusedLayers) -> Tensor:
        """Σx² of the rows, in parts."""
        squares = torch.zeros(16, fused.squares)
        squares[: len(x), :4] = x.view(len(x), 4, -1).square().sum(dim=2)
        return squares

    @pytest.mark.parametrize("bits", [16, 8, 4])
    def test_k1_is_a_norm_and_a_product(fused: FusedLayers, bits: int):
        x, norm, linear = random(5, HIDDEN), Norm(weight=random(HIDDEN, seed=1)), weights(bits, 200, HIDDEN, bias=True)
        out = fused.linear(x, linear, norm=norm, squares=squares_of(x, fused))
        wanted = linear(F.rms_norm(x, (HIDDEN,), norm.weight, fused.decoder.shape.eps))
        torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("bits", [16, 8, 4])
    def test_k4_is_a_norm_gate_up_and_silu(fused: FusedLayers, bits: int):
        x, norm, linear = random(3, HIDDEN), Norm(weight=random(HIDDEN, seed=1)), weights(bits, 2 * 90, HIDDEN)
        out = fused.linear(x, linear, norm=norm, squares=squares_of(x, fused), gated=True)
        wanted = ops.silu_mul(linear(F.rms_norm(x, (HIDDEN,), norm.weight, fused.decoder.shape.eps)))
        torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)

    @pytest.mark.parametrize("bits", [16, 4])
    def test_k3_and_k5_add_to_the_residual_and_give_its_squares(fused: FusedLayers, bits: int):
        x, residual, linear = random(3, INNER), random(3, HIDDEN, seed=8), weights(bits, HIDDEN, INNER)
        assert tiling(HIDDEN, INNER)[1] > 1, "a product in parts"
        wanted, squares = residual + linear(x), torch.zeros(16, fused.squares)
        for _ in range(2):  # the second time from the counters that the first one left
            into = residual.clone()
            assert fused.linear(x, linear, residual=into, squares=squares) is into
            torch.testing.assert_close(into, wanted, atol=1e-5, rtol=1e-5)
            torch.testing.assert_close(squares[:3].sum(dim=1), wanted.square().sum(dim=1), atol=1e-3, rtol=1e-5)
        assert not fused.counters.any()

    @pytest.mark.parametrize("bits", [16, 4])
    @pytest.mark.parametrize("kind", ["norm", "gated", "residual"])
    def test_a_row_of_a_product_is_bit_equal_in_passes_of_any_width(
        fused: FusedLayers, bits: int, kind: str, soak: bool
    ):
        inside = INNER if kind == "residual" else HIDDEN
        x, linear = random(16, inside, dtype=torch.float16), weights(bits, HIDDEN, inside)
        norm = None if kind == "residual" else Norm(weight=random(inside, seed=1).half())

        def rows(part: Tensor) -> Tensor:
            into = torch.ones((len(part), HIDDEN), dtype=part.dtype) if kind == "residual" else None
            squares = squares_of(part.float(), fused)
            out = fused.linear(part, linear, norm=norm, residual=into, squares=squares, gated=kind == "gated")
            return torch.cat([out.float(), squares[: len(part)] if kind == "residual" else out.float()], dim=1)

        together = rows(x)
        for width in range(1, 16) if soak else (1, 3, 7):
            assert torch.equal(rows(x[-width:]), together[-width:])

    EDGE = 250

    @pytest.mark.parametrize(("rows", "start"), [(16, EDGE), (3, 0), (1, 127), *in_soak((16, 120), (2, 384))])
    def test_k2_is_rope_a_cache_write_and_attention(decoder: CudaDecoder, fused: FusedLayers, rows: int, start: int):
        shape, at, slot = decoder.shape, torch.tensor([start]), torch.tensor([1])
        qkv = random(rows, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
        caches = [random(*decoder.keys[0].shape, seed=seed) for seed in (4, 5)]
        wanted_caches = [cache.clone() for cache in caches]
        out = fused.attention(qkv, at, slot, *caches)
        q, k, v = torch.split(qkv.view(rows, -1, shape.head_dim), [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        turned = ops.rope_write(q, k, v, decoder.cos, decoder.sin, at, slot, *wanted_caches)
        wanted = ops.attend(turned, *wanted_caches, at, slot, decoder.scale)
        torch.testing.assert_close(out, wanted, atol=1e-5, rtol=1e-5)
        for cache, other in zip(caches, wanted_caches, strict=True):
            torch.testing.assert_close(cache, other, atol=1e-6, rtol=1e-6)
        assert not fused.counters.any()

    def test_attention_reads_nothing_beyond_the_capacity(decoder: CudaDecoder, fused: FusedLayers):
        """The capacity is no multiple of a part, and NaN follows it."""
        shape, where = decoder.shape, (torch.tensor([150]), torch.tensor([0]))
        qkv = random(2, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
        out = fused.attention(qkv, *where, *(before_nan(1, shape.kv_heads, 192, shape.head_dim) for _ in range(2)))
        assert out.isfinite().all()

    def test_an_attention_row_is_bit_equal_in_any_pass_and_after_rejected_guesses(
        decoder: CudaDecoder, fused: FusedLayers
    ):
        shape, slot = decoder.shape, torch.tensor([0])
        qkv = random(16, (shape.heads + 2 * shape.kv_heads) * shape.head_dim, dtype=torch.float16)
        caches = [random(*decoder.keys[0].shape, dtype=torch.float16, seed=seed) for seed in (4, 5)]
        whole_caches = [cache.clone() for cache in caches]
        whole = fused.attention(qkv, torch.tensor([EDGE]), slot, *whole_caches)
        for row in (0, 9):
            later = [cache.clone() for cache in whole_caches]
            for cache in later:
                cache[:, :, EDGE + row + 1 :] = 9.0  # rejected guesses
            alone = fused.attention(qkv[row : row + 1], torch.tensor([EDGE + row]), slot, *later)
            assert torch.equal(alone[0], whole[row])

    @pytest.mark.parametrize("bits", [16, 4])
    def test_a_decoder_of_packed_weights_decodes_as_on_torch(bits: int):
        model = replace(TINY, layers=1, vocab=200)
        arguments = build(Bench("cpu", True, Limit(10.0), 1), model, "bf16") | {"dtype": torch.float32}
        layer, embedding = arguments["layers"][0], arguments["embedding"].float()
        parts = {name: packed(getattr(layer, name), bits) for name in ("qkv", "out", "up", "down")}
        arguments["norm"] = norm = Norm(weight=random(model.hidden, seed=1))
        arguments["layers"] = [replace(layer, norm_attention=norm, norm_mlp=norm, **parts)]
        arguments["embedding"] = embedding if bits == 16 else pack_int8(embedding)
        arguments["head"] = PackedLinear(16, embedding) if bits == 16 else arguments["embedding"]
        decoder, ids = CudaDecoder(**arguments), [30, 44, 76, 12, 9]
        wanted = decoder.forward(ids)
        decoder.use(kernels.TRITON)
        assert decoder.fused is not None
        decoder.forget()
        logits = torch.cat([decoder.forward(ids[:3]), decoder.forward(ids[3:])])
        torch.testing.assert_close(logits, wanted, atol=1e-4, rtol=1e-4)
        decoder.forget()
        decoder.widths = (2, 16)  # as a draft's passes
        assert torch.equal(torch.cat([decoder.forward(ids[:2]), decoder.forward(ids[2:])]), logits)

    def packed(linear: Any, bits: int) -> PackedLinear:
        bias = None if linear.bias is None else random(len(linear.bias), seed=2)
        if bits == 4:
            return replace(nf4_linear.packed_nf4(linear.weight, None, "cpu"), bias=bias)
        return PackedLinear(16, linear.weight.float(), bias=bias)

    def test_the_order_of_a_sum_depends_on_the_weights_shape_only():
        """No argument is the number of rows; and the parts of a split product fit the buffer of the largest."""
        assert tiling(896, 4864) == (32, 8)
        assert tiling(18_944, 3584) == (32, 1)
        assert tiling(MANY_FEATURES, 896) == (64, 1)
