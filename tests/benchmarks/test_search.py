import numpy as np
import pytest


@pytest.fixture
def search(script):
    return script("search")


def test_the_best_comes_first_and_of_equals_the_earlier(search):
    scores = np.array([[0.1, 0.9, 0.9], [3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(search.ranked(scores), [[2, 0, 1], [0, 2, 1]])


def test_what_two_orders_agree_on_wins(search):
    one, other = np.array([[0, 1, 2, 3]]), np.array([[3, 1, 2, 0]])
    scores = search.fused(one, other)
    assert scores[0, 1] == pytest.approx(2 / 62)
    np.testing.assert_array_equal(search.ranked(scores)[0], [1, 0, 3, 2])


def test_paragraphs_are_found_by_the_words_they_share(search):
    pytest.importorskip("bm25s")
    scores = search.bm25(["a violin plays", "street of children"], ["which children", "violins?"])
    assert search.ranked(scores)[0].tolist() == [1, 0]
