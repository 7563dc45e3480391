"""Vectors become what a reader of both directions says of each word in its sentence."""

import torch
from torch import Tensor, nn


class Context(nn.Module):
    """A bidirectional LSTM that never sees padding: (sentences, steps, dim) -> (…, 2 * hidden).

    Each direction is an LSTM of its own, and the second reads each sentence from its own end:
    padding comes after the words for both, so nothing has to be packed, and the CPU's LSTM for
    whole batches, up to twice as fast as the packed one, does the work.
    """

    def __init__(
        self, dim: int, hidden: int, *, depth: int = 1, dropout: float = 0.0, between: float = 0.0
    ) -> None:
        """`depth` layers; `dropout` of what each says, `between` of what all but the last say."""
        super().__init__()
        self.dim = 2 * hidden
        dims = [dim] + [self.dim] * (depth - 1)
        self.ahead = nn.ModuleList(_lstm(size, hidden) for size in dims)
        self.back = nn.ModuleList(_lstm(size, hidden) for size in dims)
        self.dropouts = [dropout or between] * (depth - 1) + [dropout]

    def forward(self, vectors: Tensor, mask: Tensor) -> Tensor:
        """What is said of each word, 0 at padding."""
        turn = _turned(mask)
        said = vectors
        for ahead, back, dropout in zip(self.ahead, self.back, self.dropouts, strict=True):
            both = ahead(said)[0], _pick(back(_pick(said, turn))[0], turn)
            said = drop(torch.cat(both, -1), dropout, self.training)
        return said * mask[..., None]


def _lstm(dim: int, hidden: int) -> nn.LSTM:
    lstm = nn.LSTM(dim, hidden, batch_first=True)
    for name, weight in lstm.named_parameters():
        if "weight_hh" in name:
            for gate in weight.chunk(4):
                nn.init.orthogonal_(gate)
        elif "weight_ih" in name:
            nn.init.xavier_uniform_(weight)
        else:
            nn.init.zeros_(weight)
            if "bias_hh" in name:  # of the forget gate: what is known is kept at first
                nn.init.ones_(weight[hidden : 2 * hidden])
    return lstm


def _turned(mask: Tensor) -> Tensor:  # (sentences, steps) -> the same
    """The places of each sentence's words from last to first; padding stays where it is."""
    places = torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - places, places)


def _pick(vectors: Tensor, places: Tensor) -> Tensor:
    """Vectors (sentences, steps, dim) in the order of places (sentences, steps)."""
    return vectors.gather(1, places[..., None].expand(-1, -1, vectors.shape[-1]))


def drop(vectors: Tensor, share: float, learning: bool) -> Tensor:
    """Dropout of vectors (sentences, steps, dim): all words of a sentence miss the same numbers.

    A reader then cannot make up for them from the words beside (Gal and Ghahramani 2016).
    """
    if not learning or not share:
        return vectors
    kept = vectors.new_empty(len(vectors), 1, vectors.shape[-1]).bernoulli_(1 - share)
    return vectors * (kept / (1 - share))


def even(vectors: Tensor) -> Tensor:
    """Vectors (…, dim) of mean 0 and variance 1 each; padding stays 0.

    How much two of them are alike then does not hang on how loud either is, and attention can
    choose from the first update on.
    """
    return nn.functional.layer_norm(vectors, vectors.shape[-1:])


def masked_max(vectors: Tensor, mask: Tensor) -> Tensor:  # (…, steps, dim) -> (…, dim)
    """The largest of each number over the words."""
    return vectors.masked_fill(~mask[..., None], -torch.inf).amax(-2)


def masked_mean(vectors: Tensor, mask: Tensor) -> Tensor:  # (…, steps, dim) -> (…, dim)
    """The mean of each number over the words."""
    return (vectors * mask[..., None]).sum(-2) / mask.sum(-1, keepdim=True).clamp(min=1)
