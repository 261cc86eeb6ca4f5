"""Prints the tokens and texts of completions as JSON, and the engine's note: one system's answers, for comparison.

    python engine_tokens.py PACKAGES MODEL [MODELS_DIR [QUANTIZATION]]

PACKAGES is a directory whose speclsp is imported; "" is that of the interpreter. The engine runs in this process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

if sys.argv[1]:
    sys.path.insert(0, sys.argv[1])

import speclsp
from speclsp.cli.measure import complete_once
from speclsp.config import Config, EngineConfig
from speclsp.engine.api import Request
from speclsp.engine.loading import loading
from speclsp.engine.model.int8 import native
from speclsp.weights import cards

PREFIX = "def area(width, height):\n    return width * height\n\n\ndef perimeter(width, height):\n"
REQUESTS = (
    Request(prefix=PREFIX, line_prefix="    return ", suffix="\n", filename="area.py", max_tokens=24),
    Request(prefix="import json\n\n\n", line_prefix="def read(", suffix="\n", filename="read.py", max_tokens=24),
)


def answers(model: str, models_dir: str = "", quantization: str = "auto") -> dict[str, object]:
    """The answers to REQUESTS with draft and plain, and what computed them."""
    settings = EngineConfig(offline=True, quantization=quantization)
    config = Config(model=model, models_dir=models_dir, device="cpu", engine=settings)
    parts = loading.prepare(config, cards.load(model), lambda fraction, message: None)
    engine = parts.build_engine(lambda fraction, message: None)
    results = [complete_once(engine, request) for request in REQUESTS]
    return {
        "tokens": [result.tokens for result in results],
        "texts": [result.text for result in results],
        "format": engine.target_format,
        "paths": native.paths(),
        "note": parts.note,
        "package": str(Path(speclsp.__file__).parents[1]),
    }


if __name__ == "__main__":
    print(json.dumps(answers(*sys.argv[2:])))
