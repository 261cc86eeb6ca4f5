"""Check of the numbers in a safetensors file, for damage that its header and size do not show.

Damaged is a file with
    a value that is not finite: NaN or infinite
    a matrix of zeros, or ZERO_BYTES of zeros in the matrix of a layer

No trained model has these. The check allows rows of zeros: unused tokens and removed heads. It allows vectors of zeros:
biases, and norms that are stored as the difference from 1.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from speclsp.weights.untrusted import safetensors_header, untrusted_files
from speclsp.weights.untrusted.untrusted_files import Unreadable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ZERO_BYTES = 4 << 20  # 512 rows of 4096 values in BF16
# The exponent bits of a number format: a value is finite if they are not all set.
EXPONENTS = {"F64": ("<u8", 0x7FF0 << 48), "F32": ("<u4", 0x7F800000), "F16": ("<u2", 0x7C00), "BF16": ("<u2", 0x7F80)}


def check(path: Path, advance: Callable[[int], None]) -> None:
    """Raise Unreadable for a damaged value. `advance(bytes so far)` every few megabytes."""
    import numpy as np

    with untrusted_files.open_plain(path) as file:
        tensors = safetensors_header.read(path)
        body = path.stat().st_size - max((stored.end for stored in tensors.values()), default=0)
        for name, stored in tensors.items():
            zeros = []
            for start in range(stored.start, stored.end, ZERO_BYTES):
                file.seek(body + start)
                raw = np.frombuffer(file.read(min(ZERO_BYTES, stored.end - start)), np.uint8)
                if not is_finite(stored.dtype, raw):
                    raise Unreadable(f"has values in {name[:80]!r} that are not finite")
                zeros.append(not raw.any())
                advance(body + start + raw.size)
            whole_blocks = (stored.end - stored.start) // ZERO_BYTES
            if len(stored.shape) > 1 and zeros and (all(zeros) or (".layers." in name and any(zeros[:whole_blocks]))):
                raise Unreadable(f"has zeros in place of values in {name[:80]!r}")


def is_finite(dtype: str, raw: NDArray[np.uint8]) -> bool:
    """True unless one of the values is NaN or infinite. Integers are finite."""
    if dtype not in EXPONENTS:
        return True
    unsigned, exponent = EXPONENTS[dtype]
    bits = raw.view(unsigned)
    return not bool(((bits & bits.dtype.type(exponent)) == exponent).any())
