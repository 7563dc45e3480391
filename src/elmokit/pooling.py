"""Pooling: word vectors to one vector per text."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch

from elmokit.errors import InputError
from elmokit.model.scalar_mix import ScalarMix
from elmokit.vocab import Vocabulary

Vectors = npt.NDArray[np.float32]
LayerReduction = Literal["mean", "top", "concat"] | int | ScalarMix
Pooling = Literal["mean", "max", "first", "last"]

_POOLINGS: dict[str, Callable[[Vectors], Vectors]] = {
    "mean": lambda words: words.mean(0),
    "max": lambda words: words.max(0),
    "first": lambda words: words[0],
    "last": lambda words: words[-1],
}


@dataclass(frozen=True)
class Reduction:
    """Which layers to compute, how they become one, and how a text's words become one."""

    layers: Literal["all", "top"] | int
    reduce: Callable[[Vectors], Vectors]  # (layers, words, dim) -> (words, dim)
    pool: Callable[[Vectors], Vectors]  # (words, dim) -> (dim,)

    @classmethod
    def of(cls, layers: LayerReduction, pooling: Pooling) -> "Reduction":
        """The reduction that the two names stand for."""
        if pooling not in _POOLINGS:
            raise InputError(f"pooling is {pooling!r}, expected one of {', '.join(_POOLINGS)}")
        pool = _POOLINGS[pooling]
        if isinstance(layers, ScalarMix):
            return cls("all", lambda vectors: _mixed(layers, vectors), pool)
        if isinstance(layers, int):
            return cls(layers, lambda vectors: vectors[0], pool)
        if layers == "top":
            return cls("top", lambda vectors: vectors[0], pool)
        if layers == "mean":
            return cls("all", lambda vectors: vectors.mean(0), pool)
        if layers == "concat":
            return cls("all", lambda vectors: np.concatenate([*vectors], 1), pool)
        raise InputError(
            f"layers is {layers!r}, expected 'mean', 'top', 'concat', a number or a ScalarMix"
        )

    def of_text(self, sentences: Iterable[Vectors], dim: int) -> Vectors:  # -> (dim,)
        """One vector of the sentences of a text, (layers, words, …) each; zero without words."""
        words = [self.reduce(vectors) for vectors in sentences]  # (words, dim) each
        if not sum(map(len, words)):
            return np.zeros(dim, np.float32)
        return self.pool(np.concatenate(words))


@torch.no_grad()
def _mixed(mix: ScalarMix, vectors: Vectors) -> Vectors:
    words = torch.from_numpy(vectors).to(mix.weights.device)
    mask = torch.ones(words.shape[1], dtype=torch.bool, device=words.device)
    mixed: Vectors = mix(words, mask).cpu().numpy()
    return mixed


# A word of this share of a text counts half as much as one that is never met (Arora et al. 2017).
_COMMON = 3e-4


def rarities(words: Sequence[str], vocabulary: Vocabulary) -> npt.NDArray[np.float64]:
    """How much each word counts, 0 to 1; marks do not, unless there is nothing else.

    A word's share of all text is taken from its place in the vocabulary, by Zipf's law; one that
    the vocabulary has only in lower case has that place, and one that it has not is never met.
    """
    known = [word if word in vocabulary else word.lower() for word in words]
    ranks = 1 + vocabulary.ids(known)
    shares = 1 / (ranks.clip(1) * (np.log(len(vocabulary)) + np.euler_gamma))
    shares[[word not in vocabulary for word in known]] = 0
    weights: npt.NDArray[np.float64] = _COMMON / (_COMMON + shares)
    marks = np.array([not is_word(word) for word in words])
    return weights if marks.all() else np.where(marks, 0, weights)


def is_word(word: str) -> bool:
    """Whether it has a letter or a digit, and is not a mark only."""
    return any(character.isalnum() for character in word)
