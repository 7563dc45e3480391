"""What two mentions have in common, and groups by all that speaks for each."""

from elmokit.tasks.datasets.example_records import Document
from elmokit.tasks.heads.coref import cluster_mentions, compare_spellings, distance_buckets


def test_what_speaks_for_the_mentions_of_a_group_is_added_up():
    # The fourth fits none best by itself, but the group of the first three most of all.
    chances = [[1.0, 0, 0], [0.1, 0.9, 0], [0.1, 0.5, 0.4], [0.4, 0.2, 0.2, 0.2]]
    places = [[0, 0], [0, 0], [0, 1], [0, 1, 2]]
    assert cluster_mentions(chances, places) == [[0, 1, 2, 3]]


def test_a_mention_joins_the_group_for_which_more_speaks():
    none, places = [1.0, 0.0, 0.0], [0, 0]
    chances = [none, none, [0.1, 0.0, 0.9], [0.1, 0.4, 0.25, 0.25]]
    assert cluster_mentions(chances, [places, places, [0, 1], [0, 1, 2]]) == [[1, 2, 3]]


def test_who_has_no_antecedent_stands_alone():
    assert cluster_mentions([[1.0, 0.0], [0.6, 0.4]], [[0], [0]]) == []
    assert cluster_mentions([[1.0, 0.0], [0.4, 0.6]], [[0], [0]]) == [[0, 1]]
    assert cluster_mentions([], []) == []


def test_mentions_that_are_spelled_alike_are_told_from_others():
    text = Document(
        "",
        0,
        (("Mr.", "Darcy", "saw", "Elizabeth", "Bennet", "."), ("darcy", "she", "Elizabeth")),
        (),
    )
    mentions = [(0, 1), (3, 4), (6, 6), (7, 7), (8, 8), (6, 6)]
    assert compare_spellings(text, mentions).tolist() == [
        [3, 0, 2, 0, 0, 2],
        [0, 3, 0, 0, 1, 0],
        [2, 0, 3, 0, 0, 3],
        [0, 0, 0, 3, 0, 0],
        [0, 1, 0, 0, 3, 0],
        [2, 0, 3, 0, 0, 3],
    ]


def test_far_mentions_differ_less():
    told = distance_buckets(100)
    assert told[0].eq(0).all()
    assert told[:7, 0].tolist() == [0, 0, 1, 2, 3, 4, 5]
    assert told[99, 0] == told[80, 0] == 9
