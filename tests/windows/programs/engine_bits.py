"""Prints digests of the logits of the int8 decoder as JSON, {case: SHA-256}: one system's bits, for comparison.

    python engine_bits.py MODELS [AMX]

A case is a model's directory under MODELS, the bits of its MLP, an instruction set, a number of threads, and the tokens
of a pass. AMX is a library of forward.c with the tile instructions in C, without its suffix (test_int8_amx.py).
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from support.engine.random_models import IDS, native_decoder

from speclsp.engine.model.int8 import native

TOKENS = 170
SPLITS = (1, 3, 16, 24, 100, TOKENS)
FORMATS = {"superblocks": (4,)}  # other models have 8 and 4


def digests(models: Path, paths: list[str]) -> dict[str, str]:
    """The digests of all cases. The embedding of `tiny` and its tokens are those of its checkpoint."""
    result = {}
    for directory in sorted(models.iterdir()):
        vocab = json.loads((directory / "config.json").read_text("utf-8"))["vocab_size"]
        ids = [token % vocab for token in IDS[:TOKENS]]
        for bits in FORMATS.get(directory.name, (8, 4)):
            for path in paths if bits == 8 else [path for path in paths if path != "AMX"]:
                for threads in (1, 2):
                    decoder = native_decoder(directory, path, vocab, threads, bits)
                    for split in SPLITS:
                        decoder.forget()
                        digest = hashlib.sha256()
                        for start in range(0, len(ids), split):
                            digest.update(decoder.forward(ids[start : start + split]).tobytes())
                        result[f"{directory.name} int{bits} {path}, {threads} threads, {split} tokens"] = (
                            digest.hexdigest()
                        )
    return result


if __name__ == "__main__":
    usable = list(native.paths())
    if len(sys.argv) > 2:
        native.PATHS["AMX"] = (sys.argv[2], native.PATHS["AMX"][1])
        usable.append("AMX")
    print(json.dumps(digests(Path(sys.argv[1]), usable)))
