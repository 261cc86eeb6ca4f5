"""Cold start of the engine's process, beside llama.cpp's server: time to the first text, processor time and memory.

    python -m benchmarks start [--model NAME] [--turns 7] [--cold] [--no-peer]

A turn starts a process as an editor does, waits until it is ready, and streams one fill-in of a real hole (about 300
prompt tokens, 8 new ones, greedy). Both engines take each turn, with the same hole, and change places with each turn.
llama.cpp reads its Q8_0 with the flags of `peers`. Times begin before the process is created.

The first start of our engine does work that later starts reuse. It is reported alone. `--cold` drops the files of the
model from the page cache before each start, but not the files of Python. `read_mib` shows what the disk delivered.

Prints the medians and writes benchmarks/results/start-MODEL.json, or start-cold-MODEL.json.

`--typed 900` measures memory instead, after that many requests of typing, an hour's (typed_hour.py). `used_mib` is the
resident memory then. `private_mib` is the part outside mapped files, which the system cannot reclaim. `models list`,
README and docs state `Card.needed_mib`, which a test compares with `used_mib`. It writes memory-MODEL.json.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import Any

import httpx
import psutil
from support.waiting import wait_until

from benchmarks import results_file
from benchmarks.peers.llama_server import HOST, KEY, gguf, llama
from benchmarks.speed.holes import holes
from benchmarks.speed.typed_hour import type_for_an_hour
from speclsp import config
from speclsp.config import Config
from speclsp.daemon import launch
from speclsp.daemon.engine_files import EngineFiles
from speclsp.engine.api import Request
from speclsp.errors import EngineError
from speclsp.weights import cards, store

NEW_TOKENS, SEED = 8, 58
OURS, PEER, PEER_FORMAT = "speclsp", "llama.cpp", "q8_0"
INSTALLATION = "python -m benchmarks install-peers llama.cpp --model"
LOAD_S, ANSWER_S = 600.0, 600.0
NOT_OURS = ("peers", "editors")  # folders of the cache that no engine reads


@dataclass(frozen=True, slots=True)
class Turn:
    """One start. The fields from `processor_s` on are those of the process when the first text arrives."""

    prompt_tokens: int
    ready_s: float
    first_text_s: float
    processor_s: float  # user and system
    peak_mib: float  # highest resident memory
    anonymous_mib: float
    file_mib: float  # resident pages of mapped files
    read_mib: float  # delivered by the disk


FIGURES = tuple(field.name for field in fields(Turn))


@dataclass(frozen=True, slots=True)
class Ready:
    """A process that accepts requests. `ready_s` counts from `began_s`."""

    pid: int
    http: httpx.Client
    target: str
    began_s: float
    ready_s: float


@contextmanager
def our_engine(settings: Config) -> Iterator[Ready]:
    """Our engine, in a runtime directory of its own. Raises EngineError: it cannot load the model."""
    with ExitStack() as stack:
        runtime = stack.enter_context(tempfile.TemporaryDirectory(prefix="speclsp-"))
        log = stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8"))
        command = [sys.executable, "-m", "speclsp", "engine", *launch.engine_flags(settings)]
        began_s = perf_counter()
        process = subprocess.Popen(command, stderr=log, env={**os.environ, "XDG_RUNTIME_DIR": runtime})
        stack.callback(process.wait)
        stack.callback(process.terminate)
        socket = Path(runtime) / "speclsp" / f"engine-{EngineFiles.of(settings).key}.sock"
        transport = httpx.HTTPTransport(uds=str(socket))
        http = stack.enter_context(httpx.Client(transport=transport, base_url="http://engine", timeout=ANSWER_S))
        wait_until(lambda: accepts(http) or process.poll() is not None, LOAD_S)
        if process.poll() is not None:
            log.seek(0)
            raise EngineError(f"the engine ended: {log.read().strip()}")
        lease = stack.enter_context(http.stream("GET", "/lease", params={"client": "benchmark"}))
        state = next(state for state in events(lease) if is_ready(state))
        yield Ready(process.pid, http, str(state.get("target", "")), began_s, perf_counter() - began_s)


def accepts(http: httpx.Client) -> bool:
    """True if the engine answers HTTP."""
    try:
        return http.get("/health").status_code > 0
    except httpx.TransportError:
        return False


def is_ready(state: Mapping[str, Any]) -> bool:
    """True for a state in which the language server sends requests. Raises EngineError."""
    if state.get("status") == "error":
        raise EngineError(f"the model was not loaded: {state.get('error')}")
    return state.get("status") == "ok"


@contextmanager
def peer_engine(model: str, log_folder: Path, *flags: str) -> Iterator[Ready]:
    """llama.cpp's server. Raises EngineError: it did not start."""
    began_s = perf_counter()
    server = llama(model, log_folder, 1, *flags, number_format=PEER_FORMAT)
    try:
        process = server.start().process
        ready_s = perf_counter() - began_s
        headers = {"Authorization": f"Bearer {KEY}"}
        with httpx.Client(base_url=f"http://{HOST}:{server.port}", headers=headers, timeout=ANSWER_S) as http:
            assert process is not None
            yield Ready(process.pid, http, f"{model} ({PEER_FORMAT})", began_s, ready_s)
    finally:
        server.kill()


