"""Prompts of any length and shape: they fit with their completion, keep the text nearest to the cursor and the markers.

Each law holds for every order and set of markers among the cards.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.engine.api import Extra, Request
from speclsp.engine.decoding.prompt import ANCHOR_TOKENS, USUAL_TOKENS, Prompter
from speclsp.engine.decoding.vocabulary import Vocabulary
from speclsp.engine.loading import checkpoint
from speclsp.engine.model.kv_archive import common_prefix
from speclsp.weights import cards, store

CONTEXT_TOKENS = 2048
UNITS = ("INSERT INTO t VALUES (17, 'a'),", "x = 1\n", "{a:b}", "日本語", "é\n", "😀", "\t\n", "0a1b")
TEXTS = st.builds(
    lambda units, size: ("".join(units) * (size // len("".join(units)) + 1))[:size],
    st.lists(st.sampled_from(UNITS), min_size=1, max_size=4),
    st.sampled_from((0, 3, 40, 700, 2500, 6000, 40_000)),
)
EXTRAS = st.lists(st.builds(Extra, filename=st.just("a.py"), text=TEXTS), max_size=2).map(tuple)
LIMITS = st.sampled_from((0, 1, 64, 1900, 2047, 2048, 2049, 10**9))


def prompters() -> dict[str, Prompter]:
    """A prompter for each distinct template of the cards; all have tiny's tokens for text."""
    from tokenizers import Tokenizer

    tiny = checkpoint.read_tokenizer(store.ensure(cards.load("tiny").target)).to_str()
    by_template: dict[object, Prompter] = {}
    for card in map(cards.load, cards.names()):
        if card.fim in {prompter.card.fim for prompter in by_template.values()} or card.name == "echo":
            continue
        tokenizer, fim = Tokenizer.from_str(tiny), card.fim
        markers = (fim.prefix, fim.suffix, fim.middle, fim.bos, fim.repo, fim.file_sep, *card.stop_tokens)
        tokenizer.add_special_tokens([marker for marker in markers if marker])
        by_template[card.name] = Prompter(card, tokenizer, Vocabulary(tokenizer), CONTEXT_TOKENS)
    return by_template


FAMILIES = prompters()
FAMILY = st.sampled_from(sorted(FAMILIES)).map(FAMILIES.__getitem__)


def parts_of(family: Prompter, ids: list[int]) -> list[tuple[int, bytes]]:
    """Each marker with the text after it; first, under -1, the text before any."""
    parts: list[tuple[int, bytes]] = [(-1, b"")]
    for token in ids:
        marker, text = parts[-1]
        if token in family.vocabulary.special:
            parts.append((token, b""))
        else:
            parts[-1] = marker, text + family.vocabulary.bytes[token]
    return parts


def check(family: Prompter, request: Request, order: str, before: str, after: str) -> None:
    """The prompt fits, is well-formed, and has the text around the cursor as far as there is room."""
    prompt = family.build(request)
    usual = min(request.max_tokens, USUAL_TOKENS)
    assert usual <= prompt.max_tokens <= request.max_tokens
    assert len(prompt.ids) + prompt.max_tokens <= CONTEXT_TOKENS
    parts = parts_of(family, prompt.ids)
    names = {"p": family.prefix, "s": family.suffix, "m": family.middle}
    template = [marker for name in order for marker in names[name]]
    fim = parts[len(parts) - len(template) :]
    assert [marker for marker, _ in fim] == template
    assert not {marker for marker, _ in parts[: -len(template) or len(parts)]} & set(template), "each stands once"
    assert prompt.ids[: len(family.bos)] == family.bos
    text_after = b"".join(text for marker, text in fim if [marker] == family.suffix)
    text_before = b"".join(text for marker, text in fim if [marker] in (family.prefix, family.middle))
    if not template:
        text_before = parts[-1][1]
    assert before.encode().endswith(text_before)
    assert after.encode().startswith(text_after)
    cut = len(text_before) < len(before.encode()) or (bool(template) and len(text_after) < len(after.encode()))
    assert prompt.truncated or not cut
    if cut:
        assert len(prompt.ids) > CONTEXT_TOKENS - USUAL_TOKENS - 3 * ANCHOR_TOKENS, "the room is used"
        assert text_before or not before


@given(family=FAMILY, prefix=TEXTS, line=TEXTS, suffix=TEXTS, extra=EXTRAS, limit=LIMITS)
def test_no_request_is_too_long(family: Prompter, prefix: str, line: str, suffix: str, extra, limit: int):
    request = Request(prefix=prefix, line_prefix=line, suffix=suffix, extra=extra, max_tokens=limit, heal=False)
    check(family, request, family.card.fim.order, prefix + line, suffix)


@given(family=FAMILY, order=st.sampled_from(("psm", "spm")), texts=st.tuples(TEXTS, TEXTS, TEXTS, TEXTS), limit=LIMITS)
def test_no_template_filled_in_by_a_client_is_too_long(
    family: Prompter, order: str, texts: tuple[str, str, str, str], limit: int
):
    """In either order; `head` stands for other files, which a client puts before the template."""
    fim, (head, before, after, current) = family.card.fim, texts
    if not fim.prefix:
        head = after = ""
    filled = {"p": fim.prefix + before, "s": fim.suffix + after, "m": fim.middle + current}
    raw = fim.file_sep + head + "".join(filled[name] for name in order)
    if not fim.prefix:
        order, raw, before = "", before + current, before
    check(family, Request(raw_prompt=raw, max_tokens=limit, heal=False), order, before + current, after)


@pytest.mark.parametrize("family", FAMILIES.values(), ids=list(FAMILIES))
def test_max_tokens_changes_the_length_of_the_answer_and_nothing_else(family: Prompter):
    for request in (Request(prefix="x = 1\n" * 900, line_prefix="y"), Request(raw_prompt="x = 1\n" * 50)):
        built = [family.build(replace(request, max_tokens=n)) for n in (0, 1, 128, 1900, 2047, 2048, 2049, 2**31)]
        assert all(prompt.ids == built[0].ids for prompt in built)
        limits = [prompt.max_tokens for prompt in built]
        assert limits == sorted(limits)
        assert limits[-1] == CONTEXT_TOKENS - len(built[0].ids)


LINE = "INSERT INTO t VALUES " + ",".join(f"({n},'{n * n % 997:08x}')" for n in range(400))
TYPED = "".join(f",({n},'{n * n % 991:08x}')" for n in range(20))


@pytest.mark.parametrize("field", ["line_prefix", "raw_prompt"])
@pytest.mark.parametrize("name", ["tiny", "mellum-4b", "codellama-7b"])
def test_typing_on_a_line_longer_than_the_context_keeps_its_prompt_cached(name: str, field: str):
    """One step in tokens may move, once in 256 of them."""
    family, moved = FAMILIES[name], 0
    other = {"suffix": "x = 1\n" * 400} if field == "line_prefix" else {}
    built = family.build(Request(**{field: LINE}, **other)).ids
    for end in range(1, len(TYPED), 5):
        ids = family.build(Request(**{field: LINE + TYPED[:end]}, **other)).ids
        moved += len(built) - common_prefix(built, ids) > 40
        built = ids
    assert len(built) > CONTEXT_TOKENS // 2
    assert moved <= 1 + len(family.encode_once(TYPED)) // ANCHOR_TOKENS
