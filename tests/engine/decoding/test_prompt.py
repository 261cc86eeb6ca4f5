"""Prompts: the family's template, the token budget, token healing, and decoding of tokens to text."""

from __future__ import annotations

import random
import re
import statistics
import sysconfig
from array import array
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.soak import in_soak

from speclsp.config import Config
from speclsp.engine.api import Extra, Request
from speclsp.engine.decoding.drafters import NGramDrafter, ReuseDrafter, find_last_packed
from speclsp.engine.decoding.prompt import ANCHOR_TOKENS, Prompter, cut_start, split_recent_lines
from speclsp.engine.decoding.token_healing import Healing, RespelledTokens, continuation, split_healing
from speclsp.engine.decoding.vocabulary import TextStream, Vocabulary
from speclsp.engine.loading import checkpoint
from speclsp.engine.model.kv_archive import common_prefix
from speclsp.errors import TokenizerMismatch, WeightsError
from speclsp.lsp.context import build
from speclsp.lsp.documents.document import Snapshot
from speclsp.lsp.syntax.parser import SyntaxParser
from speclsp.weights import cards

CARD = cards.load("tiny")


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    from speclsp.weights import store

    tokenizer = checkpoint.read_tokenizer(store.ensure(CARD.target))
    return Prompter(CARD, tokenizer, Vocabulary(tokenizer), 512)


def text_of(prompter: Prompter, ids: list[int]) -> str:
    names = {number: text for text, number in prompter.tokenizer.get_vocab().items()}
    special = prompter.vocabulary.special
    raw = b"".join(names[i].encode() if i in special else prompter.vocabulary.bytes[i] for i in ids)
    return raw.decode(errors="replace")


FILLED_IN = "<|fim_prefix|>{0}<|fim_suffix|>{1}<|fim_middle|>"


def test_only_markers_of_a_template_filled_in_by_a_client_are_special_tokens(prompter: Prompter):
    raw = FILLED_IN.format("a = 1\n", "c = 3\n")
    same = prompter.build(Request(raw_prompt=raw, heal=False))
    count = sum(token in prompter.vocabulary.special for token in same.ids)
    assert (text_of(prompter, same.ids), count) == (raw, 3)
    plain = prompter.build(Request(prefix=raw, heal=False))
    assert sum(token in prompter.vocabulary.special for token in plain.ids) == 3, "the template's own"
    assert raw in prompter.tokenizer.decode(plain.ids, skip_special_tokens=False)


def test_a_raw_prompt_is_healed_at_its_end_unless_it_ends_with_a_marker(prompter: Prompter):
    assert prompter.build(Request(raw_prompt="return self.it")).heal == b".it"
    assert prompter.build(Request(raw_prompt=FILLED_IN.format("self.it", ""))).heal == b""


@given(lines=st.lists(st.sampled_from(["a\n", "\n", "b = 1\r\n", "\x0c\n", "\u2028\n"]), max_size=30))
def test_the_cut_loses_nothing_and_moves_once_in_four_lines(lines: list[str]):
    above, recent = split_recent_lines("".join(lines))
    assert above + recent == "".join(lines)
    assert recent.count("\n") >= min(len(lines), 2)
    assert recent.count("\n") <= 5
    assert above.count("\n") % 4 == 0


def test_other_files_come_first_in_the_repositorys_own_markers(prompter: Prompter):
    request = Request(prefix="x\n" * 6, filename="b.py", extra=(Extra(filename="a.py", text="def f(): ..."),))
    text = text_of(prompter, prompter.build(request).ids)
    assert text.startswith("<|repo_name|>repo\n<|file_sep|>a.py\ndef f(): ...\n<|file_sep|>b.py\n<|fim_prefix|>x\n")


def test_without_room_for_all_other_files_the_first_ones_are_left_out(prompter: Prompter):
    extra = tuple(Extra(filename=f"{n}.py", text=f"def f{n}(): ...\n" * 3) for n in range(6))
    counts = set()
    for lines in range(0, 240, 8):
        request = Request(prefix="x = 1\n" * lines, filename="b.py", extra=extra)
        text = text_of(prompter, prompter.build(request).ids)
        left_out = [f"def f{n}(): ..." in text for n in range(6)].count(False)
        assert all((f"<|file_sep|>{n}.py\n{file.text}" in text) == (n >= left_out) for n, file in enumerate(extra))
        assert ("<|file_sep|>b.py" in text) == (left_out < 6)
        counts.add(left_out)
    assert {0, 6} < counts, "all, none, and some of them"


