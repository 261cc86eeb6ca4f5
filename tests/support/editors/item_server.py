"""Language server with scripted suggestions, for screens that a model does not make: `item_server.py ITEMS lsp`.

ITEMS is a JSON file, read again at each request: {line with ‸ at the cursor: {"text", "left", "over"}}. `text` replaces
the `left` before the cursor and the `over` that follows it. Positions count UTF-16 units, so lines with letters beyond
the BMP are not supported. The line ANY stands for all that have no item. The line NEXT_EDIT has the item of all next
edits: {"old", "new", "kind"} and members of the edit offers `new` at the first `old` of the document, after `delay_s`.
ITEMS.log has the method of each message.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

CURSOR, ANY, NEXT_EDIT = "‸", "*", "next edit"

# Suggestions before closing brackets: line, new text, replaced text, and the lines after accepting. VS Code and Neovim
# draw all of them. VS Code draws none whose new text lacks a replaced character.
FIB, UP = "\n  if (n < 2) return n;\n  return fib(n - 1) + fib(n - 2);\n", "() => {\n  console.log('up');\n}"
CLOSERS = {
    "block": ("function fib(n) {‸}", FIB, ""),
    "block over": ("function fib(n) {‸}", FIB + "}", "}"),
    "argument": ("app.listen(3000, ‸);", UP, ""),
    "argument over": ("app.listen(3000, ‸)", UP + ");", ")"),
    "argument over all": ("app.listen(3000, ‸);", UP + ");", ");"),
    "effect": ("useEffect(() => {‸}, [])", "\n  load();\n", ""),
    "effect over": ("useEffect(() => {‸}, [])", "\n  load();\n}, [])", "}, [])"),
    "one line over": ("print(len(‸))", "items), end='')", "))"),
}
CAPABILITIES = {
    "textDocumentSync": {"openClose": True, "change": 1},
    "inlineCompletionProvider": {},
}
STATUS = {"state": "ready", "model": "scripted", "target": "", "draft": "", "device": "cpu", "message": ""}
STATUS |= {"progress": None, "last_latency_ms": None, "problems": []}
STATUS |= {"next_edit": True}


def script(file: Path, items: dict[str, dict[str, str]]) -> None:
    """Set the scripted suggestions, in one step: the server may read them at any moment."""
    new = file.with_suffix(".new")
    new.write_text(json.dumps(items), encoding="utf-8")
    new.replace(file)


def main(items: str, *_: str) -> None:
    texts: dict[str, str] = {}
    while (message := read()) is not None:
        method, params = message.get("method", ""), message.get("params") or {}
        with Path(items).with_suffix(".log").open("a", encoding="utf-8") as log:
            log.write(f"{method}\n")
        if method == "initialize":
            info = {"name": "speclsp", "version": "0.1.0"}
            write({"id": message["id"], "result": {"capabilities": CAPABILITIES, "serverInfo": info}})
        elif method == "initialized":
            write({"method": "speclsp/status", "params": STATUS})
        elif method == "textDocument/didOpen":
            texts[params["textDocument"]["uri"]] = params["textDocument"]["text"]
        elif method == "textDocument/didChange":
            texts[params["textDocument"]["uri"]] = params["contentChanges"][-1]["text"]
        elif method == "textDocument/inlineCompletion":
            line = texts[params["textDocument"]["uri"]].split("\n")[params["position"]["line"]]
            scripted = json.loads(Path(items).read_text(encoding="utf-8"))
            write({"id": message["id"], "result": {"items": matching(scripted, line, params["position"])}})
        elif method == "textDocument/copilotInlineEdit":
            scripted = json.loads(Path(items).read_text(encoding="utf-8"))
            time.sleep(float(scripted.get(NEXT_EDIT, {}).get("delay_s", 0)))
            edits = next_edits(scripted, texts[params["textDocument"]["uri"]], params["textDocument"])
            write({"id": message["id"], "result": {"edits": edits}})
        elif method == "exit":
            return
        elif "id" in message and method:
            write({"id": message["id"], "result": None})


def matching(items: dict[str, dict[str, str]], line: str, at: dict[str, int]) -> list[dict[str, Any]]:
    """The scripted item for this line and cursor, as the protocol has it."""
    item = items.get(line[: at["character"]] + CURSOR + line[at["character"] :].rstrip("\r"), items.get(ANY))
    if item is None:
        return []
    start = {"line": at["line"], "character": at["character"] - len(item.get("left", ""))}
    end = {"line": at["line"], "character": at["character"] + len(item.get("over", ""))}
    return [{"insertText": item["text"], "range": {"start": start, "end": end}}]


def next_edits(items: dict[str, dict[str, str]], text: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    """The scripted next edit of a document, as the protocol has it."""
    item = items.get(NEXT_EDIT)
    if item is None or item["old"] not in text:
        return []
    above, _, left = text[: text.index(item["old"])].rpartition("\n")
    line = above.count("\n") + 1 if above else 0
    start, end = ({"line": line, "character": len(left) + width} for width in (0, len(item["old"])))
    command = {"title": "", "command": "speclsp.didAcceptEdit", "arguments": [f"{document['version']}"]}
    edit = {"text": item["new"], "range": {"start": start, "end": end}, "command": command}
    return [{**item, **edit, "textDocument": document, "ghost": False}]


def read() -> dict[str, Any] | None:
    """The next message; None at the end of the input."""
    length = 0
    for raw in iter(sys.stdin.buffer.readline, b""):
        name, _, value = raw.partition(b":")
        if not raw.strip():
            return dict(json.loads(sys.stdin.buffer.read(length)))
        if name.lower() == b"content-length":
            length = int(value)
    return None


def write(message: dict[str, Any]) -> None:
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
