"""A table of costs becomes the cheapest way to give each row a column of its own."""

import numpy as np
import numpy.typing as npt

_Floats = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]


def assign(costs: _Floats) -> tuple[_Ints, _Ints]:  # (rows, columns) -> (pairs,), (pairs,)
    """Rows and their columns: as many pairs as the shorter side has, of the least sum.

    The Hungarian method with potentials, one row after another joined by a shortest augmenting
    path: O(pairs² · longer side).
    """
    rows, columns = costs.shape
    if rows > columns:
        second, first = assign(costs.T)
        order = np.argsort(first)
        return first[order], second[order]
    of_row, of_column = np.zeros(rows), np.zeros(columns)  # potentials
    owner = np.full(columns, -1)  # the row that has a column
    for row in range(rows):
        distance = np.full(columns, np.inf)
        before = np.full(columns, -1)  # the column that a path comes from
        reached = np.zeros(columns, bool)
        here, at, shortest = row, -1, 0.0
        while True:
            beyond = shortest + costs[here] - of_row[here] - of_column
            closer = ~reached & (beyond < distance)
            distance[closer], before[closer] = beyond[closer], at
            at = int(np.where(reached, np.inf, distance).argmin())
            shortest = float(distance[at])
            reached[at] = True
            if owner[at] < 0:
                break
            here = int(owner[at])
        slack = shortest - distance[reached]
        others = owner[reached]
        of_column[reached] -= slack
        of_row[others[others >= 0]] += slack[others >= 0]
        of_row[row] += shortest
        while at >= 0:
            previous = int(before[at])
            owner[at] = owner[previous] if previous >= 0 else row
            at = previous
    taken = np.flatnonzero(owner >= 0)
    order = np.argsort(owner[taken])
    return owner[taken][order], taken[order]
