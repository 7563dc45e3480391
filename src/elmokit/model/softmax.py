"""Vectors become word probabilities."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.model.draw import draw_normal

# So many bytes of logits are worked out at once: malloc gives a block above 32 MB back each time,
# and its pages have to be had anew. But the table is read once a block: for some rows at least.
_LOGIT_BYTES = 24 * 2**20
_LEAST_ROWS = 20


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
        rows = max(_LEAST_ROWS, _LOGIT_BYTES // (self.words * vectors.element_size()))
        found = []
        for some, wanted in zip(vectors.split(rows), targets.split(rows), strict=True):
            logits = self._logits(some)
            chosen = logits.gather(1, wanted[:, None]).squeeze(1)
            found.append(chosen - logits.logsumexp(1))
        return torch.cat(found)

    def _logits(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        return F.linear(vectors, self.weight, self.bias)
