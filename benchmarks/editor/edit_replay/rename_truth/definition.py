"""A definition in a file and all of its uses, as an analysis that is independent of speclsp's producer gives them.

Offsets are code points. `Definition.kind` is one of KINDS.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KINDS = ("parameter", "local", "function", "class", "import alias", "field")
MEMBER = "member"  # of an interface, object type, record or struct: a kind that is measured on its own
MIN_USES, MAX_USES = 2, 40  # of one definition, besides itself


@dataclass(frozen=True, slots=True, order=True)
class Use:
    """An occurrence of the old name. A rename writes `prefix` + the new name + `suffix` over it.

    `bound`: uses of the variable that a shorthand in a pattern binds. With the new name alone it gets that name too.
    """

    start: int
    prefix: str = ""  # `width: ` where a shorthand property keeps its own name
    suffix: str = ""
    bound: tuple[Use, ...] = ()


@dataclass(frozen=True, slots=True)
class Definition:
    """One name that a program renames."""

    kind: str
    name: str
    start: int
    uses: tuple[Use, ...]  # every one besides the definition, from top to bottom
    documented: tuple[int, ...] = ()  # in the function's documentation: a rename may change them, and need not
    others: tuple[int, ...] = ()  # definitions of the same name in other scopes: a rename must not touch them

    @staticmethod
    def of(
        kind: str,
        name: str,
        start: int,
        uses: Iterable[Use],
        documented: Iterable[int] = (),
        others: Iterable[int] = (),
    ) -> Definition:
        """The definition with its places in order, the definition itself not among its uses."""
        places = tuple(sorted(use for use in {*uses} if use.start != start))
        return Definition(kind, name, start, places, tuple(sorted({*documented})), tuple(sorted({*others} - {start})))

    @property
    def is_fit(self) -> bool:
        """True if the rename has enough uses for both kinds of state, and the file is small enough to read."""
        return MIN_USES <= len(self.uses) <= MAX_USES and all(
            character.isalnum() or character == "_" for character in self.name
        )
