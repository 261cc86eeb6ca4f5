"""Model cards: every card is consistent, every error in one is named, and "auto" selects a model that fits."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from support.source_tree import ROOT

from speclsp.errors import SpeclspError, UnknownModel
from speclsp.weights import adapters, cards
from speclsp.weights.cards import CardError

NAMES = cards.names()
VALID = """
title = "A pair"
family = "a"
licence = "MIT"
context_tokens = 512
[target]
format = "safetensors"
repo = "owner/name"
revision = ""
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., cards.Card]:
    """Writes a card into an otherwise empty models directory and loads it."""
    monkeypatch.setattr(cards, "models_root", lambda: tmp_path)

    def write(text: str, name: str = "pair") -> cards.Card:
        (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
        return cards.load(name)

    return write


def test_the_included_adapters_are_whole_and_small_and_belong_to_a_model():
    listed, problems = adapters.listing()
    assert problems == [] and listed
    for card in listed:
        file = adapters.read(card)
        assert card.weights in NAMES and len(file.content) <= 8_000_000
        assert file.weights_sha256 == cards.load(card.weights).target.files[0].sha256
        assert card.licence == "Apache-2.0" and card.data


# ── the existing cards ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", NAMES)
def test_a_card_is_complete_and_agrees_with_itself(name: str) -> None:
    card = cards.load(name)
    assert card.name == name
    assert card.title and card.family and card.licence and type(card.needs_torch) is type(card.instruct) is bool
    assert card.context_tokens > 0 and type(card.auto) is int and card.fim.order in ("psm", "spm")
    assert card.edit_format in cards.EDIT_FORMATS and (
        not card.edit_format or card.fim.file_sep == cards.EDIT_SEPARATOR
    )
    assert set(card.memory_mib) <= {"bf16", "int8", "nf4", "int4"} and (not card.auto or "bf16" in card.memory_mib)
    for file in card.target.files:
        assert re.fullmatch(r"[\w-][\w.-]*\.(safetensors|gguf|json)", file.name)
        assert re.fullmatch(r"([0-9a-f]{64})?", file.sha256)
    assert card.target.format in ("safetensors", "gguf", "bundled", "none")
    if card.target.format == "gguf":
        assert len(card.target.files) == 1 and card.target.files[0].sha256
    if card.target.mirror:
        assert card.target.format == "gguf" and card.target.files[0].bytes
    if card.target.format in ("safetensors", "gguf"):
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", card.target.repo)
        assert re.fullmatch(r"([0-9a-f]{40})?", card.target.revision)
        assert card.target.parameters > 100_000_000
        assert card.stop_tokens
        bf16, int8, nf4 = (card.memory_mib[kind] for kind in ("bf16", "int8", "nf4"))
        assert bf16 > max(int8, nf4)  # a CPU's int8 has no embedding in memory, and may take less than nf4
        assert bf16 * 2**20 > 2 * card.target.parameters, "bf16 takes two bytes a parameter"
    markers = [card.fim.prefix, card.fim.suffix, card.fim.middle]
    assert all(markers) or not any(markers), "a family has all three markers or none"
    if all(markers):
        assert len(set(markers)) == 3
        assert set(markers) <= set(card.stop_tokens), "a marker in the answer ends it"
        assert not card.fim.eot or card.fim.eot in card.stop_tokens


@pytest.mark.parametrize("name", [name for name in NAMES if cards.load(name).draft])
def test_a_draft_is_of_the_same_family_much_smaller(name: str) -> None:
    card = cards.load(name)
    assert card.draft is not None
    assert card.draft.parameters < card.target.parameters / 2
    if card.draft.format != "bundled":
        draft = cards.load(card.draft.name)
        assert (draft.family, draft.fim, draft.draft) == (card.family, card.fim, None)
        assert draft.target == card.draft


MODELS_PAGE = (ROOT / "docs/models.md").read_text("utf-8")
LISTED = {row[0].strip("` "): row for line in MODELS_PAGE.splitlines() if len(row := line.strip("|").split(" | ")) == 7}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("echo", "tiny")])
def test_the_table_of_models_has_the_sizes_of_each_card(name: str) -> None:
    card = cards.load(name)
    weights = [card.target, *([card.draft] if card.draft else [])]
    sizes = [sum(file.bytes for file in of.files) if of.format == "gguf" else 2 * of.parameters for of in weights]
    gb = sum(sizes) / 1e9
    _, download, int8, bf16, nf4, _, licence = LISTED[name]
    needed_mib = [card.needed_mib("cpu", 0, "int8"), card.memory_mib["bf16"], card.memory_mib["nf4"]]
    assert [int8, bf16, nf4] == [f"{mib / 1024:.1f}" for mib in needed_mib]
    assert licence.strip() == card.licence
    if all(sizes):  # the size of a file on the hub may be unknown
        assert download == (f"{gb:.1f} GB" if gb < 10 else f"{gb:.0f} GB")


