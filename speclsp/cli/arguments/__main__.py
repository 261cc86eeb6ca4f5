"""`python -m speclsp.cli.arguments FILE` writes the reference of the command line, docs/cli.md."""

from __future__ import annotations

import sys
from pathlib import Path

from speclsp.cli.arguments import cli_reference as reference
from speclsp.cli.arguments import command_tree as tree

Path(sys.argv[1]).write_text(reference.as_markdown(tree.parser()), encoding="utf-8")
