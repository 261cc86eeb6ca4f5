"""Arguments of the `speclsp` command: the tree of commands, the grouped help, and docs/cli.md."""
