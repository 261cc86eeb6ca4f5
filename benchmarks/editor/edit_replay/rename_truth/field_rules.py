"""Fields of structs in Go and Rust by a rule on the text, without a parser.

A field counts if one struct of the file declares its name, and each other place of the name is one of these: behind an
object of the struct, in a literal of the struct, or a plain name, which is another variable. Objects are `self`, and
parameters and variables that a function declares with the struct's name. Comments and strings are blanked first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchmarks.editor.edit_replay.rename_truth.definition import MEMBER, Definition, Use

TEXTS = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|`[^`]*`|\'(?:\\.|[^\'\\\n])\'', re.DOTALL)
STRUCTS = {
    "go": re.compile(r"^type (\w+)(?:\[[^\]\n]*\])? struct (\{.*?^\})", re.MULTILINE | re.DOTALL),
    "rust": re.compile(r"^(?:pub(?:\(\w+\))? )?struct (\w+)(?:<[^{;]*>)? (\{.*?^\})", re.MULTILINE | re.DOTALL),
}
FIELDS = {
    "go": re.compile(r"^\t(\w+)[ \t]+[^\s(]", re.MULTILINE),
    "rust": re.compile(r"^    (?:pub(?:\(\w+\))? )?(\w+):", re.MULTILINE),
}
SCOPES = {  # {name}: of the struct
    "go": [r"^func .*?^\}}"],
    "rust": [
        r"^( *)(?:pub\S* )?(?:async )?fn .*?^\1\}}",
        r"^impl(?:<[^{{]*>)? (?:[^{{\n]* for )?{name}\b(?:<[^{{]*>)? ?\{{.*?^\}}",
    ],
}
OBJECTS = {
    "go": r"\b(\w+) \*?{name}\b(?!\.)|\b(\w+) := &?{name}(?:\[[^\]\n]*\])?\{{",
    "rust": r"\b(\w+): &?(?:mut )?{name}\b|\blet (?:mut )?(\w+) = {name}(?: \{{|::new\()",
}


def definitions(text: str, language: str) -> list[Definition]:
    """The fields of a file that the rule can decide."""
    code = TEXTS.sub(lambda match: re.sub(r"\S", " ", match[0]), text)
    structs = list(STRUCTS[language].finditer(code))
    declared = [(field[1], struct) for struct in structs for field in FIELDS[language].finditer(struct[2])]
    names = [name for name, _ in declared]
    alone = [(name, struct) for name, struct in declared if names.count(name) == 1 and struct[1] not in names]
    return [field for name, struct in alone for field in of_field(code, language, name, struct)]


def of_field(code: str, language: str, name: str, struct: re.Match[str]) -> Iterator[Definition]:
    """The field of a struct, unless a place of its name is of something unknown."""
    scopes = list(objects(code, language, struct[1]))
    start, uses, others = -1, list[Use](), list[int]()
    for match in re.finditer(rf"\b{name}\b", code):
        at, before, behind = match.start(), code[: match.start()].rstrip(), code[match.end() :].lstrip(" \t")
        known = {item for low, high, names in scopes if low <= at < high for item in names}
        if struct.start() < at < struct.end():
            if start >= 0:
                return
            start = at
        elif before.endswith((".", "->")):
            receiver = re.search(r"(?<![.\w])(\w+)\s*\.$", before)
            if receiver is None or receiver[1] not in known or behind.startswith("("):
                return
            uses.append(Use(at))
        elif (is_literal := opened_by(code, at) in {struct[1], *({"Self"} & known)}) and re.match(":(?!:)", behind):
            uses.append(Use(at))
        elif is_literal and language == "rust" and behind[:1] in ",}\n" and before[-1] in "{,":
            uses.append(Use(at, suffix=f": {name}"))
        elif language == "go" and re.match(":(?![:=])", behind):
            return
        else:
            others.append(at)
    if start >= 0:
        yield Definition.of(MEMBER, name, start, uses, (), others)


def objects(code: str, language: str, name: str) -> Iterator[tuple[int, int, set[str]]]:
    """The start and end of each function and implementation, with the objects of the struct in it."""
    pattern = re.compile(OBJECTS[language].format(name=name))
    for scope in SCOPES[language]:
        for match in re.finditer(scope.format(name=name), code, re.MULTILINE | re.DOTALL):
            own = {"self", "Self"} if match[0].startswith("impl") else set[str]()
            yield match.start(), match.end(), own.union(*(item.groups("") for item in pattern.finditer(match[0])))


def opened_by(code: str, at: int) -> str:
    """The name before the innermost brace around a place; "" if there is none."""
    depth = 0
    for place in range(at - 1, -1, -1):
        depth += (code[place] in ")}]") - (code[place] in "({[")
        if depth < 0:
            match = re.search(r"(\w+)(?:\[[^\]\n]*\])?\s*$", code[:place]) if code[place] == "{" else None
            return match[1] if match else ""
    return ""
