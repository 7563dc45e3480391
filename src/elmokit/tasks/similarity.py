"""Two uses of a word, or two texts, become how alike they are, layer by layer."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.pooling import Vectors
from elmokit.tasks.data.example import InContext, Scored
from elmokit.tasks.metrics.correlation import spearman

Floats = npt.NDArray[np.float64]


def compare_uses(embedder: Embedder, pairs: Sequence[InContext]) -> Floats:  # (layers, pairs)
    """The cosine of each word's two uses."""
    first = embedder.embed([pair.first for pair in pairs])
    second = embedder.embed([pair.second for pair in pairs])
    cosines = [
        _cosine(one[:, pair.places[0]], other[:, pair.places[1]])
        for pair, one, other in zip(pairs, first, second, strict=True)
    ]
    return np.stack(cosines, 1)


def judge_uses(
    embedder: Embedder, train: Sequence[InContext], dev: Sequence[InContext]
) -> list[float]:
    """For each layer, the share of `dev` that a threshold on the cosine, fit to `train`, gets."""
    if not train or not dev:
        raise InputError("a threshold needs examples to be fit to and others to be judged by")
    learnt, judged = compare_uses(embedder, train), compare_uses(embedder, dev)
    known, wanted = (np.array([pair.same for pair in pairs]) for pairs in (train, dev))
    return [
        float(((cosines >= best_threshold(known_cosines, known)) == wanted).mean())
        for known_cosines, cosines in zip(learnt, judged, strict=True)
    ]


def best_threshold(values: Floats, same: npt.NDArray[np.bool_]) -> float:
    """The value from which on "same" is most often right; halfway between two that were met."""
    order = np.argsort(values)
    values, same = values[order], same[order]
    # With the threshold below value k, the k before it are said to differ.
    right = np.concatenate([[0], np.cumsum(~same)]) + (same.sum() - np.append([0], np.cumsum(same)))
    edges = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2, values[-1:] + 1])
    return float(edges[right.argmax()])


def compare_texts(embedder: Embedder, pairs: Sequence[Scored]) -> Floats:  # (layers, pairs)
    """The cosine of the means of two texts' words."""
    first = embedder.embed([pair.first for pair in pairs])
    second = embedder.embed([pair.second for pair in pairs])
    cosines = [_cosine(a.mean(1), b.mean(1)) for a, b in zip(first, second, strict=True)]
    return np.stack(cosines, 1)


def judge_texts(embedder: Embedder, pairs: Sequence[Scored]) -> list[float]:
    """For each layer, Spearman's correlation of the cosines with what people said."""
    scores = [pair.score for pair in pairs]
    return [spearman(scores, cosines.tolist()) for cosines in compare_texts(embedder, pairs)]


def _cosine(one: Vectors, other: Vectors) -> Floats:  # (layers, dim) -> (layers,)
    lengths = np.linalg.norm(one, axis=-1) * np.linalg.norm(other, axis=-1)
    cosines: Floats = (one * other).sum(-1, dtype=np.float64) / np.maximum(lengths, 1e-12)
    return cosines
