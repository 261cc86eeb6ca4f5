"""Text synchronization: random edits, applied by Node to JavaScript strings and by the server to its lines.

utf16_reference.js is the editor: it makes edits, keeps its documents as JavaScript strings, and prints the text
expected of the server.
Over the wire the model `echo` answers with hashes of the text that it received; in the process texts are compared
exactly, newlines included. A misplaced edit stays in the text, so a later request finds it too.
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
from support.lsp.editor_client import CAPABILITIES, Editor
from support.soak import in_soak

from speclsp.lsp.documents.document import Document

TYPIST = Path(__file__).parents[2] / "support/faults/utf16_reference.js"
INSTALL = Path(__file__).parents[2] / "support/editors/install.py"
LANGUAGES = ("python", "javascript", "markdown", "yaml", "html", "bash")
WHOLE = (
    "--set",
    "context.prefix_tokens=100000",
    "--set",
    "context.suffix_tokens=100000",  # characters: the whole text is hashed
    "--set",
    "completion.disabled_languages=[]",
)
PATIENCE_S = 180.0
EDITS_PER_NOTIFICATION = 8
NOTIFICATIONS_PER_QUESTION = 8
SHARES = {"utf-16": 0.6, "utf-8": 0.2, "utf-32": 0.2}  # shares of the edits: most editors count UTF-16 units
WIRE, PROCESS = 0.2, 0.8  # edits: one takes 0.2 ms over the wire and 0.01 ms in the process

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
    wanted = int((1_000_000 if soak else 20_000) * SHARES[encoding] * PROCESS)
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


@pytest.mark.promise(14)
@pytest.mark.parametrize("encoding", ["utf-16", *in_soak("utf-8", "utf-32")])
def test_answers_use_the_text_after_random_edits_on_the_wire(encoding: str, node: Path, promise, soak: bool):
    wanted = int((1_000_000 if soak else 6_000) * SHARES[encoding] * WIRE)
    counts = Counter[str]()
    open_questions: dict[int, tuple[int, Line]] = {}  # one per document: a newer one would supersede it

    def hear(number: int) -> None:
        msg_id, line = open_questions.pop(number)
        (item,) = editor.items(msg_id, PATIENCE_S)
        here = {"start": line["there"], "end": line["there"]}
        counts["questions"] += 1
        counts["astray"] += item != {"insertText": f"E:{line['before']}:{line['after']}", "range": here}

    with Editor(*WHOLE, "--set", "completion.timeout_ms=30000") as editor:
        editor.begin({**CAPABILITIES, "general": {"positionEncodings": [encoding]}})
        versions = Counter[int]()
        for line in typed(node, 2, encoding, wanted):
            number = line["uri"]
            uri, versions[number] = f"file:///{number}", versions[number] + 1
            if "changes" in line:
                editor.change(uri, versions[number], *line["changes"])
                counts["edits"] += len(line["changes"])
            elif "text" in line:
                editor.open(uri, line["text"], versions[number], LANGUAGES[number])
            else:
                if number in open_questions:
                    hear(number)
                open_questions[number] = editor.complete(uri, **line["position"]), line
        for number in list(open_questions):
            hear(number)
        assert editor.popups() == [] and editor.stray == b""
    assert counts["edits"] == wanted
    promise.measured(summary(encoding, "over the wire", counts), holds=not counts["astray"])
    assert not counts["astray"], counts


def summary(encoding: str, where: str, counts: Counter[str]) -> str:
    return (
        f"{counts['edits']:,} random edits in {encoding} columns {where}: "
        f"{counts['astray']} differences at {counts['questions']:,} looks"
    )
