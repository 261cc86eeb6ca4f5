"""Prompts: the family's template, the budget, token healing, and text that comes out as it was meant."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speclsp import cards
from speclsp.engine import loading
from speclsp.engine.draft import NGram, Reuse, find_last
from speclsp.engine.prompt import (
    ANCHOR_TOKENS,
    Healing,
    Prompter,
    TextStream,
    Vocabulary,
    cut_start,
    split_healing,
    split_recent_lines,
)
from speclsp.engine.seam import Extra, Request
from speclsp.errors import InputError, TokenizerMismatch, WeightsError

CARD = cards.load("tiny")


@pytest.fixture(scope="module")
def prompter() -> Prompter:
    from speclsp import weights

    tokenizer = loading.read_tokenizer(weights.ensure(CARD.target))
    return Prompter(CARD, tokenizer, Vocabulary(tokenizer), 512)


def text_of(prompter: Prompter, ids: list[int]) -> str:
    names = {number: text for text, number in prompter.tokenizer.get_vocab().items()}
    special = prompter.vocabulary.special
    raw = b"".join(names[i].encode() if i in special else prompter.vocabulary.bytes[i] for i in ids)
    return raw.decode(errors="replace")


ABOVE = "1\n2\n3\n4\n"


def test_what_is_being_typed_goes_after_the_middle_marker(prompter: Prompter):
    prompt = prompter.build(Request(prefix=ABOVE + "5\n6\n", line_prefix="b = (", suffix=")\nc\n"))
    wanted = f"<|fim_prefix|>{ABOVE}<|fim_suffix|>)\nc\n<|fim_middle|>5\n6\nb = ("
    assert text_of(prompter, prompt.ids) == wanted


@given(lines=st.lists(st.sampled_from(["a\n", "\n", "b = 1\r\n", "\x0c\n", "\u2028\n"]), max_size=30))
def test_the_cut_loses_nothing_and_moves_once_in_four_lines(lines: list[str]):
    above, recent = split_recent_lines("".join(lines))
    assert above + recent == "".join(lines)
    assert recent.count("\n") >= min(len(lines), 2)
    assert recent.count("\n") <= 5
    assert above.count("\n") % 4 == 0


def test_a_family_trained_on_suffix_first_gets_the_line_before_the_middle_marker(prompter: Prompter):
    card = replace(CARD, fim=replace(CARD.fim, order="spm"))
    spm = Prompter(card, prompter.tokenizer, prompter.vocabulary, 512)
    prompt = spm.build(Request(prefix=ABOVE + "5\n6\n", line_prefix="b(", suffix="c"))
    assert text_of(spm, prompt.ids) == f"<|fim_suffix|>c<|fim_prefix|>{ABOVE}5\n6\nb(<|fim_middle|>"


def test_a_family_without_markers_goes_on_from_the_left(prompter: Prompter):
    empty = replace(CARD.fim, prefix="", suffix="", middle="", repo="", file_sep="")
    plain = Prompter(replace(CARD, fim=empty), prompter.tokenizer, prompter.vocabulary, 512)
    prompt = plain.build(Request(prefix="a\n", line_prefix="b(", suffix="c"))
    assert text_of(plain, prompt.ids) == "a\nb("


def test_other_files_come_first_in_the_repositorys_own_markers(prompter: Prompter):
    request = Request(prefix="x\n" * 6, filename="b.py", extra=(Extra(filename="a.py", text="def f(): ..."),))
    text = text_of(prompter, prompter.build(request).ids)
    assert text.startswith("<|repo_name|>repo\n<|file_sep|>a.py\ndef f(): ...\n<|file_sep|>b.py\n<|fim_prefix|>x\n")


def test_typing_on_the_line_only_appends(prompter: Prompter):
    typed = "result = compute(value, other"
    before = prompter.build(Request(prefix="a\n" * 20, line_prefix="", suffix="b\n")).ids
    for end in range(1, len(typed) + 1):
        ids = prompter.build(Request(prefix="a\n" * 20, line_prefix=typed[:end], suffix="b\n")).ids
        assert ids[: len(before)] == before


@pytest.mark.parametrize(
    ("line", "kept", "healed"),
    [
        ("    retu", "    ", "retu"),
        ("x = foo.ba", "x = foo.", "ba"),
        ("x = ", "x =", " "),
        ("    ", "   ", " "),
        ("f(", "f(", ""),
        ("", "", ""),
        ("naïve_nam", "", "naïve_nam"),
        ("\t", "\t", ""),
    ],
)
def test_healing_backs_up_over_the_partial_word_or_one_space(line: str, kept: str, healed: str):
    assert split_healing(line, True) == (kept, healed)
    assert split_healing(line, False) == (line, "")


@settings(max_examples=50)
@given(word=st.text("abcdefgh_éß1", min_size=1, max_size=9))
def test_the_tokens_that_spell_a_word_are_all_and_only_those(prompter: Prompter, word: str):
    raw = word.encode()
    allowed = set(prompter.vocabulary.spelling(raw))
    for number, text in enumerate(prompter.vocabulary.bytes):
        spells = bool(text) and (text.startswith(raw) or raw.startswith(text))
        assert (number in allowed) == spells


@settings(max_examples=50)
@given(word=st.text("abcdefgh_é", min_size=1, max_size=12), data=st.data())
def test_whatever_is_chosen_a_healed_word_gets_spelled_in_full(prompter: Prompter, word: str, data: st.DataObject):
    healing, emitted = Healing(word.encode(), prompter.vocabulary), []
    while (allowed := healing.allowed(emitted)) is not None:
        emitted.append(data.draw(st.sampled_from(sorted(allowed.tolist()))))
    spelled = b"".join(prompter.vocabulary.bytes[token] for token in emitted)
    assert spelled.startswith(word.encode())
    assert not b"".join(prompter.vocabulary.bytes[token] for token in emitted[:-1]).startswith(word.encode())


@settings(max_examples=50)
@given(text=st.text(max_size=60))
def test_text_goes_in_and_comes_out_token_by_token(prompter: Prompter, text: str):
    stream, ids = TextStream(prompter.vocabulary, b""), prompter.encode(text)
    out = "".join(stream.push([token]) for token in ids) + stream.push([], final=True)
    assert out == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_markers_in_the_users_own_text_are_plain_text(prompter: Prompter):
    ids = prompter.encode("s = '<|fim_middle|><|endoftext|>'")
    assert not set(ids) & prompter.vocabulary.special


def test_a_lone_surrogate_does_not_stop_anything(prompter: Prompter):
    assert prompter.build(Request(prefix="\ud800 = 1\n", line_prefix="\udc00", suffix="\ud83d")).ids


def test_a_long_document_is_cut_in_steps_so_that_typing_keeps_the_rest_cached(prompter: Prompter):
    lines = [f"value_{i} = {i}\n" for i in range(300)]
    first = prompter.build(Request(prefix="".join(lines[:200]), suffix="".join(lines[200:]), max_tokens=32)).ids
    assert len(first) + 32 <= 512
    grown = prompter.build(Request(prefix="".join(lines[:200]), line_prefix="x = 1", suffix="".join(lines[200:]))).ids
    assert text_of(prompter, first).split("<|fim_suffix|>")[0] == text_of(prompter, grown).split("<|fim_suffix|>")[0]


@given(length=st.integers(0, 3000), room=st.integers(0, 1200))
def test_a_cut_leaves_at_most_the_room_and_the_end(length: int, room: int):
    ids = list(range(length))
    kept = cut_start(ids, room)
    assert len(kept) <= max(room, 0) or length <= room
    assert kept == ids[length - len(kept) :]
    assert length <= room or len(kept) > room - ANCHOR_TOKENS


def test_a_completion_that_cannot_fit_is_refused_in_words(prompter: Prompter):
    with pytest.raises(InputError, match=r"do not fit engine\.context_tokens = 512"):
        prompter.build(Request(prefix="a\n", max_tokens=600))


def test_a_marker_the_tokenizer_lacks_is_named(prompter: Prompter):
    card = replace(CARD, fim=replace(CARD.fim, prefix="<PRE>"))
    with pytest.raises(WeightsError, match="no token '<PRE>'"):
        Prompter(card, prompter.tokenizer, prompter.vocabulary, 512)


def test_a_draft_with_another_tokenizer_is_refused_with_the_reason(prompter: Prompter):
    from tokenizers import Tokenizer

    other = Tokenizer.from_str(prompter.tokenizer.to_str())
    other.add_tokens(["<|another|>"])
    with pytest.raises(TokenizerMismatch, match=r"1 entries differ, the first is '<\|another\|>'"):
        loading.check_same_tokenizer(prompter.tokenizer, other, CARD)
    loading.check_same_tokenizer(prompter.tokenizer, Tokenizer.from_str(prompter.tokenizer.to_str()), CARD)


def no_pick(logits, drafted):
    raise AssertionError("not needed")


def test_an_n_gram_prefers_the_longest_match_and_then_the_newest():
    ids = [1, 2, 3, 9, 8, 2, 3, 7, 5, 1, 2, 3]
    guess = NGram().propose(ids, 2, no_pick)
    assert (guess.tokens, guess.strength) == ([9, 8], 3)
    assert NGram().propose([4, 5, 1, 4, 5, 2, 4, 5], 1, no_pick).tokens == [2]
    assert NGram(elsewhere=[6, 7, 8]).propose([1, 6], 3, no_pick).tokens == [7, 8, 1]
    assert NGram().propose([1, 2, 3], 4, no_pick).tokens == []


@given(text=st.lists(st.integers(0, 3), max_size=30), key=st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_finding_the_last_place_of_a_key_agrees_with_looking(text: list[int], key: list[int]):
    places = [i for i in range(len(text) - len(key) + 1) if text[i : i + len(key)] == key]
    assert find_last(text, key) == max(places, default=-1)


def test_a_suggestion_typed_into_goes_on_and_one_parted_from_is_found_again():
    reuse = Reuse([5, 6, 7, 8, 9], start=2)
    assert reuse.propose([1, 2], 9, no_pick).tokens == [5, 6, 7, 8, 9]
    assert reuse.propose([1, 2, 5, 6], 2, no_pick).tokens == [7, 8]
    assert reuse.propose([1, 2, 5, 0, 7], 9, no_pick).tokens == [8, 9]
    assert reuse.propose([1, 2, 0], 9, no_pick).tokens == []
