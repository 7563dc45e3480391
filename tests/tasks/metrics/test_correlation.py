import math

import numpy as np
import pytest
from scipy import stats

from elmokit.errors import InputError
from elmokit.tasks.metrics.correlation import spearman


@pytest.mark.parametrize("values", [3, 6, 10_000])
def test_it_is_that_of_scipy_with_ties_and_without(values):
    random = np.random.default_rng(values)
    for length in (3, 10, 200):
        gold, predicted = random.integers(0, values, (2, length)) / 7
        gold[:2], predicted[:2] = (0, 1), (1, 2)  # never all the same
        assert spearman(gold, predicted) == pytest.approx(stats.spearmanr(gold, predicted)[0])


def test_only_the_order_counts():
    assert spearman([1, 2, 3], [1, 10, 100]) == pytest.approx(1)
    assert spearman([1, 2, 3], [9, 4, 1]) == pytest.approx(-1)


def test_one_value_has_no_order():
    assert math.isnan(spearman([1, 2, 3], [2, 2, 2]))


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(InputError, match="score 1 is nan"):
        spearman([1, 2], [1, math.nan])
