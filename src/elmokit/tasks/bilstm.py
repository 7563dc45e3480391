"""The BiLSTM encoder of the task heads, its dropout, and pooling over words."""

import torch
from torch import Tensor, nn


class BiLSTMEncoder(nn.Module):
    """A bidirectional LSTM that never sees padding: (sentences, steps, dim) -> (…, dim).

    Each direction is an LSTM of its own, and the backward one starts at each sentence's own end. So
    padding comes after the words for both, nothing has to be packed, and the CPU's LSTM for full
    batches can be used, which is up to twice as fast as the packed one.
    """

    def __init__(
        self,
        dim: int,
        hidden_size: int,
        *,
        num_layers: int = 1,
        dropout: float = 0.0,
        dropout_between: float = 0.0,
    ) -> None:
        """`dropout` is applied to each layer's output; `dropout_between` to all but the last's."""
        super().__init__()
        self.dim = 2 * hidden_size
        dims = [dim] + [self.dim] * (num_layers - 1)
        self.forward_lstms = nn.ModuleList(_make_lstm(size, hidden_size) for size in dims)
        self.backward_lstms = nn.ModuleList(_make_lstm(size, hidden_size) for size in dims)
        self.dropouts = [dropout or dropout_between] * (num_layers - 1) + [dropout]

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """The hidden states of both directions for each word, 0 at padding."""
        reversal = _reversal(mask)
        hidden = vectors
        layers = zip(self.forward_lstms, self.backward_lstms, self.dropouts, strict=True)
        for forward_lstm, backward_lstm, dropout in layers:
            forward = forward_lstm(hidden)[0]
            backward = _reorder(backward_lstm(_reorder(hidden, reversal))[0], reversal)
            hidden = variational_dropout(torch.cat([forward, backward], -1), dropout, self.training)
        return hidden * mask[..., None]


def _make_lstm(dim: int, hidden_size: int) -> nn.LSTM:
    lstm = nn.LSTM(dim, hidden_size, batch_first=True)
    for name, weight in lstm.named_parameters():
        if "weight_hh" in name:
            for gate in weight.chunk(4):
                nn.init.orthogonal_(gate)
        elif "weight_ih" in name:
            nn.init.xavier_uniform_(weight)
        else:
            nn.init.zeros_(weight)
            if "bias_hh" in name:  # of the forget gate: begin by remembering
                nn.init.ones_(weight[hidden_size : 2 * hidden_size])
    return lstm


def _reversal(mask: Tensor) -> Tensor:  # (sentences, steps) -> (sentences, steps)
    """The positions of each sentence's words from last to first; padding stays where it is."""
    positions = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - positions, positions)


def _reorder(vectors: Tensor, positions: Tensor) -> Tensor:
    """Vectors (sentences, steps, dim) in the order of positions (sentences, steps)."""
    return vectors.gather(1, positions[..., None].expand(-1, -1, vectors.shape[-1]))


def variational_dropout(vectors: Tensor, dropout: float, training: bool) -> Tensor:
    """Dropout of vectors (sentences, steps, dim) with one mask for all words of a sentence.

    An LSTM then cannot recover what was dropped from the words beside (Gal and Ghahramani 2016).
    """
    if not training or not dropout:
        return vectors
    mask = vectors.new_empty(len(vectors), 1, vectors.shape[-1]).bernoulli_(1 - dropout)
    return vectors * (mask / (1 - dropout))


def layer_norm(vectors: Tensor) -> Tensor:
    """Vectors (…, dim) scaled to mean 0 and variance 1 each; padding stays 0.

    Products of two vectors then do not depend on their lengths, so that attention can be selective
    from the first update on.
    """
    return nn.functional.layer_norm(vectors, vectors.shape[-1:])


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:  # (…, steps, dim) -> (…, dim)
    """The maximum over the words."""
    return vectors.masked_fill(~mask[..., None], -torch.inf).amax(-2)


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:  # (…, steps, dim) -> (…, dim)
    """The mean over the words."""
    return (vectors * mask[..., None]).sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1)
