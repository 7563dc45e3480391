import numpy as np
import pytest

pytestmark = pytest.mark.full


@pytest.fixture
def search(script):
    return script("search")


def test_the_best_ranks_first_and_of_equals_the_earlier(search):
    scores = np.array([[0.1, 0.9, 0.9], [3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(search.ranked(scores), [[2, 0, 1], [0, 2, 1]])


def test_bm25_ranks_paragraphs_by_shared_words(search):
    pytest.importorskip("bm25s")
    scores = search.bm25(["a violin plays", "street of children"], ["which children", "violins?"])
    assert search.ranked(scores)[0].tolist() == [1, 0]
