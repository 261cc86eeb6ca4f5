"""Result files of the benchmarks: one JSON summary each, with the commit, the machine, the versions and the seeds.

    {"bench": "peers", "made_utc": "...", "commit": "...", "machine": {...}, "versions": {...}, ...figures}

Every benchmark writes its figures through `write`, because a figure means nothing without its machine and its program.
MEASURED names the packages that decide each benchmark's figures. A test fails when too many of their lines are newer
than the commit of a result: the result then leaves, or is measured again. Summaries are committed in
benchmarks/results; raw rows of a run go to build/benchmarks, which git ignores.
"""

from __future__ import annotations

import json
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path

from speclsp import process_resources
from speclsp.process_resources import gpus
from speclsp.weights.auto_choice import cpuinfo_field

PACKAGES = ("speclsp", "torch", "transformers", "bitsandbytes", "tokenizers", "pygls", "triton", "numpy")
CHECKOUT = Path(__file__).resolve().parents[1]
RESULTS = CHECKOUT / "benchmarks" / "results"  # `python -m benchmarks NAME --results DIR` replaces it
RAW = CHECKOUT / "build" / "benchmarks"
INNERMOST = re.compile(
    r"[\[{]\n[^\[\]{}]*[\]}]"
)  # a list or object with nothing nested in it, as json.dumps indents it
DECODING = ("speclsp/engine/decoding", "speclsp/engine/model")
TYPING = ("speclsp/lsp/completion", "speclsp/lsp/context", "speclsp/lsp/postprocess", "speclsp/engine/decoding")
NEXT_EDITS = ("speclsp/lsp/next_edit", "speclsp/lsp/syntax")
MEASURED: Mapping[str, Sequence[str]] = {  # by benchmark: the packages whose code decides the figures
    "auto-closed": ("speclsp/lsp/postprocess", "speclsp/lsp/syntax"),
    "completions": DECODING,
    "economy": TYPING,
    "editors": ("speclsp/lsp/completion", "speclsp/lsp/protocol", "editors"),
    "first-suggestion": ("speclsp/lsp/completion", "speclsp/lsp/context", "speclsp/lsp/protocol"),
    "floor": DECODING,
    "gpu": ("speclsp/engine/model/cuda", "speclsp/engine/decoding"),
    "install-size": ("pyproject.toml", "constraints.txt"),
    "judge": TYPING,
    "lines": TYPING,
    "memory": DECODING,
    "next-edit": NEXT_EDITS,
    "next-edit-gate": NEXT_EDITS,
    "next-edit-walks": NEXT_EDITS,
    "peers": DECODING,
    "peers-tuning": (),  # settings of other engines
    "promises": ("speclsp/engine", "speclsp/lsp"),
    "quality": ("speclsp/lsp/context", "speclsp/lsp/postprocess", "speclsp/lsp/index", "speclsp/engine/decoding"),
    "renames": NEXT_EDITS,
    "start": ("speclsp/engine/loading", "speclsp/engine/process"),
}
LINE_CHARACTERS = 160  # an innermost list or object up to this long is written on one line


def machine() -> dict[str, object]:
    """The hardware and system of this run; no host name, user or path."""
    import psutil

    from speclsp.engine.loading.load_plan import describe_device

    gpu = gpus.find_gpu("auto")[0]
    cpus, limit_mib = process_resources.cpus(), process_resources.memory().limit_mib
    total_bytes = psutil.virtual_memory().total
    if limit_mib is not None:
        total_bytes = min(total_bytes, limit_mib * 2**20)
    return {
        "cpu": cpu_name(),
        "cpu_features": cpu_features(),
        "cores": cpus.logical if cpus.usable == cpus.logical else round(cpus.usable, 2),
        "memory_gib": round(total_bytes / 2**30, 1),
        "gpu": None if gpu == "cpu" else describe_device(gpu, 0),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def cpu_name() -> str:
    """The processor's own name."""
    return cpuinfo_field("model name") or platform.processor() or "unknown"


def cpu_features() -> list[str]:
    """The instruction sets of this processor that the engine's speed depends on."""
    wanted = ("avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "asimddp", "i8mm")
    flags = set((cpuinfo_field("flags") or cpuinfo_field("Features")).split())
    return [name for name in wanted if name in flags]


def cpu_kind() -> str:
    """The widest instruction set that a result depends on. Results of two kinds are never in one table."""
    kinds = ("amx_int8", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx2", "i8mm", "asimddp")
    widest = next((kind for kind in kinds if kind in cpu_features()), "other")
    return {"amx_int8": "amx"}.get(widest, widest.replace("_", "-"))


def versions() -> dict[str, str]:
    """Installed versions of the packages that matter for a figure."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return installed


def write(bench: str, figures: Mapping[str, object], name: str = "", directory: Path | None = None) -> Path:
    """Write the figures of a benchmark as `directory`/`name`.json (defaults: RESULTS, and the benchmark's own name)."""
    made_utc = datetime.now(timezone.utc).isoformat(timespec="seconds")
    about = {"bench": bench, "made_utc": made_utc, "commit": commit(), "machine": machine(), "versions": versions()}
    summary = {**about, **figures}
    return save(summary, (directory or RESULTS) / f"{name or bench}.json")


def commit() -> str:
    """The commit of this checkout, with a "+" where a tracked file differs from it; "" outside a repository."""
    try:
        head = git("rev-parse", "HEAD").strip()
        return f"{head[:10]}+" if git("status", "--porcelain", "--untracked-files=no").strip() else head[:10]
    except (OSError, subprocess.CalledProcessError):
        return ""


def newer_share(since: str, packages: Sequence[str], checkout: Path = CHECKOUT) -> float:
    """Share of the packages' lines that the commit `since` does not have, in the working tree.

    Raises subprocess.CalledProcessError if the commit is not in the repository.
    """
    changes = git("diff", "--numstat", "--find-renames", since, "--", *packages, checkout=checkout).splitlines()
    added = sum(int(count) for count, *_ in map(str.split, changes) if count != "-")
    files = git("ls-files", "--", *packages, checkout=checkout).splitlines()
    lines = sum((checkout / name).read_bytes().count(b"\n") for name in files if (checkout / name).is_file())
    return added / max(lines, 1)


def git(*words: str, checkout: Path = CHECKOUT) -> str:
    """The output of a command of git. Raises OSError or subprocess.CalledProcessError."""
    return subprocess.run(["git", *words], cwd=checkout, check=True, capture_output=True, text=True).stdout


def write_raw(name: str, rows: object) -> Path:
    """Write the raw rows behind a summary as RAW/`name`.json."""
    return save(rows, RAW / f"{name}.json")


def save(content: object, file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(as_text(content), encoding="utf-8")
    return file


def as_text(content: object) -> str:
    """Indented JSON in which short innermost lists and objects take one line each."""

    def on_one_line(match: re.Match[str]) -> str:
        items = re.sub(r"^\n\s*|\n\s*$", "", match[0][1:-1])
        line = match[0][0] + re.sub(r"\n\s*", " ", items) + match[0][-1]
        return line if len(line) <= LINE_CHARACTERS else match[0]

    return INNERMOST.sub(on_one_line, json.dumps(content, indent=1)) + "\n"
