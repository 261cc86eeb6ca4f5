"""C, C++, Go, Rust and Swift."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from speclsp.lsp.syntax.languages import placeholders
from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, KnownFiles, above, by_end, by_path, joined
from speclsp.lsp.syntax.languages.record import C_RULES, TRIPLE, Language

_SWIFT_KINDS = "struct|class|enum|protocol|func|let|var|typealias"  # of the imported name


def _c_imports(statement: str) -> Iterator[Import]:
    match = re.match(r'\s*#\s*include\s*["<]([^">\n]+)[">]', statement)
    if match:
        yield Import(match[1])


C = Language(
    name="c",
    files={"c": ".c .h"},
    rules=C_RULES,
    strings_end_on_line=True,
    has_preprocessor=True,
    indexed=".c",
    imports=ImportRules(read=_c_imports, resolve=by_path, starts=r"#\s*include\b", written_suffixes=(".h", ".hpp")),
)
CPP = replace(
    C,
    name="cpp",
    aliases=("c++", "cxx", "cc", "hpp", "cuda-cpp"),
    files={"cpp": ".cpp .cc .cxx .hh .hpp", "cuda-cpp": ".cu .cuh"},
    rules=replace(C_RULES, long_string=r'R"(?P<tag>[^(\s]{0,16})\(.*?(?:\)(?P=tag)"|\Z)'),
    indexed=".h .cc .cpp .cxx .hh .hpp .hxx .cu .cuh",
    family="c",
)


def _go_imports(statement: str) -> Iterator[Import]:
    for match in re.finditer(r'"([^"\n]+)"', statement):
        yield Import(match[1])


def _go_file(module: str, from_path: str, files: KnownFiles) -> str | None:
    """A file of the directory with the longest end of the module's path, the nearest one."""
    parts = module.split("/")
    for start, directory in product(range(1, len(parts)), above(from_path)):
        place = "/".join(filter(None, (directory, *parts[start:])))
        paths = [path for path in files.files_in(place) if path.endswith(".go") and not path.endswith("_test.go")]
        if paths:
            return min(paths, key=lambda path: (posixpath.basename(path) != f"{parts[-1]}.go", path))
    return None


GO = Language(
    name="go",
    type_mark=" ",
    aliases=("golang",),
    files={"go": ".go"},
    rules=replace(C_RULES, long_string=r"`[^`]*(?:`|\Z)", statement_end="", stub=""),
    strings_end_on_line=True,
    line_ends=("{}", " {}", "\n}"),
    indexed=".go",
    imports=ImportRules(
        read=_go_imports,
        resolve=_go_file,
        starts=r"import\b",
        exports=lambda text, name: name[:1].isupper(),
        package=r"(?m)^package\s+(\w+)",
    ),
)


def _rust_imports(statement: str) -> Iterator[Import]:
    module = re.match(r"\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+)\s*;", statement)
    if module:
        yield Import(f"self::{module[1]}")
        return
    used = re.match(r"\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?use\s+(.*?);?\s*\Z", statement, re.DOTALL)
    if used:
        yield from _use_tree(re.sub(r"\s+", " ", used[1]).strip())


def _use_tree(tree: str) -> Iterator[Import]:
    """`a::{b, c::{d, e as f}}`, level by level."""
    todo = [("", tree)]
    while todo:
        above, part = todo.pop()
        opened = part.find("{")
        if opened < 0:
            path = above + part.partition(" as ")[0].strip()
            *way, name = [piece for piece in path.split("::") if piece] or [""]
            if name == "self" and way:
                name = way.pop()
            if name:
                yield Import("::".join(way) or name, (name,))
            continue
        head, inner, depth, start = above + part[:opened].strip(), part[opened + 1 :].rstrip(), 0, 0
        inner = inner[:-1] if inner.endswith("}") else inner
        pieces = []
        for at, character in enumerate(inner):
            depth += (character == "{") - (character == "}")
            if character == "," and depth == 0:
                pieces.append(inner[start:at])
                start = at + 1
        pieces.append(inner[start:])
        todo += [(head, piece.strip()) for piece in reversed(pieces) if piece.strip()]


