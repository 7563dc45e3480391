"""Vectors become vectors with some numbers missing, so that learning does not lean on any."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Dropout:
    """Each number is zero with probability `rate`, the others grow to keep the mean.

    `locked` misses the same numbers of a row at each of its steps (Gal and Ghahramani 2016); else
    every step draws anew, as bilm-tf did. Draws come from `generator`, so that readers that learn
    at the same time do not disturb each other.
    """

    rate: float
    generator: torch.Generator
    locked: bool = False

    def __call__(self, vectors: Tensor, sizes: Sequence[int]) -> Tensor:
        """Packed vectors, (tokens, dim), of so many rows a step, with numbers missing."""
        if self.rate == 0:
            return vectors
        rows = max(sizes, default=0) if self.locked else len(vectors)
        kept = torch.empty(rows, vectors.shape[1], device=vectors.device)
        kept.bernoulli_(1 - self.rate, generator=self.generator).div_(1 - self.rate)
        if self.locked:
            row = torch.cat([torch.arange(size) for size in sizes])
            kept = kept[row.to(kept.device)]
        return vectors * kept.to(vectors.dtype)
