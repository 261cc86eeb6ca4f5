"""Context from other files, from a real index of a small workspace."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speclsp.config import ContextConfig
from speclsp.lsp.context import build, selection
from speclsp.lsp.context.chunk import Chunk
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.index import file_cache, folder_reader, workspace_index
from speclsp.lsp.index.folder_reader import FolderReader, Job
from speclsp.lsp.index.workspace_index import FileChange, WorkspaceIndex
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
def shop(tmp_path: Path) -> tuple[Path, WorkspaceIndex]:
    root = tmp_path / "root"
    (root / "shop").mkdir(parents=True)
    (root / "shop" / "__init__.py").write_text("")
    (root / "shop" / "client.py").write_text(CLIENT)
    (root / "shop" / "wire.py").write_text("class Wire:\n    def ask(self, what, since):\n        return []\n")
    (root / "invoices.py").write_text(OTHER_USE)
    return root, folder_reader.build(root)


def text_of(chunks: tuple[Chunk, ...]) -> str:
    return "".join(chunk.text for chunk in chunks)


class TypedFile:
    """A document main.py that is typed into, with one selection for all its prompts."""

    def __init__(self, root: Path, index: WorkspaceIndex | None) -> None:
        self.root, self.selections = root, selection.Selections()
        self.sources = CrossFileSources(index=index, patience_ms=60_000)
        self.config = ContextConfig(parse_budget_ms=2000)

    def context(self, text: str, *others: Snapshot, cursor: int | None = None, better: bool = False) -> build.Context:
        uri, place = (self.root / "main.py").as_uri(), len(text) if cursor is None else cursor
        document = Snapshot(uri, "python", 1, text, place)
        tree = SyntaxParser().parse("python", text, 2000, near=place)
        return build.build(
            document,
            tree,
            self.config,
            self.root.as_uri(),
            (document, *others),
            selections=self.selections,
            sources=self.sources,
            better=better,
        )

    @property
    def selection(self) -> selection.Selection:
        return self.selections[(self.root / "main.py").as_uri()]


TYPED = "from shop.client import connect\n\n\ndef main(address):\n    client = connect(address)\n    "


def hide(root: Path, index: WorkspaceIndex) -> None:
    index.hidden_rule = lambda path: path == "invoices.py"


def read_again(index: WorkspaceIndex) -> None:
    FolderReader(index, lambda function: function()).execute(Job(["invoices.py"]))


def delete(root: Path, index: WorkspaceIndex) -> None:
    (root / "invoices.py").unlink()
    read_again(index)


def change_unseen_by_the_index(root: Path, index: WorkspaceIndex) -> None:
    (root / "invoices.py").write_text("\n" + OTHER_USE.replace("print_invoice_line", "print_another_line"))


def leave_the_index(root: Path, index: WorkspaceIndex) -> None:
    index.apply([FileChange("invoices.py")])


def give_a_key(root: Path, index: WorkspaceIndex) -> None:
    (root / "invoices.py").write_text(
        OTHER_USE.replace("print_invoice_line(order)", f'api_key = "AKIA{"Q7ZB3XK5M2VN8LPT"}"')
    )
    read_again(index)


@pytest.mark.parametrize("change", [hide, delete, change_unseen_by_the_index, give_a_key, leave_the_index])
def test_code_that_may_not_be_shown_any_more_is_in_no_later_prompt(
    shop: tuple[Path, WorkspaceIndex], change: Callable[[Path, WorkspaceIndex], None], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(file_cache, "RECHECK_S", 0.0)  # the disk is checked at every prompt
    monkeypatch.setattr(workspace_index, "HOLDS_S", 60.0)  # a busy machine answers in time
    typed = TypedFile(*shop)
    before, same = typed.context(TYPED), typed.context(TYPED + "c")
    change(*shop)
    after, better = typed.context(TYPED + "cl"), typed.context(TYPED + "cl", better=True)
    assert before.extra == same.extra and "print_invoice_line" in text_of(before.extra)
    for context in (after, better):
        assert "print_invoice_line" not in text_of(context.extra) and "AKIA" not in text_of(context.extra)


def test_code_of_an_open_document_leaves_the_selection_when_it_is_edited_or_closed(shop: tuple[Path, WorkspaceIndex]):
    root, typed = shop[0], TypedFile(shop[0], None)
    other = Snapshot((root / "invoices.py").as_uri(), "python", 1, OTHER_USE, 0)
    assert "print_invoice_line" in text_of(typed.context(TYPED, other).extra)
    edited = replace(other, version=2, text=OTHER_USE.replace("print_invoice_line", "print_another_line"))
    assert "print_invoice_line" not in text_of(typed.context(TYPED + "c", edited).extra)
    assert "print_invoices" in text_of(typed.context(TYPED + "c", edited).extra)
    assert typed.context(TYPED + "cl").extra == ()


def test_a_better_selection_that_waits_is_not_shown_once_its_file_is_hidden(shop: tuple[Path, WorkspaceIndex]):
    typed = TypedFile(*shop)
    typed.context("def main():\n    pass\n")
    assert "print_invoice_line" in text_of(typed.context(TYPED, better=True).extra)
    hide(*shop)
    assert "print_invoice_line" not in text_of(typed.context(TYPED, better=True).extra)
    assert "print_invoice_line" not in text_of(typed.selection.better)


def test_open_documents_with_one_path_are_checked_each(shop: tuple[Path, WorkspaceIndex]):
    """The cells of a notebook, and files outside the workspace folder: the path shown is their name."""
    typed = TypedFile(shop[0], None)
    first, second, own_name = (
        Snapshot(uri, "python", 1, text, 0)
        for uri, text in (("file:///x/use.py", OTHER_USE), ("file:///y/use.py", CLIENT), ("file:///main.py", OTHER_USE))
    )
    chosen = typed.context(TYPED, first, second).extra
    typed.sources = replace(typed.sources, patience_ms=-1.0)
    assert typed.context(TYPED + "c", first, second).extra == chosen != ()
    typed = TypedFile(shop[0], None)
    assert "print_invoice_line" in text_of(typed.context(TYPED, own_name).extra)
    edited = replace(own_name, text=OTHER_USE.replace("print_invoice_line", "print_another_line"))
    assert "print_invoice_line" not in text_of(typed.context(TYPED + "c", edited).extra)


def test_text_that_was_deleted_from_the_document_itself_is_in_no_later_prompt(shop: tuple[Path, WorkspaceIndex]):
    typed = TypedFile(shop[0], None)
    typed.config = replace(typed.config, prefix_tokens=256, suffix_tokens=64)
    above = OTHER_USE + "".join(f"value_{number} = {number}\n" for number in range(400))
    assert "print_invoice_line" in text_of(typed.context(above + TYPED).extra)
    above = above.replace("print_invoice_line", "print_another_line")
    assert "print_invoice_line" not in text_of(typed.context(above + TYPED + "c").extra)


BODY = """    total = 0
    for order in client.fetch_orders("2026"):
        print_invoice_line(order)
        total += 1
    wire = Wire()
    wire.ask("orders", address)
    if total > LIMIT:
        client.close_quietly("done")
    return total
