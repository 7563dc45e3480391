"""Vectors become what a reader of both directions says of each word in its sentence."""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Context(nn.Module):
    """A bidirectional LSTM that never sees padding: (sentences, steps, dim) -> (…, 2 * hidden)."""

    def __init__(self, dim: int, hidden: int, *, depth: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim = 2 * hidden
        between = dropout if depth > 1 else 0.0
        self.lstm = nn.LSTM(
            dim, hidden, depth, batch_first=True, bidirectional=True, dropout=between
        )
        self.dropout = nn.Dropout(dropout)
        for name, weight in self.lstm.named_parameters():
            if "weight_hh" in name:
                for gate in weight.chunk(4):
                    nn.init.orthogonal_(gate)
            elif "weight_ih" in name:
                nn.init.xavier_uniform_(weight)
            else:
                nn.init.zeros_(weight)

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """What is said of each word, 0 at padding."""
        packed = pack_padded_sequence(
            vectors, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False
        )
        said, _ = pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, total_length=vectors.shape[1]
        )
        kept: Tensor = self.dropout(said)
        return kept


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:  # (…, steps, dim) -> (…, dim)
    """The largest of each number over the words."""
    return vectors.masked_fill(~mask[..., None], -torch.inf).amax(-2)


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:  # (…, steps, dim) -> (…, dim)
    """The mean of each number over the words."""
    return (vectors * mask[..., None]).sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1)
