import numpy as np
import pytest

import elmokit

pytest.importorskip("gensim", reason="gensim is not installed")

from elmokit.integrations.gensim import keyed_vectors


def test_words_have_the_vectors_of_layer_0():
    vectors = keyed_vectors(["apple", "apples", "parliament", "apple"])
    assert vectors.index_to_key == ["apple", "apples", "parliament"]
    (expected,) = elmokit.load().embed([["an", "apple", "fell"]], layers=0)
    np.testing.assert_array_equal(vectors["apple"], expected[0, 1])
    assert vectors.most_similar("apple")[0][0] == "apples"