"""


@given(st.data())
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_two_prompts_of_a_region_differ_only_behind_the_snippets(
    shop: tuple[Path, WorkspaceIndex], data: st.DataObject
):
    """Keys, Enters and deleted text, with searches for a better selection between them that nobody has computed."""
    typed, steps = TypedFile(*shop), data.draw(st.lists(st.integers(0, len(BODY)), min_size=2, max_size=6))
    searches = data.draw(st.lists(st.booleans(), min_size=len(steps), max_size=len(steps)))
    shown_chunks = set()
    for length, searches_here in zip(steps, searches, strict=True):
        text = TYPED.removesuffix("    ") + BODY[:length]
        if searches_here:
            typed.context(text, better=True)
        shown_chunks.add(typed.context(text).extra)
    assert len(shown_chunks) == 1


def test_a_better_selection_keeps_the_order_of_what_stays_and_is_used_once_it_is_computed(
    shop: tuple[Path, WorkspaceIndex],
):
    typed = TypedFile(*shop)
    first = typed.context("def main():\n    pass\n").extra
    assert first == (), "nothing here is like another file"
    typed.context(TYPED + BODY[:150], better=True)
    better = typed.selection.better
    assert better and typed.context(TYPED + BODY[:150]).extra == first
    typed.selection.use_better(better)
    assert typed.context(TYPED + BODY[:151]).extra == better
    kept, new = Chunk("a.py", "alpha = beta(1)\n", 0.2), Chunk("b.py", "gamma = delta(2)\n", 0.9)
    chosen = selection.select([new, kept], 100, "", kept=[kept])
    assert chosen == (kept, new), "the kept one stays first, so its tokens stay cached"


def test_a_better_selection_that_waits_is_replaced_at_another_place(shop: tuple[Path, WorkspaceIndex]):
    typed = TypedFile(shop[0], None)
    ledger = "def book(ledger, account):\n    ledger.append(account)\n    account.balance += ledger.rate\n"
    others = [Snapshot(f"file:///{name}.py", "python", 1, text, 0) for name, text in (("a", OTHER_USE), ("b", ledger))]
    typed.context("def main():\n    pass\n", *others)
    assert [chunk.path for chunk in typed.context(TYPED, *others, better=True).extra] == ["a.py"]
    text = TYPED + "return client\n\n\n" + "def rate(ledger, account):\n    balance = account.balance\n" * 3
    assert [chunk.path for chunk in typed.context(text, *others, better=True).extra] == ["a.py", "b.py"]


def test_a_jump_to_another_region_selects_at_once(shop: tuple[Path, WorkspaceIndex]):
    typed = TypedFile(*shop)
    text = "x = 1\n" * (build.REGION_LINES + 1) + TYPED
    assert typed.context(text, cursor=6).extra == ()
    assert "print_invoice_line" in text_of(typed.context(text).extra)
