"""Context from other files, from a real index of a small workspace."""

from __future__ import annotations

from pathlib import Path

import pytest

from speclsp.config import ContextConfig
from speclsp.lsp.context import build, selection
from speclsp.lsp.context.chunk import Chunk
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax.parser import SyntaxParser

CLIENT = '''"""Talks to the shop."""
from .wire import Wire

LIMIT = 3


class Base:
    def close_quietly(self, reason: str) -> None:
        pass


class Client(Base):
    """A customer."""

    retries: int = 2

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def fetch_orders(self, since: str, limit: int = LIMIT) -> list[str]:
        return self.wire.ask("orders", since)[:limit]


def connect(address: str, timeout_s: float = 5.0) -> Client:
    return Client(Wire(address))
'''
OTHER_USE = """from shop.client import Client, connect


def print_invoices(address):
    client = connect(address)
    for order in client.fetch_orders("2026-01-01"):
        print_invoice_line(order)
"""


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Path, IndexReader]:
    root = tmp_path / "root"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "__init__.py").write_text("")
    (root / "shop" / "client.py").write_text(CLIENT)
    (root / "shop" / "wire.py").write_text("class Wire:\n    def ask(self, what, since):\n        return []\n")
    (root / "invoices.py").write_text(OTHER_USE)
    index = IndexReader.build(root, tmp_path / "index.sqlite")
    index.cache.query_ms = 60_000
    return root, index


LOOP = "from shop.client import Client\n\n\ndef main(client: Client):\n    client.fetch_orders(1)\n    ¦\n"


def shown(root: Path, index: IndexReader | None, marked: str) -> tuple[Chunk, ...]:
    """Chunks of other files in the context at the ¦ of a document main.py."""
    cursor = marked.index("¦")
    text = marked.replace("¦", "")
    snapshot = Snapshot((root / "main.py").as_uri(), "python", 1, text, cursor)
    tree = SyntaxParser().parse("python", text, 2000, near=cursor)
    sources = CrossFileSources(index=index, patience_ms=60_000)
    return build.build(snapshot, tree, ContextConfig(parse_budget_ms=2000), root.as_uri(), sources=sources).extra


def text_of(chunks: tuple[Chunk, ...]) -> str:
    return "".join(chunk.text for chunk in chunks)


def test_similar_code_of_a_closed_file_is_shown(shop: tuple[Path, IndexReader]):
    chunks = shown(
        *shop, "from shop.client import connect\n\n\ndef main(address):\n    client = connect(address)\n    ¦\n"
    )
    assert 'for order in client.fetch_orders("2026-01-01"):' in text_of(chunks)


def test_code_with_a_key_is_not_shown(shop: tuple[Path, IndexReader]):
    root, _ = shop
    marked = "from shop.client import connect\n\n\ndef send_invoices(address):\n    client = connect(address)\n    ¦\n"
    key = f'    api_key = "AKIA{"Q7ZB3XK5M2VN8LPT"}"\n'
    (root / "invoices.py").write_text(OTHER_USE.replace("    for order", key + "    for order"))
    index = IndexReader.build(root, root.parent / "with_key.sqlite")
    index.cache.query_ms = 60_000
    assert "AKIA" in index.text("invoices.py") and "print_invoice" not in text_of(shown(root, index, marked))


def test_without_an_index_closed_files_are_not_shown(shop: tuple[Path, IndexReader], tmp_path: Path):
    text = "from shop.client import connect\n\n\ndef main(address):\n    client = connect(address)\n    ¦\n"
    assert shown(shop[0], None, text) == shown(shop[0], IndexReader(str(shop[0]), tmp_path / "none.sqlite"), text) == ()


def test_a_file_that_the_index_hides_is_never_shown(shop: tuple[Path, IndexReader]):
    root, index = shop
    assert "invoices.py" in {chunk.path for chunk in shown(root, index, LOOP)}
    index.hidden_rule = lambda path: True
    assert shown(root, index, LOOP) == ()


def test_a_file_that_becomes_hidden_leaves_the_selection_while_typing(shop: tuple[Path, IndexReader]):
    root, index = shop
    text = "from shop.client import connect\n\n\ndef main(address):\n    client = connect(address)\n    "
    selections, extras = selection.Selections(), []
    for typed in ("", "c", "cl"):
        document = Snapshot((root / "main.py").as_uri(), "python", 1, text + typed, len(text + typed))
        tree = SyntaxParser().parse("python", document.text, 2000, near=document.cursor)
        config, sources = ContextConfig(parse_budget_ms=2000), CrossFileSources(index=index, patience_ms=60_000)
        extras.append(build.build(document, tree, config, root.as_uri(), selections=selections, sources=sources).extra)
        if typed == "c":
            index.hidden_rule = lambda path: path == "invoices.py"
    assert extras[0] == extras[1] and "invoices.py" in {chunk.path for chunk in extras[1]}
    assert "invoices.py" not in {chunk.path for chunk in extras[2]}
