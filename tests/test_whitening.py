import io

import numpy as np
import pytest
import torch

from elmokit.errors import FormatError, InputError, NumericError
from elmokit.whitening import Whitening


@pytest.fixture(scope="module")
def corpus():
    """Vectors with a large mean and one loud direction, as a language model's are."""
    random = np.random.default_rng(0)
    mixed = random.standard_normal((4000, 8)) @ random.standard_normal((8, 8))
    loud = np.outer(random.standard_normal(4000), np.full(8, 9.0))
    return (mixed + loud + 20).astype(np.float32)


def test_batches_give_what_one_array_gives(corpus):
    whole = Whitening.fit_batches([corpus], dim=8, method="zca")
    parts = Whitening.fit_batches(iter([corpus[:1000], corpus[1000:]]), dim=8, method="zca")
    np.testing.assert_allclose(whole.matrix, parts.matrix, rtol=1e-4, atol=1e-6)


def test_fit_takes_one_array(corpus):
    found = Whitening.fit(corpus, method="centre")
    np.testing.assert_allclose(found.mean, corpus.mean(0), rtol=1e-4)
    np.testing.assert_array_equal(found.transform(corpus[0]), found.transform(corpus[:1])[0])


def test_lists_and_tensors_are_vectors_too(corpus):
    expected = Whitening.fit(corpus[:50])
    for same in (torch.from_numpy(corpus[:50]), corpus[:50].tolist()):
        np.testing.assert_allclose(Whitening.fit(same).matrix, expected.matrix, atol=1e-6)
        np.testing.assert_allclose(expected.transform(same), expected.transform(corpus[:50]))


def test_vectors_that_are_not_finite_are_refused(corpus):
    with pytest.raises(NumericError, match="have a NaN or an infinity"):
        Whitening.fit(np.append(corpus, [[np.nan] * 8], 0))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Whitening.fit(np.ones(3)), r"vectors have the shape \(3,\), expected \(rows, dim"),
        (lambda: Whitening.fit(np.ones((3, 2)), method="pca"), "method is 'pca', expected one of"),
        (lambda: Whitening.fit(np.ones((0, 2))), "no vectors were given to fit a whitening to"),
    ],
)
def test_what_cannot_be_fitted_is_refused(call, message):
    with pytest.raises(InputError, match=message):
        call()


def test_zca_makes_all_directions_nearly_equal_in_variance(corpus):
    found = Whitening.fit_batches([corpus], dim=8, method="zca")
    before = np.linalg.eigvalsh(np.cov(corpus, rowvar=False))
    after = np.linalg.eigvalsh(np.cov((corpus - found.mean) @ found.matrix, rowvar=False))
    assert before.max() / before.min() > 1000
    assert after.max() / after.min() < 4  # the quietest is drawn up less: it may be chance
    np.testing.assert_allclose(found.matrix, found.matrix.T, atol=1e-6)  # nothing is turned


def test_of_few_rows_no_direction_is_blown_up(corpus):
    few = Whitening.fit_batches([corpus[:3]], dim=8, method="zca")
    assert np.linalg.cond(few.matrix) < 10


def test_top_removes_the_direction_of_largest_variance(corpus):
    found = Whitening.fit_batches([corpus], dim=8, method="top")
    _, _, directions = np.linalg.svd(corpus - corpus.mean(0), full_matrices=False)
    assert np.abs(directions[0] @ found.matrix).max() < 1e-4
    np.testing.assert_allclose(directions[1] @ found.matrix, directions[1], atol=1e-4)


def test_centred_vectors_tell_more_than_raw_ones(corpus):
    raw = Whitening.fit_batches([corpus], dim=8, method="none").transform(corpus[:100])
    centred = Whitening.fit_batches([corpus], dim=8, method="centre").transform(corpus[:100])
    unit = corpus[:100] / np.linalg.norm(corpus[:100], axis=1, keepdims=True)
    np.testing.assert_allclose(raw, unit, atol=1e-6)
    assert (centred @ centred.T).std() > (raw @ raw.T).std()


def test_a_zero_vector_stays_zero():
    found = Whitening(np.ones(3, np.float32), np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(found.transform(np.ones((1, 3), np.float16)), [[0, 0, 0]])


def test_bytes_restore_a_whitening_exactly_and_damage_is_named(corpus):
    found = Whitening.fit_batches([corpus], dim=8, method="zca")
    kept = Whitening.from_bytes(found.to_bytes(), "w")
    np.testing.assert_array_equal(kept.matrix, found.matrix)
    np.testing.assert_array_equal(kept.mean, found.mean)
    with pytest.raises(FormatError, match="w: not an array"):
        Whitening.from_bytes(found.to_bytes()[:200], "w")
    square = io.BytesIO()
    np.save(square, np.ones((2, 2), np.float32))
    with pytest.raises(FormatError, match="expected float32 with one row more"):
        Whitening.from_bytes(square.getvalue(), "w")