@pytest.mark.parametrize(
    ("line", "kept", "healed"),
    [
        ("    retu", "   ", " retu"),
        ("x = foo.ba", "x = foo", ".ba"),
        ("x = ", "x =", " "),
        ("    ", "   ", " "),
        ("f(", "f", "("),
        ("x = (", "x =", " ("),
        ("x = (se", "x = (", "se"),
        ("x ==", "x", " =="),
        ("f()", "f", "()"),
        ("'ab", "", "'ab"),
        ("-" * 9, "-" * 5, "-" * 4),
        ("x" * 200, "x" * 120, "x" * 80),
        ("f(se", "f", "(se"),
        ("\tretu", "", "\tretu"),
        ("a\n", "a\n", ""),
        ("a\nb", "a\n", "b"),
        ("", "", ""),
        ("naïve_nam", "", "naïve_nam"),
        ("\t", "\t", ""),
    ],
)
def test_healing_backs_up_over_the_partial_word_and_characters_joined_with_it(line: str, kept: str, healed: str):
    assert split_healing(line, True) == (kept, healed)
    assert split_healing(line, False) == (line, "")


@settings(max_examples=50)
@given(word=st.text("abcdefgh_éß1", min_size=1, max_size=9))
def test_the_tokens_that_spell_a_word_are_all_and_only_those(prompter: Prompter, word: str):
    raw = word.encode()
    listed = prompter.vocabulary.spelling(raw).tolist()
    allowed = set(listed)
    assert len(listed) == len(allowed)
    for number, text in enumerate(prompter.vocabulary.bytes):
        spells = bool(text) and (text.startswith(raw) or raw.startswith(text))
        assert (number in allowed) == spells


@settings(max_examples=50)
@given(word=st.text("abcdefgh_é", min_size=1, max_size=12), data=st.data())
def test_any_choice_of_tokens_spells_a_healed_word_in_full(prompter: Prompter, word: str, data: st.DataObject):
    healing, emitted = Healing(word.encode(), prompter.vocabulary), []
    while (allowed := healing.allowed(emitted)) is not None:
        emitted.append(data.draw(st.sampled_from(sorted(allowed.tolist()))))
    spelled = b"".join(prompter.vocabulary.bytes[token] for token in emitted)
    assert spelled.startswith(word.encode())
    assert not b"".join(prompter.vocabulary.bytes[token] for token in emitted[:-1]).startswith(word.encode())


@settings(max_examples=50)
@given(text=st.text(max_size=60))
def test_decoding_token_by_token_gives_the_encoded_text(prompter: Prompter, text: str):
    stream, ids = TextStream(prompter.vocabulary, b""), prompter.encode(text)
    out = "".join(map(stream.push, ids))
    assert out == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_a_lone_surrogate_is_accepted(prompter: Prompter):
    assert prompter.build(Request(prefix="\ud800 = 1\n", line_prefix="\udc00", suffix="\ud83d")).ids


@given(length=st.integers(0, 3000), room=st.integers(0, 1200))
def test_a_cut_leaves_at_most_the_room_and_the_end(length: int, room: int):
    ids = list(range(length))
    kept = cut_start(ids, room)
    assert len(kept) <= max(room, 0) or length <= room
    assert kept == ids[length - len(kept) :]
    assert length <= room or len(kept) > room - ANCHOR_TOKENS


def test_what_did_not_fit_is_counted_and_reported(prompter: Prompter):
    text = "value = 1\n" * 300
    tokens = len(prompter.encode(text))
    for request in (Request(prefix=text), Request(suffix=text), Request(raw_prompt=text, heal=False)):
        prompt = prompter.build(request)
        assert prompt.truncated
        assert prompt.left_out_tokens == len(prompt.left_out) > 0
        assert tokens <= len(prompt.ids) + len(prompt.left_out) <= tokens + 8, "markers, and a cut line"
    fits = prompter.build(Request(prefix="a = 1\n", suffix="b = 2\n"))
    assert (fits.truncated, fits.left_out_tokens) == (False, 0)
    extra = tuple(Extra(filename="a.py", text="value = 1\n" * 30) for _ in range(9))
    assert prompter.build(Request(prefix="a = 1\n", extra=extra)).truncated, "snippets did not fit"


