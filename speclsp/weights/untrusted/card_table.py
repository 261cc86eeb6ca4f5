"""Strict reader of a card's TOML tables: each key is read once, by type, and any other key is an error."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any

from speclsp.errors import SpeclspError, nearest


class CardError(SpeclspError):
    """A card lacks a key, or has a value or a key that it cannot have."""


class CardTable:
    """One table of a card."""

    def __init__(self, file: str, where: str, values: Mapping[str, Any], kind: str = "a model definition") -> None:
        self.file, self.where, self.values, self.kind = file, where, values, kind
        self.known_keys: set[str] = set()

    def error(self, key: str, says: str) -> CardError:
        return CardError(f"{self.file}: {self.where}{key} {says}.")

    def take(self, key: str, kind: type | UnionType, default: Any, wanted: str) -> Any:
        self.known_keys.add(key)
        value = self.values.get(key, default)
        if value is None:
            near = nearest(key, self.values.keys() - self.known_keys)
            hint = f"; {self.where}{near} is not a key of {self.kind}" if near else ""
            raise self.error(key, f"is missing{hint}")
        if not isinstance(value, kind) or isinstance(value, bool):
            raise self.error(key, f"is {value!r}: expected {wanted}")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        return str(self.take(key, str, default, "a text"))

    def number(self, key: str, default: int | None = None) -> int:
        return int(self.take(key, int, default, "a whole number"))

    def flag(self, key: str) -> bool:
        self.known_keys.add(key)
        if not isinstance(value := self.values.get(key, False), bool):
            raise self.error(key, f"is {value!r}: expected true or false")
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        value = self.take(key, list, list(default), "a list of texts")
        if not all(isinstance(text, str) for text in value):
            raise self.error(key, f"is {value!r}: expected a list of texts")
        return tuple(value)

    def table(self, key: str, default: Mapping[str, Any] | None = None) -> CardTable:
        return CardTable(self.file, f"{self.where}{key}.", self.take(key, dict, default, "a table"))

    def tables(self, key: str) -> list[CardTable]:
        value = self.take(key, list, [], "a list of tables")
        if not all(isinstance(entry, dict) for entry in value):
            raise self.error(key, f"is {value!r}: expected a list of tables")
        return [CardTable(self.file, f"{self.where}{key}[{i}].", entry) for i, entry in enumerate(value)]

    def done(self, known: tuple[str, ...] = ()) -> None:
        for key in self.values:
            if key not in self.known_keys and key not in known:
                near = nearest(key, self.known_keys | set(known))
                known_keys = ", ".join(sorted(self.known_keys))
                hint = f"did you mean {self.where}{near}" if near else f"the keys are {known_keys}"
                raise self.error(key, f"is not a key of {self.kind}; {hint}")
