"""`python -m speclsp` is the `speclsp` command."""

from speclsp.cli import main

raise SystemExit(main())
