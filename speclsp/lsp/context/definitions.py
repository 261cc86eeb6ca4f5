"""What the names around the cursor mean: signatures and members of what other files define, imports first.

    names near the cursor, the scopes' headers, imports ─► where each is defined ─► a signature, or a class with members
    x.a x.b x.c  ─► the class that has a, b and c ─► its other members                (nobody has said what x is)

All is written as the language writes it, bodies left out: the model reads a file, as it has read millions.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice
from time import perf_counter

from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.index.import_statements import Import
from speclsp.lsp.index.outline import Symbol
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax import hidden_characters

SOURCES = frozenset({"definition", "class"})
MEMBERS = 14  # of a class shown
CLASS_CHARACTERS = 900
LONGEST_SIGNATURE = 200
NAMES = 32  # looked up
NAMES_BEFOREHAND = 50  # of each sort, in a part of a document
TARGETS = 14  # definitions shown at most
MODULES = 12  # looked into
NEAR_LINES = 24
FAR_CHARACTERS = 12_000
MOST_LINES = 8192  # of documents, of which it is kept what stands in them
MEMBER_KINDS = frozenset({"method", "property", "field", "constant", "variable", "function", "prototype"})


Want = Callable[..., None]


@dataclass(slots=True)
class Near:
    """The words around the cursor, the line being typed left aside, and how much each counts."""

    weights: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)  # the same of the parts of words: get_user, getUser
    everywhere: Mapping[str, int] = field(default_factory=dict)  # how often a word is in the document

    def of(self, word: str) -> float:
        return self.weights.get(word, 0.0)

    def relevance(self, name: str) -> float:
        """How much the parts of a name have to do with the words around, 0 to 1."""
        found = parts(name)
        return sum(self.parts.get(part, 0.0) for part in found) / len(found) if found else 0.0


def near(place: ChunkPlace) -> Near:
    """The words around a place."""
    weights: dict[str, float] = {}
    above = [line for line in place.above[-6000:].split("\n") if line.strip()][-NEAR_LINES:]
    below = [line for line in place.below[:1500].split("\n") if line.strip()][:8]
    for far, line in enumerate(reversed(above)):
        for word in _WORD.findall(line):
            weights.setdefault(word, 1.0 / (1 + 0.08 * far))
    for far, line in enumerate(below):
        for word in _WORD.findall(line):
            weights[word] = max(weights.get(word, 0.0), 0.6 / (1 + 0.08 * far))
    for scope in place.scopes:
        for word in _WORD.findall(scope):
            weights[word] = max(weights.get(word, 0.0), 0.8)
    of_parts: dict[str, float] = {}
    for word, weight in weights.items():
        for part in parts(word):
            of_parts[part] = max(of_parts.get(part, 0.0), weight)
    counted = Counter(chain.from_iterable(words for words, _ in map(of_line, _far_lines(place))))
    return Near(weights, of_parts, counted)


def candidates(
    place: ChunkPlace, index: IndexReader, imports: Sequence[Import], until_s: float, sources: Set[str] = SOURCES
) -> list[Chunk]:
    """Those of definitions and classes that bear on a place. Over its time it gives what it has by then."""
    around = near(place)
    bases = {word for scope in place.scopes for word in _WORD.findall(scope.partition("(")[2] or scope)}
    found: dict[tuple[str, str], tuple[float, str, Symbol]] = {}

    def want(symbol: Symbol, weight: float, source: str = "definition") -> None:
        source = "class" if symbol.name in bases else source
        if symbol.path != place.path and source in sources:
            key = symbol.path, symbol.name
            if key not in found or found[key][0] < weight:
                found[key] = weight, source, symbol

    imported(place, index, imports, around, want, until_s)
    if perf_counter() < until_s:
        named(place, index, around, want)
    if perf_counter() < until_s:
        received(place, index, around, want)
    chunks: list[Chunk] = []
    for weight, source, symbol in sorted(found.values(), key=lambda one: (-one[0], one[2].path, one[2].line))[:TARGETS]:
        if chunks and perf_counter() > until_s:
            break
        text = written(place, index, symbol, around)
        if text.strip():
            chunks.append(Chunk(symbol.path, hidden_characters.visible(text), round(weight, 4), source))
    return chunks


def imported(
    place: ChunkPlace,
    index: IndexReader,
    imports: Sequence[Import],
    around: Near,
    want: Want,
    until_s: float,
) -> None:
    """What the document imports from the workspace: a name not used yet is likely to be."""
    modules = 0
    for one in imports:
        if modules >= MODULES or perf_counter() > until_s:
            return
        path = index.module(one.module, place.path) if one.module else None
        if path is not None and path != place.path:
            modules += 1
        wanted = {}
        for name, shown in one.names:
            if name == "*":
                continue
            uses = around.everywhere.get(shown, 0)
            wanted[name] = 0.75 if uses <= 1 else 0.25 + 0.65 * around.of(shown)
        if not wanted:
            continue
        defined = {symbol.name: symbol for symbol in index.imported(one, place.path)}
        for name, weight in wanted.items():
            if name in defined:
                want(defined[name], weight)


def named(place: ChunkPlace, index: IndexReader, around: Near, want: Want) -> None:
    """What is named near the cursor and not imported: definitions at the top of files."""
    together = place.language in _ONE_NAMESPACE
    names = [name for name in around.weights if len(name) > 2 and (together or name[:1].isupper())]
    names = sorted(names, key=lambda name: -around.weights[name])[:NAMES]
    by_name: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in index.symbols(names, near=place.path, limit=4 * NAMES):
        if not symbol.container:
            by_name[symbol.name].append(symbol)
    for name, symbols in by_name.items():
        if any(symbol.path == place.path for symbol in symbols):
            continue
        want(symbols[0], 0.6 * around.of(name) / len(symbols))


@functools.lru_cache(maxsize=MOST_LINES)
def of_line(line: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """The words of a line, and the (receiver, member) pairs in it; most lines are soon asked about again."""
    return tuple(_WORD.findall(line)), tuple(_MEMBER.findall(line))


def _far_lines(place: ChunkPlace) -> list[str]:
    return (place.above[-FAR_CHARACTERS:] + "\n" + place.below[:FAR_CHARACTERS]).split("\n")


def names_in(text: str) -> list[str]:
    """The names in a part of a document that `named` and `received` may ask about, the first ones."""
    members = dict.fromkeys(member for _, member in _MEMBER.findall(text))
    types = dict.fromkeys(word for word in _WORD.findall(text) if len(word) > 2 and word[:1].isupper())
    return [*islice(members, NAMES_BEFOREHAND), *islice(types, NAMES_BEFOREHAND)]


def received(place: ChunkPlace, index: IndexReader, around: Near, want: Want) -> None:
    """What the receivers near the cursor may be: the class that has most of the members that they were asked for."""
    asked: dict[str, set[str]] = defaultdict(set)
    for receiver, member in chain.from_iterable(members for _, members in map(of_line, _far_lines(place))):
        asked[receiver].add(member)
    receivers = sorted(asked, key=lambda one: -around.of(one.rpartition(".")[2]))
    receivers = [one for one in receivers if around.of(one.rpartition(".")[2]) > 0.25][:8]
    names = {name for one in receivers for name in asked[one]}
    holders: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for symbol in index.symbols(sorted(names)[:NAMES], near=place.path, limit=6 * NAMES):
        if symbol.container:
            holders[symbol.name].add((symbol.path, symbol.container))
    for receiver in receivers:
        score: dict[tuple[str, str], float] = defaultdict(float)
        for name in asked[receiver]:
            for holder in holders.get(name, ()):
                score[holder] += 1.0 / len(holders[name])
        if not score:
            continue
        (path, container), best = max(score.items(), key=lambda one: (one[1], one[0]))
        if best < 0.5:
            continue
        for symbol in index.outline(path):
            if symbol.name == container.rpartition(".")[2] and symbol.kind not in MEMBER_KINDS:
                want(symbol, around.of(receiver.rpartition(".")[2]) * min(1.0, best) * 0.7, "class")
                break


def written(place: ChunkPlace, index: IndexReader, symbol: Symbol, around: Near) -> str:
    """A definition as its language writes it, a class with those of its members that have most to do with the place."""
    if symbol.kind in MEMBER_KINDS:
        text = stub(symbol, place.language)
        return text + "\n" if text else ""
    container = f"{symbol.container}.{symbol.name}" if symbol.container else symbol.name
    members = [one for one in index.outline(symbol.path) if one.container == container]
    return class_stub(symbol, members, place.language, around)


def class_stub(symbol: Symbol, members: Sequence[Symbol], language: str, around: Near) -> str:
    """A class's header and members."""
    ranked = sorted(members, key=lambda one: (-member_worth(one, around), one.line))
    kept, room = [], CLASS_CHARACTERS
    for one in ranked[:MEMBERS]:
        line = stub(one, language)
        if line and len(line) < room:
            kept.append((one.line, "    " + line.strip()))
            room -= len(line) + 5
    head = tidy(symbol.signature, language)[:LONGEST_SIGNATURE]
    body = [line for _, line in sorted(kept)]
    if language == "python":
        return "\n".join([head.rstrip(":") + ":", *(body or ["    ..."])]) + "\n"
    if language in ("go",):
        return "\n".join([head, *(line.strip() for line in body)]) + "\n"
    if language in _BRACES and body:
        return "\n".join([head.rstrip(" {") + " {", *body, "}"]) + "\n"
    return "\n".join([head, *body]) + "\n"


