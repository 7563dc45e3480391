"""Mentions are told from other spans, and names that training did not have by their spelling."""

from dataclasses import replace
from itertools import count

import torch

from elmokit.tasks.datasets.example_records import Document
from elmokit.tasks.heads.coref import cluster_mentions, compare_spellings, distance_buckets
from elmokit.tasks.task_registry import TASKS
from elmokit.tasks.trainer import train_task
from task_examples import tiny_settings

SETTINGS = tiny_settings(
    elmo="none", character_filters=0, dropout=0.0, epochs=10, words_per_batch=1, learning_rate=0.005
)


def document_with_repeated_name(number):
    """Two names that no other document has, and one of them again."""
    names = f"Ann{number}", f"Bob{number}"
    first, second, repeated = (0, 0), (2, 2), (4, 4)
    words = (names[0], "saw", names[1], "."), (names[number % 2], "left", ".")
    if number % 2 == 0:
        return Document(str(number), 0, words, ((first, repeated), (second,)))
    return Document(str(number), 0, words, ((first,), (second, repeated)))


def test_repeated_names_that_training_did_not_have_are_clustered(tmp_path):
    examples, dev = (
        [document_with_repeated_name(n) for n in numbers]
        for numbers in (range(20), range(100, 110))
    )
    trained = train_task(TASKS["coreference"], examples, dev, tmp_path, settings=SETTINGS)
    assert trained.scores["f1"] > 0.9


def test_clusters_of_one_mention_train_the_mention_scores(tmp_path):
    words, mention, rising_score = ("the", "cat", "sleeps", "."), (0, 1), count()
    examples = [Document(str(number), 0, (words,), ((mention,),)) for number in range(8)]
    task = replace(
        TASKS["coreference"], score=lambda *_: {"f1": next(rising_score)}
    )  # no pair, no F1
    settings = replace(SETTINGS, epochs=40)
    trained = train_task(task, examples, examples, tmp_path, settings=settings)
    with torch.no_grad():
        spans, mention_scores, *_ = trained.head._rank(examples[0])
    (best, second), (index, _) = mention_scores.topk(2)
    assert spans[int(index)] == mention
    assert best > second + 0.2


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
