"""Memory of a model that is loaded: the check before, and the error that names the limit and the way out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from speclsp import process_resources
from speclsp.engine.model.cuda.memory_plan import MemoryPlan
from speclsp.engine.scheduling.device_errors import ran_out_of_memory
from speclsp.errors import OutOfMemory
from speclsp.weights import auto_choice
from speclsp.weights.cards import Card


def check_memory(card: Card, target_format: str, device: str, with_draft: bool = True, mapped_mib: int = 0) -> None:
    """Raise OutOfMemory before loading if the weights need more memory than is free. `mapped_mib`: of their files."""
    need_mib = card.needed_mib(device, 0, target_format)
    if card.draft is not None and not with_draft:  # the card's figure includes both
        need_mib = int(need_mib * card.target.parameters / (card.target.parameters + card.draft.parameters))
    free_mib = process_resources.free_mib(device)
    if process_resources.address_space():
        need_mib += mapped_mib  # the files count there, and not as memory
    if need_mib > free_mib:
        raise out_of_memory(card, need_mib, free_mib, device)


@contextmanager
def explain_out_of_memory(card: Card, plan: MemoryPlan, device: str) -> Iterator[None]:
    """Raise OutOfMemory, which names the fix, in place of any error of that kind."""
    try:
        yield
    except (RuntimeError, MemoryError, OSError) as error:
        if not ran_out_of_memory(error):
            raise
        need_mib = plan.need_mib or card.needed_mib(device, 0, plan.number_format)
        raise out_of_memory(card, need_mib, process_resources.free_mib(device), device) from None


def out_of_memory(card: Card, need_mib: int, free_mib: int, device: str) -> OutOfMemory:
    """The error for a model that does not fit now, with a smaller one that does."""
    limit_fix = process_resources.memory().limit_fix(need_mib) if device == "cpu" else ""
    return OutOfMemory(card.name, need_mib, free_mib, device, auto_choice.smaller(card, free_mib, device), limit_fix)