def member_worth(symbol: Symbol, around: Near) -> float:
    """How likely a member is to be asked for here."""
    worth = around.relevance(symbol.name)
    if symbol.name in ("__init__", "constructor", "new"):
        return 1.0
    if symbol.name.startswith("__"):
        return worth - 0.6
    return worth - (0.3 if symbol.name.startswith("_") else 0.0) + 0.1 * (symbol.kind == "method")


def stub(symbol: Symbol, language: str) -> str:
    """A signature on one line, with as much of a body as makes it look whole."""
    line = tidy(symbol.signature, language)
    if len(line) > LONGEST_SIGNATURE:
        return ""
    callable_ = symbol.kind in ("function", "method", "property", "prototype")
    if language == "python":
        if callable_:
            return line.rstrip(":") + ": ..."
        return line.removeprefix("self.").rstrip(":") + (": ..." if symbol.kind == "class" else "")
    if callable_ and language in _BRACES and language != "go":
        return line.rstrip(" {;") + ";"
    return line


@functools.lru_cache(maxsize=4096)
def tidy(signature: str, language: str) -> str:
    """On one line, as it would be written on one."""
    line = " ".join(signature.split())
    if language == "python":
        line = line.partition("  #")[0].partition(" # ")[0]
    return re.sub(r",? ([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", line)).strip()


@functools.lru_cache(maxsize=4096)
def parts(word: str) -> frozenset[str]:
    """get_user, getUser, GetUser: get and user."""
    return frozenset(part.lower() for part in _PART.findall(word) if len(part) > 1)


_ONE_NAMESPACE = frozenset({"go", "c", "cpp", "java", "c_sharp", "php", "ruby"})  # files see one another unasked
_BRACES = frozenset({"typescript", "tsx", "javascript", "java", "c", "cpp", "c_sharp", "rust", "php", "go"})
_WORD = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MEMBER = re.compile(r"\b\d*([^\W\d]\w*(?:\.\w+)?)(?:\.|->|::)([^\W\d]\w*)")  # from the start of a word, once
