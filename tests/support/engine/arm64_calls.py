"""Runs a NativeDecoder's C calls on an emulated ARM64 processor: records them here, replays them under qemu."""

from __future__ import annotations

import ctypes
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from speclsp.engine.model.bfloat16 import Floats
from speclsp.engine.model.int8 import native
from speclsp.engine.model.superblocks import KINDS, SUPERBLOCK_WEIGHTS

SOURCES = Path(native.__file__).parent
REPLAY = Path(__file__).with_name("arm64_replay.c")
FLAGS = ("-Og", "-ffp-contract=off", "-fno-sanitize=undefined", "-pthread")
PATHS = {"NEON": 1, "NEON dotprod": 2}


def weight_bytes(out: int, width: int, source: int) -> int:
    """Bytes of a weight in superblocks, or else in bfloat16."""
    kind = next((kind for kind in KINDS if kind.source == source), None)
    return out * width // SUPERBLOCK_WEIGHTS * kind.bytes if kind else out * width * 2


class Recorder:
    """A library of forward.c that also writes down what it is called with."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library, self.calls = library, bytearray()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.library, name)

    def speclsp_new(self, shape: Any, embedding: int | None, cos: int, sin: int, threads: int, path: int) -> Any:
        of: native.CShape = shape._obj
        angles = of.positions * of.head_dim // 2 * 4
        self.calls += bytes(of) + struct.pack("<2i", of.positions, embedding is not None)
        if embedding is not None:
            self.calls += ctypes.string_at(embedding, weight_bytes(of.vocab, of.hidden, of.embedding))
        self.calls += ctypes.string_at(cos, angles) + ctypes.string_at(sin, angles)
        self.vocab = of.vocab
        return self.library.speclsp_new(shape, embedding, cos, sin, threads, path)

    def speclsp_linear(self, model: Any, layer: int, which: int, weight: int, bias: int | None, *size: int) -> int:
        out, width, source = size
        self.calls += struct.pack("<7i", 1, layer, which, bias is not None, out, width, source)
        self.calls += ctypes.string_at(weight, weight_bytes(out, width, source))
        self.calls += b"" if bias is None else ctypes.string_at(bias, out * 4)
        return self.library.speclsp_linear(model, layer, which, weight, bias, *size)

    def speclsp_norm(self, model: Any, layer: int, which: int, weight: int, n: int) -> int:
        self.calls += struct.pack("<4i", 2, layer, which, n) + ctypes.string_at(weight, n * 4)
        return self.library.speclsp_norm(model, layer, which, weight, n)

    def speclsp_forward(self, model: Any, ids: Any, tokens: int, start: int, *rest: Any) -> int:
        wanted = rest[4]
        self.calls += struct.pack("<4i", 3, tokens, start, wanted) + bytes(ids)
        return self.library.speclsp_forward(model, ids, tokens, start, *rest)

    def replayed(self, program: list[str], path: str, threads: int) -> Floats:
        """The logits of all passes on the emulated processor, [rows, vocab]."""
        command = [*program, str(PATHS[path]), str(threads)]
        done = subprocess.run(command, input=bytes(self.calls) + b"\0" * 4, capture_output=True, check=False)
        assert done.returncode == 0, (done.returncode, done.stderr)
        return np.frombuffer(done.stdout, np.float32).reshape(-1, self.vocab)


def emulated(emulator: Path, folder: Path, processor: str) -> list[str]:
    """The command that runs the replay program on an emulated processor; it is compiled in `folder` once."""
    program = folder / "arm64_replay"
    if not program.exists():
        compiler = [sys.executable, "-m", "ziglang", "cc", "-target", "aarch64-linux-gnu.2.28", *FLAGS]
        subprocess.run([*compiler, f"-I{SOURCES}", "-o", str(program), str(REPLAY)], check=True)
    libraries = emulator.parents[1] / "aarch64-linux-gnu"
    return [str(emulator), "-L", str(libraries), "-cpu", processor, str(program)]
