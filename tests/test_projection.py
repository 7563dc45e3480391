import sys

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA

from elmokit.errors import InputError
from elmokit.projection import cluster, project_pca, project_tsne


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
    np.testing.assert_allclose(
        plane.explained_variance, wanted.explained_variance_ratio_, atol=1e-12
    )


def test_the_signs_of_pca_do_not_follow_from_the_order_of_rows():
    vectors = random_vectors(12)
    turned = project_pca(vectors[::-1]).points[::-1]
    np.testing.assert_allclose(project_pca(vectors).points, turned, atol=1e-9)


def test_vectors_that_are_all_the_same_are_one_point():
    plane = project_pca(np.ones((4, 5), np.float32))
    assert plane.explained_variance == (0, 0)
    assert not plane.points.any()
    assert not project_tsne(np.ones((6, 5), np.float32)).points.any()


def test_two_vectors_need_one_direction():
    plane = project_pca(random_vectors(2))
    assert plane.explained_variance == pytest.approx((1, 0))
    assert plane.points.shape == (2, 2)


def test_tsne_keeps_groups_apart_and_repeats_itself():
    vectors = random_vectors(30)
    vectors[:15] += 60
    points = project_tsne(vectors, seed=3).points
    np.testing.assert_array_equal(points, project_tsne(vectors, seed=3).points)
    near = np.linalg.norm(points[:15] - points[:15].mean(0), axis=1).max()
    assert np.linalg.norm(points[:15].mean(0) - points[15:].mean(0)) > 2 * near


def test_tsne_of_few_vectors_or_without_its_package_is_refused(monkeypatch):
    with pytest.raises(InputError, match="five vectors or more, found 4"):
        project_tsne(random_vectors(4))
    monkeypatch.setitem(sys.modules, "openTSNE", None)
    with pytest.raises(InputError, match=r"pip install 'elmokit\[tsne\]'"):
        project_tsne(random_vectors(9))


def inertia(vectors, groups):
    groups = np.asarray(groups)
    return sum(
        ((vectors[groups == g] - vectors[groups == g].mean(0)) ** 2).sum() for g in set(groups)
    )


@pytest.mark.parametrize("clusters", [1, 3, 4])
def test_groups_are_as_tight_as_those_of_scikit_learn(clusters):
    random = np.random.default_rng(1)
    centres = random.standard_normal((4, 6)) * 3
    vectors = (centres[np.arange(60) % 4] + random.standard_normal((60, 6))).astype(np.float32)
    wanted = KMeans(clusters, n_init=10, random_state=0).fit(vectors)
    assert inertia(vectors, cluster(vectors, clusters=clusters)) <= wanted.inertia_ * 1.001


def test_groups_are_numbered_as_they_come_and_follow_from_the_seed():
    vectors = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    groups = cluster(vectors, clusters=5, seed=2)
    assert [*dict.fromkeys(groups.tolist())] == [0, 1, 2, 3, 4]
    np.testing.assert_array_equal(groups, cluster(vectors, clusters=5, seed=2))


def test_vectors_that_are_all_the_same_are_one_group():
    assert set(cluster(np.ones((4, 2), np.float32), clusters=2).tolist()) == {0}


def test_more_groups_than_vectors_are_refused():
    with pytest.raises(InputError, match="clusters is 5, expected 1 to 4"):
        cluster(np.ones((4, 2), np.float32), clusters=5)