def events(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON of each server-sent event."""
    for line in answer.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


def infill(http: httpx.Client, request: Request) -> Iterator[dict[str, Any]]:
    """The events of a streamed fill-in. Raises EngineError."""
    body = {
        "input_prefix": request.prefix,
        "prompt": request.line_prefix,
        "input_suffix": request.suffix,
        "n_predict": request.max_tokens,
        "temperature": 0,
        "samplers": ["temperature"],
        "stream": True,
    }
    with http.stream("POST", "/infill", json=body) as answer:
        if answer.status_code != httpx.codes.OK:
            raise EngineError(f"/infill answered {answer.status_code}: {answer.read()[:300]!r}")
        yield from events(answer)


def take_turn(engine: Ready, request: Request) -> Turn:
    """The figures of one start. The fill-in is read to its end after its first text."""
    answer = infill(engine.http, request)
    if not any(event.get("content") for event in answer):  # stops at the first text
        raise EngineError(f"no text after {request.line_prefix!r}")
    first_text_s = perf_counter() - engine.began_s
    process, memory = psutil.Process(engine.pid), memory_mib(engine.pid)
    times, read_bytes = process.cpu_times(), process.io_counters().read_bytes
    timings = deque(answer, maxlen=1)[0]["timings"]
    return Turn(
        prompt_tokens=timings["prompt_n"] + timings["cache_n"],
        ready_s=round(engine.ready_s, 3),
        first_text_s=round(first_text_s, 3),
        processor_s=round(times.user + times.system, 2),
        peak_mib=memory["VmHWM"],
        anonymous_mib=memory["RssAnon"],
        file_mib=memory["RssFile"],
        read_mib=round(read_bytes / 2**20, 1),
    )


def memory_mib(pid: int) -> dict[str, float]:
    """The sizes in /proc/PID/status, by name."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    sizes = (line.split() for line in lines if line.endswith(" kB"))
    return {name.rstrip(":"): round(int(kib) / 1024, 1) for name, kib, _ in sizes}


def measure_memory(settings: Config, requests: int) -> dict[str, Any]:
    """Memory of our engine when it is ready, and after an hour's requests. Raises EngineError."""
    with our_engine(settings) as engine:
        loaded = memory_mib(engine.pid)
        type_for_an_hour(engine.http, requests)
        used = memory_mib(engine.pid)
    return {
        "target": engine.target,
        "requests": requests,
        "loaded_mib": round(loaded["VmRSS"]),
        "loaded_private_mib": round(loaded["RssAnon"]),
        "used_mib": round(used["VmRSS"]),
        "private_mib": round(used["RssAnon"]),
    }


def drop_from_page_cache(files: Iterable[Path]) -> None:
    """Make the next reader of the files wait for the disk."""
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        try:
            os.fsync(descriptor)  # pages that are not on the disk yet would stay
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def model_files(model: str, models_dir: str = "") -> set[Path]:
    """Our model, the adapters, whatever the engine keeps in the user's cache, and llama.cpp's file."""
    folders = [store.path(cards.load(model).target, models_dir), cards.models_root() / "adapters"]
    folders += [folder for folder in config.cache_dir().iterdir() if folder.name not in NOT_OURS]
    files = {file for folder in folders if folder for file in folder.rglob("*") if file.is_file()}
    peer_file = gguf(model, PEER_FORMAT)
    return files | ({peer_file} if peer_file.is_file() else set())


def measure(settings: Config, turns: int, *, is_cold: bool, has_peer: bool, folder: Path) -> dict[str, Any]:
    """The rows and the medians of each engine. Raises EngineError."""
    starts: dict[str, Callable[[], AbstractContextManager[Ready]]] = {OURS: lambda: our_engine(settings)}
    if has_peer:
        starts[PEER] = lambda: peer_engine(settings.model, folder)
    with our_engine(settings) as engine:
        first_start_s = round(engine.ready_s, 3)
    rows: dict[str, list[Turn]] = {name: [] for name in starts}
    about: dict[str, dict[str, Any]] = {}
    for number, request in enumerate(holes(turns, NEW_TOKENS, SEED)):
        for name in list(starts)[:: -1 if number % 2 else 1]:
            if is_cold:
                drop_from_page_cache(model_files(settings.model, settings.models_dir))
            with starts[name]() as engine:
                rows[name].append(take_turn(engine, request))
                about[name] = {"target": engine.target}
        print(", ".join(f"{name} {row[-1].first_text_s} s" for name, row in rows.items()), flush=True)
    engines = {
        name: {**about[name], **medians(row), "turns": [asdict(turn) for turn in row]} for name, row in rows.items()
    }
    ratio = {"ratio": ratios(rows[OURS], rows[PEER])} if has_peer else {}
    return {"first_start_s": first_start_s, **ratio, "engines": engines}


def medians(turns: Sequence[Turn]) -> dict[str, float]:
    """The median of each figure."""
    return {name: round(statistics.median(getattr(turn, name) for turn in turns), 3) for name in FIGURES}


def ratios(ours: Sequence[Turn], theirs: Sequence[Turn]) -> dict[str, float]:
    """The median of ours / theirs over the turns. Memory and processor time of a process are never 0."""
    pairs = list(zip(ours, theirs, strict=True))
    names = [name for name in FIGURES if name not in ("prompt_tokens", "read_mib")]
    return {name: round(statistics.median(getattr(a, name) / getattr(b, name) for a, b in pairs), 3) for name in names}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks start`."""
    parser.add_argument("--model", metavar="NAME", default="qwen2.5-coder-0.5b-instruct", help="default: %(default)s")
    parser.add_argument(
        "--turns", metavar="N", type=int, default=7, help="starts of each engine (default: %(default)s)"
    )
    parser.add_argument(
        "--cold", action="store_true", help="drop the model's files from the page cache before each start"
    )
    parser.add_argument("--typed", metavar="N", type=int, help="only memory, after N requests of typing")
    parser.add_argument("--no-peer", action="store_true", help="only our engine")


def main(options: argparse.Namespace) -> int:
    """Exit code 0. Raises EngineError."""
    settings = config.load({"model": options.model, "engine.offline": True})
    if options.typed:
        memory = measure_memory(settings, options.typed)
        print(", ".join(f"{name} {value}" for name, value in memory.items()))
        summary = {"pair": options.model, **memory}
        print(f"wrote {results_file.write('memory', summary, f'memory-{options.model}', options.results)}")
        return 0
    if not options.no_peer and not gguf(options.model, PEER_FORMAT).is_file():
        raise EngineError(f"{PEER} is not installed: {INSTALLATION} {options.model}, or give --no-peer.")
    with tempfile.TemporaryDirectory(prefix="speclsp-") as folder:
        figures = measure(
            settings, options.turns, is_cold=options.cold, has_peer=not options.no_peer, folder=Path(folder)
        )
    for name, engine in figures["engines"].items():
        print(f"{name}: " + ", ".join(f"{figure} {engine[figure]}" for figure in FIGURES))
    print(f"ratio: {figures.get('ratio')}; first start of ours {figures['first_start_s']} s")
    summary = {"pair": options.model, "page_cache": "cold" if options.cold else "warm", **figures}
    name = f"start-{'cold-' if options.cold else ''}{options.model}"
    print(f"wrote {results_file.write('start', summary, name, options.results)}")
    return 0
