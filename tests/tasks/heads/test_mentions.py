"""Comparison of the spellings of mentions, and clusters by summed probabilities."""

from elmokit.tasks.datasets.example_records import Document
from elmokit.tasks.heads.coref import cluster_mentions, compare_spellings, distance_buckets


def test_the_probabilities_of_a_clusters_mentions_are_added_up():
    # For the fourth, no antecedent is most probable, but the cluster of the first three is.
    probabilities = [[1.0, 0, 0], [0.1, 0.9, 0], [0.1, 0.5, 0.4], [0.4, 0.2, 0.2, 0.2]]
    antecedents = [[0, 0], [0, 0], [0, 1], [0, 1, 2]]
    assert cluster_mentions(probabilities, antecedents) == [[0, 1, 2, 3]]


def test_a_mention_joins_the_most_probable_cluster():
    none, antecedents = [1.0, 0.0, 0.0], [0, 0]
    probabilities = [none, none, [0.1, 0.0, 0.9], [0.1, 0.4, 0.25, 0.25]]
    assert cluster_mentions(probabilities, [antecedents, antecedents, [0, 1], [0, 1, 2]]) == [
        [1, 2, 3]
    ]


def test_a_mention_without_an_antecedent_is_in_no_cluster():
    assert cluster_mentions([[1.0, 0.0], [0.6, 0.4]], [[0], [0]]) == []
    assert cluster_mentions([[1.0, 0.0], [0.4, 0.6]], [[0], [0]]) == [[0, 1]]
    assert cluster_mentions([], []) == []


def test_mentions_of_similar_spelling_are_recognized():
    document = Document(
        "",
        0,
        (("Mr.", "Darcy", "saw", "Elizabeth", "Bennet", "."), ("darcy", "she", "Elizabeth")),
        (),
    )
    mentions = [(0, 1), (3, 4), (6, 6), (7, 7), (8, 8), (6, 6)]
    assert compare_spellings(document, mentions).tolist() == [
        [3, 0, 2, 0, 0, 2],
        [0, 3, 0, 0, 1, 0],
        [2, 0, 3, 0, 0, 3],
        [0, 0, 0, 3, 0, 0],
        [0, 1, 0, 0, 3, 0],
        [2, 0, 3, 0, 0, 3],
    ]


def test_distances_of_far_mentions_share_buckets():
    buckets = distance_buckets(100)
    assert buckets[0].eq(0).all()
    assert buckets[:7, 0].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert buckets[99, 0] == buckets[80, 0] == 9
