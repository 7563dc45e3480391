import random
from itertools import permutations

import pytest

from elmokit.errors import InputError
from elmokit.tasks.metrics.coreference import score_coreference
from elmokit.tasks.metrics.score import Score


def near(score, precision, recall):
    return (score.precision, score.recall) == (pytest.approx(precision), pytest.approx(recall))


def test_the_worked_example_of_the_reference_scorer():
    # Pradhan et al. (2014), Scoring Coreference Partitions of Predicted Mentions, section 4.
    score = score_coreference([["abc", "defg"]], [["ab", "cd", "fghi"]])
    assert near(score.muc, 2 / 5, 2 / 5)
    assert near(score.b_cubed, 4 / 8, (35 / 12) / 7)
    assert near(score.ceaf, 1.3 / 3, 1.3 / 2)
    assert near(score.mentions, 6 / 8, 6 / 7)
    assert score.average_f1 == pytest.approx((0.4 + 0.454545 + 0.52) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("predicted", "muc", "b_cubed", "ceaf"),
    [
        # Bagga and Baldwin (1998): to MUC both are one wrong link, to B³ joining the two large
        # clusters is worse than joining a large one and the small one.
        (["12345", "6789ABC"], (9 / 10, 1), (16 / 21, 1), (11 / 12, 11 / 18)),
        (["1234589ABC", "67"], (9 / 10, 1), (7 / 12, 1), (5 / 6, 5 / 9)),
        # Luo (2005): one cluster of all, and every mention alone.
        (["123456789ABC"], (9 / 11, 1), (0.375, 1), (10 / 17, 10 / 51)),
        ([*"123456789ABC"], (0, 0), (1, 0.25), (1 / 9, 4 / 9)),
    ],
)
def test_worked_examples_of_the_literature(predicted, muc, b_cubed, ceaf):
    score = score_coreference([["12345", "67", "89ABC"]], [predicted])
    assert near(score.muc, *muc)
    assert near(score.b_cubed, *b_cubed)
    assert near(score.ceaf, *ceaf)


def clusters(chance):
    """Some of twelve mentions in some clusters."""
    made = [[] for _ in range(chance.randrange(1, 6))]
    for mention in chance.sample(range(12), chance.randrange(1, 12)):
        chance.choice(made).append(mention)
    return [cluster for cluster in made if cluster]


def pairs(seed, count=100):
    chance = random.Random(seed)
    return [(clusters(chance), clusters(chance)) for _ in range(count)]


def scores(score):
    return score.muc, score.b_cubed, score.ceaf, score.mentions


def test_turning_the_sides_turns_precision_and_recall():
    for gold, predicted in pairs(0):
        one = score_coreference([gold], [predicted])
        other = score_coreference([predicted], [gold])
        for a, b in zip(scores(one), scores(other), strict=True):
            assert near(a, b.recall, b.precision)


def test_what_agrees_is_perfect_and_what_shares_nothing_is_zero():
    for gold, _ in pairs(1):
        same = score_coreference([gold], [gold[::-1]])
        assert near(same.b_cubed, 1, 1)
        assert near(same.ceaf, 1, 1)
        assert near(same.muc, 1, 1) or all(len(cluster) == 1 for cluster in gold)
        none = score_coreference([gold], [[[-1 - m for m in cluster] for cluster in gold]])
        assert all(score.f1 == 0 for score in scores(none))
        assert none.average_f1 == 0


def test_ceaf_pairs_clusters_as_well_as_can_be():
    for gold, predicted in pairs(2, count=30):
        short, long = sorted((gold, predicted), key=len)
        best = max(
            sum(2 * len({*a} & {*b}) / (len(a) + len(b)) for a, b in zip(short, order, strict=True))
            for order in permutations(long, len(short))
        )
        assert score_coreference([gold], [predicted]).ceaf.found_right == pytest.approx(best)


def test_documents_add_up_and_do_not_mix():
    gold, predicted = zip(*pairs(3, count=5), strict=True)
    whole = score_coreference(gold, predicted)
    parts = [score_coreference([a], [b]) for a, b in zip(gold, predicted, strict=True)]
    assert whole.muc == sum((part.muc for part in parts), Score())
    assert whole.ceaf == sum((part.ceaf for part in parts), Score())


def test_a_document_without_clusters_is_scored():
    score = score_coreference([[], [["a", "b"]]], [[["a"]], []])
    assert score.average_f1 == 0
    assert (score.ceaf.found, score.ceaf.wanted) == (1, 1)


def test_a_mention_in_two_clusters_is_refused():
    with pytest.raises(InputError, match="mention b is in two clusters"):
        score_coreference([["ab", "bc"]], [["ab"]])
