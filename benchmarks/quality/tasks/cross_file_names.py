"""Names that the files of a package define and use from one another: the label "cross-file" of a task.

Plain rules over lines, on purpose: they must neither change with the parser and the index that the tasks measure, nor
with the Python that runs them. They may miss a name, which costs a task its label; they should never invent one, so a
name counts only where few files define it, this one does not, and no import from elsewhere explains it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import PurePosixPath

from benchmarks.quality.tasks.code_only import mask
from benchmarks.quality.tasks.name_rules import NOT_NAMES, ORDINARY, RULES

RARE = 3  # files that may define a name which nothing but its spelling ties to one of them
RARE_IMPORTED = 8  # ... or that an import of this package ties
SHORTEST = 4

_FAMILY = {"typescriptreact": "typescript", "javascript": "typescript", "javascriptreact": "typescript"}
_COMPILED = {
    language: (re.compile(opens), [re.compile(rule) for rule in free], [re.compile(rule) for rule in members])
    for language, (opens, free, members) in RULES.items()
}
_SELF = re.compile(r"\bself\.(\w+)\s*(?::[^=\n]+)?=(?!=)")
_THIS = re.compile(r"\bthis\.(\w+)\s*=(?!=)")
_BOUND = re.compile(
    r"\b(?:let|const|var|mut|def|fn|func|function|for|as|class|auto|in)\s+(?:mut\s+)?(\w+)|(\w+)\s*:=|(\w+)\s*=(?!=)"
)
_WORD = re.compile(r"[A-Za-z_$][\w$]*")
_CHAIN = re.compile(r"([A-Za-z_$][\w$]*)(?:\([^()]*\)|\[[^\[\]]*\])?(?:\?|!)?(?:\.|->|::)$")


@dataclass(slots=True, frozen=True)
class Imports:
    """Imports of a file: from its own package (name used -> its name there), and from elsewhere."""

    own: dict[str, str]
    others: frozenset[str]
    lines: frozenset[int]  # the lines that the import statements take, from 0
    modules: tuple[str, ...]  # of its own package, as written


@dataclass
class SourceFile:
    """One file of a package, read once."""

    path: str  # inside the package, with /
    language: str
    text: str
    homes: frozenset[str]  # how this package calls itself in imports
    free: set[str] = field(default_factory=set)  # defined outside of any class
    members: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.masked = mask(self.text, self.language)
        self.lines = self.text.split("\n")
        self.masked_lines = self.masked.split("\n")
        for name, is_member in _definitions(self.masked_lines, _FAMILY.get(self.language, self.language)):
            (self.members if is_member else self.free).add(name)
        if self.language == "python":
            self.members.update(_SELF.findall(self.masked))
        elif _FAMILY.get(self.language, self.language) == "typescript":
            self.members.update(_THIS.findall(self.masked))

    @cached_property
    def imports(self) -> Imports:
        return _imports(self)

    @cached_property
    def bound(self) -> frozenset[str]:
        """Names that some statement of this file gives a meaning."""
        return frozenset(name for matches in _BOUND.findall(self.masked) for name in matches if name)

    @cached_property
    def _words(self) -> Counter[str]:
        return Counter(_WORD.findall(self.text))

    def used_elsewhere(self, line: int, name: str) -> bool:
        """True if `name` also stands on another line."""
        return self._words[name] > _WORD.findall(self.lines[line]).count(name)


class Names:
    """The files of a package that define each name."""

    def __init__(self, files: Iterable[SourceFile]) -> None:
        self.free: dict[str, list[str]] = defaultdict(list)
        self.members: dict[str, list[str]] = defaultdict(list)
        for file in files:
            for name in file.free:
                self.free[name].append(file.path)
            for name in file.members:
                self.members[name].append(file.path)

    def crossing(self, file: SourceFile, line: int, column: int) -> tuple[str, ...]:
        """Names that end after `column` of a line and are defined in another file of the package, not in this one."""
        masked = file.masked_lines[line]
        crossing_names: list[str] = []
        for word in _WORD.finditer(masked):
            name = word.group()
            if word.end() <= column or len(name) < SHORTEST or name in ORDINARY or name in crossing_names:
                continue
            if name in file.free or name in file.members:
                continue
            if self._crosses(file, name, masked[: word.start()], masked[word.end() :]):
                crossing_names.append(name)
        return tuple(crossing_names)

    def homes(self, name: str) -> list[str]:
        """The files that define `name`."""
        return sorted({*self.free.get(name, ()), *self.members.get(name, ())})

    def _crosses(self, file: SourceFile, name: str, before: str, after: str) -> bool:
        before = before.rstrip()
        if before.endswith((".", "->", "::")) and not before.endswith(".."):
            root = _root(before)
            if root in file.imports.others or (root is not None and root[:1].isupper() and root not in self.free):
                return False
            return _is_telling(name) and 1 <= len(self.homes(name)) <= RARE
        if _is_key(file.language, before, after):
            return _is_telling(name) and 1 <= len(self.members.get(name, ())) <= RARE
        if name in file.imports.others:
            return False
        if name in file.imports.own:
            return 1 <= len(self.free.get(file.imports.own[name], ())) <= RARE_IMPORTED
        if file.language in ("python", "typescript", "typescriptreact", "javascript") or name in file.bound:
            return False  # there, a free name of another file is imported
        tells = name[0].isupper() or after.startswith(("(", "!", "<"))
        return tells and 1 <= len(self.free.get(name, ())) <= RARE


def _is_telling(name: str) -> bool:
    """True if a member's name is unlike common library names: a compound, or long."""
    return len(name) >= 9 or "_" in name.strip("_") or re.search(r"[a-z][A-Z]", name) is not None


