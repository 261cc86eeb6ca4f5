"""Laws of imported uses: after a module has renamed a name, the uses in other documents that mean it, and no others.

imported_samples.txt has the samples. A sample has several documents, each behind `== PATH`. The first one is the
module: its definition is <old|new>. In the others `area¹` marks each use that follows, and `area²` a use that gets
other text than the new name.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from speclsp.lsp.documents.document import Document, Documents
from speclsp.lsp.documents.uri_paths import file_path
from speclsp.lsp.index import folder_reader
from speclsp.lsp.index.imported_members import IsWritten
from speclsp.lsp.index.open_importers import OpenImporters, RenamedName
from speclsp.lsp.index.workspace_index import WorkspaceIndex
from speclsp.lsp.syntax.grammars import known_id

FOLDER = "file:///work"
SAMPLES = dict(
    re.findall(
        r"(?ms)^=== (\w+)\n(.*?)(?=^=== |\Z)", Path(__file__).with_name("imported_samples.txt").read_text("utf-8")
    )
)
EDIT, MARK = re.compile(r"<(\w+)\|(\w+)>"), re.compile(r"[¹²]")


class Desk:
    """The documents of a sample after the rename."""

    def __init__(self, sample: str, folder: str = FOLDER, index: WorkspaceIndex | None = None) -> None:
        self.documents, self.marked = Documents(), dict[str, str]()
        self.hidden = set[str]()
        for part in re.split(r"(?m)^== ", sample)[1:]:
            path, _, text = part.partition("\n")
            uri = f"{folder}/{path}"
            match, text = EDIT.search(text), EDIT.sub(r"\2", text)
            self.marked[uri] = text
            document = self.documents.open(uri, known_id(path.rpartition("/")[2]), 1, MARK.sub("", text))
            if match is not None:
                self.names = document, match[1], match[2]
        self.importers = OpenImporters(self.documents, lambda uri: folder, lambda root: index, self.may_see)

    async def may_see(self, document: Document) -> bool:
        return document.uri not in self.hidden

    def is_defined(self, is_written: IsWritten = lambda text, offset: True) -> bool:
        return asyncio.run(self.importers.renamed_name(*self.names, is_written)) is not None

    @property
    def name(self) -> RenamedName:
        return asyncio.run(self.importers.renamed_name(*self.names)) or RenamedName(*self.names)

    def marked_again(self) -> dict[str, str]:
        """The documents with marks at the uses: ¹ where the new name comes alone, else ²."""
        texts = {uri: MARK.sub("", text) for uri, text in self.marked.items()}
        for found in asyncio.run(self.importers.uses(self.name, with_files=True)):
            for use in reversed(found.uses):
                text = texts[found.document.uri]
                mark = "¹" if use.text == self.name.new else "²"
                texts[found.document.uri] = text[: use.end] + mark + text[use.end :]
        return texts

    def texts(self, path: str) -> list[str]:
        """The texts that replace the uses in one document."""
        found = {found.document.uri: found for found in asyncio.run(self.importers.uses(self.name))}
        uses = found.get(f"{self.name.module.uri.rpartition('/')[0]}/{path}")
        return [use.text for use in uses.uses] if uses is not None else []


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_uses_that_mean_the_imported_name_follow_and_no_others(sample: str, tmp_path: Path):
    desk = Desk(SAMPLES[sample])
    assert desk.is_defined()
    assert desk.marked_again() == desk.marked
    for uri, text in Desk(SAMPLES[sample], tmp_path.as_uri()).marked.items():
        file = Path(file_path(uri))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MARK.sub("", text), "utf-8")
    folder = Desk(SAMPLES[sample], tmp_path.as_uri(), folder_reader.build(tmp_path))
    for uri in {document.uri for document in folder.documents} - {folder.name.module.uri}:
        folder.documents.close(uri)
    assert folder.marked_again() == folder.marked, "the same in files that are not open"


def test_a_name_that_is_exported_again_or_is_a_key_keeps_its_old_name_there():
    desk = Desk(SAMPLES["script"])
    assert desk.texts("index.ts") == ["size as area"]
    assert desk.texts("app.ts") == ["size", "area: size", "size", "size"]


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("m.py", "def <area|size>(box): ...\ndef area(box): ...\n"),
        ("m.ts", "interface Box { <area|size>: number }\n"),
        ("m.py", "from shapes import <area|size>\n"),
        ("m.py", "def run(<area|size>): ...\n"),
        ("m.ts", "function <area|size>() {}\n"),
        ("m.ts", "export default function <area|size>() {}\n"),
        ("m.ts", "function <area|size>() {}\nexport { size as area };\n"),
        ("m.rs", "fn <area|size>() {}\n"),
    ],
)
def test_a_name_that_no_other_document_can_import_is_none(path: str, text: str):
    assert not Desk(f"== {path}\n{text}").is_defined()


def test_the_definition_is_one_that_the_user_has_renamed():
    desk = Desk("== m.ts\nfunction <area|size>() {}\nexport { other, size };\n")
    assert desk.is_defined(lambda text, offset: text.startswith("size() {}", offset))
    assert not desk.is_defined(lambda text, offset: text.startswith("size };", offset))


def test_a_hidden_a_generated_and_a_conflicting_document_are_left_alone():
    uses = "from shapes import area\nprint(area)\n"
    marker = "<<<<<<< HEAD\nx = 1\n=======\n"
    sample = f"== shapes.py\ndef <area|size>(box): ...\n== a.py\n{uses}== b.py\n# @generated\n{uses}"
    desk = Desk(f"{sample}== c.py\n\n{marker}{uses}>>>>>>> other\n")
    (found,) = asyncio.run(desk.importers.uses(desk.name))
    assert found.document.uri.endswith("/a.py")
    desk.hidden.add(f"{FOLDER}/a.py")
    assert desk.marked_again() == desk.marked
    desk.hidden.add(desk.name.module.uri)
    assert not desk.is_defined()


def test_an_edited_document_is_read_again():
    desk = Desk(SAMPLES["direct"])
    desk.marked_again()
    app = desk.documents.get(f"{FOLDER}/app.py")
    assert app is not None
    app.apply([{"text": "from shapes import area\n"}], "utf-8")
    app.version += 1
    assert desk.texts("app.py") == ["size"]


def test_the_index_comes_before_the_open_documents(tmp_path: Path):
    (tmp_path / "src").mkdir()
    (tmp_path / "src/shapes.ts").write_text("export function area() {}\n")
    index = folder_reader.build(tmp_path)
    sample = (
        "== app/src/shapes.ts\nexport function <area|size>() {}\n"
        "== app/src/app.ts\nimport { area¹ } from '@/shapes';\narea¹();\n"
    )
    alone = Desk(sample, tmp_path.as_uri())
    assert alone.marked_again() == alone.marked
    indexed = Desk(sample, tmp_path.as_uri(), index)
    assert MARK.search("".join(indexed.marked_again().values())) is None
