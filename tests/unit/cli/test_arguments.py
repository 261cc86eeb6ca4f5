"""Arguments: help in groups and sentences, and docs/cli.md as the parser defines it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from support.command_streams import commands_of

from speclsp.cli.arguments import command_tree as tree
from speclsp.cli.arguments.help_parser import HIDDEN


def every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for below in commands_of(parser).values():
        yield from every_parser(below)


def test_the_help_lists_every_command_in_its_group_and_names_a_first_step():
    parser = tree.parser()
    text = parser.format_help()
    headings = [heading for heading, _ in parser.groups]
    assert headings == ["Get started", "Use", "Run", "Development"]
    assert all(f"\n{heading}\n" in text for heading in headings)
    listed = [name for _, commands in parser.groups for name, _ in commands]
    assert listed == list(commands_of(parser)), "each once"
    assert all(f"\n  {name} " in text for name in listed)
    assert "First step: speclsp" in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_command_and_option_has_a_sentence_in_the_imperative():
    for parser in every_parser(tree.parser()):
        actions = [action for action in parser._actions if action.dest not in ("help", "action")]
        sentences = [action.help or "" for action in actions if not isinstance(action, argparse._SubParsersAction)]
        for sentence in sentences:
            verb = sentence.partition(" ")[0]
            assert sentence == HIDDEN or (verb.istitle() and not verb.endswith(("ed", "ing"))), (
                f"{parser.prog}: {sentence}"
            )
        if parser.prog != "speclsp":
            assert (parser.description or "").partition(" ")[0].istitle(), parser.prog


def test_hidden_options_stay_out_of_the_reference():
    page = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
    assert "--lock-fd" not in page and "--detached" not in page and "start, stop, status" in page
