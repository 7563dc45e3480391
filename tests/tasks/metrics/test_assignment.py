import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

from elmokit.tasks.metrics.assignment import assign


@pytest.mark.parametrize("ties", [False, True])
def test_no_assignment_is_cheaper(ties):
    random = np.random.default_rng(0)
    for _ in range(200):
        shape = tuple(random.integers(1, 12, 2))
        costs = random.normal(size=shape)
        costs = np.round(costs) if ties else costs
        rows, columns = assign(costs)
        assert len({*rows}) == len({*columns}) == len(rows) == min(shape)
        least = costs[linear_sum_assignment(costs)].sum()
        assert costs[rows, columns].sum() == pytest.approx(least)


def test_nothing_is_assigned_to_nothing():
    for shape in ((0, 0), (0, 3), (3, 0)):
        rows, columns = assign(np.zeros(shape))
        assert len(rows) == len(columns) == 0


def test_a_novel_full_of_clusters_is_assigned():
    costs = -np.random.default_rng(0).random((150, 200))
    rows, columns = assign(costs)
    least = costs[linear_sum_assignment(costs)].sum()
    assert costs[rows, columns].sum() == pytest.approx(least)
