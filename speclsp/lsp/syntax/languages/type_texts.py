"""Texts of types, as in annotations: their name, and the type of their elements, in any language.

A type is its text; "@" and an offset, if it has no name; UNKNOWN; or OTHER, which the document does not define.
"""

from __future__ import annotations

import re

UNKNOWN, OTHER = "", "-"
PREFIX = re.compile(r"(?:(?:readonly|const|mut|ref|dyn|impl|struct|final)\b|'\w+|[&*:?])\s*")
SUFFIX = re.compile(r"(?:\s*(?:[&*?!]|\bconst\b|\|\s*(?:null|undefined|None)\b))+$|^(?:null|undefined|None)\s*\|")
GENERIC = re.compile(r"([\w.:]+)\s*[<\[](.*)[>\]]", re.DOTALL)
ARRAY = re.compile(r"(.+)\[\]|(?:\[\w*\]|\.\.\.|map\[[^\]]*\])(.+)|\[([^;\]]+)(?:;[^\]]*)?\]", re.DOTALL)
NAMED = re.compile(r"(?:\w+::)*(@?\w+)")
TRANSPARENT = re.compile(  # types with the members of their first argument
    r"Optional|Final|ClassVar|Annotated|Box|Rc|Arc|RefCell|Option|Result|Readonly|Partial|Required|NonNullable|Omit|Pick"
    r"|Promise|Task|unique_ptr|shared_ptr"
)

# Annotations that leave the type to the value, and values without a type.
INFERRED = frozenset(("var", "auto", "val"))
NOTHING = frozenset(("None", "null", "nil", "undefined", "nullptr"))
BODY = re.compile(r"(?:struct\s*|interface\s*)?\{(?:.*\})?(.*)", re.DOTALL)  # of a type without a name
SELF = re.compile(r"\bSelf\b")
# Methods whose result has the type of their object, or of its elements.
SAME = re.compile(
    "iter|iter_mut|into_iter|stream|values|entries|filter|slice|copy|clone|unwrap|expect|as_ref|as_mut|borrow|borrow_mut|Where"
)
ADDS = re.compile("push|unshift|set|add")  # methods that take an element
ELEMENT = re.compile("find|pop|shift|at|get|first|last|next|firstOrNull|First|FirstOrDefault|front|back")


def pointee(text: str) -> str:
    """A type without what keeps its members: pointers, references, `| null`, wrappers."""
    before = None
    while text != before:
        before, text = text, SUFFIX.sub("", text.strip("\"' \t\r\n"))
        text = text[match.end() :] if (match := PREFIX.match(text)) else text
        generic = GENERIC.fullmatch(text)
        if generic and TRANSPARENT.fullmatch(re.split(r"\W+", generic[1])[-1]):
            text = arguments_of(generic[2])[0]
    return text


def arguments_of(text: str) -> list[str]:
    """The type arguments of a text, which commas outside of brackets separate."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "<[({") - (character in ">])}")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts if part.strip() != "..."]


def element_of(text: str) -> str:
    """The type of the elements, or of the values, of a type."""
    if (match := GENERIC.fullmatch(text)) and match[1] == "Option":
        return arguments_of(match[2])[0]
    text = pointee(text)
    if match := ARRAY.fullmatch(text):
        return str(match[match.lastindex or 0])
    if match := GENERIC.fullmatch(text):
        return arguments_of(match[2])[-1]
    return text if text == UNKNOWN else OTHER


def written(text: str, around: str, at: int) -> str:
    """A type that a text in the type `around` writes at byte `at`, with a name in place of `Self` and of a body."""
    if match := BODY.search(text):
        before = text[: match.start()]
        text = f"{before}@{at + len(before.encode())}{match[1] or ''}"
    return SELF.sub(around, text)


def name_of(text: str) -> str:
    """The name of a type of this document; OTHER for one of another module."""
    text = pointee(text)
    generic = GENERIC.fullmatch(text) if not ARRAY.fullmatch(text) else None
    name = NAMED.fullmatch(generic[1] if generic else text)
    return name[1] if name else text if text == UNKNOWN else OTHER
