"""Memory plans: the number format, context and cache slots with which a model and its draft fit on a device."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from speclsp.engine.model.kv_cache import SLOTS
from speclsp.errors import OutOfMemory
from speclsp.weights import auto_choice
from speclsp.weights.cards import Card

PREFILL_WIDTHS = (64, 256)  # rows of a prefill pass
CAPACITY_STEP = 512  # a slot's capacity is a multiple of it: whole parts of the split attention
CARD_CONTEXT_TOKENS = 2048  # a card's memory_mib includes one cache slot of this length
MIN_CONTEXT_TOKENS = 1024  # a shorter context costs more than 4 bits
GRAPHS_MIB = 352  # captured graphs, the attention's parts, and a slice of weights that prefill dequantizes

log = logging.getLogger("speclsp.engine.cuda")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """The form in which a model and its draft are loaded on a device, and the memory they need there."""

    number_format: str  # of the target
    context_tokens: int
    slots: int
    need_mib: int = 0


def fit(
    card: Card,
    number_formats: Sequence[str],
    context_tokens: int,
    kv_bytes: int,
    free_mib: int,
    device: str,
    matrix_bytes: int = 0,
) -> MemoryPlan:
    """The first plan that fits: fewer slots, then a shorter context, then the next number format.

    Args:
        number_formats: the target's, best first.
        kv_bytes: of one token in the KV caches of target and draft.
        matrix_bytes: of the target's largest matrix in 16 bits: prefill in nf4 dequantizes one at a time.

    Raises:
        OutOfMemory: no plan fits; names a smaller model that does, if there is one.
    """
    plans = list(plans_for(card, number_formats, context_tokens, kv_bytes, matrix_bytes))
    chosen = next((plan for plan in plans if plan.need_mib <= free_mib), None)
    if chosen is None:
        need_mib = min(plan.need_mib for plan in plans)
        raise OutOfMemory(card.name, need_mib, free_mib, device, auto_choice.smaller(card, free_mib, device))
    if chosen != plans[0]:
        log.warning(
            "%s as configured needs more than the %d MiB that are free (%d MiB); %s",
            card.name,
            free_mib,
            plans[0].need_mib,
            chosen,
        )
    return chosen


def plans_for(
    card: Card,
    number_formats: Sequence[str],
    context_tokens: int,
    kv_bytes: int,
    matrix_bytes: int = 0,
) -> Iterator[MemoryPlan]:
    """All plans for a model, best first."""
    contexts = [context_tokens]
    while contexts[-1] // 2 >= MIN_CONTEXT_TOKENS:
        contexts.append(contexts[-1] // 2)
    for number_format in number_formats:
        work_mib = GRAPHS_MIB + (matrix_bytes / 2**20 if number_format == "nf4" else 0.0)
        for context, slots in ((context_tokens, SLOTS), *((context, 1) for context in contexts)):
            more_kv_mib = (slots * capacity_for(context) - CARD_CONTEXT_TOKENS) * kv_bytes / 2**20
            need_mib = math.ceil(card.memory_mib.get(number_format, 0) + more_kv_mib + work_mib)
            yield MemoryPlan(number_format=number_format, context_tokens=context, slots=slots, need_mib=need_mib)


def capacity_for(context_tokens: int) -> int:
    """Entries of a slot: the context, and the entries beyond it that the widest pass's padding writes."""
    return -(-(context_tokens + PREFILL_WIDTHS[-1]) // CAPACITY_STEP) * CAPACITY_STEP
