"""Arguments of the `speclsp` command: the tree of commands and the grouped help."""
