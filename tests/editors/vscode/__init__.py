"""Tests in a real VS Code. The package is the scope of one code-server and one browser for all of its files."""
