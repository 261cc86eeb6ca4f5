"""Context source `class`: members of base classes, annotated parameters and receivers, from the index.

    headers of the enclosing scopes ─► the classes named there      ─► a class with its members
    x.a x.b x.c  ─► the class that has a, b and c ─► its other members         (the type of x is not declared)

A class is written as source code of its language without bodies: models were trained on source code.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from itertools import chain, islice

from speclsp.lsp.context.chunk import Chunk, ChunkPlace
from speclsp.lsp.context.short_text_cache import cache_short
from speclsp.lsp.index.outline import Symbol
from speclsp.lsp.index.query_cache import Deadline
from speclsp.lsp.index.reader import IndexReader
from speclsp.lsp.syntax import hidden_characters
from speclsp.lsp.syntax.languages import record
from speclsp.lsp.syntax.languages.import_rules import Import
from speclsp.lsp.syntax.languages.record import BlockStyle

CLASS = "class"  # a Chunk's source, and its name in `context.sources`
MEMBERS = 14  # of a class shown
CLASS_CHARACTERS = 900
MAX_SIGNATURE = 200
NAMES = 32  # looked up
NAMES_IN_WARM_UP = 50  # of each sort, in a part of a document
TARGETS = 14  # classes shown at most
MODULES = 12  # whose imported names are looked up
NEAR_LINES = 24
FAR_CHARACTERS = 12_000
MAX_LINES = 8192  # of documents, whose words are cached
MEMBER_KINDS = frozenset({"method", "property", "field", "constant", "variable", "function", "prototype"})

AddSymbol = Callable[[Symbol, float], None]  # (symbol, weight)


@dataclass(slots=True)
class NearbyWords:
    """Words around the cursor, without the line being typed, and their weights from 0 to 1."""

    weights: dict[str, float] = field(default_factory=dict)
    part_weights: dict[str, float] = field(default_factory=dict)  # of the parts of words: get_user, getUser

    def weight(self, word: str) -> float:
        return self.weights.get(word, 0.0)

    def relevance(self, name: str) -> float:
        """Mean weight of a name's parts, 0 to 1."""
        name_parts = word_parts(name)
        return sum(self.part_weights.get(part, 0.0) for part in name_parts) / len(name_parts) if name_parts else 0.0


def nearby_words(place: ChunkPlace) -> NearbyWords:
    """Words around a place, weighted by distance; those of the enclosing scopes' headers weigh 0.8."""
    weights: dict[str, float] = {}
    above = [line for line in place.above[-6000:].split("\n") if line.strip()][-NEAR_LINES:]
    below = [line for line in place.below[:1500].split("\n") if line.strip()][:8]
    for distance, line in enumerate(reversed(above)):
        for word in _WORD.findall(line):
            weights.setdefault(word, 1.0 / (1 + 0.08 * distance))
    for distance, line in enumerate(below):
        for word in _WORD.findall(line):
            weights[word] = max(weights.get(word, 0.0), 0.6 / (1 + 0.08 * distance))
    for scope in place.scopes:
        for word in _WORD.findall(scope):
            weights[word] = max(weights.get(word, 0.0), 0.8)
    part_weights: dict[str, float] = {}
    for word, weight in weights.items():
        for part in word_parts(word):
            part_weights[part] = max(part_weights.get(part, 0.0), weight)
    return NearbyWords(weights, part_weights)


def candidates(place: ChunkPlace, index: IndexReader, imports: Sequence[Import], deadline: Deadline) -> list[Chunk]:
    """Classes that are relevant at a place. After the deadline it returns those found by then."""
    nearby = nearby_words(place)
    header_names = {word for scope in place.scopes for word in _WORD.findall(scope.partition("(")[2] or scope)}
    best: dict[tuple[str, str], tuple[float, Symbol]] = {}

    def add(symbol: Symbol, weight: float) -> None:
        if symbol.path != place.path:
            key = symbol.path, symbol.name
            if key not in best or best[key][0] < weight:
                best[key] = weight, symbol

    add_imported(place, index, imports, header_names, nearby, add, deadline)
    if not deadline.passed():
        add_named(place, index, header_names, nearby, add)
    if not deadline.passed():
        add_receivers(place, index, nearby, add)
    chunks: list[Chunk] = []
    ranked = sorted(best.values(), key=lambda entry: (-entry[0], entry[1].path, entry[1].line))
    for weight, symbol in ranked[:TARGETS]:
        if chunks and deadline.passed():
            break
        text = class_text(place, index, symbol, nearby)
        if text.strip():
            chunks.append(Chunk(symbol.path, hidden_characters.visible(text), round(weight, 4), CLASS))
    return chunks


