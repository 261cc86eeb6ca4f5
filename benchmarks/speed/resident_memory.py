"""Resident memory of the engine's process, with default settings: model loaded, and after eight long prompts.

    python -m benchmarks memory qwen2.5-coder-0.5b-instruct

`models list`, README and docs state `Card.needed_mib`. It must be within 5 % of the second figure, `used_mib`: a test
compares them. The prompts fill every slot of the KV cache. Writes benchmarks/results/memory-<model>.json.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import psutil
from support.engine.engine_process import COMMAND, EngineProcess
from support.waiting import wait_until

from benchmarks import results_file
from benchmarks.speed.holes import MODULES, source
from speclsp.errors import EngineError

PROMPTS, PREFIX_CHARACTERS, SUFFIX_CHARACTERS, NEW_TOKENS = 8, 6000, 2000, 32
LOAD_S, ANSWER_S = 600.0, 600.0


def status(engine: EngineProcess) -> str:
    """The state of the model; "loading" while the draft model answers alone."""
    state = engine.http.get("/health").json()
    return "loading" if state.get("draft_only") else str(state.get("status", "error"))


def measure(model: str, socket: Path) -> dict[str, object]:
    """MiB of the process of an engine that loads `model`. Raises EngineError: the model is not loaded."""
    program = [*COMMAND, "--model", model, "--socket", str(socket), "--set", "engine.offline=true"]
    engine = EngineProcess(socket, program=program).wait()
    try:
        engine.http.timeout = ANSWER_S
        wait_until(lambda: status(engine) in ("ok", "error"), LOAD_S)
        if status(engine) == "error":
            raise EngineError(f"{model} was not loaded: {engine.http.get('/health').text}")
        process = psutil.Process(engine.process.pid)
        loaded_mib = process.memory_info().rss >> 20
        for module in MODULES[:PROMPTS]:
            text = source(module)
            cut = text[PREFIX_CHARACTERS : PREFIX_CHARACTERS + SUFFIX_CHARACTERS]
            engine.infill(input_prefix=text[:PREFIX_CHARACTERS], prompt="", input_suffix=cut, n_predict=NEW_TOKENS)
        target = engine.http.get("/health").json()["target"]
        return {"target": target, "loaded_mib": loaded_mib, "used_mib": process.memory_info().rss >> 20}
    finally:
        engine.close()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of this benchmark."""
    parser.add_argument("models", metavar="MODEL", nargs="+", help="measure these models")


def main(options: argparse.Namespace) -> int:
    """Measure each model, write its file and print the figures."""
    for model in options.models:
        with tempfile.TemporaryDirectory(prefix="speclsp-") as folder:
            figures = measure(model, Path(folder) / "engine.sock")
        file = results_file.write("memory", {"pair": model, **figures}, f"memory-{model}", options.results)
        sys.stdout.write(f"{model}: {figures['loaded_mib']} MiB loaded, {figures['used_mib']} MiB used; {file}\n")
    return 0