def _is_key(language: str, before: str, after: str) -> bool:
    """True if the name is an argument or a field that gets its value here: `call(name=`, `Struct{Name:`."""
    if language == "python":
        return after.startswith("=") and not after.startswith("==") and (not before or before.endswith(("(", ",")))
    return language == "go" and after.startswith(": ") and (not before or before.endswith(("{", ",")))


def _root(before: str) -> str | None:
    """First name of a chain of members, `a` of `a.b(c).`; None when the chain does not begin with a name."""
    root = None
    while match := _CHAIN.search(before):
        root, before = match.group(1), before[: match.start()]
    return root


def _definitions(lines: list[str], language: str) -> Iterator[tuple[str, bool]]:
    """Every (name, True if it is a member) that the lines define, without the local names of functions."""
    if language not in _COMPILED:
        return
    opens, free, members = _COMPILED[language]
    inside: list[list[int]] = []  # [indentation of the container, of its members or -1]
    space = -1  # indentation inside a Rust mod or a C++ namespace
    for line in lines:
        bare = line.strip()
        if not bare:
            continue
        indent = len(line) - len(line.lstrip())
        while (
            inside
            and indent <= inside[-1][0]
            and not bare.startswith(("{", ")", "implements", "extends", "where", ":"))
        ):
            inside.pop()
        if inside and inside[-1][1] < 0 and indent > inside[-1][0]:
            inside[-1][1] = indent
        is_member = bool(inside) and indent == inside[-1][1]
        if is_member:
            for rule in members:
                if (match := rule.match(bare)) and match.group(1) not in NOT_NAMES:
                    yield from ((name.strip(), True) for name in match.group(1).split(","))
                    break
        elif indent == 0 or (language in ("rust", "cpp") and indent == space):
            if re.match(r"(?:pub\s+)?mod\s+\w+\s*\{|namespace\b.*\{", bare):
                space = 4 if language == "rust" else 2
            for rule in free:
                if (match := rule.match(bare)) and match.group(1) not in NOT_NAMES:
                    yield match.group(1), False
            if language == "go" and (method := re.match(r"func\s+\([^)]*\)\s*(\w+)", bare)):
                yield method.group(1), True
        elif (
            language in ("go", "c") and (entry := re.match(r"([A-Z]\w*)\s*(?:=.*|,|\w+\s*=.*)?$", bare)) and indent <= 4
        ):
            yield entry.group(1), False  # of a const ( or an enum {
        if opens.match(bare):
            inside.append([indent, -1])


