"""Suggestions contain no invisible character and no model marker, unless the file already has it."""

from __future__ import annotations

import random
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from promises import Measured
from support.faults.scripted_server import Talker, editor_of
from support.lsp.suggested import inserted

from speclsp.config import ContextConfig
from speclsp.lsp.context import build
from speclsp.lsp.context.cross_file import CrossFileSources
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.reasons import Reason
from speclsp.lsp.syntax import hidden_characters

ROOT = Path(__file__).parents[3]


def span(*ranges: str) -> set[str]:
    """The set of {characters of "200B-200F" and the like}."""
    characters: set[str] = set()
    for part in ranges:
        first, _, last = part.partition("-")
        characters |= {chr(code) for code in range(int(first, 16), int(last or first, 16) + 1)}
    return characters


# Copied from Unicode 16 (UnicodeData, PropList, DerivedCoreProperties), independently of the product's own tables.
BIDI_OVERRIDES = span("202A-202E", "2066-2069")
BIDI_MARKS = span("061C", "200E-200F")
CONTROLS = span("0-8", "B", "E-1F", "7F-9F")
TAGS = span("E0000-E007F")
NONCHARACTERS = span("FDD0-FDEF", *(f"{plane:X}FFFE-{plane:X}FFFF" for plane in range(1, 17)), "FFFE-FFFF")
SURROGATES = span("D800-DFFF")
ZERO_WIDTH = span("200B-200D", "2060-2064", "FEFF", "AD", "34F", "180E", "206A-206F", "2065")
FILLERS = span("115F-1160", "3164", "FFA0", "2800", "17B4-17B5")
SEPARATORS = span("2028-2029")
SELECTORS = span("FE00-FE0F", "180B-180D", "180F", "E0100-E01EF")
ANNOTATION = span("FFF9-FFFB", "1D173-1D17A", "1BCA0-1BCA3", "13430-1343F", "16FE4")
RESERVED = span("FFF0-FFF8", "E0080-E00FF", "E01F0-E0FFF")  # default ignorable, not yet assigned
NEVER = BIDI_OVERRIDES | CONTROLS | TAGS | NONCHARACTERS | SURROGATES
UNSEEN = BIDI_MARKS | ZERO_WIDTH | FILLERS | SEPARATORS | SELECTORS | ANNOTATION | RESERVED
PRIVATE = span("E000-F8FF", "F0000-F0FFF", "100000-100FFF")
MAYBE = UNSEEN | PRIVATE
EMOJI_STYLE = re.compile("[\u2190-\u2bff\U0001f000-\U0001faff]\ufe0f")  # an arrow or an emoji, shown as an emoji


def markers() -> list[str]:
    """The markers of the cards' models and of other families."""
    names = {"<|python_tag|>", "<start_of_turn>", "<fim-middle>", "<[fim-suffix]>", "[INST]", "<EOT>", "<PRE>", "<MID>"}
    names |= {"[SUFFIX]", "[PREFIX]", "<|code_suffix|>", "<jupyter_start>", "<commit_before>", "<issue_comment>"}
    for path in sorted((ROOT / "models").glob("*.toml")):
        text = path.read_text(encoding="utf-8")
        names |= set(re.findall(r'"(<[^"\s<>]{2,40}>)"', text))
    return sorted(names)


MARKERS = markers()
VARIANTS = [
    variant
    for marker in MARKERS
    if marker[0] == "<" and marker[1] in "|｜"
    for variant in (marker.upper(), marker.title())
]
CODE = ["x = 1", "return value", "    ", "\n", " + b", "foo(bar)", "def f(a):\n    ", "if x:\n        y()\n"]
CODE += ['"text"', "# why", "é日本", "🙂", "→"]
HIDDEN = sorted(NEVER | UNSEEN | set(sorted(PRIVATE)[::1500]))