def test_the_suffix_comes_first_for_the_families_whose_model_cards_show_it_so():
    assert {name for name in cards.names() if cards.load(name).fim.order == "spm"} == {"mellum-4b", "seed-coder-8b"}


def test_a_marker_the_tokenizer_lacks_is_named(prompter: Prompter):
    card = replace(CARD, fim=replace(CARD.fim, prefix="<PRE>"))
    with pytest.raises(WeightsError, match="no token '<PRE>'"):
        Prompter(card, prompter.tokenizer, prompter.vocabulary, 512)


def test_a_draft_with_another_tokenizer_is_refused_with_the_reason(prompter: Prompter):
    from tokenizers import Tokenizer

    other = Tokenizer.from_str(prompter.tokenizer.to_str())
    other.add_tokens(["<|another|>"])
    with pytest.raises(TokenizerMismatch, match=r"1 entries differ, such as '<\|another\|>'"):
        checkpoint.check_same_tokenizer(prompter.tokenizer, other, CARD)
    checkpoint.check_same_tokenizer(prompter.tokenizer, Tokenizer.from_str(prompter.tokenizer.to_str()), CARD)


def no_pick(logits, drafted):
    raise AssertionError("not needed")


def test_an_n_gram_prefers_the_longest_match_and_then_the_newest():
    ids = [1, 2, 3, 9, 8, 2, 3, 7, 5, 1, 2, 3]
    guess = NGramDrafter().propose(ids, 2, no_pick)
    assert (guess.tokens, guess.strength) == ([9, 8], 3)
    assert NGramDrafter().propose([4, 5, 1, 4, 5, 2, 4, 5], 1, no_pick).tokens == [2]
    assert NGramDrafter(elsewhere=[6, 7, 8]).propose([1, 6], 3, no_pick).tokens == [7, 8, 1]
    assert NGramDrafter().propose([1, 2, 3], 4, no_pick).tokens == []