def add_imported(
    place: ChunkPlace,
    index: IndexReader,
    imports: Sequence[Import],
    header_names: Set[str],
    nearby: NearbyWords,
    add: AddSymbol,
    deadline: Deadline,
) -> None:
    """Classes of the enclosing scopes' headers (`header_names`) that the document imports from the workspace."""
    modules = 0
    for statement in imports:
        if modules >= MODULES or deadline.passed():
            return
        weights = {name: 0.25 + 0.65 * nearby.weight(local) for name, local in statement.names if name in header_names}
        if not weights:
            continue
        modules += 1
        symbols = {symbol.name: symbol for symbol in index.imported_symbols(statement, place.path)}
        for name, weight in weights.items():
            if name in symbols:
                add(symbols[name], weight)


def add_named(
    place: ChunkPlace, index: IndexReader, header_names: Set[str], nearby: NearbyWords, add: AddSymbol
) -> None:
    """Top-level classes of the enclosing scopes' headers that are not imported."""
    shares_namespace = record(place.language).outline.shares_namespace
    names = [
        name
        for name in nearby.weights
        if name in header_names and len(name) > 2 and (shares_namespace or name[:1].isupper())
    ]
    names = sorted(names, key=lambda name: -nearby.weights[name])[:NAMES]
    by_name: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in index.symbols(names, near=place.path, limit=4 * NAMES):
        if not symbol.container:
            by_name[symbol.name].append(symbol)
    for name, symbols in by_name.items():
        if any(symbol.path == place.path for symbol in symbols):
            continue
        add(symbols[0], 0.6 * nearby.weight(name) / len(symbols))


