import numpy as np
import pytest

pytestmark = pytest.mark.full


@pytest.fixture
def search(script):
    return script("search")


def test_the_best_ranks_first_and_of_equals_the_earlier(search):
    scores = np.array([[0.1, 0.9, 0.9], [3.0, 1.0, 2.0]])
    np.testing.assert_array_equal(search.ranked(scores), [[2, 0, 1], [0, 2, 1]])


def test_scores_of_any_scale_can_be_added(search):
    scores = np.array([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])
    standardized = search.standardized(scores)
    np.testing.assert_allclose(standardized, search.standardized(100 * scores - 7), atol=1e-6)
    np.testing.assert_allclose(standardized[0], [-0.9258, -0.4629, 1.3887], atol=1e-4)
    assert standardized[1].tolist() == [0, 0, 0]


def test_bm25_ranks_paragraphs_by_shared_words(search):
    pytest.importorskip("bm25s")
    scores = search.bm25(["a violin plays", "street of children"], ["which children", "violins?"])
    assert search.ranked(scores)[0].tolist() == [1, 0]
