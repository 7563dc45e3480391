import random

import pytest
from sklearn.metrics import accuracy_score

from elmokit.errors import InputError
from elmokit.tasks.metrics.accuracy import accuracy


def test_it_is_that_of_scikit_learn():
    chance = random.Random(0)
    for length in range(1, 60):
        gold, predicted = (chance.choices("abc", k=length) for _ in range(2))
        assert accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted))


@pytest.mark.parametrize(
    ("gold", "predicted", "says"),
    [("ab", "a", "1 predictions for 2 of gold"), ("", "", "nothing to measure")],
)
def test_lists_that_do_not_fit_are_refused(gold, predicted, says):
    with pytest.raises(InputError, match=says):
        accuracy(gold, predicted)