@cache_short(MAX_LINES)
def words_and_members(line: str) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Words of a line, and its (receiver, member) pairs; cached, since the same line is searched again soon."""
    return tuple(_WORD.findall(line)), tuple(_MEMBER.findall(line))


def _searched_lines(place: ChunkPlace) -> list[str]:
    return (place.above[-FAR_CHARACTERS:] + "\n" + place.below[:FAR_CHARACTERS]).split("\n")


def lookup_names(text: str) -> list[str]:
    """The first names in a part of a document that `add_named` and `add_receivers` may look up."""
    members = dict.fromkeys(member for _, member in _MEMBER.findall(text))
    types = dict.fromkeys(word for word in _WORD.findall(text) if len(word) > 2 and word[:1].isupper())
    return [*islice(members, NAMES_IN_WARM_UP), *islice(types, NAMES_IN_WARM_UP)]


def add_receivers(place: ChunkPlace, index: IndexReader, nearby: NearbyWords, add: AddSymbol) -> None:
    """Classes of the receivers near the cursor: for each the class that has most of the members used on it."""
    members_of: dict[str, set[str]] = defaultdict(set)
    for receiver, member in chain.from_iterable(pairs for _, pairs in map(words_and_members, _searched_lines(place))):
        members_of[receiver].add(member)

    def weight(receiver: str) -> float:
        return nearby.weight(receiver.rpartition(".")[2])

    receivers = [name for name in sorted(members_of, key=lambda name: -weight(name)) if weight(name) > 0.25][:8]
    names = {name for receiver in receivers for name in members_of[receiver]}
    holders: dict[str, set[tuple[str, str]]] = defaultdict(set)  # (path, class) by member
    for symbol in index.symbols(sorted(names)[:NAMES], near=place.path, limit=6 * NAMES):
        if symbol.container:
            holders[symbol.name].add((symbol.path, symbol.container))
    for receiver in receivers:
        scores: dict[tuple[str, str], float] = defaultdict(float)
        for name in members_of[receiver]:
            for holder in holders.get(name, ()):
                scores[holder] += 1.0 / len(holders[name])
        if not scores:
            continue
        (path, container), score = max(scores.items(), key=lambda entry: (entry[1], entry[0]))
        if score < 0.5:
            continue
        for symbol in index.outline(path):
            if symbol.name == container.rpartition(".")[2] and symbol.kind not in MEMBER_KINDS:
                add(symbol, weight(receiver) * min(1.0, score) * 0.7)
                break


def class_text(place: ChunkPlace, index: IndexReader, symbol: Symbol, nearby: NearbyWords) -> str:
    """A class as source code with its most relevant members, without bodies; another definition by its signature."""
    style = record(place.language).outline.block_style
    if symbol.kind in MEMBER_KINDS:
        text = stub(symbol, style)
        return text + "\n" if text else ""
    container = f"{symbol.container}.{symbol.name}" if symbol.container else symbol.name
    members = [member for member in index.outline(symbol.path) if member.container == container]
    return class_stub(symbol, members, style, nearby)


def class_stub(symbol: Symbol, members: Sequence[Symbol], style: BlockStyle, nearby: NearbyWords) -> str:
    """A class's header and its most relevant members, in file order."""
    ranked = sorted(members, key=lambda member: (-member_score(member, nearby), member.line))
    kept, room = [], CLASS_CHARACTERS
    for member in ranked[:MEMBERS]:
        line = stub(member, style)
        if line and len(line) < room:
            kept.append((member.line, "    " + line.strip()))
            room -= len(line) + 5
    head = one_line(symbol.signature, style)[:MAX_SIGNATURE]
    body = [line for _, line in sorted(kept)]
    if style == "colon":
        return "\n".join([head.rstrip(":") + ":", *(body or ["    ..."])]) + "\n"
    if style == "flat":
        return "\n".join([head, *(line.strip() for line in body)]) + "\n"
    if style == "braces" and body:
        return "\n".join([head.rstrip(" {") + " {", *body, "}"]) + "\n"
    return "\n".join([head, *body]) + "\n"


def member_score(symbol: Symbol, nearby: NearbyWords) -> float:
    """Score of a member by its relevance: constructors first, private names last."""
    if symbol.name in ("__init__", "constructor", "new"):
        return 1.0
    score = nearby.relevance(symbol.name)
    if symbol.name.startswith("__"):
        return score - 0.6
    return score - (0.3 if symbol.name.startswith("_") else 0.0) + 0.1 * (symbol.kind == "method")


def stub(symbol: Symbol, style: BlockStyle) -> str:
    """A signature on one line, with a stub of a body where the language needs one; "" if it is too long."""
    line = one_line(symbol.signature, style)
    if len(line) > MAX_SIGNATURE:
        return ""
    is_callable = symbol.kind in ("function", "method", "property", "prototype")
    if style == "colon":
        if is_callable:
            return line.rstrip(":") + ": ..."
        return line.removeprefix("self.").rstrip(":") + (": ..." if symbol.kind == "class" else "")
    if is_callable and style == "braces":
        return line.rstrip(" {;") + ";"
    return line


@functools.lru_cache(maxsize=4096)
def one_line(signature: str, style: BlockStyle) -> str:
    """A signature joined to one line, spaced as on one line."""
    line = " ".join(signature.split())
    if style == "colon":
        line = line.partition("  #")[0].partition(" # ")[0]
    return re.sub(r",? ([)\]])", r"\1", re.sub(r"([(\[]) ", r"\1", line)).strip()


@cache_short(4096)
def word_parts(word: str) -> frozenset[str]:
    """Parts of a name in lower case: get_user, getUser and GetUser give get and user."""
    return frozenset(part.lower() for part in _PART.findall(word) if len(part) > 1)


_WORD = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MEMBER = re.compile(r"\b\d*([^\W\d]\w*(?:\.\w+)?)(?:\.|->|::)([^\W\d]\w*)")  # from the start of a word, once
