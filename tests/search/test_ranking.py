"""Passages are matched with a query word by word."""

import numpy as np
import pytest

from elmokit.search import ranking
from elmokit.search.ranking import (
    WordVectors,
    encode_words,
    fit_word_whitening,
    match_passages,
)

TEXTS = [
    [["the", "bank", "of", "a", "river"], ["money"]],
    [[], ["otters", "dig"]],
    [],
    [["rivers", "rivers"], ["bank", "money"]],
]


@pytest.fixture
def vectors(model):
    words = [word for text in TEXTS for words in text for word in words]
    return WordVectors(model, fit_word_whitening(model, [words]))


def expected(vectors, query, weights, passages):
    """The same, one word of the query, one sentence and one passage at a time."""
    scores = []
    for passage in passages:
        shares = [0.0]
        for words in filter(None, passage):
            best = [
                max(max(vectors([q])[0] @ vectors([w])[0], 0) ** 2 for w in words) for q in query
            ]
            shares.append(np.average(best, weights=weights))
        scores.append(max(shares))
    return scores


def test_the_best_sentence_of_each_passage_counts(vectors):
    query, weights = ["bank", "river"], [2.0, 1.0]
    matches = match_passages(vectors, query, weights, TEXTS)
    np.testing.assert_allclose(matches, expected(vectors, query, weights, TEXTS), atol=1e-5)
    assert matches[0] == pytest.approx(1)
    assert matches[2] == 0


@pytest.mark.parametrize(("query", "weights"), [([], []), (["bank"], [0.0])])
def test_a_query_without_weight_matches_nothing(vectors, query, weights):
    assert not match_passages(vectors, query, weights, TEXTS).any()


def test_vectors_are_those_of_the_model_whitened(vectors, model):
    words = ["bank", "river", "bank"]
    whitened = vectors._whitening.transform(encode_words(model, words))
    np.testing.assert_allclose(vectors(words), whitened, atol=1e-5)


def test_the_memory_for_vectors_is_bounded(vectors, monkeypatch):
    before = {word: vectors([word])[0] for word in ("a", "b", "c", "d")}
    monkeypatch.setattr(ranking, "_CACHE_BYTES", 3 * 4 * vectors(["a"]).shape[1])
    for words in (["a", "b"], ["c", "d"], ["a", "b", "c", "d"], ["d", "a"]):
        np.testing.assert_allclose(vectors(words), [before[word] for word in words], atol=1e-5)
        assert len(vectors._rows) <= 4


def test_few_words_are_not_whitened_and_none_give_no_error(model):
    assert (fit_word_whitening(model, []).matrix == np.eye(model.dim // 2)).all()
    assert (fit_word_whitening(model, [["a", "b"], ["b"]]).mean == 0).all()
    assert (fit_word_whitening(model, [["a", "b"], ["c", "d"]]).mean != 0).any()


def test_words_are_encoded_a_few_at_a_time(model):
    words = [f"word{n}" for n in range(9)]
    all_at_once = encode_words(model, words)
    model.tokens_per_batch = 2
    np.testing.assert_array_equal(encode_words(model, words), all_at_once)
