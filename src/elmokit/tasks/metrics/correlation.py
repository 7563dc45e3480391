"""Two lists of numbers become how much their orders agree."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.tasks.metrics.accuracy import check_lengths

_Floats = npt.NDArray[np.float64]
_Numbers: TypeAlias = Sequence[float] | npt.NDArray[np.floating[Any]]


def spearman(gold: _Numbers, predicted: _Numbers) -> float:
    """Spearman's rank correlation; nan where either list has one value only: it has no order."""
    check_lengths(gold, predicted)
    return _pearson(_ranks(gold), _ranks(predicted))


def _pearson(first: _Floats, second: _Floats) -> float:
    if np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    a, b = first - first.mean(), second - second.mean()
    product = float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
    return min(1.0, max(-1.0, product))


def _ranks(values: _Numbers) -> _Floats:
    """The place of each value in their order, equal ones sharing the mean of their places."""
    _, inverse, counts = np.unique(_numbers(values), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means = (ends - (counts - 1) / 2).astype(np.float64)
    shared: _Floats = means[inverse.reshape(-1)]
    return shared


def _numbers(values: _Numbers) -> _Floats:
    numbers = np.asarray(values, np.float64)
    if not np.isfinite(numbers).all():
        place = int(np.flatnonzero(~np.isfinite(numbers))[0])
        raise InputError(f"score {place} is {numbers[place]}, expected finite numbers")
    return numbers
