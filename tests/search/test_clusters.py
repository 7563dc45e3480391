import numpy as np
import pytest
from sklearn.cluster import KMeans

from elmokit.errors import InputError
from elmokit.search.clusters import cluster


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
    with pytest.raises(InputError, match="5 clusters of 4 uses; ask for 1 to 4"):
        cluster(np.ones((4, 2), np.float32), clusters=5)
