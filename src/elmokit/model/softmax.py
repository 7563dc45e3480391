"""Vectors become word probabilities."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.model.draw import draw_normal


class Softmax(nn.Module):
    """A vector and a bias for each word of the vocabulary; both readers predict with the same."""

    def __init__(self, words: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(words, dim))
        self.bias = nn.Parameter(torch.zeros(words))
        draw_normal(self.weight, dim)

    def forward(self, vectors: Tensor) -> Tensor:  # (..., dim) -> (..., words)
        """The logarithm of each word's probability."""
        return F.log_softmax(F.linear(vectors, self.weight, self.bias), -1)
