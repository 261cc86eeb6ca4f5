"""`python -m speclsp` is the `speclsp` command."""

from speclsp.cli.entry import main

raise SystemExit(main())
