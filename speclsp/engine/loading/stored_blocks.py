"""Detection of superblocks in a model's files."""

from __future__ import annotations

import contextlib
from pathlib import Path

from speclsp.engine.model.superblocks import Q4K
from speclsp.weights.untrusted import safetensors_header
from speclsp.weights.untrusted.untrusted_files import Unreadable


def has_blocks(directory: Path) -> bool:
    """True if tensors of a model's directory are stored as Q4_K. Files that cannot be read have none."""
    for file in directory.glob("*.safetensors"):
        with contextlib.suppress(Unreadable):  # `read_decoder` names the file and the defect
            if any(name.endswith(Q4K.suffix) for name in safetensors_header.read(file)):
                return True
    return False
