"""Reference tokens of a comparison: the greedy bf16 continuation of each prompt, by transformers in this environment.

A narrower number format is faster and may choose other tokens. So the tables state beside each time how many of these
tokens an engine repeats. The reference is not timed. Its tokens are kept beside the peers for the next run.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import results_file
from benchmarks.peers.driver_process import DRIVERS, PeerProcess, peers_dir
from benchmarks.peers.figures import Way


def bf16_way(model: str, directory: str, prompts: Sequence[tuple[list[int], int]], count: int, threads: int) -> Way:
    """Answers without times: `count` tokens after each prompt (cold), and after it and the token typed next (warm).

    `model`: the name of the weights in `directory`. Raises PeerError.
    """
    file = peers_dir() / "bf16" / f"{model}.json"
    known: dict[str, list[int]] = json.loads(file.read_text()) if file.is_file() else {}
    runs = [(hole, kind, ids) for hole, (cold, typed) in enumerate(prompts) for kind, ids in both(cold, typed)]
    missing = [ids for _, _, ids in runs if key(ids, count) not in known]
    if missing:
        job = {"model": directory, "draft": "", "threads": threads, "modes": {"plain": {}}}
        log, driver = peers_dir() / "logs" / "bf16.log", DRIVERS / "transformers_driver.py"
        with PeerProcess("bf16 reference", driver, job, Path(sys.executable), log) as process:
            for ids in missing:
                known[key(ids, count)] = process.ask(ids, count, "plain", cold=False)["tokens"]
        results_file.save(known, file)
    way = Way("bf16", "reference", {})
    for hole, kind, ids in runs:
        way.runs[kind].append({"hole": hole, "tokens": known[key(ids, count)]})
    return way


def both(ids: list[int], typed: int) -> tuple[tuple[str, list[int]], tuple[str, list[int]]]:
    """The two prompts of a hole, by the kind of run."""
    return ("cold", ids), ("warm", [*ids, typed])


def key(ids: Sequence[int], count: int) -> str:
    """The name of a continuation: a hash of its prompt and length."""
    return hashlib.sha256(json.dumps([list(ids), count]).encode()).hexdigest()[:16]
