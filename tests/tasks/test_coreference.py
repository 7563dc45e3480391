"""Mentions become groups by all that speaks for each."""

from elmokit.tasks.coreference import group


def test_what_speaks_for_the_mentions_of_a_group_is_added_up():
    # The fourth fits none best by itself, but the group of the first three most of all.
    chances = [[1.0, 0, 0], [0.1, 0.9, 0], [0.1, 0.5, 0.4], [0.4, 0.2, 0.2, 0.2]]
    places = [[0, 0], [0, 0], [0, 1], [0, 1, 2]]
    assert group(chances, places) == [[0, 1, 2, 3]]


def test_a_mention_joins_the_group_for_which_more_speaks():
    none, places = [1.0, 0.0, 0.0], [0, 0]
    chances = [none, none, [0.1, 0.0, 0.9], [0.1, 0.4, 0.25, 0.25]]
    assert group(chances, [places, places, [0, 1], [0, 1, 2]]) == [[1, 2, 3]]


def test_who_has_no_antecedent_stands_alone():
    assert group([[1.0, 0.0], [0.6, 0.4]], [[0], [0]]) == []
    assert group([[1.0, 0.0], [0.4, 0.6]], [[0], [0]]) == [[0, 1]]
    assert group([], []) == []
