"""Post-processing of prose: comments, docstrings, Markdown and its fences, and languages inside strings."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.lsp.suggested import outcome, plan_at, streamed

from speclsp.lsp.postprocess import prose
from speclsp.lsp.postprocess.plan import NoSuggestion
from speclsp.lsp.reasons import Reason


def complete(marked: str, output: str, language: str) -> str | Reason:
    """The text after accepting the suggestion made of `output` at the ¦, or the reason for showing nothing."""
    plan = plan_at(marked, language)
    suggestion = plan.to_suggestion(output)
    assert plan.to_suggestion(streamed(plan, output)) == suggestion, "closing the stream early costs nothing"
    if not isinstance(suggestion, NoSuggestion):
        again = plan.to_suggestion(suggestion.text)
        assert not isinstance(again, NoSuggestion) and again.text == suggestion.text, "cleaned twice as once"
    return outcome(marked, suggestion)


# ── comments and docstrings ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    [
        (
            "python",
            'def f():\n    """The sum¦\n    """\n',
            ' of all."""\n    return 1',
            'def f():\n    """The sum of all.\n    """\n',
        ),
        (
            "python",
            'def f():\n    """The sum¦\n    return 1\n',
            ' of all."""\n',
            'def f():\n    """The sum of all."""\n    return 1\n',
        ),
        (
            "python",
            'def f():\n    """The sum¦"""\n',
            ' of all."""\n    return 1',
            'def f():\n    """The sum of all."""\n',
        ),
        (
            "python",
            'def f():\n    """The sum.\n\n    Of¦\n    """\n',
            " (all) it's\n    got.\n",
            'def f():\n    """The sum.\n\n    Of (all) it\'s\n    """\n',
        ),
        (
            "python",
            "def f():\n    '''The sum¦\n    '''\n",
            " of all.'''\n",
            "def f():\n    '''The sum of all.\n    '''\n",
        ),
        ("python", "# add two¦\n", " numbers\ndef add(a, b):\n", "# add two numbers\n"),
        ("javascript", "/**\n * Adds¦\n */\nf();\n", " two. */\nfunction", "/**\n * Adds two.\n */\nf();\n"),
        ("javascript", "/* Adds¦ */\nf();\n", " two. */\nf();", "/* Adds two. */\nf();\n"),
        (
            "javascript",
            "/**\n * Adds two.¦\n */\nf();\n",
            "\n * @param a\n",
            "/**\n * Adds two.\n * @param a\n */\nf();\n",
        ),
        ("javascript", "/**\n * Adds two.¦\n */\nf();\n", "\nfunction f() {", Reason.DOES_NOT_FIT),
        ("c", "/* What it is¦\nint x;\n", " for. */\nint y;\n", "/* What it is for. */\nint x;\n"),
        ("html", "<!-- What it is¦ -->\n<p></p>\n", " for -->\n", "<!-- What it is for -->\n<p></p>\n"),
        ("lua", "--[[ What it is¦\n]]\nx = 1\n", " for ]]\ny = 2\n", "--[[ What it is for\n]]\nx = 1\n"),
    ],
)
def test_a_comment_ends_with_its_line_and_is_closed_once(language: str, marked: str, output: str, result: str | Reason):
    assert complete(marked, output, language) == result


# ── a language inside a string, tags, templates ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    [
        ("python", 'q = "SELECT ¦"\n', "a FROM t WHERE b = 'x'\"\n", "q = \"SELECT a FROM t WHERE b = 'x'\"\n"),
        ("python", 'db.run("SELECT ¦\n', 'a WHERE b = ?", (b,))\n', 'db.run("SELECT a WHERE b = ?", (b,))\n'),
        (
            "python",
            'q = """\n    SELECT a\n    ¦\n"""\n',
            'FROM t\n    WHERE b\n"""\n',
            'q = """\n    SELECT a\n    FROM t\n"""\n',
        ),
        ("python", "h = \"<p class='¦'></p>\"\n", "a'>b</p>\"\n", "h = \"<p class='a'>b</p>\"\n"),
        ("python", 'x = f"a {¦}"\n', "name} b\n", 'x = f"a {name} b"\n'),
        ("python", 'x = f"a {¦}"\n', 'name} b {other}"\n', 'x = f"a {name} b {other}"\n'),
        ("python", 'x = f"a {¦}"\n', "name\n", 'x = f"a {name}"\n'),
        ("javascript", "x = `a ${¦}`;\n", "name} b ${c}`;\n", "x = `a ${name} b ${c}`;\n"),
        ("typescript", "const q = `SELECT ¦`;\n", "a FROM t`;\n", "const q = `SELECT a FROM t`;\n"),
        ("typescriptreact", "const a = <div>¦</div>;\n", "hello</div>;\n", "const a = <div>hello</div>;\n"),
        ("typescriptreact", "const a = <p className=¦></p>;\n", "{x}></p>;\n", "const a = <p className={x}></p>;\n"),
        ("html", "<ul>\n  <li>¦</li>\n</ul>\n", "One</li>\n  <li>", "<ul>\n  <li>One</li>\n</ul>\n"),
    ],
)
def test_a_string_a_template_and_a_tag_are_closed_once_and_not_too_early(
    language: str, marked: str, output: str, result: str
):
    assert complete(marked, output, language) == result


