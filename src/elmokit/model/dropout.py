"""Dropout of inputs, recurrent weights and words."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dropout:
    """Each number is zero with probability `rate`, the others grow to keep the mean.

    `locked` misses the same numbers of a row at each of its steps (Gal and Ghahramani 2016); else
    every step draws anew, as bilm-tf did. `weights` is the share of a reader's recurrent weights
    that is missing in a window, `words` that of its word types (Merity et al. 2018). Draws come
    from `generator`, so that readers that learn at the same time do not disturb each other.
    """

    rate: float
    generator: torch.Generator
    locked: bool = False
    weights: float = 0.0
    words: float = 0.0

    def __call__(self, vectors: Tensor, sizes: Sequence[int]) -> Tensor:
        """Packed vectors, (tokens, dim), of so many rows a step, with numbers missing."""
        if self.rate == 0:
            return vectors
        rows = max(sizes, default=0) if self.locked else len(vectors)
        kept = self._kept((rows, vectors.shape[1]), self.rate, vectors)
        if self.locked:
            row = torch.cat([torch.arange(size) for size in sizes])
            kept = kept[row.to(kept.device)]
        return vectors * kept

    def of_weights(self, weight: Tensor) -> Tensor:
        """A matrix with some of its weights missing."""
        if self.weights == 0:
            return weight
        return weight * self._kept(weight.shape, self.weights, weight)

    def of_words(self, types: Tensor) -> Tensor:
        """Word vectors, (types, dim), with some words missing."""
        if self.words == 0:
            return types
        return types * self._kept((len(types), 1), self.words, types)

    def _kept(self, shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
        """What to multiply with: 0 for what is missing, and a little more than 1."""
        kept = torch.empty(*shape, device=like.device)
        kept.bernoulli_(1 - rate, generator=self.generator).div_(1 - rate)
        return kept.to(like.dtype)