@given(text=st.lists(st.integers(0, 3), max_size=30), key=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_find_last_agrees_with_a_linear_search(text: list[int], key: list[int]):
    starts = [i for i in range(len(text) - len(key) + 1) if text[i : i + len(key)] == key]
    packed, packed_key = array("i", text).tobytes(), array("i", key).tobytes()
    assert find_last_packed(packed, packed_key, before=len(text)) == max(starts, default=-1)


@pytest.mark.parametrize(
    ("text", "heal", "continued"),
    [
        (b"self.items = []\nself.", b"it", b"items = []\nself."),
        (b"self.items; other.item()\nself.", b"it", b"items; other.item()\nself."),  # the longer context
        (b"self.item_a; self.item_b; self.", b"item", b"item_b; self."),  # the newest of equal ones
        (b"fit = 1; item = 2\nprint(", b"it", b"item = 2\nprint("),  # never the middle of a word
        (b"fit = 1\nprint(", b"it", b""),
        (b"\0items\0", b"it", b"items"),  # never across a marker
        (b"x = \0", b"", b""),
    ],
)
def test_an_earlier_continuation_of_a_partial_word_is_found_by_its_bytes(text: bytes, heal: bytes, continued: bytes):
    assert continuation(text, heal)[0] == continued


@settings(max_examples=60)
@given(text=st.text("ab. (", max_size=40), heal=st.text("ab. ", min_size=1, max_size=4))
def test_a_continuation_starts_with_the_healed_bytes_and_occurs_in_the_text(text: str, heal: str):
    continued, same = continuation(text.encode(), heal.encode())
    if continued:
        assert continued.startswith(heal.encode()) and continued in text.encode()
        assert text[len(text) - same :] + continued.decode() in text


@settings(max_examples=60)
@given(line=st.text("abitems. (=", max_size=12))
def test_a_partial_word_and_its_continuation_are_drafted_in_one_guess(prompter: Prompter, line: str):
    prompt = prompter.build(Request(prefix="self.items = list(values)\n" * 3, line_prefix=line))
    drafter = RespelledTokens(
        NGramDrafter(), prompt.heal, [], len(prompt.ids), prompter.vocabulary, prompter.encode_once
    )
    guess = drafter.propose(prompt.ids, 8, no_pick)
    healing = Healing(prompt.heal, prompter.vocabulary)
    for index, token in enumerate(guess.tokens):
        allowed = healing.allowed(guess.tokens[:index])
        assert allowed is None or token in allowed, "no guess that the constraint forbids"
    later = [*prompt.ids, *prompter.encode("items")]
    assert drafter.propose(later, 4, no_pick) == NGramDrafter().propose(later, 4, no_pick)


# ── tokens per keystroke ────────────────────────────────────────────────────────────────────────────────────────


def new_tokens_per_key(prompter: Prompter, module: str, lines: int, seed: int) -> list[int]:
    """Prompt tokens of a keystroke that the previous one does not share, while lines of a module are typed again."""
    text = Path(sysconfig.get_path("stdlib"), module).read_text(encoding="utf-8")
    config, parser, windows, dice, counts = Config(), SyntaxParser(), build.Windows(), random.Random(seed), []
    starts = [0, *(match.end() for match in re.finditer("\n", text))]
    for start in dice.sample(starts[len(starts) // 4 : -2], lines):
        end = text.index("\n", start)
        before: list[int] | None = None
        for cursor in range(start, end + 1):
            snapshot = Snapshot("file:///a.py", "python", 1, text[:cursor] + text[end:], cursor)
            tree = parser.parse("python", snapshot.text, config.context.parse_budget_ms, near=cursor)
            context = build.build(snapshot, tree, config.context, windows=windows)
            request = Request(
                prefix=context.prefix, line_prefix=context.line_prefix, suffix=context.suffix, filename=context.path
            )
            ids = prompter.build(request).ids
            if before is not None:
                counts.append(len(ids) - common_prefix(before, ids))
            before = ids
    return counts


MODULES = ("argparse.py", "csv.py", "textwrap.py", "tarfile.py")


@pytest.mark.real
@pytest.mark.parametrize("module", [MODULES[0], *in_soak(*MODULES[1:])])
@pytest.mark.parametrize("order", ["psm", "spm"])
def test_a_keystroke_adds_at_most_three_tokens_with_a_real_tokenizer(coder_0_5b: Path, module: str, order: str):
    card = cards.load("qwen2.5-coder-0.5b-instruct")
    tokenizer = checkpoint.read_tokenizer(coder_0_5b)
    card = replace(card, fim=replace(card.fim, order=order))
    counts = sorted(new_tokens_per_key(Prompter(card, tokenizer, Vocabulary(tokenizer), 2048), module, 10, seed=2))
    marker = int(order == "spm")  # the middle marker moves
    assert statistics.median(counts) <= 1 + marker
    assert counts[len(counts) * 9 // 10] <= 3 + marker
    assert counts[-1] < 32, "no key shifts the window"


def test_a_suggestion_continues_while_typed_through_and_is_found_again_after_a_divergence():
    reuse = ReuseDrafter([5, 6, 7, 8, 9], start=2)
    assert reuse.propose([1, 2], 9, no_pick).tokens == [5, 6, 7, 8, 9]
    assert reuse.propose([1, 2, 5, 6], 2, no_pick).tokens == [7, 8]
    assert reuse.propose([1, 2, 5, 6, 0, 8], 9, no_pick).tokens == [9]


@given(data=st.data())
def test_the_pointer_does_not_depend_on_how_the_answer_is_cut_into_rounds(data: st.DataObject):
    tokens = st.integers(0, 4)
    text, answer = data.draw(st.lists(tokens, max_size=20)), data.draw(st.lists(tokens, max_size=20))
    whole, stepwise = ReuseDrafter(text, 2), ReuseDrafter(text, 2)
    for end in data.draw(st.lists(st.integers(0, len(answer)), max_size=6).map(sorted)):
        stepwise.propose([9, 9, *answer[:end]], 64, no_pick)
    assert stepwise.propose([9, 9, *answer], 64, no_pick) == whole.propose([9, 9, *answer], 64, no_pick)
