"""Bodies of functions: whole, of usual size, and typed again to the very file."""

from __future__ import annotations

import pytest

from benchmarks.keystrokes.economy.bodies import BODY_KEYS, KEY, body_lines
from benchmarks.quality.tasks.cross_file_names import SourceFile

PYTHON = '''import os


class Reader:
    def rows(self, path: str) -> list[str]:
        """Rows of a file, without the blank ones."""
        with open(path) as file:
            text = file.read()

        lines = text.split("\\n")
        return [line for line in lines if line.strip()]


    def short(self):
        return 1
'''
RUST = """impl Reader {
    pub fn rows(&self, path: &Path) -> Vec<String> {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut rows = Vec::new();
        for line in text.lines() {
            if !line.trim().is_empty() {
                rows.push(line.to_string());
            }
        }
        rows
    }
}
"""


@pytest.mark.parametrize(
    ("language", "text", "first", "last"),
    [("python", PYTHON, '        """Rows', "        return [line"), ("rust", RUST, "        let text", "        rows")],
)
def test_a_body_is_what_stands_between_the_header_and_the_end(language: str, text: str, first: str, last: str):
    file = SourceFile("a", language, text, frozenset())
    ((start, end),) = body_lines(file)
    assert file.lines[start].startswith(first) and file.lines[end].startswith(last)
    body = "\n".join(["", *file.lines[start : end + 1]])
    keys = KEY.findall(body)
    assert "".join(keys) == body and BODY_KEYS[0] <= len(keys) <= BODY_KEYS[1]
    assert "\n".join(file.lines[:start]) + body + "\n".join(["", *file.lines[end + 1 :]]) == text