# ── block ends without brackets, and values ──────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("language", "marked", "output", "result"),
    [
        (
            "lua",
            "function f(a)\n  ¦\nend\n",
            "if a then\n    g()\n  end\nend\n",
            "function f(a)\n  if a then\n    g()\n  end\nend\n",
        ),
        ("ruby", "def f\n  ¦\nend\n", "if x\n    y\n  end\nend\n", "def f\n  if x\n    y\n  end\nend\n"),
        ("shellscript", "for x in a; do\n  ¦\ndone\n", "echo $x\ndone\n", "for x in a; do\n  echo $x\ndone\n"),
        ("shellscript", "if [ -f x ]; then\n  ¦\nfi\n", "ls\nfi\nls\n", "if [ -f x ]; then\n  ls\nfi\n"),
        ("yaml", "a:\n  b: ¦\nc: 1\n", "[1, 2]\nd: 3\n", "a:\n  b: [1, 2]\nc: 1\n"),
        ("json", '{"a": ¦}', '"b"}\n', '{"a": "b"}'),
        ("toml", "[a]\nb = ¦\n", '["c", "d"]\n\n[e]\n', '[a]\nb = ["c", "d"]\n'),
    ],
)
def test_the_end_of_a_block_or_value_is_not_repeated(language: str, marked: str, output: str, result: str):
    assert complete(marked, output, language) == result


# ── Markdown, and its fences elsewhere ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("marked", "output", "result"),
    [
        ("Some words ¦\n\n```py\nx\n```\n", 'and "more" (so\nNext\n', 'Some words and "more" (so\n\n```py\nx\n```\n'),
        ("```py\ndef f(x):\n    ¦\n```\n", "return x\n```\n\nText\n", "```py\ndef f(x):\n    return x\n```\n"),
        (
            "```py\ndef f(x):\n    ¦\n```\n",
            "y = x\n    return y\n\n\nz",
            "```py\ndef f(x):\n    y = x\n    return y\n```\n",
        ),
        ("~~~ {.js}\nconst x = f(¦)\n~~~\n", "1)\n~~~\n", "~~~ {.js}\nconst x = f(1)\n~~~\n"),
        ("```sh\nls\n¦\n```\n", "```\n", Reason.REPEATS_BELOW),
        ("```sh\nls\n¦", "```\n\nText", "```sh\nls\n```"),
        ("Like so:\n\n¦", "```python\nx = 1\n```\n", "Like so:\n\n```python"),
    ],
)
def test_in_markdown_a_fence_holds_code_of_its_language_and_the_rest_is_prose(
    marked: str, output: str, result: str | Reason
):
    assert complete(marked, output, "markdown") == result


def test_code_in_a_fence_starts_blocks_by_the_rules_of_its_language():
    assert plan_at("```python\ndef f(x):\n    ¦\n```\n", "markdown").multiline
    assert not plan_at("def f(x):\n    ¦\n", "markdown").multiline
    assert not plan_at("```\nx\n```\nSo: (¦\n", "markdown").multiline


def test_no_fence_is_shown_in_code():
    assert complete("def f():\n    ¦", "```python\nreturn 1\n", "python") is Reason.FORBIDDEN
    assert complete("def f():\n    ¦", "return 1\n```\nThat was it.\n", "python") == "def f():\n    return 1"
    assert complete("x = 1;\n¦", "y = `a`;\n```\n", "javascript") == "x = 1;\ny = `a`;"
    assert "```" in str(complete('def f():\n    """Do it.\n\n    ¦\n    """\n', "```python\n    f()\n", "python"))


@given(
    st.lists(st.sampled_from(["```py", "```", "~~~", "text", "x = 1", "````", "", "- ```js"]), max_size=8), st.data()
)
def test_fenced_code_is_found_for_every_cursor(lines: list[str], data: st.DataObject):
    text = "\n".join(lines)
    cursor = data.draw(st.integers(0, len(text)))
    code = prose.fenced(text, cursor)
    if code is not None:
        assert code.start <= cursor <= code.end or text[code.end : code.end + 1] in ("`", "~")
        assert text[: code.start].rstrip("\n").split("\n")[-1].lstrip()[:3] in ("```", "~~~")
        assert code.closed == (code.end < len(text))
