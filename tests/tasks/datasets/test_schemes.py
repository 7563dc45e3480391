import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import Span
from elmokit.tasks.datasets.schemes import convert_tags, spans_of, tags_of

# The same two spans, then one alone, in every scheme.
WRITTEN = {
    "iob1": "I-A I-A I-A B-A O I-B",
    "iob2": "B-A I-A I-A B-A O B-B",
    "bioes": "B-A I-A E-A S-A O S-B",
    "bmes": "B-A M-A E-A S-A O S-B",
}
SPANS = (Span(0, 2, "A"), Span(3, 3, "A"), Span(5, 5, "B"))


@pytest.mark.parametrize("scheme", WRITTEN)
def test_every_scheme_says_the_same_spans(scheme):
    tags = tuple(WRITTEN[scheme].split())
    assert spans_of(tags) == SPANS
    assert tags_of(SPANS, 6, scheme) == tags


@st.composite
def sentences(draw):
    """Spans that do not overlap, and a length that holds them."""
    spans, place = [], 0
    for gap, words, label in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB")))
    ):
        spans.append(Span(place + gap, place + gap + words - 1, label))
        place += gap + words
    return tuple(spans), place + draw(st.integers(0, 2))


@given(sentences(), st.sampled_from([*WRITTEN]), st.sampled_from([*WRITTEN]))
def test_spans_survive_every_conversion(sentence, one, other):
    spans, length = sentence
    tags = tags_of(spans, length, one)
    assert spans_of(tags) == spans
    assert convert_tags(convert_tags(tags, other), one) == tags


@pytest.mark.parametrize("letters", ["BI", "BIES", "I"])
def test_ill_formed_tags_are_read_as_seqeval_and_conlleval_read_them(letters):
    chance = random.Random(letters)
    all_tags = ["O", *(f"{letter}-{label}" for letter in letters for label in "AB")]
    for _ in range(500):
        tags = chance.choices(all_tags, k=chance.randrange(1, 9))
        theirs = [Span(first, last, label) for label, first, last in get_entities(tags)]
        assert list(spans_of(tags)) == theirs, tags


@pytest.mark.parametrize("tag", ["", "B", "B-", "BA", "X-A", "I A"])
def test_what_is_no_tag_is_refused(tag):
    with pytest.raises(InputError, match="expected O or one of B, I, M, E and S"):
        spans_of([tag])


def test_spans_that_tags_cannot_say_are_refused():
    with pytest.raises(InputError, match="overlaps"):
        tags_of([Span(0, 2, "A"), Span(2, 3, "B")], 4, "iob2")
    with pytest.raises(InputError, match="does not lie in a sentence of 2 words"):
        tags_of([Span(0, 2, "A")], 2, "iob2")
