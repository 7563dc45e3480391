import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics.sequence_labeling import get_entities

from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import Span
from elmokit.tasks.datasets.schemes import convert_tags, spans_of, tags_of

# Two spans side by side and one apart, in every scheme.
TAGS = {
    "iob1": "I-A I-A I-A B-A O I-B",
    "iob2": "B-A I-A I-A B-A O B-B",
    "bioes": "B-A I-A E-A S-A O S-B",
    "bmes": "B-A M-A E-A S-A O S-B",
}
SPANS = (Span(0, 2, "A"), Span(3, 3, "A"), Span(5, 5, "B"))


@pytest.mark.parametrize("scheme", TAGS)
def test_every_scheme_gives_the_same_spans(scheme):
    tags = tuple(TAGS[scheme].split())
    assert spans_of(tags) == SPANS
    assert tags_of(SPANS, 6, scheme) == tags


@st.composite
def sentences(draw):
    """Spans that do not overlap, and a length that holds them."""
    spans, position = [], 0
    for gap, words, label in draw(
        st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), st.sampled_from("AB")))
    ):
        spans.append(Span(position + gap, position + gap + words - 1, label))
        position += gap + words
    return tuple(spans), position + draw(st.integers(0, 2))


@given(sentences(), st.sampled_from([*TAGS]), st.sampled_from([*TAGS]))
def test_spans_survive_every_conversion(sentence, first, second):
    spans, length = sentence
    tags = tags_of(spans, length, first)
    assert spans_of(tags) == spans
    assert convert_tags(convert_tags(tags, second), first) == tags


@pytest.mark.parametrize("letters", ["BI", "BIES", "I"])
def test_ill_formed_tags_are_read_as_seqeval_and_conlleval_read_them(letters):
    rng = random.Random(letters)
    all_tags = ["O", *(f"{letter}-{label}" for letter in letters for label in "AB")]
    for _ in range(500):
        tags = rng.choices(all_tags, k=rng.randrange(1, 9))
        expected = [Span(first, last, label) for label, first, last in get_entities(tags)]
        assert list(spans_of(tags)) == expected, tags


@pytest.mark.parametrize("tag", ["", "B", "B-", "BA", "X-A", "I A"])
def test_an_unknown_tag_is_refused(tag):
    with pytest.raises(InputError, match="expected O or one of B, I, M, E and S"):
        spans_of([tag])


def test_spans_that_tags_cannot_express_are_refused():
    with pytest.raises(InputError, match="overlaps"):
        tags_of([Span(0, 2, "A"), Span(2, 3, "B")], 4, "iob2")
    with pytest.raises(InputError, match="does not lie in a sentence of 2 words"):
        tags_of([Span(0, 2, "A")], 2, "iob2")
