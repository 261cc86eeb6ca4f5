"""Files of one tuning of a draft: examples, training state, candidate, and the adapter that is kept.

    <state>/draft-tuning/<model>/examples.jsonl          the plan, then an example a line; it holds code
                                 state.safetensors       the training
                                 candidate.safetensors   the adapter while it is judged
    <state>/adapters/draft-of-<model>.toml               the card of the adapter that is kept, and its file beside it

Only this user can read them (mode 0600). A file is written in one step, or a line at a time; a line that was not
written to its end is dropped. Everything but the adapter is deleted after the verdict.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speclsp import config, private_files
from speclsp.errors import InputError, WeightsError

if TYPE_CHECKING:
    from speclsp.engine.training.learning import Example
    from speclsp.weights.adapters import AdapterFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """Everything that the examples and the training depend on."""

    directory: str
    target: str
    target_sha256: str
    draft_sha256: str
    rank: int
    scale: float
    first_layer: int
    peak_rate: float
    seed: int


@dataclass(slots=True)
class StoredExamples:
    """The examples on disk, in their order."""

    rows: list[dict[str, Any]] = field(default_factory=list)

    @property
    def spent_s(self) -> float:
        """The time of all runs, when the last example was written."""
        return float(self.rows[-1].get("spent_s", 0.0)) if self.rows else 0.0

    @property
    def next_place(self) -> int:
        """The number of the place after the last example's."""
        return int(self.rows[-1].get("place", -1)) + 1 if self.rows else 0


class TuningFiles:
    """The files of the tuning of one model's draft. Raises InputError: `model` is not the name of a definition."""

    def __init__(self, model: str) -> None:
        if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", model):  # a path would lead out of our directory
            raise InputError(f"{model} is not the name of a model definition, so it has no draft to tune.")
        root = config.state_dir()
        self.name = f"draft-of-{model}"
        self.work = root / "draft-tuning" / model
        self.examples = self.work / "examples.jsonl"
        self.state = self.work / "state.safetensors"
        self.candidate = self.work / "candidate.safetensors"
        self.lock = root / "draft-tuning" / f"{model}.lock"
        self.card = root / "adapters" / f"{self.name}.toml"

    def open(self, plan: TuningPlan) -> StoredExamples:
        """The examples of an earlier run with this plan; makes the directory.

        Raises:
            InputError: the files belong to a tuning with another plan.
            WeightsError: they cannot be written.
        """
        try:
            self.work.mkdir(mode=0o700, parents=True, exist_ok=True)
            header, *lines = read_lines(self.examples) or [{"plan": asdict(plan)}]
            if header.get("plan") != asdict(plan):
                before = header.get("plan", {})
                differing = [key for key, value in asdict(plan).items() if before.get(key) != value]
                raise InputError(
                    f"a tuning with other data has begun ({', '.join(differing)} differ; its directory is "
                    f"{before.get('directory')}): finish it there, or delete it with `speclsp tune --draft --remove`."
                )
            content = "".join(json.dumps(line) + "\n" for line in (header, *lines))
            private_files.replace(self.examples, content.encode(), sync=True)  # without a half-written line
        except OSError as error:
            raise not_written(self.examples, error) from None
        return StoredExamples(lines)

    def add(self, row: Mapping[str, Any]) -> None:
        """Append an example. Raises WeightsError; the examples before it stay."""
        try:
            with os.fdopen(private_files.open_plain(self.examples, os.O_WRONLY | os.O_APPEND), "wb") as file:
                file.write((json.dumps(dict(row)) + "\n").encode())
        except OSError as error:
            raise not_written(self.examples, error) from None

    def keep(self, adapter: AdapterFile, weights: str, licence: str) -> Path:
        """Make the candidate the adapter of these weights. Returns its file. Raises WeightsError."""
        file = self.card.with_name(f"{self.name}-{adapter.sha256[:12]}.safetensors")
        card = {
            "name": self.name, "weights": weights, "drafts_for": adapter.drafts_for, "file": file.name,
            "sha256": adapter.sha256, "weights_sha256": adapter.weights_sha256, "licence": licence,
            "data": "Code on this machine, by speclsp tune --draft.",
        }  # fmt: skip
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in card.items()) + 'jobs = ["fill"]\n'
        try:
            self.card.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            private_files.replace(file, self.candidate.read_bytes(), sync=True)
            private_files.replace(self.card, text.encode(), sync=True)
        except OSError as error:
            raise not_written(file, error) from None
        for older in self.adapter_files():
            if older != file:
                older.unlink(missing_ok=True)
        return file

    def adapter_files(self) -> list[Path]:
        """The files of adapters that were kept."""
        return sorted(self.card.parent.glob(f"{self.name}-*.safetensors"))

    def clear(self) -> bool:
        """Delete examples, state and candidate. True if there were any."""
        known = self.work.exists()
        shutil.rmtree(self.work, ignore_errors=True)
        return known

    def remove(self) -> list[str]:
        """Delete everything. Returns nouns for the parts that existed."""
        adapters = [path for path in (self.card, *self.adapter_files()) if path.exists()]
        for path in adapters:
            path.unlink()
        removed = ["the adapter"] if adapters else []
        return removed + (["its examples and training state"] if self.clear() else [])


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON lines of a file up to the first that is not whole; [] without a file."""
    lines: list[dict[str, Any]] = []
    if not path.exists():
        return lines
    for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
        try:
            line = json.loads(text)
        except ValueError:
            break
        if not isinstance(line, dict):
            break
        lines.append(line)
    return lines


def row_of(example: Example, path: str, place: int, spent_s: float) -> dict[str, Any]:
    """An example as a line of the file; `path`: of the source file, in the tuned directory."""
    return {
        "path": path, "place": place, "prompt": list(example.prompt), "answer": list(example.answer),
        "labels": list(example.labels), "weights": list(example.weights), "spent_s": round(spent_s, 1),
    }  # fmt: skip


def digest(text: str) -> str:
    """SHA-256 of a text, which orders files the same way on every machine."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def not_written(path: Path, error: OSError) -> WeightsError:
    """The error of a file that could not be written."""
    return WeightsError(
        f"{path} cannot be written ({private_files.reason(error)}): make room and run the command again; it goes on "
        "from the last file that was written."
    )
