"""speclsp: local code completion for editors, decoded speculatively and losslessly."""

__version__ = "0.1.0"
