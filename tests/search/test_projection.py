import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from elmokit.errors import InputError
from elmokit.search.projection import project_pca, project_tsne


def random_vectors(rows, dim=7, seed=0):
    spread = np.linspace(1, 4, dim)
    return (np.random.default_rng(seed).standard_normal((rows, dim)) * spread).astype(np.float32)


@pytest.mark.parametrize("rows", [3, 7, 40])
def test_pca_agrees_with_scikit_learn(rows):
    vectors = random_vectors(rows)
    plane, wanted = project_pca(vectors), PCA(2, svd_solver="full")
    points = wanted.fit_transform(vectors.astype(np.float64))
    signs = np.sign((plane.points * points).sum(0))
    np.testing.assert_allclose(plane.points * signs, points, atol=1e-9)
    np.testing.assert_allclose(plane.shares, wanted.explained_variance_ratio_, atol=1e-12)


def test_the_signs_of_pca_do_not_follow_from_the_order_of_rows():
    vectors = random_vectors(12)
    turned = project_pca(vectors[::-1]).points[::-1]
    np.testing.assert_allclose(project_pca(vectors).points, turned, atol=1e-9)


def test_vectors_that_are_all_the_same_are_one_point():
    plane = project_pca(np.ones((4, 5), np.float32))
    assert plane.shares == (0, 0)
    assert not plane.points.any()
    assert not project_tsne(np.ones((6, 5), np.float32)).points.any()


def test_two_vectors_need_one_direction():
    plane = project_pca(random_vectors(2))
    assert plane.shares == pytest.approx((1, 0))
    assert plane.points.shape == (2, 2)


def test_tsne_keeps_groups_apart_and_repeats_itself():
    vectors = random_vectors(30)
    vectors[:15] += 60
    points = project_tsne(vectors, seed=3).points
    np.testing.assert_array_equal(points, project_tsne(vectors, seed=3).points)
    near = np.linalg.norm(points[:15] - points[:15].mean(0), axis=1).max()
    assert np.linalg.norm(points[:15].mean(0) - points[15:].mean(0)) > 2 * near


def test_tsne_of_few_vectors_or_without_its_package_is_refused(monkeypatch):
    with pytest.raises(InputError, match="five uses or more, and there are 4"):
        project_tsne(random_vectors(4))
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(InputError, match=r"pip install 'elmokit\[tsne\]'"):
        project_tsne(random_vectors(9))
