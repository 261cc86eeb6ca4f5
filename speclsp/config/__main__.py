"""`python -m speclsp.config FILE` writes the reference of the settings: a Markdown page, or the help in FILE.txt."""

from __future__ import annotations

import sys
from pathlib import Path

from speclsp.config.reference import as_markdown, as_vimdoc

file = Path(sys.argv[1])
if file.suffix == ".txt":
    text = file.read_text(encoding="utf-8")
    head, tail = text[: text.rindex("=" * 78 + "\nSERVER SETTINGS")], text[text.rindex("\n vim:") :]
    file.write_text(head + as_vimdoc() + tail, encoding="utf-8")
else:
    file.write_text(as_markdown(), encoding="utf-8")