def hostile(chance: random.Random) -> str:
    """A generated text that tries to smuggle hidden characters and markers."""
    parts = [chance.choice(CODE) for _ in range(chance.randint(1, 6))]
    for _ in range(chance.randint(0, 3)):
        kind, at = chance.randrange(6), chance.randint(0, len(parts))
        if kind < 3:
            parts.insert(at, chance.choice(HIDDEN))
        elif kind == 3:
            parts.insert(at, chance.choice(MARKERS + VARIANTS) + chance.choice(["", "src/a.py", " x"]))
        elif kind == 4:  # bytes hidden in variation selectors or tags behind a letter
            smuggled = (chr(chance.choice([0xFE00, 0xE0100, 0xE0020]) + chance.randrange(16)) for _ in range(9))
            parts.insert(at, "a" + "".join(smuggled))
        else:
            parts.insert(at, "🙂\ufe0f" + chance.choice(["\u200d", "\ufe0e", "\ufe0f\ufe0f", ""]))
    return "".join(parts)


def hidden_in(text: str, document: str) -> list[str]:
    """Hidden characters and markers in a delivered text that the document does not have."""
    without = EMOJI_STYLE.sub("", text)
    hidden = [
        f"U+{ord(character):04X}"
        for character in without
        if character in NEVER or (character in MAYBE and character not in document)
    ]
    for marker in [*MARKERS, *VARIANTS]:
        named = marker + r"(?=[\w./-])" if marker in ("<filename>", "<reponame>") else None
        present = re.search(named, text) if named else marker in text
        if present and marker not in document:
            hidden.append(marker)
    return hidden


def strings_of(found: Any) -> list[str]:
    """Every string in an answer."""
    if isinstance(found, dict):
        return [text for value in found.values() for text in strings_of(value)]
    if isinstance(found, list):
        return [text for value in found for text in strings_of(value)]
    return [found] if isinstance(found, str) else []


DOCUMENTS = [  # (text before the cursor, after it)
    ("def f(x):\n    ", "\n"),
    ("value = ", "\n"),
    ("print(", ")\n"),
    ("a\u200db = '\u200f'\ndef g():\n    ", "\n"),  # has its own joiner and mark
    ("s = '<|endoftext|>\ufe0f'\nt = ", "\n"),
    ("const f = () => {\n  ", "\n}\n"),
    ("x = '<|fim_", "'\n"),
]