def test_each_model_of_the_page_has_a_card_and_the_smallest_comes_first() -> None:
    assert LISTED.keys() - {"name", "---", ""} == set(NAMES) - {"echo", "tiny"}
    sizes = [cards.load(name).target.parameters for name in NAMES]
    assert sizes == sorted(sizes)


# ── invalid cards ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_unknown_pair_is_named_with_the_nearest_one() -> None:
    with pytest.raises(
        UnknownModel, match=r"'qwen2.5-coder-0.5b-instruc': did you mean 'qwen2.5-coder-0.5b-instruct'\?"
    ):
        cards.load("qwen2.5-coder-0.5b-instruc")


@pytest.mark.parametrize(
    "name", ["", "..", ".", "a/b", "README", "tiny/target", "tiny\0", "-rf", "~root", "/etc/passwd"]
)
def test_a_name_that_looks_like_a_path_loads_no_card(name: str) -> None:
    with pytest.raises(SpeclspError):
        cards.load(name)


@pytest.mark.parametrize(
    ("slip", "says"),
    [
        (("family", "famly"), "unexpected keyword argument 'famly'"),
        (('title = "A pair"', ""), "missing 1 required positional argument: 'title'"),
        (('"MIT"', '"MIT"\ndraft = "other"'), "draft 'other' is not the name of another one"),
        (('"MIT"', '"MIT"\ndraft = "pair"'), "draft 'pair' is not the name of another one"),
        (('"MIT"', '"MIT"\ndraft = 3'), "models/pair.toml is no model definition"),
        (("title =", "title"), "Expected '=' after a key"),
    ],
)
def test_an_error_in_a_card_is_one_sentence_with_the_file(
    shelf: Callable[..., cards.Card], slip: tuple[str, str], says: str
) -> None:
    assert shelf(VALID, "valid").title == "A pair"
    with pytest.raises(CardError) as caught:
        shelf(VALID.replace(*slip, 1))
    assert str(caught.value).startswith("models/pair.toml is no model definition: ")
    assert says in str(caught.value) and "\n" not in str(caught.value)


# ── a directory instead of a name ────────────────────────────────────────────────────────────────────────────────────


def test_a_directory_of_safetensors_is_a_pair_with_the_markers_of_its_tokenizer(tmp_path: Path) -> None:
    fim = cards.load("qwen2.5-coder-7b").fim
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "qwen2", "max_position_embeddings": 4096}))
    (tmp_path / "tokenizer.json").write_text(
        json.dumps({"added_tokens": [{"content": text} for text in fim.markers()]})
    )
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    card = cards.load(str(tmp_path))
    assert (card.fim, card.context_tokens, card.draft) == (fim, 4096, None)
    assert cards.models_root() / card.target.name == tmp_path


def test_a_directory_without_a_model_is_refused_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(CardError, match=r"has no config\.json\. A model.s directory contains config\.json, tok"):
        cards.load(str(tmp_path))
