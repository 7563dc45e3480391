"""Whitening: a linear map after which the cosines of vectors tell texts apart."""

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError, InputError, NumericError
from elmokit.files import read_array
from elmokit.pooling import Vectors, unit_vectors

WhiteningMethod = Literal["zca", "top", "centre", "none"]
WHITENING_METHODS: dict[str, str] = {
    "zca": "equal variance in all directions",
    "top": "without the mean and the directions of the largest variance (all-but-the-top)",
    "centre": "without the mean",
    "none": "as they are",
}

# `top` removes one direction in a hundred, as its authors advise (Mu and Viswanath 2018).
_DIMENSIONS_PER_REMOVED_DIRECTION = 100


@dataclass(frozen=True)
class Whitening:
    """A mean to subtract and a matrix to multiply by, fitted to the vectors of a corpus.

    The vectors of a language model share a large mean, and vary most in a few directions that say
    little, so that the cosines of all pairs are alike. After whitening they are not.

    Example:
        vectors = model.encode(texts, layers=0, pooling="idf")
        whitening = elmokit.Whitening.fit(vectors)
        similarities = model.similarity(whitening.transform(vectors), whitening.transform(vectors))
    """

    mean: Vectors  # (dim,)
    matrix: Vectors  # (dim, dim)

    @classmethod
    def fit(cls, vectors: npt.ArrayLike, *, method: WhiteningMethod = "zca") -> "Whitening":
        """The whitening of vectors (rows, dim); some hundred rows or more are of use.

        `zca` gives all directions the same variance, `top` removes the directions of the largest
        variance (all-but-the-top), `centre` only the mean, `none` nothing.
        """
        vectors = np.asarray(vectors)
        if vectors.ndim != 2:
            raise InputError(f"vectors have the shape {vectors.shape}, expected (rows, dim)")
        return cls.fit_batches([vectors], dim=vectors.shape[1], method=method)

    @classmethod
    def fit_batches(
        cls,
        batches: Iterable[npt.NDArray[np.floating]],
        *,
        dim: int,
        method: WhiteningMethod = "zca",
    ) -> "Whitening":
        """The whitening of vectors that come in batches, (rows, dim) each."""
        if method not in WHITENING_METHODS:
            raise InputError(
                f"method is {method!r}, expected one of {', '.join(WHITENING_METHODS)}"
            )
        if method == "none":
            return cls(np.zeros(dim, np.float32), np.eye(dim, dtype=np.float32))
        from elmokit.threads import allowed_threads, native_threads  # noqa: PLC0415  (torch)

        rows, total, products = 0, np.zeros(dim), np.zeros((dim, dim))
        with native_threads(allowed_threads()):
            for batch in batches:
                values = batch.astype(np.float64)
                rows += len(values)
                total += values.sum(0)
                products += values.T @ values
        if not rows:
            raise InputError("no vectors were given to fit a whitening to, expected some hundred")
        if not np.isfinite(products).all():
            raise NumericError("the vectors to fit a whitening to have a NaN or an infinity")
        mean = total / rows
        covariance = products / rows - np.outer(mean, mean)
        matrix = np.eye(dim)
        with native_threads(1):
            if method == "top":
                matrix = _without_top_directions(covariance)
            elif method == "zca":
                matrix = _zca(covariance, rows)
        return cls(mean.astype(np.float32), matrix.astype(np.float32))

    def transform(self, vectors: npt.ArrayLike) -> Vectors:
        """Whitened vectors of length 1, (rows, dim) or (dim,); the mean becomes zero."""
        vectors = np.asarray(vectors)
        if vectors.shape[-1:] != self.mean.shape:
            raise InputError(
                f"vectors have the shape {vectors.shape}, but the whitening was fitted to vectors "
                f"of {len(self.mean)} dimensions"
            )
        return unit_vectors((vectors.astype(np.float32) - self.mean) @ self.matrix)

    def to_bytes(self) -> bytes:
        """The contents of a .npy file: the mean, then the rows of the matrix."""
        file = io.BytesIO()
        np.save(file, np.vstack([self.mean, self.matrix]), allow_pickle=False)
        return file.getvalue()

    @classmethod
    def from_bytes(cls, data: bytes, name: str) -> "Whitening":
        """The whitening that `to_bytes` wrote; `name` is what messages call it."""
        rows = read_array(data, name, "build the index again")
        if rows.ndim != 2 or rows.shape[0] != rows.shape[1] + 1 or rows.dtype != np.float32:
            raise FormatError(
                f"{name}: {rows.dtype} of shape {rows.shape}, expected float32 with one row more "
                "than columns; build the index again"
            )
        return cls(rows[0], rows[1:])


def _without_top_directions(covariance: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The projection that removes the directions of the largest variance."""
    dim = len(covariance)
    _, directions = np.linalg.eigh(covariance)  # by rising variance
    removed = directions[:, -max(1, dim // _DIMENSIONS_PER_REMOVED_DIRECTION) :]
    projection: npt.NDArray[np.float64] = np.eye(dim) - removed @ removed.T
    return projection


def _zca(covariance: npt.NDArray[np.float64], rows: int) -> npt.NDArray[np.float64]:
    """The symmetric matrix that equalises the variances.

    The variances are shrunk towards their mean as if `dim` more rows of that variance had been
    seen: a direction that is quiet in few rows may be quiet by chance.
    """
    dim = len(covariance)
    variances, directions = np.linalg.eigh(covariance)
    shrunk = (rows * np.maximum(variances, 0) + dim * variances.mean()) / (rows + dim)
    scales = 1 / np.sqrt(np.maximum(shrunk, 1e-12))
    matrix: npt.NDArray[np.float64] = (directions * scales) @ directions.T
    return matrix
