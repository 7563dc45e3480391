"""The content words of found passages that are near the query's are highlighted."""

import numpy as np
import pytest

from elmokit.search.highlight import highlight, is_content_word
from elmokit.search.index import Index
from elmokit.vocab import Vocabulary

LINES = ["A bank lent money , twice .", "The bank of a river .", "- - -", "Nothing of the kind ."]


@pytest.fixture(params=["sentences", "paragraphs"])
def index(request, model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in LINES), "utf-8")
    unit = request.param
    with Index.build(tmp_path / "index", [str(text)], model, unit=unit, layers="top") as index:
        yield index


def test_content_words_near_a_content_word_of_the_query_are_highlighted(index, model):
    query = "a bank money ?"
    hits = index.search(query, k=4)
    passages = highlight(index, query, hits, max_words=1000)
    query_vectors = index.whitening.transform(model.embed([query.split()], layers="top")[0][0][1:3])
    for hit, passage in zip(hits, passages, strict=True):
        assert passage.words == hit.passage.text.split()
        vectors = index.whitening.transform(model.embed([passage.words], layers="top")[0][0])
        best = (vectors @ query_vectors.T).max(1)
        best[[not is_content_word(word) for word in passage.words]] = -1
        near = [] if best.max() <= 0 else np.flatnonzero(best >= 0.7 * best.max()).tolist()
        assert passage.highlighted == near
    assert any(passage.highlighted for passage in passages)


def test_passages_beyond_the_limit_are_not_embedded_and_not_highlighted(index):
    query = "a bank lent money"
    hits = index.search(query, k=4)
    unlimited = highlight(index, query, hits, max_words=1000)
    limited = highlight(index, query, hits, max_words=4 + len(unlimited[0].words))
    assert limited[0] == unlimited[0]
    assert [passage.words for passage in limited] == [passage.words for passage in unlimited]
    assert not any(passage.highlighted for passage in limited[1:])
    assert not any(passage.highlighted for passage in highlight(index, query, hits, max_words=1))


@pytest.mark.parametrize("query", ["?", "What is it ?"])
def test_a_query_without_content_words_highlights_nothing(index, query):
    passages = highlight(index, query, index.search(query, k=4), max_words=99)
    assert not any(passage.highlighted for passage in passages)


@pytest.mark.parametrize("word", ["the", "The", "WAS", "n't", "don’t", "'s", ".", "--", "''"])
def test_stop_words_and_punctuation_are_no_content_words(word):
    assert not is_content_word(word)


@pytest.mark.parametrize("word", ["bank", "1915", "Willow", "银行", "well-being"])
def test_other_words_are_content_words(word):
    assert is_content_word(word)


def test_the_most_frequent_words_of_a_vocabulary_are_no_content_words():
    vocabulary = Vocabulary([*(f"der{n}" for n in range(50)), "Bank", "fluss"])
    assert not is_content_word("Der49", vocabulary)
    assert is_content_word("fluss", vocabulary)
    assert is_content_word("unbekannt", vocabulary)
    assert is_content_word("der0", Vocabulary(["der0", "fluss"]))  # too small to tell
