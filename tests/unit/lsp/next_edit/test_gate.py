"""Laws of the gate: more evidence never makes an edit less likely, and the fixed table is what the features need."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speclsp.lsp.documents.document import Documents
from speclsp.lsp.next_edit.changes.shapes.shape_places import SHAPE
from speclsp.lsp.next_edit.changes.substitutions import LINES, RENAME, Edit, Evidence, Origin, Place, Substitution
from speclsp.lsp.next_edit.edit_likelihood import (
    FEATURES,
    KINDS,
    NO_CHAIN,
    SIGNS,
    THRESHOLDS,
    WEIGHTS,
    Chain,
    FeatureReader,
    is_shown,
    probability,
)
from speclsp.lsp.next_edit.offers import Offers
from speclsp.lsp.next_edit.producer import Found, Proposal
from speclsp.lsp.reasons import Reason

URI = "file:///project/app.py"
LINE, CHANGED = "    total = price(item, tax)", "    total = price(item, tax, rate)"
TEXT = f"def a():\n{CHANGED}\n    return total\n\n\ndef b():\n{LINE}\n    return total\n"
START = TEXT.index(LINE + "\n")
EDIT = Edit(URI, "python", f"{LINE}\n", f"{CHANGED}\n")
KIND = st.sampled_from((LINES, SHAPE))


def features(kind: str = LINES, times: int = 1, chain: Chain = NO_CHAIN, text: str = TEXT) -> dict[str, float]:
    """The features of the line in the second function."""
    evidence = Evidence(times, 0, [Origin(URI, CHANGED)])
    place = Place(START, START + len(LINE), CHANGED, Substitution(kind, LINE.strip(), CHANGED.strip()), evidence)
    return FeatureReader(text, 0, EDIT).features(place, chain)


@given(KIND, st.integers(1, 40), st.integers(1, 40))
def test_more_times_never_lower_the_probability(kind: str, times: int, more: int):
    assert probability(features(kind, times + more)) >= probability(features(kind, times))


@given(KIND, st.integers(0, 9), st.integers(0, 9))
def test_a_rejection_never_raises_the_probability_and_an_accepted_edit_never_lowers_it(kind: str, yes: int, no: int):
    now = probability(features(kind, 2, Chain(yes, no)))
    assert probability(features(kind, 2, Chain(yes, no + 1))) <= now
    assert probability(features(kind, 3, Chain(yes + 1, no, is_same_kind=True))) >= now


def test_every_weight_has_a_feature_and_the_sign_that_it_must_have():
    assert WEIGHTS.keys() <= set(FEATURES) and set(THRESHOLDS) == set(KINDS)
    assert all(WEIGHTS.get(name, 0.0) * sign >= 0 for name, sign in SIGNS.items())


def test_every_feature_of_a_place_is_named():
    assert features(SHAPE).keys() - {SHAPE} == set(FEATURES) - set(KINDS)


def test_a_place_in_like_reader_is_likelier_and_a_proven_one_is_shown_unjudged():
    other = TEXT.replace("def b():\n", "for x in range(9):\n").replace(
        f"{LINE}\n    return total", f"{LINE}\n    show(x)"
    )
    assert features()["alike_around"] > features(text=other)["alike_around"]
    place = Place(0, 9, CHANGED, Substitution(RENAME, LINE, CHANGED), Evidence())
    assert [is_shown(replace(place, is_proven=proven), {"distance": 16.0}) for proven in (False, True)] == [False, True]


@pytest.mark.parametrize("kind", [RENAME, LINES])
def test_a_rejection_ends_the_chain_until_the_change_is_made_again_and_its_place_for_all_kinds(kind: str):
    document = Documents().open(URI, "python", 1, TEXT)
    offers = Offers(lambda outcome: None)
    substitution = Substitution(kind, LINE.strip(), CHANGED.strip())
    place = Place(START, START + len(LINE), CHANGED, substitution, Evidence(1, 0, []))
    offers.rejected(offers.add(Found(document, Proposal(START, START + len(LINE), CHANGED, place))).id)
    other = Place(START, START + len(LINE), CHANGED, Substitution(SHAPE, "tax", "tax, rate"), Evidence(1, 0, []))
    assert offers.chain(document, 0, replace(other, evidence=Evidence(2))) == Chain()
    assert offers.declined(document, 0, place) == offers.declined(document, 0, other) == Reason.DECLINED
    again = Place(0, 0, "", substitution, Evidence(2, 0, []))
    assert offers.declined(document, 0, replace(again, evidence=place.evidence)) == Reason.DECLINED
    assert offers.declined(document, 0, again) == "" and offers.chain(document, 0, again).rejected == 1
