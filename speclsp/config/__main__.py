"""`python -m speclsp.config FILE` writes the reference of the settings, docs/configuration.md."""

from __future__ import annotations

import sys
from pathlib import Path

from speclsp.config.reference import as_markdown

Path(sys.argv[1]).write_text(as_markdown(), encoding="utf-8")
