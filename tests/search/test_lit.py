"""Of passages that were found, the words that are near the query are lit, and marks are not."""

import numpy as np
import pytest

from elmokit.search.build import build_index
from elmokit.search.lit import light_up

LINES = ["A bank lent money , twice .", "The bank of a river .", "- - -", "Nothing of the kind ."]


@pytest.fixture(params=["sentences", "paragraphs"])
def index(request, model, tmp_path):
    (tmp_path / "text.txt").write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    names = [str(tmp_path / "text.txt")]
    with build_index(model, names, tmp_path / "index", unit=request.param, layers="top") as built:
        yield built


def test_lit_words_are_those_near_a_word_of_the_query(index, model):
    query = "a bank ?"
    hits = index.search(query, k=4)
    lit = light_up(index, query, hits, most_words=1000)
    asked = index.whitening.apply(model.embed([query.split()], layers="top")[0][0][:2])
    for hit, own in zip(hits, lit, strict=True):
        assert own.words == hit.found.text.split()
        vectors = index.whitening.apply(model.embed([own.words], layers="top")[0][0])
        best = (vectors @ asked.T).max(1)
        best[[not word.isalnum() for word in own.words]] = -1
        near = [] if best.max() <= 0 else np.flatnonzero(best >= 0.7 * best.max()).tolist()
        assert own.places == near
    assert any(own.places for own in lit)


def test_passages_beyond_the_limit_are_not_read_and_not_lit(index):
    query = "a bank lent money"
    hits = index.search(query, k=4)
    all_lit = light_up(index, query, hits, most_words=1000)
    first = 4 + len(all_lit[0].words)
    some = light_up(index, query, hits, most_words=first)
    assert some[0] == all_lit[0]
    assert [own.words for own in some] == [own.words for own in all_lit]
    assert not any(own.places for own in some[1:])
    assert not any(own.places for own in light_up(index, query, hits, most_words=1))


def test_a_query_of_marks_lights_nothing(index):
    assert not any(
        own.places for own in light_up(index, "?", index.search("?", k=4), most_words=99)
    )