@pytest.mark.promise(33)
def test_no_hidden_character_of_any_model_output_is_delivered(promise: Measured, soak: bool):
    count, chance = (10_000 if soak else 400), random.Random(33)
    shown = requests = 0
    broken: list[str] = []
    with Talker(lambda request: hostile(chance)) as server, editor_of(server, "completion.show_in_menu=true") as editor:
        editor.begin({"textDocument": {"completion": {"dynamicRegistration": True}}})
        uris = [f"file:///p/{number}.py" for number in range(8)]
        for uri in uris:
            editor.open(uri, "")
        version = 1
        while requests < count:
            waiting = []
            for uri in uris:
                before, after = chance.choice(DOCUMENTS)
                before = f"n{requests} = 0\n{before}"
                version, requests = version + 1, requests + 1
                editor.change(uri, version, {"text": before + after})
                lines = before.split("\n")
                place = {"line": len(lines) - 1, "character": len(lines[-1].encode("utf-16-le")) // 2}
                params: dict[str, Any] = {"textDocument": {"uri": uri}, "position": place}
                params["context"] = {"triggerKind": 2}
                method, way = "textDocument/inlineCompletion", chance.randrange(10)
                if way == 0:
                    params["context"]["triggerKind"] = 1
                elif way == 1:
                    chosen = chance.choice(["go", "x\u202ey", "z\u200b"])
                    info = {"range": {"start": place, "end": place}, "text": chosen}
                    params["context"]["selectedCompletionInfo"] = info
                elif way == 2:
                    method, params["context"] = "textDocument/completion", {"triggerKind": 1}
                waiting.append((editor.request(method, params), before + after))
            for number, document in waiting:
                items = editor.reply(number, 20)["result"]["items"]
                shown += bool(items)
                broken += [f"{what} in {items}" for text in strings_of(items) for what in hidden_in(text, document)]
    promise.measured(
        f"{requests} hostile generations over the wire: {len(broken)} hidden or markers delivered, {shown} shown",
        holds=not broken and requests >= count,
    )
    assert broken == []
    assert shown > requests // 3, "most of what is harmless is shown"


# ── the rules themselves ─────────────────────────────────────────────────────────────────────────────────────


def shown(marked: str, output: str) -> str:
    return inserted(marked, output, tree=False)


def test_every_invisible_character_of_unicode_is_known():
    """Checked against this Python's tables: every format character, control and separator except visible marks."""
    visible = span("600-605", "6DD", "70F", "890-891", "8E2", "110BD", "110CD") | set("\t\n\r")
    for code in range(0x110000):
        character = chr(code)
        if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co") and character not in visible:
            assert hidden_characters.HIDDEN.match(character), f"U+{code:04X}"
    for character in HIDDEN[::7]:
        assert shown("x = ¦", f"a{character}b") == "a", f"U+{ord(character):04X}"
        assert shown("x = ¦", f"{character}b") is Reason.FORBIDDEN


def test_an_emoji_keeps_its_variation_selector_and_other_text_gets_none():
    assert shown("x = ¦", "'⚠\ufe0f ok'") == "'⚠\ufe0f ok'"
    assert shown("x = ¦", "'a\ufe0fb'") is Reason.FORBIDDEN, "a cut string is not shown"
    assert shown("# ¦", "a\ufe0fb") == "a"
    assert shown("# ¦", "🙂\ufe0f\ufe0f") == "🙂\ufe0f"
    assert shown("y = 'a\ufe0f'\nx = ¦", "'b\ufe0f'") == "'b\ufe0f'", "the file has it"


@pytest.mark.parametrize("marker", MARKERS)
def test_no_marker_of_any_model_is_shown_unless_the_file_has_it(marker: str):
    plain = f"1{marker}src/a.py"
    assert shown("x = ¦", plain) == "1" and shown("x = ¦", plain[1:]) is Reason.FORBIDDEN
    assert shown(f"y = '{marker}'\nx = ¦", plain) == plain
    head, tail = marker[: len(marker) // 2], marker[len(marker) // 2 :]
    if marker not in ("<filename>", "<reponame>"):
        assert shown(f"x = '{head}¦'", tail) == "forbidden", "half of it typed, half of it said"


HARMLESS = ("usage: prog <filename>", "x[suffix]", "<pre>text</pre>", "a <| b |> c", "a <| b", "f <| g", "List<int>")


@pytest.mark.parametrize("harmless", [*HARMLESS, "<div>", "x < y | z > w", "vec<T>"])
def test_text_that_only_resembles_a_marker_is_shown(harmless: str):
    assert shown("x = ¦", harmless) == harmless


def test_invisible_characters_of_other_files_and_paths_never_reach_the_model():
    bad = "".join(sorted(NEVER - set("\r"))) + "".join(sorted(UNSEEN))
    words = "alpha beta gamma delta\n" * 80
    here = Snapshot("file:///p/a.py", "python", 1, words * 3, len(words * 3))
    like = "gamma alpha epsilon beta\n" * 80  # the same lines would already be in the document
    other = Snapshot("file:///p/b\u202e\u200b.py", "python", 1, bad + like, 0)
    unlimited = CrossFileSources(clock=lambda: 0.0)  # no deadline passes, however slow the machine is
    context = build.build(here, None, ContextConfig(), None, [other], sources=unlimited)
    assert context.extra, "it is a neighbour"
    assert not {*context.extra[0].text, *context.extra[0].path} & (NEVER | UNSEEN)


def test_the_document_reaches_the_model_unchanged():
    text = "a\u200bb\u202ec\n"
    context = build.build(Snapshot("file:///p/a.py", "python", 1, text, len(text)), None, ContextConfig())
    assert context.prefix == text
