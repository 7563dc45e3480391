"""Vectors become points of a plane."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.pooling import Vectors

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Plane:
    """Points, and what share of all variance each axis shows; None where that has no meaning."""

    points: Floats  # (rows, 2)
    shares: tuple[float, float] | None


def project_pca(vectors: Vectors) -> Plane:  # (rows, dim)
    """The two directions of most variance, each signed so that its largest weight is positive."""
    centred = vectors.astype(np.float64) - vectors.mean(0, dtype=np.float64)
    _, sizes, directions = np.linalg.svd(centred, full_matrices=False)
    axes, variances = np.zeros((2, vectors.shape[1])), np.zeros(2)
    axes[: len(sizes)], variances[: len(sizes)] = directions[:2], sizes[:2] ** 2
    largest = axes[[0, 1], np.abs(axes).argmax(1)]
    axes *= np.where(largest < 0, -1, 1)[:, None]
    first, second = variances / max(float((sizes**2).sum()), 1e-12)
    return Plane(centred @ axes.T, (float(first), float(second)))


def project_tsne(vectors: Vectors, *, seed: int = 0) -> Plane:  # (rows, dim)
    """Points whose neighbours are the vectors' neighbours: t-SNE by openTSNE, begun from PCA."""
    try:
        from openTSNE import TSNE  # noqa: PLC0415  an extra
    except ImportError:
        raise InputError("t-SNE needs openTSNE: pip install 'elmokit[tsne]'") from None
    if len(vectors) < 5:
        raise InputError(f"t-SNE needs five uses or more, and there are {len(vectors)}; use PCA")
    begun = project_pca(vectors).points
    spread = begun[:, 0].std()
    if spread < 1e-9:  # one and the same vector: layer 0 of one word
        return Plane(begun, None)
    plane = TSNE(
        perplexity=min(30.0, (len(vectors) - 1) / 3),
        neighbors="exact" if len(vectors) < 1000 else "approx",
        initialization=begun / spread * 1e-4,
        random_state=seed,
    ).fit(vectors.astype(np.float64))
    return Plane(np.asarray(plane, np.float64), None)
