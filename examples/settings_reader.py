"""Reads `key = value` settings from text, with types and clear errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

TRUE_WORDS = {"yes", "true", "on", "1"}
FALSE_WORDS = {"no", "false", "off", "0"}


class SettingsError(Exception):
    """A setting is missing or cannot be read; the message names it."""


def read_lines(text: str) -> Iterator[tuple[int, str, str]]:
    """(line number, key, value) for every setting in the text."""
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        key, equals, value = line.partition("=")
        if not equals:
            raise SettingsError(f"line {number}: expected key = value, found {line!r}")
        yield number, key.strip(), value.strip()


class Settings:
    """All settings of one file, read by type."""

    def __init__(self, text: str) -> None:
        self.values: dict[str, str] = {}
        for number, key, value in read_lines(text):
            if key in self.values:
                raise SettingsError(f"line {number}: {key} is set twice")
            self.values[key] = value

    @classmethod
    def from_file(cls, path: Path) -> Settings:
        return cls(path.read_text(encoding="utf-8"))

    def get_text(self, key: str, default: str | None = None) -> str:
        """A setting as it is written."""
        if key not in self.values:
            if default is None:
                raise SettingsError(f"{key} is missing")
            return default
        return self.values[key]

    def get_int(self, key: str, default: int | None = None) -> int:
        """A setting as a whole number."""
        if key not in self.values:
            if default is None:
                raise SettingsError(f"{key} is missing")
            return default
        try:
            return int(self.values[key])
        except ValueError as error:
            raise SettingsError(f"{key} should be a whole number, found {self.values[key]!r}") from error

    def get_float(self, key: str, default: float | None = None) -> float:
        """A setting as a number."""
        # <cursor>

    def get_bool(self, key: str, default: bool | None = None) -> bool:
        """A setting as yes or no."""
        if key not in self.values:
            if default is None:
                raise SettingsError(f"{key} is missing")
            return default
        word = self.values[key].lower()
        if word in TRUE_WORDS:
            return True
        if word in FALSE_WORDS:
            return False
        raise SettingsError(f"{key} should be yes or no, found {self.values[key]!r}")

    def get_list(self, key: str, default: list[str] | None = None) -> list[str]:
        """A setting as words separated by commas."""
        if key not in self.values:
            if default is None:
                raise SettingsError(f"{key} is missing")
            return default
        return [word.strip() for word in self.values[key].split(",") if word.strip()]