_PY_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([.\w]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]+))", re.M)
_TS_IMPORT = re.compile(
    r"^[ \t]*(?:import|export)\b([^;'\"`]*?)\bfrom\s*(['\"])([^'\"\n]*)\2|^import\s*(['\"])([^'\"\n]*)\4", re.M
)
_RUST_IMPORT = re.compile(r"^[ \t]*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;]+);", re.M)
_GO_IMPORT = re.compile(r"^import\s*(?:\(([^)]*)\)|([^\n]*))", re.M)
_C_IMPORT = re.compile(r"^[ \t]*#[ \t]*include[ \t]*([<\"])([^>\"\n]+)[>\"]", re.M)
_JAVA_IMPORT = re.compile(r"^(?:import\s+(?:static\s+)?([\w.]+)(?:\.\*)?;|package\s+[\w.]+;)", re.M)


def _imports(file: SourceFile) -> Imports:
    own: dict[str, str] = {}
    others: set[str] = set()
    lines: set[int] = set()
    modules: list[str] = []
    for start, end, module, names in _import_statements(file):
        first = file.text.count("\n", 0, start)
        lines.update(range(first, first + file.text.count("\n", start, end) + 1))
        is_own = _is_own(module, file)
        if is_own and module not in modules:
            modules.append(module)
        for name, alias in names:
            if is_own:
                own[alias] = name
            else:
                others.add(alias)
    return Imports(own, frozenset(others - set(own)), frozenset(lines), tuple(modules))


def _is_own(module: str, file: SourceFile) -> bool:
    if file.language in ("typescript", "typescriptreact", "javascript"):
        return module.startswith((".", "#", "~/", "@/")) or module in file.homes
    if file.language == "python":
        return module.startswith(".") or module.split(".")[0] in file.homes
    if file.language == "rust":
        return module.split("::")[0].strip() in {"crate", "self", "super", *file.homes}
    return any(module.startswith(home) for home in file.homes)


def _import_statements(file: SourceFile) -> Iterator[tuple[int, int, str, list[tuple[str, str]]]]:
    """Every import of a file: where it is, the module, [(its name there, its name here)]."""
    text = file.text
    if file.language == "python":
        for match in _PY_IMPORT.finditer(file.masked):
            module, names, plain = match.groups()
            if plain:
                for part in plain.split(","):
                    path, _, alias = part.strip().partition(" as ")
                    yield match.start(), match.end(), path, [(path, alias.strip() or path.split(".")[0])]
            else:
                yield match.start(), match.end(), module, _listed(names, "as")
    elif file.language in ("typescript", "typescriptreact", "javascript"):
        for match in _TS_IMPORT.finditer(text):
            names = re.sub(r"\btype\b", "", match.group(1) or "")
            inner = _listed(names, "as")
            yield match.start(), match.end(), match.group(3) or match.group(5) or "", inner
    elif file.language == "rust":
        for match in _RUST_IMPORT.finditer(file.masked):
            head = match.group(1).split("::")[0].strip()
            tails = re.sub(r"[\w]+\s*::\s*", "", match.group(1))
            yield match.start(), match.end(), head, _listed(tails, "as")
    elif file.language == "go":
        for match in _GO_IMPORT.finditer(text):
            for alias, path in re.findall(r"([\w.]*)\s*\"([^\"]+)\"", match.group(1) or match.group(2)):
                yield match.start(), match.end(), path, [(path, alias or PurePosixPath(path).name)]
    elif file.language in ("c", "cpp"):
        for match in _C_IMPORT.finditer(text):
            yield match.start(), match.end(), "<" * (match.group(1) == "<") + match.group(2), []
    elif file.language == "java":
        for match in _JAVA_IMPORT.finditer(file.masked):
            path = match.group(1) or ""
            yield match.start(), match.end(), path, [(path.rpartition(".")[2],) * 2]


def _listed(names: str, word: str) -> list[tuple[str, str]]:
    """ "(a, b as c)" -> [("a", "a"), ("b", "c")]"""
    parts = (re.sub(r"[(){}*]|\bself\b", " ", part).split() for part in re.split(r"[,{]", names))
    pairs = []
    for part in parts:
        if part and word in part:
            pairs.append((part[0] if part[0] != word else part[-1], part[-1]))
        elif part:
            pairs.append((part[0], part[0]))
    return pairs
