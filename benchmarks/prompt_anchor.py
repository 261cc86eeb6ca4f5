"""How many lines should stand after the middle marker? Exact match of a line's rest, on holes in installed packages.

    python benchmarks/prompt_anchor.py [--files 36] [--pair qwen2.5-coder-0.5b-instruct]

For each file two holes: a whole line without its indent ("start"), and a line cut at a random character ("mid").
Each is asked with everything before the middle marker ("psm", without token healing: the engine heals only what stands
after the marker, so this column is no fair rival), and with the current line and 0, 1, 2 or 4 whole lines after it,
healed. Writes benchmarks/results/prompt-anchor.json.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

from speclsp import cards
from speclsp.bench.completions import run
from speclsp.bench.holes import package_files
from speclsp.config import Config
from speclsp.engine import loading, prompt
from speclsp.engine.seam import Request

PACKAGES = ("pygls", "starlette", "uvicorn", "httpx", "platformdirs", "rich", "click")
RESULT = Path(__file__).parent / "results" / "prompt-anchor.json"
SKIPPED = ("#", '"', "import", "from", "@")


def holes(files: int) -> list[tuple[str, str, str, str, str]]:
    """(kind, before, line so far, after, the rest of the line)."""
    dice, made = random.Random(5), []
    for file in package_files(PACKAGES, dice):
        lines = file.read_text(errors="replace").split("\n")
        fit = [
            i
            for i, line in enumerate(lines)
            if 20 < i < len(lines) - 5 and 20 < len(line.strip()) < 70 and not line.strip().startswith(SKIPPED)
        ]
        if len(fit) < 4:
            continue
        for kind in ("start", "mid"):
            i = dice.choice(fit)
            line = lines[i]
            indent = len(line) - len(line.lstrip())
            at = indent if kind == "start" else dice.randrange(indent + 4, len(line) - 8)
            before = "".join(f"{one}\n" for one in lines[max(0, i - 45) : i])
            made.append((kind, before, line[:at], "\n" + "\n".join(lines[i + 1 : i + 10]), line[at:].strip()))
        if len(made) >= 2 * files:
            break
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=36)
    parser.add_argument("--pair", default="qwen2.5-coder-0.5b-instruct")
    asked = parser.parse_args()
    engine = loading.load(Config(pair=asked.pair), cards.load(asked.pair))
    prompt.ANCHOR_LINES = 1
    tasks = holes(asked.files)
    score = {kind: dict.fromkeys(("psm", "0", "1", "2", "4"), 0) for kind in ("start", "mid")}
    for number, (kind, before, line, after, wanted) in enumerate(tasks):
        for way in score[kind]:
            prompt.LINES_AFTER_MIDDLE = 0 if way == "psm" else int(way)
            psm = way == "psm"
            request = Request(
                prefix=before + line if psm else before,
                line_prefix="" if psm else line,
                suffix=after,
                max_tokens=24,
                stop=("\n",),
            )
            score[kind][way] += run(engine, request).text.split("\n")[0].strip() == wanted
        print(f"\r{number + 1} of {len(tasks)}", end="", file=sys.stderr, flush=True)
    report = {"pair": asked.pair, "holes_of_each_kind": len(tasks) // 2, "exact_match": score}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
