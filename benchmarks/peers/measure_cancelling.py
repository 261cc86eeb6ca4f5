"""Time from a key until the remote server's connection is closed: a figure for docs/remote-servers.md, in no test.

    python -m benchmarks cancelling [--repeats N]

Counted from before the key's first message is written to the language server's stdin until a server on the same machine
sees the end of the connection, both on one clock. The answer is under way, a word every 20 ms.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from support.lsp.editor_client import Editor, Page
from support.lsp.faulty_http_server import FaultyServer, drips

SOURCE = "def add(a, b):\n    return \n"
CURSOR = len(SOURCE) - 1


def key_then_request(editor: Editor, page: Page, msg_id: int) -> None:
    """Most editors: the edit, then the next request."""
    page.ask(page.type(CURSOR, "z"))


def cancel_then_key(editor: Editor, page: Page, msg_id: int) -> None:
    """VS Code: the older request is cancelled, the edit follows at once."""
    editor.notify("$/cancelRequest", {"id": msg_id})
    page.type(CURSOR, "z")


def key_then_cancel(editor: Editor, page: Page, msg_id: int) -> None:
    """The edit, and then the cancelling."""
    page.type(CURSOR, "z")
    editor.notify("$/cancelRequest", {"id": msg_id})


def cancel_alone(editor: Editor, page: Page, msg_id: int) -> None:
    """A cursor that moves, a window that is left."""
    editor.notify("$/cancelRequest", {"id": msg_id})


WAYS: tuple[Callable[[Editor, Page, int], None], ...] = (
    key_then_request,
    cancel_then_key,
    key_then_cancel,
    cancel_alone,
)


def measure(
    way: Callable[[Editor, Page, int], None], editor: Editor, server: FaultyServer, repeats: int
) -> list[float]:
    """Milliseconds, sorted."""
    took = []
    for number in range(repeats):
        page = Page(editor, SOURCE, uri=f"file:///{way.__name__}-{number}.py")
        before = len(server.completions())
        request = page.ask(CURSOR)
        server.wait(lambda before=before: len(server.completions()) > before)
        ours = server.completions()[-1]
        time.sleep(0.05)  # some words have come
        start = time.monotonic()
        way(editor, page, request)
        server.wait(lambda ours=ours: ours.closed_at is not None)
        took.append((ours.closed_at - start) * 1000)
        editor.notify("textDocument/didClose", {"textDocument": {"uri": page.uri}})
    return sorted(took)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `python -m benchmarks cancelling`."""
    parser.add_argument("--repeats", metavar="N", type=int, default=100, help="of each way (default: 100)")


def main(options: argparse.Namespace) -> int:
    """Exit code 0."""
    repeats: int = options.repeats
    with tempfile.TemporaryDirectory(prefix="spec-") as root:
        for name in ("CONFIG_HOME", "STATE_HOME", "RUNTIME_DIR", "CACHE_HOME"):
            place = Path(root) / name[:3]
            place.mkdir(mode=0o700, exist_ok=True)
            os.environ[f"XDG_{name}"] = str(place)
        with FaultyServer() as server, Editor("--set", f"remote.url={server.url}", model="auto") as editor:
            server.always = drips(0.02)
            editor.begin()
            for way in WAYS:
                took = measure(way, editor, server, repeats)
                print(
                    f"{way.__name__:18} median {took[len(took) // 2]:.1f} ms, 95 % within "
                    f"{took[int(len(took) * 0.95)]:.1f} ms, at most {took[-1]:.1f} ms ({repeats} times)"
                )
    return 0
