"""Outdent: a line that ends its block stands as deep as the line that opened it, or nothing is shown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import accepted, suggest

from speclsp.lsp.postprocess.plan import Suggestion
from speclsp.lsp.reasons import Reason


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    [
        ("python", "if x:\n    a()\n    ¦", "else:\n        b()\n", "if x:\n    a()\nelse:"),
        ("python", "if x:\n    a()\n    ¦\n\nb()\n", "elif y:\n", "if x:\n    a()\nelif y:\n\nb()\n"),
        ("python", "if x:\n    a()\n    el¦", "se:\n", "if x:\n    a()\nelse:"),
        (
            "python",
            "for y in z:\n    if x:\n        a()\n        ¦",
            "else:\n",
            "for y in z:\n    if x:\n        a()\n    else:",
        ),
        ("python", "try:\n    a()\n    ¦\n", "except ValueError as e:\n", "try:\n    a()\nexcept ValueError as e:\n"),
        (
            "python",
            "try:\n    a()\nexcept E:\n    b()\n    ¦",
            "finally:\n",
            "try:\n    a()\nexcept E:\n    b()\nfinally:",
        ),
        ("python", "if x:\n\ta()\n\t¦", "else:\n", "if x:\n\ta()\nelse:"),
        ("python", "if x:\n    if y:\n        a()\n    else:\n        b()\n        ¦", "else:\n", None),
        ("javascript", "if (x) {\n  a();\n  ¦", "} else {\n", "if (x) {\n  a();\n} else {"),
        ("typescript", "const a = {\n  b: 1,\n  ¦", "};\n", "const a = {\n  b: 1,\n};"),
        ("go", "func f() {\n\tif x {\n\t\ta()\n\t\t¦\n}\n", "}\n", "func f() {\n\tif x {\n\t\ta()\n\t}\n}\n"),
        ("rust", "fn f() {\n    g(\n        1,\n        ¦\n}\n", ");\n", "fn f() {\n    g(\n        1,\n    );\n}\n"),
        ("ruby", "def f\n  if x\n    a\n    ¦\nend\n", "end\n", "def f\n  if x\n    a\n  end\nend\n"),
        ("lua", "if x then\n  a()\n  ¦", "else\n", "if x then\n  a()\nelse"),
        ("shellscript", "if x; then\n  a\n  ¦", "fi\n", "if x; then\n  a\nfi"),
        ("json", '{\n  "a": [\n    1\n    ¦\n}\n', "]\n", '{\n  "a": [\n    1\n  ]\n}\n'),
    ],
)
def test_a_line_that_ends_its_block_stands_as_deep_as_the_opener(
    language: str, marked: str, output: str, result: str | None
):
    if result is None:
        result = marked.replace("        ¦", "else:")
    assert accepted(marked, output, language, outdents=True) == result
    assert accepted(marked, output, language) is Reason.OUTDENTS, "an editor that cannot move the line shows nothing"


@pytest.mark.parametrize(
    ("language", "marked", "output"),
    [
        ("python", "if x:\n    a()\n¦", "else:\n"),
        ("python", "a()\n    ¦", "else:\n"),
        ("python", "x = 1 if y \\\n    ¦", "else 2\n"),
        ("python", "x = [\n    1,\n    ¦", "else_value,\n"),
        ("python", "def f():\n    ¦", "finally_done()\n"),
        ("javascript", "if (x) {\n  a();\n¦", "}\n"),
        ("c", "switch (x) {\n  ¦", "case 1:\n"),
        ("rust", "fn f() {\n    if a {\n        b();\n    } else if c¦\n}\n", ".d() {\n"),
        ("typescript", "function f() {\n  try {\n    a();\n  } catch ¦\n}\n", "{\n"),
        ("javascript", "function f() {\n  if (x) {\n    a();\n  } ¦", "else {\n"),
        ("markdown", "- a\n  ¦", "else: b\n"),
    ],
)
def test_other_lines_keep_their_indentation(language: str, marked: str, output: str):
    with_outdents = suggest(marked, output, language, outdents=True)
    assert with_outdents == suggest(marked, output, language)
    assert isinstance(with_outdents, Reason) or with_outdents.start == marked.index("¦")


@pytest.mark.parametrize(
    ("language", "marked", "output", "reason"),
    [
        ("javascript", "if (x) {\n  a();\n  ¦\n}\n", "}\n", Reason.REPEATS_BELOW),
        ("python", "if x:\n    a()\n    ¦\nelse:\n    b()\n", "else:\n", Reason.REPEATS_BELOW),
        ("c", "int f() {\n  x();\n  ¦\n  y();\n}\n", "}\n", Reason.BREAKS),
    ],
)
def test_a_block_is_not_ended_twice(language: str, marked: str, output: str, reason: Reason):
    assert suggest(marked, output, language, outdents=True) is reason


@given(
    st.lists(st.sampled_from(["if", "for", "while", "try", "with"]), min_size=1, max_size=5),
    st.integers(1, 4),
    st.data(),
)
def test_the_range_covers_white_space_only_and_the_result_is_deeper_than_nothing(
    headers: list[str], step: int, data: st.DataObject
):
    tails = {"if": " x:", "for": " x in y:", "while": " x:", "try": ":", "with": " x:"}
    lines = [" " * step * depth + word + tails[word] for depth, word in enumerate(headers)]
    marked = "\n".join([*lines, " " * step * len(headers) + "a()", " " * step * len(headers) + "¦"])
    word = data.draw(st.sampled_from(["else", "except", "finally"]))
    suggestion = suggest(marked, f"{word}:\n", outdents=True)
    if isinstance(suggestion, Suggestion):
        text = marked.replace("¦", "")
        assert text[suggestion.start : suggestion.end].strip() == ""
        assert text[suggestion.start - 1] == "\n" or suggestion.start == len(text)
        width = len(suggestion.text) - len(suggestion.text.lstrip())
        assert width % step == 0 and headers[width // step] in {"else": ("if", "for", "while")}.get(word, ("try",))
