"""The operations that a device runs: the Triton kernels on a GPU with Triton, else plain torch."""

from __future__ import annotations

from importlib.util import find_spec

from speclsp.engine.model.cuda.ops import TORCH, Ops


def ops_for(device: str) -> Ops:
    """The device's operations. Triton is imported only here, when it is used."""
    if not device.startswith("cuda") or find_spec("triton") is None:
        return TORCH
    from speclsp.engine.model.cuda import kernels

    return kernels.TRITON
