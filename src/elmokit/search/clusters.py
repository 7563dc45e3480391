"""Vectors become groups of vectors that are near each other: k-means."""

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.pooling import Vectors

Ids = npt.NDArray[np.int64]

_STARTS, _ROUNDS = 8, 100


def cluster(vectors: Vectors, *, clusters: int, seed: int = 0) -> Ids:  # (rows, dim) -> (rows,)
    """The group of each vector, numbered by first appearance; the best of several seeded starts."""
    if not 1 <= clusters <= len(vectors):
        raise InputError(f"{clusters} clusters of {len(vectors)} uses; ask for 1 to {len(vectors)}")
    random = np.random.default_rng(seed)
    numbers = vectors.astype(np.float64)
    tries = [_settle(numbers, _first_centres(numbers, clusters, random)) for _ in range(_STARTS)]
    _, groups = min(tries, key=lambda found: found[0])
    order: dict[int, int] = {}
    return np.array([order.setdefault(int(group), len(order)) for group in groups], np.int64)


def _settle(
    vectors: npt.NDArray[np.float64], centres: npt.NDArray[np.float64]
) -> tuple[float, Ids]:
    """The squared distances to the nearest centres, all told, and the groups, when they stand."""
    groups = np.full(len(vectors), -1)
    for _ in range(_ROUNDS):
        distances = _distances(vectors, centres)
        nearest = distances.argmin(1)
        if (nearest == groups).all():
            break
        groups = nearest
        for group in np.unique(groups):  # a centre without vectors stays where it is
            centres[group] = vectors[groups == group].mean(0)
    return float(_distances(vectors, centres).min(1).sum()), groups


def _first_centres(
    vectors: npt.NDArray[np.float64], clusters: int, random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Vectors far from each other by chance: k-means++ (Arthur and Vassilvitskii, 2007)."""
    chosen = [int(random.integers(len(vectors)))]
    while len(chosen) < clusters:
        far = _distances(vectors, vectors[chosen]).min(1)
        share = far / far.sum() if far.sum() > 0 else np.full(len(far), 1 / len(far))
        chosen.append(int(random.choice(len(vectors), p=share)))
    centres: npt.NDArray[np.float64] = vectors[chosen]
    return centres


def _distances(
    vectors: npt.NDArray[np.float64], centres: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:  # (rows, clusters)
    """Squared distances, centre by centre: their differences all at once would not fit."""
    return np.stack([((vectors - centre) ** 2).sum(1) for centre in centres], 1)
