"""Character CNN and highway layers: one context-free vector per word."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.config import CharacterConfig
from elmokit.model.linear import init_normal
from elmokit.threads import run_side_by_side

# Without gradients, words are encoded this many at a time, so that every product has a shape
# that depends on the word alone: then its bits do not depend on the words around it.
_BLOCK = 16
_ROUND = 8


class CharacterEncoder(nn.Module):
    """A character CNN with highways: what each filter saw best in a word, reworked and projected.

    There is no projection where the filters already make `dim` features.
    """

    def __init__(self, config: CharacterConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.dim = dim
        self.embedding = _table(config.num_characters, config.embedding_size)
        # A filter is a product with each window of characters, laid end to end.
        self.filters = nn.ModuleList(
            nn.Linear(seen * config.embedding_size, features) for seen, features in config.filters
        )
        self.highways = nn.ModuleList(
            Highway(config.num_filters) for _ in range(config.highway_layers)
        )
        self.projection = None if config.num_filters == dim else nn.Linear(config.num_filters, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Random weights as bilm-tf drew them."""
        config = self.config
        nn.init.uniform_(self.embedding.weight, -1, 1)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        for (seen, _), layer in zip(config.filters, self._linears(), strict=True):
            if config.activation == "relu":
                nn.init.uniform_(layer.weight, -0.05, 0.05)
            else:
                init_normal(layer.weight, seen * config.embedding_size)
            nn.init.zeros_(layer.bias)
        if self.projection is not None:
            init_normal(self.projection.weight, config.num_filters)
            nn.init.zeros_(self.projection.bias)

    def forward(self, chars: Tensor) -> Tensor:  # (types, width) -> (types, dim)
        """The vector of each word type."""
        vectors = self.embedding.weight.new_zeros(len(chars), self.dim)

        def encode(rows: Tensor, positions: int) -> None:
            block = self._encode(chars[rows, :positions])
            vectors.index_copy_(0, rows, block.to(vectors.dtype))

        if torch.is_grad_enabled():
            for rows, positions in self._blocks(chars):
                encode(rows, positions)
        else:
            run_side_by_side([partial(encode, *block) for block in self._blocks(chars)])
        return vectors

    def _encode(self, chars: Tensor) -> Tensor:  # (types, positions) -> (types, dim)
        types, positions = chars.shape
        character_dim = self.config.embedding_size
        characters = self.embedding(chars).view(types, positions * character_dim)
        activate = torch.relu if self.config.activation == "relu" else torch.tanh

        seen_best = []
        for (seen, _), layer in zip(self.config.filters, self._linears(), strict=True):
            windows = characters.unfold(1, seen * character_dim, character_dim)
            seen_best.append(activate(self._filter(windows, layer.weight).amax(1) + layer.bias))
        vectors = torch.cat(seen_best, 1)

        for highway in self.highways:
            vectors = highway(vectors)
        return vectors if self.projection is None else self.projection(vectors)

    @staticmethod
    def _filter(windows: Tensor, weight: Tensor) -> Tensor:  # -> (types, windows, features)
        if torch.is_grad_enabled():
            return windows @ weight.t()
        # One product a word, as fast, and with the same bits wherever in the block it stands.
        return torch.bmm(windows, weight.t().expand(len(windows), -1, -1))

    def _blocks(self, chars: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Rows to encode together, and how many of their positions tell them apart.

        A word ends in a run of one id (padding). All windows inside the run are the same, so a
        run longer than the widest filter adds nothing to the best of each filter: it is cut.
        """
        width = chars.shape[1]
        numbers = torch.arange(1, width + 1, device=chars.device)
        lengths = ((chars != chars[:, -1:]) * numbers).amax(1)
        widest = max(seen for seen, _ in self.config.filters)
        rounded = (lengths + _ROUND - 1) // _ROUND * _ROUND
        positions = (rounded + widest).clamp_(max=width)
        for count in positions.unique().tolist():
            rows = (positions == count).nonzero().flatten()
            if torch.is_grad_enabled():
                yield rows, count
                continue
            for block in rows.split(_BLOCK):
                yield torch.cat([block, block[:1].expand(_BLOCK - len(block))]), count

    def _linears(self) -> Iterator[nn.Linear]:
        for layer in self.filters:
            assert isinstance(layer, nn.Linear)
            yield layer


class Highway(nn.Module):
    """A gate lets the reworked vector through, or the vector as it came."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.rework = nn.Linear(features, features)
        self.gate = nn.Linear(features, features)
        for layer in (self.rework, self.gate):
            init_normal(layer.weight, features)
        nn.init.zeros_(self.rework.bias)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, vectors: Tensor) -> Tensor:  # (types, features) -> (types, features)
        """The vectors, reworked as far as the gate is open."""
        gate = torch.sigmoid(self.gate(vectors)).to(vectors.dtype)  # autocast may shorten it
        return torch.lerp(vectors, F.relu(self.rework(vectors)).to(vectors.dtype), gate)


class WordEmbedding(nn.Module):
    """A vector per word of a vocabulary, for word-level models; row 0 is padding."""

    def __init__(self, words: int, dim: int) -> None:
        super().__init__()
        self.embedding = _table(words + 1, dim)
        nn.init.xavier_uniform_(self.embedding.weight)
        with torch.no_grad():
            self.embedding.weight[0] = 0

    def forward(self, chars: Tensor) -> Tensor:  # (types, 1) -> (types, dim)
        """The vector of each word type."""
        vectors: Tensor = self.embedding(chars[:, 0])
        return vectors


def _table(rows: int, dim: int) -> nn.Embedding:
    """A table that is not yet drawn; row 0, padding, never learns."""
    return nn.Embedding(rows, dim, padding_idx=0, _weight=torch.empty(rows, dim))
