"""Text synchronization: random edits, applied by Node to JavaScript strings and by the server to its lines.

utf16_reference.js is the editor: it makes edits, keeps its documents as JavaScript strings, and prints the text
expected of the server.
Texts are compared exactly, newlines included. A misplaced edit stays in the text, so a later look finds it too. The
random walk of test_typing_storms.py edits over the wire.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from speclsp.lsp.documents.document import Document

TYPIST = Path(__file__).parents[2] / "support/faults/utf16_reference.js"
INSTALL = Path(__file__).parents[2] / "support/editors/install.py"
EDITS_PER_NOTIFICATION = 8
NOTIFICATIONS_PER_QUESTION = 8
SHARES = {"utf-16": 0.6, "utf-8": 0.2, "utf-32": 0.2}  # shares of the edits: most editors count UTF-16 units

Line = dict[str, Any]  # lines printed by utf16_reference.js


@pytest.fixture(scope="module")
def node(request: pytest.FixtureRequest) -> Path:
    """The Node that the editor tests use; skips with the reason if it is missing."""
    everywhere = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[2] / "conftest.py"))
    with pytest.MonkeyPatch.context() as patch:
        everywhere.use_users_cache(patch)
        done = subprocess.run([sys.executable, INSTALL, "node"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"NOT COVERED: node: {done.stderr.strip() or done.stdout.strip()}")
    return Path(done.stdout.strip()) / "node"


def typed(node: Path, seed: int, encoding: str, edits: int) -> Iterator[Line]:
    """Lines of the typist's output as they come."""
    numbers = (seed, encoding, edits, EDITS_PER_NOTIFICATION, NOTIFICATIONS_PER_QUESTION)
    with subprocess.Popen([node, TYPIST, *map(str, numbers)], stdout=subprocess.PIPE) as typist:
        assert typist.stdout is not None
        yield from map(json.loads, typist.stdout)
    assert typist.returncode == 0


def exact(text: str) -> str:
    return hashlib.sha256(text.encode("utf-16-le", "surrogatepass")).hexdigest()[:8]


@pytest.mark.promise(14)
@pytest.mark.parametrize("encoding", SHARES)
def test_random_edits_give_the_same_text_as_javascript_strings(encoding: str, node: Path, promise, soak: bool):
    wanted = int((800_000 if soak else 16_000) * SHARES[encoding])
    documents: dict[int, Document] = {}
    counts = Counter[str]()
    for line in typed(node, 1, encoding, wanted):
        if "changes" in line:
            documents[line["uri"]].apply(line["changes"], encoding)
            counts["edits"] += len(line["changes"])
        elif "text" in line:
            documents[line["uri"]] = Document("", "", 1, line["text"])
        else:
            document = documents[line["uri"]]
            offset = document.offset(line["position"], encoding)
            same = exact(document.text) == line["exact"] and document.position(offset, encoding) == line["there"]
            counts["astray"] += not same
            counts["questions"] += 1
    assert counts["edits"] == wanted
    promise.measured(summary(encoding, "in the process", counts), holds=not counts["astray"])
    assert not counts["astray"], counts


def summary(encoding: str, where: str, counts: Counter[str]) -> str:
    return (
        f"{counts['edits']:,} random edits in {encoding} columns {where}: "
        f"{counts['astray']} differences at {counts['questions']:,} looks"
    )
