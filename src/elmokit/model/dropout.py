"""Dropout of layer inputs, recurrent weights and whole words."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dropout:
    """Sets each number to zero with probability `rate`, and scales the others to keep the mean.

    `variational` dropout draws one mask for a sequence and uses it at each of its steps (Gal and
    Ghahramani 2016); otherwise every step has a mask of its own, as in bilm-tf. `weight_rate` is
    the dropout rate of recurrent weights, and `word_rate` that of word types (Merity et al. 2018).
    Masks are drawn from `generator`, so LSTMs that train at the same time do not affect each other.
    """

    rate: float
    generator: torch.Generator
    variational: bool = False
    weight_rate: float = 0.0
    word_rate: float = 0.0

    def __call__(self, vectors: Tensor, batch_sizes: Sequence[int]) -> Tensor:
        """Dropout of packed vectors, (tokens, dim), with `batch_sizes` tokens at each step."""
        if self.rate == 0:
            return vectors
        rows = max(batch_sizes, default=0) if self.variational else len(vectors)
        mask = self._mask((rows, vectors.shape[1]), self.rate, vectors)
        if self.variational:
            sequence = torch.cat([torch.arange(size) for size in batch_sizes])
            mask = mask[sequence.to(mask.device)]
        return vectors * mask

    def drop_weights(self, weight: Tensor) -> Tensor:
        """A weight matrix with some of its numbers set to zero."""
        if self.weight_rate == 0:
            return weight
        return weight * self._mask(weight.shape, self.weight_rate, weight)

    def drop_words(self, types: Tensor) -> Tensor:
        """Word vectors, (types, dim), with some of the words set to zero."""
        if self.word_rate == 0:
            return types
        return types * self._mask((len(types), 1), self.word_rate, types)

    def _mask(self, shape: Sequence[int], rate: float, like: Tensor) -> Tensor:
        """Factors: 0, or 1 / (1 - rate)."""
        mask = torch.empty(*shape, device=like.device)
        mask.bernoulli_(1 - rate, generator=self.generator).div_(1 - rate)
        return mask.to(like.dtype)
