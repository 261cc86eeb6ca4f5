"""Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from speclsp.lsp.syntax.languages.import_rules import Import, ImportRules, KnownFiles, above, by_end, original_names
from speclsp.lsp.syntax.languages.record import BRACKET, TRIPLE, Language, LexicalRules, Replacement, TypeRules

_SUFFIXES = (".py", ".pyi")
_OPENS = (
    r"^\s*(?:(?:async\s+)?(?:def|for|with)|class|if|elif|else|while|try|except|finally|match|case)\b.*:\s*$"
    r"|" + BRACKET
)


def _imports(statement: str) -> Iterator[Import]:
    bare = re.sub(r"#[^\n]*|\\\n", " ", statement)
    named = re.match(r"\s*from\s+(\.*\s*[\w.]*)\s+import\s+\(?([^)]*)", bare)
    if named:
        yield Import(named[1].replace(" ", ""), original_names(named[2]))
        return
    yield from map(Import, original_names(re.sub(r"^\s*import\s+", "", bare)))


def _file(module: str, from_path: str, files: KnownFiles) -> str | None:
    bare = module.lstrip(".")
    dots = len(module) - len(bare)
    inner = "/".join(filter(None, bare.split(".")))
    if dots:
        here = list(above(from_path))
        return files.first_existing(_candidates(here[dots - 1], inner)) if dots <= len(here) else None
    places = [place for place in above(from_path) if _is_no_package(place, files)]
    tried = [*places, *(f"{place}/{name}".lstrip("/") for place in places for name in ("src", "lib", "python"))]
    path = files.first_existing(path for place in tried for path in _candidates(place, inner))
    if path:
        return path
    for end in (f"{inner}/__init__", *([inner] if "/" in inner else [])):
        for suffix in _SUFFIXES:
            there = by_end(end + suffix, from_path, files) if "/" in end else None
            if there and _is_no_package(there[: -len(end + suffix)].rstrip("/"), files):
                return there
    return None


def _candidates(directory: str, inner: str) -> Iterator[str]:
    base = "/".join(filter(None, (directory, inner)))
    if inner:
        yield from (base + suffix for suffix in _SUFFIXES)
    yield from (f"{base}/__init__{suffix}".lstrip("/") for suffix in _SUFFIXES)


def _is_no_package(directory: str, files: KnownFiles) -> bool:
    return not files.first_existing(f"{directory}/__init__{suffix}".lstrip("/") for suffix in _SUFFIXES)


# ── types in annotations ──────────────────────────────────────────────────────────────────────────────────────────────

_MAX_NESTED = 3  # optional types inside of each other
_INNER = (
    r"""(?:[^\[\]'"]|\[(?:[^\[\]'"]|\[(?:[^\[\]'"]|\[[^\[\]'"]*\])*\])*\])"""  # of a subscript, with three inside of it
)
_OPTIONAL = re.compile(rf"(?<![\w.])(?:typing\.|t\.)?Optional\[({_INNER}+)\]")
_UNION = re.compile(rf"(?<![\w.])(?:typing\.|t\.)?Union\[({_INNER}+)\]")
_ITEM = re.compile(rf"(?:(?!,){_INNER})+")


def _without_optional(line: str) -> str:
    """The line with `X | None` for each `Optional[X]`, unless X has a quote."""
    for _ in range(_MAX_NESTED):
        line = _OPTIONAL.sub(r"\1 | None", line)
    return line


def _without_union(line: str) -> str:
    """The line with `X | Y` for each `Union[X, Y]`, unless it has a quote."""
    for _ in range(_MAX_NESTED):
        line = _UNION.sub(lambda match: " | ".join(item.strip() for item in _ITEM.findall(match[1])), line)
    return line


_STRUCTURES: Mapping[Replacement, Callable[[str], str]] = {
    ("Optional[", "| None"): _without_optional,
    ("Union[", " | "): _without_union,
}
_LOWER_CASE = frozenset((name, name.lower()) for name in ("List", "Dict", "Set", "FrozenSet", "Tuple", "Type"))

PYTHON = Language(
    name="python",
    aliases=("py", "python3", "pyi", "starlark", "bazel"),
    files={"python": ".py .pyi"},
    rules=LexicalRules(
        comment=r"#[^\n]*",
        long_string=TRIPLE + r"|'''(?:\\.|[^\\])*?(?:'''|\Z)",
        opens_here=_OPENS,
        colon_opens=True,
        stub=": ...",
    ),
    by_indentation=True,
    strings_end_on_line=True,
    line_ends=(": pass", " x: pass", " in x: pass", "\n{indent}def x(): pass"),
    line_ends_inside=(": x", " in x"),
    branches={
        "else": "if|elif|for|while|except|async for",
        "elif": "if|elif",
        "except": "try|except",
        "finally": "try|except|else",
        "case": "case",
    },
    types=TypeRules(_STRUCTURES, (frozenset(_STRUCTURES), _LOWER_CASE)),
    type_mark=":",
    argument_mark="=",
    has_untyped_parameters=True,
    indexed=".py .pyi",
    imports=ImportRules(
        read=_imports,
        resolve=_file,
        starts=r"import\s|from\s+[\w.]+\s+import\b",
        names_can_be_files=True,
        directory_stems=("__init__",),
        exports=lambda text, name: True,  # imported names too
    ),
)
