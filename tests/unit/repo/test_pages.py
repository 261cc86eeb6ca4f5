"""Laws of the Markdown pages: links and anchors resolve, images exist, pages stay short and sentences readable."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path
from urllib.parse import unquote

import pytest
from support.markdown_pages import ROOT, anchors, commands, links, pages, sentences, slug, words

from speclsp.cli.arguments.command_tree import parser

LIMITS = {  # (lines, words) of a page; others: DOCS_LIMIT
    "README.md": (150, 1_200),
    "docs/reliability.md": (120, 4_200),
    "docs/configuration.md": (400, 4_000),
    "docs/cli.md": (600, 4_000),
    "docs/lsp-extensions.md": (240, 1_500),
    "docs/next-edit.md": (220, 1_500),
    "docs/http-api.md": (240, 2_400),
    "docs/benchmarks.md": (400, 3_540),
}
DOCS_LIMIT = (220, 1_900)
GLOSSARY_LINES = 45
MAX_WORDS, MEAN_WORDS = 30, 16  # of a sentence


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_relative_link_and_anchor_resolves(page: Path):
    broken = []
    for link in links(page.read_text("utf-8")):
        if "://" in link or link.startswith(("mailto:", "command:")):
            continue
        path, _, anchor = unquote(link).partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (
            anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text("utf-8")))
        ):
            broken.append(link)
    assert broken == [], f"{name_of(page)}: {broken}"


@pytest.mark.parametrize("page", [page for page in pages() if name_of(page) in LIMITS or page.parts[-2] == "docs"])
def test_a_page_stays_under_its_length(page: Path):
    text = page.read_text("utf-8")
    most_lines, most_words = LIMITS.get(name_of(page), DOCS_LIMIT)
    assert len(text.splitlines()) <= most_lines, f"{name_of(page)}: {len(text.splitlines())} lines"
    assert len(text.split()) <= most_words, f"{name_of(page)}: {len(text.split())} words"


def test_the_glossary_stays_a_glossary():
    assert len((ROOT / "docs/glossary.md").read_text("utf-8").splitlines()) <= GLOSSARY_LINES


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_sentences_are_short(page: Path):
    lengths = {sentence: words(sentence) for sentence in sentences(page.read_text("utf-8"))}
    long = {sentence: length for sentence, length in lengths.items() if length > MAX_WORDS}
    assert long == {}, "\n".join(f"{length}: {sentence}" for sentence, length in long.items())
    mean = sum(lengths.values()) / max(len(lengths), 1)
    assert mean <= MEAN_WORDS, f"{mean:.1f} words a sentence"


@pytest.mark.parametrize("page", pages(), ids=name_of)
def test_every_command_in_a_code_block_parses(page: Path):
    for arguments in commands(page.read_text("utf-8")):
        parse(arguments, name_of(page))


def test_every_generated_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs/generate.py")
    assert spec is not None and spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    assert len(generate.PAGES) == 6
    stale = [page for page, text in generate.PAGES.items() if (ROOT / page).read_text("utf-8") != text()]
    assert stale == [], "run `make docs`"


def parse(arguments: list[str], where: str) -> argparse.Namespace:
    """The parsed command line; fails the test on an unknown command or flag."""
    try:
        return parser().parse_args(arguments)
    except SystemExit as end:
        if end.code:
            pytest.fail(f"{where}: speclsp {' '.join(arguments)}")
        return argparse.Namespace()


def test_a_broken_anchor_a_long_sentence_and_a_command_are_reported():
    text = (
        '# Two `words`, one\n\nSee [it](other.md#there). Then <img src="a.png">.\n\n    make it   # code\n\n'
        "```sh\nspeclsp models list | head\n```\n\n```console\n$ speclsp stats\nspeclsp: no counts\n```\n"
    )
    assert anchors(text) == {"two-words-one"}
    assert slug("What `speclsp` does: a (short) list") == "what-speclsp-does-a-short-list"
    assert links(text) == ["other.md#there", "a.png"]
    assert list(sentences(text)) == ["See [it].", 'Then <img src="a.png">.']
    assert list(commands(text)) == [["models", "list"], ["stats"]]
    assert words("two words - here") == 3
    with pytest.raises(pytest.fail.Exception):
        parse(["modles"], "here")