def _rust_file(module: str, from_path: str, files: KnownFiles) -> str | None:
    first, *rest = module.split("::")
    directory, name = posixpath.split(from_path)
    own = directory if name in ("mod.rs", "lib.rs", "main.rs") else joined(directory, name.removesuffix(".rs"))
    base: str | None
    if first == "crate":
        base = _rust_crate(from_path, files)
    elif first in ("self", "super"):
        base = own
        for part in [first, *rest]:
            if part == "super":
                base = posixpath.dirname(base) if base else None
        rest = [part for part in rest if part != "super"]
    else:
        roots = (f"{name}/src/lib.rs" for name in (first, first.replace("_", "-")))
        root = next(filter(None, (by_end(end, from_path, files) for end in roots)), None)
        if root is not None:
            base = posixpath.dirname(root)
        else:  # a module beside this one, by its bare name
            base, rest = own, [first, *rest]
    if base is None:
        return None
    for length in range(len(rest), -1, -1):  # what follows are items of that module
        inner = "/".join(filter(None, (base, *rest[:length])))
        ends = [f"{inner}.rs", f"{inner}/mod.rs"] if inner else []
        ends += [f"{inner}/{root}".lstrip("/") for root in ("lib.rs", "main.rs")] if not length else []
        path = files.first_existing(ends)
        if path:
            return path if first in ("crate", "self", "super") or length or path != from_path else None
        if not length or (length == 1 and first not in ("crate", "self", "super") and rest[0] == first):
            return None
    return None


def _rust_exports(text: str, name: str) -> bool:
    kinds = r"(?:const|async|unsafe|fn|struct|enum|union|trait|type|static|mut)\s+"
    return re.search(rf"(?m)^pub(?:\([^)\n]*\))?\s+(?:{kinds})+{name}\b", text) is not None


def _rust_crate(from_path: str, files: KnownFiles) -> str | None:
    for place in above(from_path):
        if files.first_existing(f"{place}/{root}".lstrip("/") for root in ("lib.rs", "main.rs")):
            return place
        if posixpath.basename(place) in ("tests", "benches", "examples"):
            return place  # each of its files is a crate
    return None


RUST = Language(
    name="rust",
    aliases=("rs",),
    files={"rust": ".rs"},
    # A semicolon at the end of a block changes the block's value, so none is added.
    rules=replace(C_RULES, long_string=r'r(?P<hashes>#+)".*?(?:"(?P=hashes)|\Z)', statement_end=""),
    placeholders=placeholders.rust,
    type_mark=":",
    has_early_results=True,
    indexed=".rs",
    imports=ImportRules(
        read=_rust_imports,
        resolve=_rust_file,
        starts=r"(?:pub(?:\([^)\n]*\))?\s+)?(?:use|mod)\s",
        directory_stems=("mod",),
        exports=_rust_exports,
    ),
)


def _swift_imports(statement: str) -> Iterator[Import]:
    match = re.search(rf"\bimport\s+(?:(?:{_SWIFT_KINDS})\s+)?(\w+)(?:\.(\w+))?", statement)
    if match:
        yield Import(match[1], (match[2],) if match[2] else ())


def _swift_file(module: str, from_path: str, files: KnownFiles) -> str | None:
    """The file that a module is named for: a module is a directory of files."""
    return by_end(f"{module}/{module}.swift", from_path, files)


SWIFT = Language(
    name="swift",
    files={"swift": ".swift"},
    rules=replace(
        C_RULES,
        long_string=TRIPLE + r'|(?P<hashes>#+)".*?(?:"(?P=hashes)|\Z)',
        string=r'"(?:\\.|[^"\\\n])*(?:"|$)',
        opens_here=C_RULES.opens_here + r"|\{[^{}]*\bin\s*$",
        statement_end="",
        stub="",
    ),
    strings_end_on_line=True,
    line_ends=(" {}", " = x", " x", " else {}", " catch {}", " x {}"),
    line_ends_inside=(": x", " x in"),
    indexed=".swift",
    imports=ImportRules(read=_swift_imports, resolve=_swift_file, starts=r"(?:@\w+\s+)?import\s"),
)
