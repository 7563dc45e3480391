"""Whitening: vectors centred and scaled so that cosines tell texts apart.

The vectors of a language model share a large mean and a few loud directions, so that raw cosines
are all alike. Three remedies, each estimated from the corpus itself: `centre` takes the mean away;
`top` the loudest directions too (all-but-the-top: Mu and Viswanath, 2018); `zca` makes all
directions equally loud.
"""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError
from elmokit.pooling import Vectors

Way = Literal["zca", "top", "centre", "none"]

_DIRECTIONS_PER_TOP = 100  # of a hundred directions, `top` removes one: as its authors advise


@dataclass(frozen=True)
class Whitening:
    """What is taken from each vector, and the map of what is left."""

    mean: Vectors  # (dim,)
    map: Vectors  # (dim, dim)

    def apply(self, vectors: npt.NDArray[np.floating]) -> Vectors:  # (rows, dim) -> (rows, dim)
        """The vectors, changed and then made one long; what has no length stays zero."""
        changed = (vectors.astype(np.float32) - self.mean) @ self.map
        lengths = np.linalg.norm(changed, axis=1, keepdims=True)
        unit: Vectors = changed / np.maximum(lengths, np.float32(1e-12))
        return unit

    def packed(self) -> bytes:
        """It as a .npy file: the mean, then the rows of the map."""
        file = io.BytesIO()
        np.save(file, np.vstack([self.mean, self.map]), allow_pickle=False)
        return file.getvalue()

    @classmethod
    def of(cls, kept: bytes, name: str) -> "Whitening":
        """What `packed` gave; `name` is what messages call it."""
        try:
            rows = np.load(io.BytesIO(kept), allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise FormatError(f"{name}: not an array ({error}); build the index again") from None
        if rows.ndim != 2 or rows.shape[0] != rows.shape[1] + 1 or rows.dtype != np.float32:
            raise FormatError(
                f"{name}: {rows.dtype} of shape {rows.shape}, expected float32 with one row more "
                "than columns; build the index again"
            )
        return cls(rows[0], rows[1:])


def estimate(parts: Iterable[npt.NDArray[np.floating]], *, dim: int, way: Way) -> Whitening:
    """The whitening of a corpus whose vectors come in parts, (rows, dim) each."""
    if way == "none":
        return Whitening(np.zeros(dim, np.float32), np.eye(dim, dtype=np.float32))
    rows, total, products = 0, np.zeros(dim), np.zeros((dim, dim))
    for part in parts:
        numbers = part.astype(np.float64)
        rows += len(numbers)
        total += numbers.sum(0)
        products += numbers.T @ numbers
    mean = total / max(rows, 1)
    covariance = products / max(rows, 1) - np.outer(mean, mean)
    chosen = np.eye(dim)
    if way == "top":
        chosen = _quiet_top(covariance)
    elif way == "zca":
        chosen = _equalise(covariance, rows)
    return Whitening(mean.astype(np.float32), chosen.astype(np.float32))


def _quiet_top(covariance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The map that removes the loudest directions."""
    dim = len(covariance)
    _, directions = np.linalg.eigh(covariance)  # by rising variance
    loudest = directions[:, dim - max(1, dim // _DIRECTIONS_PER_TOP) :]
    kept: npt.NDArray[np.float64] = np.eye(dim) - loudest @ loudest.T
    return kept


def _equalise(covariance: npt.NDArray[np.float64], rows: int) -> npt.NDArray[np.float64]:
    """The map to equal variances, ZCA; of few rows, whose quiet directions are chance, less of it.

    The variances are drawn to their mean as if `dim` rows of that variance had been seen too.
    """
    dim = len(covariance)
    variances, directions = np.linalg.eigh(covariance)
    drawn = (rows * np.maximum(variances, 0) + dim * variances.mean()) / (rows + dim)
    scales = 1 / np.sqrt(np.maximum(drawn, 1e-12))
    equal: npt.NDArray[np.float64] = (directions * scales) @ directions.T
    return equal
