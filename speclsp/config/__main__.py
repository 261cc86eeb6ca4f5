"""`python -m speclsp.config` prints the README's table of settings."""

from speclsp.config.schema import as_markdown

print(as_markdown())
