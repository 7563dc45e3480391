import random

import pytest
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from elmokit.errors import InputError
from elmokit.tasks.metrics.accuracy import accuracy, score_labels


def test_it_is_that_of_scikit_learn():
    chance = random.Random(0)
    for length in range(1, 60):
        gold, predicted = (chance.choices("abc", k=length) for _ in range(2))
        assert accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted))


def test_each_label_is_found_as_scikit_learn_counts():
    chance = random.Random(1)
    gold, predicted = chance.choices("abc", k=50), chance.choices("abcd", k=50)
    found = score_labels(gold, predicted)
    assert [*found] == [*"abcd"]
    theirs = precision_recall_fscore_support(gold, predicted, labels=[*"abcd"], zero_division=0)
    for own, (precision, recall, f1, support) in zip(
        found.values(), zip(*theirs, strict=True), strict=True
    ):
        assert (own.precision, own.recall, own.f1) == pytest.approx((precision, recall, f1))
        assert own.wanted == support


@pytest.mark.parametrize(
    ("gold", "predicted", "says"),
    [("ab", "a", "1 predictions for 2 of gold"), ("", "", "nothing to measure")],
)
def test_lists_that_do_not_fit_are_refused(gold, predicted, says):
    with pytest.raises(InputError, match=says):
        accuracy(gold, predicted)
