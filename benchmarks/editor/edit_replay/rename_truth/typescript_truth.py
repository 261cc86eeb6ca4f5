"""Definitions and uses in TypeScript, TSX and JavaScript: rename locations of the TypeScript compiler."""

from __future__ import annotations

import bisect
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.editor.edit_replay.rename_truth.definition import Definition, Use
from speclsp.config import cache_dir
from speclsp.errors import SpeclspError

SCRIPT = Path(__file__).with_name("typescript_renames.js")
LIMIT_S = 600
SUFFIXES = (".ts", ".tsx", ".mts", ".js", ".jsx", ".mjs")


def compiler() -> Path:
    """The compiler in code-server, which tests/support/editors/install.py installs. Raises SpeclspError."""
    pattern = "code-server-*/node_modules/code-server/lib/vscode/extensions/node_modules/typescript/lib/typescript.js"
    installed = sorted((cache_dir() / "editors").glob(pattern))
    if not installed or shutil.which("node") is None:
        raise SpeclspError(
            "the TypeScript compiler is not installed: install Node.js and run "
            "`python tests/support/editors/install.py code-server`."
        )
    return installed[-1]


def definitions(texts: Mapping[str, str]) -> dict[str, list[Definition]]:
    """{path: its definitions} of files that stand alone, in one run of the compiler."""
    if not texts:
        return {}
    files = {f"/{number}{Path(path).suffix}": text for number, (path, text) in enumerate(texts.items())}
    run = subprocess.run(
        ["node", str(SCRIPT), str(compiler())],
        input=json.dumps(files),
        capture_output=True,
        encoding="utf-8",
        timeout=LIMIT_S,
    )
    if run.returncode:
        raise SpeclspError(f"the TypeScript compiler failed: {run.stderr.strip()[-300:]}")
    answers = json.loads(run.stdout)
    return {path: from_answer(answers[file], texts[path]) for path, file in zip(texts, files, strict=True)}


def from_answer(answer: list[dict[str, object]], text: str) -> list[Definition]:
    """The definitions of an answer of typescript_renames.js, whose offsets are UTF-16."""
    wide = [index for index, character in enumerate(text) if ord(character) > 0xFFFF]
    places = [index + number for number, index in enumerate(wide)]  # of these characters, in UTF-16

    def offset(utf16: object) -> int:
        assert isinstance(utf16, int)
        return utf16 - bisect.bisect_left(places, utf16)

    def use_of(use: dict[str, Any]) -> Use:
        return Use(offset(use["start"]), use["prefix"], use["suffix"], tuple(map(use_of, use.get("bound", ()))))

    result = []
    for item in answer:
        kind, name = str(item["kind"]), str(item["name"])
        uses, documented, others = (list(item[key]) for key in ("uses", "documented", "others"))  # type: ignore[call-overload]
        result.append(
            Definition.of(
                kind, name, offset(item["start"]), map(use_of, uses), map(offset, documented), map(offset, others)
            )
        )
    return result
