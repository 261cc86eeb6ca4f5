"""Recording of all candidates while bodies are typed, without accepting any. It is made once, and replayed often.

One file of rows for each body in the user's cache. Its name is a digest of everything that decides a candidate: the
body, the model's files and adapters, the engine's source, the language server's source but for the gate, and the
settings. A run that was stopped continues with the next body.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks import results_file
from benchmarks.keystrokes.economy.bodies import Body
from benchmarks.keystrokes.economy.typing import TypingEditor
from benchmarks.keystrokes.language_server import serving
from benchmarks.quality.cache.source_digest import KINDS, PRODUCT, digest, token_source
from speclsp.config import Config, cache_dir, changes
from speclsp.lsp.completion.confidence import LEFT_OF_LOGPROB
from speclsp.weights import adapters, auto_choice, model_directory, store

JUDGES = ("confidence.py", "gate.py")  # of lsp/completion: they judge a candidate, and do not change it
CANDIDATE_PACKAGES = ("lsp/completion", "lsp/context", "lsp/documents", "lsp/postprocess", "lsp/syntax")
MODULE = "benchmarks.keystrokes.economy.recording_server"


@dataclass(frozen=True, slots=True)
class Recording:
    """A body, and the row of each of its positions: before the first key, and after each key."""

    body: Body
    rows: tuple[dict[str, Any], ...]
    seconds: float


def record(
    config: Config,
    bodies: Sequence[Body],
    progress: Callable[[int, int], None] = lambda done, total: None,
    anew: bool = False,
) -> list[Recording]:
    """The recordings of all bodies. Those that the cache lacks, and with `anew` all, are made now. Raises EngineError.

    `anew`: on an idle machine, the times of the requests are right.
    """
    source = candidate_source(config)
    files = [recordings_dir() / f"{digest([source, asdict(body) | {'root': ''}])}.json" for body in bodies]
    missing = [(body, file) for body, file in zip(bodies, files, strict=True) if anew or not file.is_file()]
    if missing:
        recordings_dir().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="economy-") as place:
            rows_file = Path(place) / "rows.jsonl"
            with serving(config, (MODULE, str(rows_file))) as server:
                server.begin(recordings_dir().as_uri())
                for number, (body, file) in enumerate(missing):
                    progress(number, len(missing))
                    began_s = perf_counter()
                    typing = TypingEditor(server, body)
                    rows = list(typed_rows(typing, rows_file))
                    typing.close()
                    seconds = round(perf_counter() - began_s, 1)
                    new = file.with_suffix(".new")
                    new.write_text(json.dumps({"seconds": seconds, "rows": rows}), encoding="utf-8")
                    new.replace(file)
    return [read(body, file) for body, file in zip(bodies, files, strict=True)]


def typed_rows(typing: TypingEditor, rows_file: Path) -> Iterator[dict[str, Any]]:
    """The row of each position of a body."""
    for key in ("", *typing.body.keys):
        if key:
            typing.type(key)
        rows_file.write_text("", encoding="utf-8")
        began_s = perf_counter()
        typing.request()
        request_ms = (perf_counter() - began_s) * 1000
        lines = rows_file.read_text(encoding="utf-8").splitlines()
        row = json.loads(lines[-1]) if lines else {"reason": "no_request", "text": "", "lines": []}
        yield row | {"ms": round(request_ms, 1)}


def read(body: Body, file: Path) -> Recording:
    """A recording from its file."""
    content = json.loads(file.read_text(encoding="utf-8"))
    return Recording(body, tuple(content["rows"]), content["seconds"])


def recordings_dir() -> Path:
    return cache_dir() / "economy"


def candidate_source(config: Config) -> str:
    """Digest of everything but the body that decides a candidate."""
    files = sorted(
        file
        for package in CANDIDATE_PACKAGES
        for kind in KINDS
        for file in (PRODUCT / package).rglob(kind)
        if file.name not in JUDGES
    )
    own = [Path(__file__).with_name(name) for name in ("recording_server.py", "typing.py")]
    sums = [model_directory.sum_of(file) for file in (*files, *own)]
    card, _ = auto_choice.auto(config)
    directory = store.path(card.target, config.models_dir)
    weights = model_directory.sums_of(directory) if directory is not None else {}
    adapter_sums = sorted(adapter.sha256 for adapter in adapters.listing(config.models_dir)[0])
    settings = {**changes(config), "model": card.name}
    decisive = [token_source(), weights, adapter_sums, results_file.cpu_kind(), settings, LEFT_OF_LOGPROB]
    return digest([sums, *decisive])
