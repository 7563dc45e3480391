"""Cosines of uses and of texts, and the threshold that tells them apart."""

import numpy as np
import pytest

from elmokit.errors import InputError
from elmokit.tasks.data.example import InContext, Scored
from elmokit.tasks.similarity import (
    best_threshold,
    compare,
    embed_texts,
    embed_uses,
    judge_texts,
    judge_uses,
)
from elmokit.whitening import Whitening


def test_the_threshold_is_the_best_of_all():
    random = np.random.default_rng(0)
    for digits in [16, 1] * 20:  # all different, and many the same
        values, same = random.random(30).round(digits), random.random(30) < 0.5
        edge = best_threshold(values, same)
        right = ((values >= edge) == same).sum()
        assert right == max(((values >= e) == same).sum() for e in [*values, -1, 2])


def use(first, second, same, places=(0, 0)):
    return InContext("x", "N", tuple(first.split()), tuple(second.split()), places, same)


def raw(vectors):
    return compare(vectors, like=vectors, whitening="none")


def test_the_same_use_has_cosine_one_and_another_less(model):
    cosines = raw(
        embed_uses(model, [use("a b", "a b", True), use("a b c", "d a b", False, (1, 2))])
    )
    np.testing.assert_allclose(cosines[:, 0], 1, rtol=1e-6)
    assert cosines[0, 1] == pytest.approx(1)  # layer 0 knows no context
    assert (cosines[1:, 1] < 0.999).all()


def test_what_vectors_share_is_taken_out_of_a_comparison(model):
    random = np.random.default_rng(0)
    vectors = (random.standard_normal((1, 2, 500, 6)) + 30).astype(np.float32)
    assert raw(vectors).min() > 0.98
    for way in ("centre", "top", "zca"):
        cosines = compare(vectors, like=vectors, whitening=way)
        assert abs(cosines.mean()) < 0.1
        assert cosines.min() < -0.5
    white = Whitening.fit_batches(vectors[0], dim=6, method="zca")
    wanted = (white.transform(vectors[0, 0]) * white.transform(vectors[0, 1])).sum(-1)
    np.testing.assert_allclose(cosines[0], wanted, atol=1e-6)


def test_uses_that_differ_are_told_apart_above_layer_0(model):
    pairs = [use("a b", "a b", True, (1, 1)), use("a b", "c b", False, (1, 1))] * 3
    assert judge_uses(model, pairs, pairs, whitening="none") == [0.5, 1.0, 1.0]
    with pytest.raises(InputError, match="a threshold needs examples"):
        judge_uses(model, [], pairs)


def test_texts_are_ranked_by_what_they_share(model):
    def pair(first, second, score):
        return Scored(tuple(first.split()), tuple(second.split()), score, ("", ""))

    pairs = [pair("a b c", "a b c", 5), pair("a b c", "c b a", 5), pair("a b c", "x y z", 0)]
    same, shuffled, other = raw(embed_texts(model, pairs))[0]
    assert same == pytest.approx(1)
    assert shuffled == pytest.approx(1)  # layer 0 knows no order
    assert other < 0.999
    assert judge_texts(model, pairs, [pairs[0], pairs[2]], whitening="none")[0] == pytest.approx(1)
