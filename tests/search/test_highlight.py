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


def highlighted(index, query):
    """The passages found for a query, as words, and the positions of the highlighted ones."""
    passages = [index.config.tokenize(hit.passage.text) for hit in index.search(query, k=4)]
    words = [[word for sentence in passage for word in sentence] for passage in passages]
    return [*zip(words, highlight(index, query, passages), strict=True)]


def test_content_words_near_a_content_word_of_the_query_are_highlighted(index, model):
    query = "a bank money ?"
    results = highlighted(index, query)
    query_vectors = index.whitening.transform(model.embed([query.split()], layers="top")[0][0][1:3])
    for words, positions in results:
        vectors = index.whitening.transform(model.embed([words], layers="top")[0][0])
        best = (vectors @ query_vectors.T).max(1)
        best[[not is_content_word(word) for word in words]] = -1
        near = [] if best.max() <= 0 else np.flatnonzero(best >= 0.7 * best.max()).tolist()
        assert positions == near
    assert any(positions for _, positions in results)


@pytest.mark.parametrize("query", ["?", "What is it ?"])
def test_a_query_without_content_words_highlights_nothing(index, query):
    assert not any(positions for _, positions in highlighted(index, query))


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
