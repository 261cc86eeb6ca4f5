"""Files that break parsers and editor servers: huge, deep, truncated, binary. `FILES` gives each with its language."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

Made = tuple[str, str]  # language id, text


def noise(count: int) -> str:
    """Random bytes, read as Latin-1, without NUL."""
    return random.Random(1).randbytes(count).replace(b"\0", b"\1").decode("latin-1")


def soup(count: int, seed: int = 1) -> str:
    """Tokens of code in random order."""
    rng = random.Random(seed)
    pieces = [
        *"(){}[]<>;:,.=+-*/&|!?@#$%^~`'\"\\ \n\t",
        "def ",
        "class ",
        "if ",
        "=> ",
        "<<EOF\n",
        '"""',
        "${",
        "/*",
        "*/",
    ]
    pieces += [
        *("<div>", "</", "--[[", 'r#"', "name", "x1", "fn ", "end\n", "\r\n", "漢", "𝒙", "\n    ", "- ", ": ", "|\n"),
    ]
    return "".join(rng.choices(pieces, k=count))


def minified(count: int) -> str:
    unit = 'function a(b,c){return b?c.map(function(d){return d.e&&"f,g".split(",")[d.h]||{i:d.j,k:!0}}):void 0}'
    return unit * (count // len(unit))


def row(number: int, columns: int, cell: str) -> str:
    return "".join(cell.format(number * columns + column) for column in range(columns))


FILES: Mapping[str, Callable[[], Made]] = {
    "1 MB of random bytes as Python": lambda: ("python", noise(1_000_000)),
    "1 MB of random bytes as Lua": lambda: ("lua", noise(1_000_000)),
    "1 MB of code in no order as C++": lambda: ("cpp", soup(330_000)),
    "1 MB of code in no order as Ruby": lambda: ("ruby", soup(330_000)),
    "1 MB of code in no order as shell": lambda: ("shellscript", soup(330_000)),
    "1 MB of code in no order as HTML": lambda: ("html", soup(330_000)),
    "1 MB of code in no order, no grammar": lambda: ("cobol", soup(330_000)),
    "1 MB on one line of Python": lambda: ("python", "x = " + "1+" * 500_000),
    "1 MB on one line of text": lambda: ("plaintext", "lorem ipsum " * 83_000),
    "1 MB in one string": lambda: ("python", 's = "' + "a b " * 250_000 + '"\n'),
    "1 MB of quotes": lambda: ("python", "'\"" * 500_000),
    "1 MB of backslashes": lambda: ("javascript", '"' + "\\" * 1_000_000),
    "1 MB of blanks": lambda: ("python", " " * 1_000_000),
    "1 MB of empty lines": lambda: ("python", "\r\n" * 500_000),
    "minified JavaScript": lambda: ("javascript", minified(1_000_000)),
    "50,000 nested parentheses": lambda: ("python", "x = " + "(" * 50_000 + ")" * 50_000 + "\n"),
    "50,000 nested brackets as JSON": lambda: ("json", "[" * 50_000 + "]" * 50_000),
    "50,000 open braces": lambda: ("c", "{\n" * 50_000),
    "JSON 20,000 objects deep": lambda: ("json", '{"a":' * 20_000 + "1" + "}" * 20_000),
    "YAML 2,000 levels deep": lambda: ("yaml", "".join(" " * level + "a:\n" for level in range(1_000)) + "- " * 2_000),
    "Python 900 levels deep": lambda: ("python", "".join(" " * level + "if x:\n" for level in range(900))),
    "HTML 20,000 elements deep": lambda: ("html", "<div>" * 20_000),
    "keywords without a name": lambda: ("rust", "match.." * 140_000),
    "a string that never ends": lambda: ("python", 'x = """\n' + "def f(a):\n    return [a]\n" * 20_000),
    "a comment that never ends": lambda: ("c", "/*\n" + "int f(void) { return 1; }\n" * 20_000),
    "a heredoc that never ends": lambda: (
        "shellscript",
        "cat <<EOF\n" + "for x in $(ls); do echo ${x}; done\n" * 20_000,
    ),
    "2,000 heredocs that never end": lambda: ("ruby", "f(<<~A, <<~B)\n" * 2_000),
    "templates that never end": lambda: ("javascript", "`${" * 20_000),
    "a raw string that never ends": lambda: ("cpp", 'auto x = R"tag(\n' + "int f() { return 1; }\n" * 20_000),
    "strings of Lua that never end": lambda: ("lua", "[==[ [=[ [[ \n" * 20_000),
    "{ try { } catch { (, e": lambda: ("javascript", "{ try { } catch { (, e"),
    "{ try { } catch { (, e, 2,000 times": lambda: ("javascript", "{ try { } catch { (, e" * 2_000),
    "templates of C++ in templates": lambda: ("cpp", "a<b<c<" * 20_000),
    "generics of TypeScript, open": lambda: ("typescript", "f<A, B<C, D<" * 10_000),
    "a table of Markdown": lambda: ("markdown", "".join("|" + row(at, 40, " {} |") + "\n" for at in range(5_000))),
    "a table of HTML": lambda: ("html", "".join("<tr>" + row(at, 20, "<td>{}</td>") + "\n" for at in range(2_500))),
    "a table of HTML, nothing closed": lambda: ("html", "<tr><td>1" * 50_000),
    "minified CSS": lambda: ("css", "a{b:c}" * 100_000),
    "10,000 documents of YAML": lambda: ("yaml", "a: 1\n...\n" * 10_000),
    "a table of CSV": lambda: ("csv", "".join(row(at, 40, "{},") + "\n" for at in range(5_000))),
    "a lone surrogate 100,000 times": lambda: ("python", "\ud800" * 100_000),
    "combining marks, 100,000 on a letter": lambda: ("python", "e" + "\u0301" * 100_000),
    "right-to-left marks": lambda: ("python", "\u202ex\u2066" * 100_000),
}
BINARY: Mapping[str, Callable[[], Made]] = {
    "1 MB binary": lambda: ("python", random.Random(2).randbytes(1_000_000).decode("latin-1")),
    "a text with a NUL at its start": lambda: ("c", "\0" + "int x;\n" * 1000),
    "a text with NULs throughout": lambda: ("plaintext", "".join(f"{letter}\0" for letter in "UTF-16 text " * 4000)),
}


def code(count: int) -> str:
    """Ordinary Python, `count` characters of it."""
    unit = "    def area_{0}(self, radius):\n        return self.scale * radius ** 2  # as in {0}\n\n"
    block = "class Shapes:\n" + "".join(unit.format(number) for number in range(400))
    return (block * (count // len(block) + 1))[:count]
