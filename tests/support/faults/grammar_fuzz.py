"""Parses text that no grammar was made for, in a process that may crash: one line on stdout before each text.

    python grammar_fuzz.py FIRST COUNT LANGUAGE...

A number and a language determine a text. Its pieces are words of the grammar, openers of the language's strings,
templates and heredocs, odd characters and real code. They come in random order, repeated or nested thousands of times,
indented ever deeper, or inserted into real code. The text is parsed as the server parses it, edited, and parsed again
from the last tree. Every query runs on every tree.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path
from time import thread_time

sys.path.append(str(Path(__file__).parents[2]))

from speclsp.lsp.syntax import text_windows
from speclsp.lsp.syntax import tree as syntax
from speclsp.lsp.syntax.parser import SyntaxParser
from support.lsp.syntax_samples import PLACES

OPENERS = {
    "bash": ["<<A\n", '<<-"A"\n', "<<'A B'\n", "$(", "${", "$((", "`", "[[ ", "case x in a)", "${a//", "<(", "${a:-"],
    "c": ["#if 1\n", "#define A(x) \\\n", "/*", "(", "_Generic(", "[[", "#ifdef A\n", "asm(", '"\\\n'],
    "c_sharp": ['$"{', '$@"{', '$$"""{{', '"""', '@"', "#if A\n", "<", "/*", "#region\n", "switch{", '$$$$"""{{{{'],
    "cpp": [
        *('R"(', 'R"abcdefghijklmnop(', "#if 1\n", "#define A \\\n", "template<", "[[", "/*", "operator", "<::"),
        "a<b<",
    ],
    "css": ["a{", "/*", "@media(", "url(", '"', ":not(", "calc(", "@import", "[a=", "$"],
    "go": ["`", "/*", "func(", "map[", "chan ", "struct{", "<-", "interface{", "[T any](", "select{case "],
    "html": ["<a>", "<b", "</", "<!--", "<script>", "<style>", "<x-" + "y" * 300 + ">", "<![CDATA[", '<a b="', "<p>"],
    "java": ['"""', "/*", "<", "@A(", "class A{", "->{", "switch(x){case ", "\\{", "List<", "record A("],
    "javascript": ["`${", "`", "<a>{", "<a b={", "</a", "/[", "/*", "=>{", "<!--", "?.", "class{#", "async*"],
    "json": ["{", "[", '"', '{"a":', "/*", "//", "\\u"],
    "kotlin": ['"""', '"${', "/*", "<", "@A(", "class A {", "{ a ->", "when (x) {", "`", "fun <", "object : A {"],
    "lua": ["[[", "[==[", "--[[", "--[===[", '"\\z', "function(", "{", "repeat ", "[=", "goto "],
    "php": ["<?php ", "<<<A\n", '<<<"A"\n', "<<<'A'\n", "{$", '"{$', "${", "?>", "/*", "#[", "match(", "fn()=>"],
    "python": ['f"{', 'f"""{', '"""', "'''", "f'{x!r:{", "lambda:(", "\\\n", "if x:\n ", "match x:\n case [", 't"{'],
    "ruby": ["<<A\n", '<<~"A B"\n', "%w[", "%q(", '"#{', "`", "%r{", "=begin\n", "__END__\n", "<<A+<<B\n", "%Q{#{"],
    "rust": ['r#"', 'r###"', "/*", "/**", "//!", "'a", "b'", "macro_rules! a {($", "#[", "|", 'br##"', 'c"'],
    "swift": ['"""', '"\\(', '#"', '###"', "/*", "<", "@A(", "{ a in", "guard let a else", "#if a\n", "[a: ", "\\."],
    "scala": [
        *('"""', 's"${', 's"""${', "/*", "[", "@A(", "class A {", "x match {", "case _ =>", "<a>", "given "),
        "enum A:\n  ",
    ],
    "sql": ["'", '"', "$$", "$a$", "/*", "--", "(", "CASE WHEN ", "SELECT ", "BEGIN ", "CREATE TABLE a (", "[", "`"],
    "svelte": [
        *("<a>", "<!--", "<script>", "<style>", "{#if a}", "{#each a as b}", "{@html ", "{:else}", "{`", "<a b={"),
        "{/if}",
    ],
    "toml": ["[[", '"""', "'''", "[", "a.b.", "{", '="', "1979-05-27T", "=["],
    "tsx": ["`${", "`", "<a>{", "<a b={", "</a", "<T,>(", "/*", "<></>", "&x;"],
    "typescript": ["`${", "`", "<T>(", "/*", ": {", "abstract class{", "type a=`${", "<", "infer", "@a("],
    "yaml": [
        *("- ", "? ", ": ", "|\n", ">-\n", "&a ", "*a", "{", "[", '"', "!!a ", "---\n", "%YAML\n", "|2-\n  "),
        "\n  ",
    ],
}
ODD = [*"\0\1\r\n\t\f\v\x1a\x85\u2028\ufeff\ud800é漢𝒙\\\"'`()[]{}<>#$@%&*0a_;,.:=-+/|!?^~\u200b\xa0", "\r\n", "\n\n"]
ODD += ["👩\u200d🚀", "\\\n", "A" * 300, " " * 100, "\n" + " " * 50, "EOF\n", "END", "\nA\n"]
MAX_CHARACTERS = 150_000
BUDGETS_MS = (10, 10, 100)


class Fire:
    """Fuzzed texts for one language."""

    def __init__(self, language: str) -> None:
        self.language = language
        grammar = syntax.load_grammar(language)
        visible = filter(grammar.node_kind_is_visible, range(grammar.node_kind_count))
        words = {grammar.node_kind_for_id(kind) for kind in visible if not grammar.node_kind_is_named(kind)}
        self.words = sorted(word for word in words if word)
        self.code = PLACES[language][0].replace("¦", "")

    def piece(self, rng: random.Random) -> str:
        start = rng.randrange(len(self.code))
        real = self.code[start : start + rng.choice([3, 10, 40])]
        kinds = (rng.choice(self.words), rng.choice(OPENERS[self.language]), rng.choice(ODD), real)
        return rng.choices(kinds, [35, 25, 20, 20])[0]

    def text(self, rng: random.Random) -> str:
        kind = rng.randrange(5)
        if kind == 0:  # random order
            return rng.choice(["", " ", "\n"]).join(self.piece(rng) for _ in range(rng.choice([3, 10, 50, 400, 3000])))
        if kind == 1:  # one piece, repeated or nested in itself
            open_, close = self.piece(rng) + self.piece(rng) * rng.randrange(2), self.piece(rng) * rng.randrange(2)
            times = min(rng.choice([2, 20, 100, 300, 1100, 3000, 20_000]), MAX_CHARACTERS // len(open_))
            return self.piece(rng) * rng.randrange(2) + open_ * times + close * rng.choice([1, times]) + self.piece(rng)
        if kind == 2:  # ever deeper
            lines, depth = [], 0
            for _ in range(rng.choice([30, 300, 1200])):
                depth = max(0, depth + rng.choice([-3, -1, 0, 1, 1, 1, 2]))
                lines.append(rng.choice(" \t") * depth + self.piece(rng) + rng.choice(["", ":", "{", ":\n"]))
            return "\n".join(lines)
        if kind == 3:  # no code at all
            ranges = ((1, 128), (1, 0x3000), (0x10000, 0x1F700))
            return "".join(chr(rng.randrange(*rng.choice(ranges))) for _ in range(rng.choice([100, 5000, 40_000])))
        text = self.code * rng.choice([1, 1, 20, 300])
        for _ in range(rng.choice([1, 3, 10, 100])):
            text = self.edited(rng, text, 100)
        return text

    def edited(self, rng: random.Random, text: str, most: int) -> str:
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 0, 1, 5, most]))
        return text[:start] + self.piece(rng) + text[end:]

    def shoot(self, number: int, parser: SyntaxParser) -> float:
        """Parses text `number` and its edits; returns the largest excess over a parse's budget, in ms."""
        rng = random.Random(f"{self.language}{number}")
        text, longest = self.text(rng), 0.0
        for _ in range(rng.choice([1, 1, 4, 8])):
            at, budget_ms = rng.randrange(len(text) + 1), rng.choice(BUDGETS_MS)
            began = thread_time()
            tree = parser.parse(self.language, text, budget_ms, near=at)
            parsed = thread_time()
            if tree is not None:
                everything(tree, at)
                tree = tree.parse_without(text_windows.line_start(text, at), text_windows.line_end(text, at), budget_ms)
            if tree is not None:
                everything(tree, min(at, len(tree.text)))
            spent_ms = (parsed - began) * 1000, (thread_time() - parsed) * 1000
            longest = max(longest, *(ms - 1.75 * budget_ms for ms in spent_ms))
            text = self.edited(rng, text, 30)
        return longest


def everything(tree: syntax.SyntaxTree, at: int) -> None:
    """Runs every query on a tree."""
    tree.kind_at(at)
    tree.enclosing(at)
    tree.siblings(at)
    tree.imports()
    tree.count_errors()


def main(first: int, count: int, languages: list[str]) -> None:
    for language in languages:
        fire, parser, longest = Fire(language), SyntaxParser(), 0.0
        parser.parse(language, "x", 1000)  # loads the grammar and the queries once, outside any budget
        everything(SyntaxParser().parse(language, fire.code, 1000) or sys.exit(f"{language}: no tree"), 0)
        for number in range(first, first + count):
            if number % 50 == 0:
                parser = SyntaxParser()
            print(f"{language} {number} {longest:.1f}", flush=True)
            longest = max(longest, fire.shoot(number, parser))
        print(f"{language} done {longest:.1f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
