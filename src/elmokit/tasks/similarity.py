"""Two uses of a word, or two texts, become how alike they are, layer by layer.

Raw cosines are all alike, for vectors share a mean and loud directions; so those are taken out
first (`elmokit.whitening`), estimated from vectors whose labels are not looked at.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.pooling import Vectors
from elmokit.tasks.data.example import InContext, Scored
from elmokit.tasks.metrics.correlation import spearman
from elmokit.whitening import Whitening, WhiteningMethod

Floats = npt.NDArray[np.float64]


def embed_uses(embedder: Embedder, pairs: Sequence[InContext]) -> Vectors:
    """The vectors of each word's two uses, (layers, 2, pairs, dim)."""
    first = embedder.embed([pair.first for pair in pairs])
    second = embedder.embed([pair.second for pair in pairs])
    both = [
        np.stack([one[:, pair.places[0]], other[:, pair.places[1]]], 1)
        for pair, one, other in zip(pairs, first, second, strict=True)
    ]
    return np.stack(both, 2)


def embed_texts(embedder: Embedder, pairs: Sequence[Scored]) -> Vectors:
    """The means of two texts' words, (layers, 2, pairs, dim)."""
    first = embedder.embed([pair.first for pair in pairs])
    second = embedder.embed([pair.second for pair in pairs])
    both = [
        np.stack([one.mean(1), other.mean(1)], 1) for one, other in zip(first, second, strict=True)
    ]
    return np.stack(both, 2)


def compare(
    vectors: Vectors, *, like: Vectors, whitening: WhiteningMethod
) -> Floats:  # -> (layers, pairs)
    """The cosine of each pair, (layers, 2, pairs, dim), after a whitening of vectors `like` it."""
    cosines = []
    for own, known in zip(vectors, like, strict=True):
        white = Whitening.fit_batches(known, dim=known.shape[-1], method=whitening)
        cosines.append(
            (white.transform(own[0]) * white.transform(own[1])).sum(-1, dtype=np.float64)
        )
    return np.stack(cosines)


def judge_uses(
    embedder: Embedder,
    train: Sequence[InContext],
    dev: Sequence[InContext],
    *,
    whitening: WhiteningMethod = "top",
) -> list[float]:
    """For each layer, the share of `dev` that a threshold on the cosine, fit to `train`, gets."""
    if not train or not dev:
        raise InputError("a threshold needs examples to be fit to and others to be judged by")
    learnt = embed_uses(embedder, train)
    known, wanted = (np.array([pair.same for pair in pairs]) for pairs in (train, dev))
    before = compare(learnt, like=learnt, whitening=whitening)
    found = compare(embed_uses(embedder, dev), like=learnt, whitening=whitening)
    return [
        float(((cosines >= best_threshold(fit_to, known)) == wanted).mean())
        for fit_to, cosines in zip(before, found, strict=True)
    ]


def best_threshold(values: Floats, same: npt.NDArray[np.bool_]) -> float:
    """The value from which on "same" is most often right; halfway between two that were met."""
    order = np.argsort(values)
    values, same = values[order], same[order]
    # With the threshold below value k, the k before it are said to differ.
    right = np.concatenate([[0], np.cumsum(~same)]) + (same.sum() - np.append([0], np.cumsum(same)))
    right[1:-1][values[1:] == values[:-1]] = -1  # no threshold parts equal values
    edges = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2, values[-1:] + 1])
    return float(edges[right.argmax()])


def judge_texts(
    embedder: Embedder,
    train: Sequence[Scored],
    dev: Sequence[Scored],
    *,
    whitening: WhiteningMethod = "zca",
) -> list[float]:
    """For each layer, Spearman's correlation of the cosines of `dev` with what people said.

    What vectors share is estimated from the texts of `train`, whose scores are not looked at.
    """
    if not train or not dev:
        raise InputError("a whitening needs texts to be fit to and others to be judged by")
    like = embed_texts(embedder, train)
    scores = [pair.score for pair in dev]
    found = compare(embed_texts(embedder, dev), like=like, whitening=whitening)
    return [spearman(scores, cosines.tolist()) for cosines in found]
