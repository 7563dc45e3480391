"""Vectors become word probabilities."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.model.draw import draw_normal

# So many bytes of logits are worked out at once.
_LOGIT_BYTES = 2**26


class Softmax(nn.Module):
    """A vector and a bias for each word of the vocabulary; both readers predict with the same."""

    def __init__(self, words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, dim))
        self.bias = nn.Parameter(torch.zeros(words))
        draw_normal(self.weight, dim)

    @property
    def words(self) -> int:
        """How many words have a probability."""
        return len(self.bias)

    def forward(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        """The logarithm of each word's probability."""
        return F.log_softmax(self._logits(vectors), -1)

    def log_likelihood(self, vectors: Tensor, targets: Tensor) -> Tensor:
        """The logarithm of the probability of one word a vector.

        `vectors` are (tokens, dim), `targets` and what comes back (tokens,).
        """
        rows = max(1, _LOGIT_BYTES // (self.words * vectors.element_size()))
        return -torch.cat(
            [
                F.cross_entropy(self._logits(some), wanted, reduction="none")
                for some, wanted in zip(vectors.split(rows), targets.split(rows), strict=True)
            ]
        )

    def _logits(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        return F.linear(vectors, self.weight, self.bias)
