"""The repository's Markdown as data: pages, links, anchors, sentences and commands in code blocks."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

from support.source_tree import ROOT

FENCE = re.compile(r"^[ \t]*(```|~~~).*?^[ \t]*\1[ \t]*$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)", re.DOTALL)
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?[^)]*\)")
HTML_LINK = re.compile(r"<(?:img|a|source)\b[^>]*?\b(?:src|srcset|href)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
HTML_ANCHOR = re.compile(r"<a\b[^>]*?\b(?:id|name)=\"([^\"]+)\"")
LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+\.)\s+")
SENTENCE_END = re.compile(r"(?<=[.!?])[*_)\"”]*\s+(?=[*_(\"“]*(?:[A-Z0-9\x60]|speclsp ))")
SYNOPSIS = re.compile(r"\w\|[\w-]|\s\[")  # `set|forget`, `[NAME]`


def pages(root: Path = ROOT) -> list[Path]:
    """Every Markdown file that git tracks or would add."""
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.md"], cwd=root, capture_output=True, text=True, check=True
    )
    return [root / name for name in sorted(listing.stdout.splitlines()) if (root / name).is_file()]


def code_block(page: str, language: str = "python") -> str:
    """The only code block of a language in docs/PAGE, without its fences."""
    (block,) = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / page).read_text("utf-8"), re.DOTALL | re.M)
    return str(block)


def without_code(text: str) -> str:
    """The page without fenced blocks, comments and inline code."""
    return INLINE_CODE.sub("Code", COMMENT.sub("", FENCE.sub("", text)))


def links(text: str) -> list[str]:
    """Targets of all links and images, in Markdown and HTML."""
    prose = COMMENT.sub("", FENCE.sub("", text))
    prose = INLINE_CODE.sub(lambda code: code[0] if "](" in code[0] else "code", prose)
    return LINK.findall(prose) + HTML_LINK.findall(prose)


def slug(heading: str) -> str:
    """GitHub's anchor of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower()
    return re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-")


def anchors(text: str) -> set[str]:
    """Anchors of a page; a repeated heading gets -1, -2 and so on."""
    names: set[str] = set(HTML_ANCHOR.findall(text))
    for heading in HEADING.findall(FENCE.sub("", text)):
        name, number = slug(heading), 0
        while (f"{name}-{number}" if number else name) in names:
            number += 1
        names.add(f"{name}-{number}" if number else name)
    return names


def sentences(text: str) -> Iterator[str]:
    """Sentences of the prose: without tables, code, headings and HTML lines. A list item is a paragraph of its own."""
    paragraph: list[str] = []
    lines = [*re.sub(r"\]\([^)]*\)", "]", without_code(text)).splitlines(), ""]
    for line in lines:
        is_prose = bool(line.strip()) and not line.lstrip().startswith(("#", "|", "<", ">")) and line.strip() != "---"
        is_prose = is_prose and (bool(paragraph) or not line.startswith("    "))  # else an indented code block
        if paragraph and (not is_prose or LIST_ITEM.match(line)):
            yield from (part for part in SENTENCE_END.split(" ".join(paragraph)) if part.strip())
            paragraph = []
        if is_prose:
            paragraph.append(LIST_ITEM.sub("", line).strip())


def words(text: str) -> int:
    """Number of words; a lone sign or dash is none."""
    return sum(any(character.isalnum() for character in word) for word in text.split())


def commands(text: str) -> Iterator[list[str]]:
    """Arguments of each `speclsp ...` line in a code block, without comments, pipes and redirections.

    In a block with prompts (`$ `) only the lines with a prompt are commands.
    """
    for block in FENCE.finditer(text):
        lines = [line.strip() for line in block[0].splitlines()]
        if any(line.startswith("$ ") for line in lines):
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        for line in lines:
            if line.startswith("speclsp ") and not SYNOPSIS.search(line):
                lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
                lexer.whitespace_split, lexer.commenters = True, "#"
                arguments = list(itertools.takewhile(lambda word: not set(word) <= set("|&;<>"), lexer))
                yield arguments[1:]
