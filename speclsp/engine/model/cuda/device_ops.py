"""The operations that a device runs: the Triton kernels on a GPU where they work, else plain torch."""

from __future__ import annotations

from importlib.util import find_spec

from speclsp.engine.model.cuda.ops import TORCH, Ops
from speclsp.engine.model.model_shape import ModelShape

failed: set[str] = set()  # kinds of device, as "cuda", on which the Triton kernels failed in this process


def ops_for(device: str) -> Ops:
    """The device's operations. Triton is imported only here, when it is used."""
    if not device.startswith("cuda") or "cuda" in failed or find_spec("triton") is None:
        return TORCH
    from speclsp.engine.model.cuda import kernels

    return kernels.TRITON


def refuse_kernels(device: str) -> None:
    """From now on, `ops_for` a device of this kind is plain torch: the kernels failed on this one."""
    failed.add(device.partition(":")[0])


def computes_layers(shape: ModelShape, own_norms: bool) -> bool:
    """True if layer_kernels.py computes layers of this form. `own_norms`: q and k have norms of their own."""
    plain = shape.residual_scale == shape.embed_scale == 1.0 and not shape.layer_norm
    gated = shape.gated and shape.activation == "silu"
    whole_rope = 2 * len(shape.inv_freq) == shape.head_dim
    return plain and gated and whole_rope and not own_norms
