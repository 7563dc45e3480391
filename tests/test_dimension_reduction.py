import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from elmokit.dimension_reduction import cluster, project_pca, project_tsne
from elmokit.errors import InputError


def random_vectors(rows, dim=7, seed=0):
    spread = np.linspace(1, 4, dim)
    return (np.random.default_rng(seed).standard_normal((rows, dim)) * spread).astype(np.float32)


@pytest.mark.parametrize("rows", [3, 7, 40])
def test_pca_agrees_with_scikit_learn(rows):
    vectors = random_vectors(rows)
    projection, expected = project_pca(vectors), PCA(2, svd_solver="full")
    points = expected.fit_transform(vectors.astype(np.float64))
    signs = np.sign((projection.points * points).sum(0))
    np.testing.assert_allclose(projection.points * signs, points, atol=1e-9)
    np.testing.assert_allclose(
        projection.explained_variance, expected.explained_variance_ratio_, atol=1e-12
    )


def test_the_signs_of_pca_do_not_depend_on_the_order_of_rows():
    vectors = random_vectors(12)
    of_reversed = project_pca(vectors[::-1]).points[::-1]
    np.testing.assert_allclose(project_pca(vectors).points, of_reversed, atol=1e-9)


def test_identical_vectors_are_one_point():
    projection = project_pca(np.ones((4, 5), np.float32))
    assert projection.explained_variance == (0, 0)
    assert not projection.points.any()
    assert not project_tsne(np.ones((6, 5), np.float32)).points.any()


def test_two_vectors_need_one_direction():
    projection = project_pca(random_vectors(2))
    assert projection.explained_variance == pytest.approx((1, 0))
    assert projection.points.shape == (2, 2)


def test_tsne_keeps_groups_apart_and_is_deterministic():
    vectors = random_vectors(30)
    vectors[:15] += 60
    points = project_tsne(vectors, seed=3).points
    np.testing.assert_array_equal(points, project_tsne(vectors, seed=3).points)
    near = np.linalg.norm(points[:15] - points[:15].mean(0), axis=1).max()
    assert np.linalg.norm(points[:15].mean(0) - points[15:].mean(0)) > 2 * near


def test_tsne_of_few_vectors_or_without_opentsne_is_refused(monkeypatch):
    with pytest.raises(InputError, match="five vectors or more, found 4"):
        project_tsne(random_vectors(4))
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(InputError, match=r"pip install 'elmokit\[tsne\]'"):
        project_tsne(random_vectors(9))


def test_clusters_that_are_far_apart_are_found():
    random = np.random.default_rng(1)
    centres = random.standard_normal((4, 6)) * 30
    vectors = (centres[np.arange(60) % 4] + random.standard_normal((60, 6))).astype(np.float32)
    assert cluster(vectors, clusters=4).tolist() == [n % 4 for n in range(60)]


def test_clusters_are_numbered_by_appearance_and_follow_from_the_seed():
    vectors = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    numbers = cluster(vectors, clusters=5, seed=2)
    assert [*dict.fromkeys(numbers.tolist())] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(numbers, cluster(vectors, clusters=5, seed=2))


def test_identical_vectors_are_one_cluster():
    assert set(cluster(np.ones((4, 2), np.float32), clusters=2).tolist()) == {0}


def test_more_clusters_than_vectors_are_refused():
    with pytest.raises(InputError, match="clusters is 5, expected 1 to 4"):
        cluster(np.ones((4, 2), np.float32), clusters=5)
