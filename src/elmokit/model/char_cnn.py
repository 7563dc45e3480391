"""Character CNN and highway layers: one context-free vector per word."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.model.packed_linear import init_normal
from elmokit.model_config import CharacterConfig, LexiconConfig
from elmokit.threads import run_side_by_side

# Without gradients, words are encoded in blocks of this size, so that the shape of every product
# depends on the word alone: then its bits do not depend on the other words.
_BLOCK_SIZE = 16
# Words of similar lengths are in one block: lengths are rounded up to a multiple of this.
_LENGTH_MULTIPLE = 8


class CharacterEncoder(nn.Module):
    """Character embeddings, convolution, max-pooling, highway layers and a projection.

    There is no projection if there are as many filters as `dim`.
    """

    def __init__(self, config: CharacterConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.dim = dim
        self.embedding = _embedding(config.num_characters, config.embedding_size)
        # The filters of a width are a product with each window of concatenated characters.
        self.filters = nn.ModuleList(
            nn.Linear(width * config.embedding_size, number) for width, number in config.filters
        )
        size = config.num_filters
        self.highways = nn.ModuleList(Highway(size) for _ in range(config.highway_layers))
        self.projection = None if size == dim else nn.Linear(size, dim)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw random weights as bilm-tf did."""
        config = self.config
        nn.init.uniform_(self.embedding.weight, -1, 1)
        with torch.no_grad():
            self.embedding.weight[0] = 0
        for (width, _), layer in zip(config.filters, self._linears(), strict=True):
            if config.activation == "relu":
                nn.init.uniform_(layer.weight, -0.05, 0.05)
            else:
                init_normal(layer.weight, width * config.embedding_size)
            nn.init.zeros_(layer.bias)
        if self.projection is not None:
            init_normal(self.projection.weight, config.num_filters)
            nn.init.zeros_(self.projection.bias)

    def forward(self, chars: Tensor) -> Tensor:  # (types, max_characters) -> (types, dim)
        """The vector of each word type."""
        vectors = self.embedding.weight.new_zeros(len(chars), self.dim)

        def encode(rows: Tensor, num_characters: int) -> None:
            block = self._encode(chars[rows, :num_characters])
            vectors.index_copy_(0, rows, block.to(vectors.dtype))

        if torch.is_grad_enabled():
            for block in self._blocks(chars):
                encode(*block)
        else:
            run_side_by_side([partial(encode, *block) for block in self._blocks(chars)])
        return vectors

    def _encode(self, chars: Tensor) -> Tensor:  # (types, num_characters) -> (types, dim)
        types, num_characters = chars.shape
        embedding_size = self.config.embedding_size
        characters = self.embedding(chars).view(types, num_characters * embedding_size)
        activate = torch.relu if self.config.activation == "relu" else torch.tanh

        features = []
        for (width, _), layer in zip(self.config.filters, self._linears(), strict=True):
            windows = characters.unfold(1, width * embedding_size, embedding_size)
            best = self._convolve(windows, layer.weight).amax(1)
            features.append(activate(best + layer.bias))
        vectors = torch.cat(features, 1)

        for highway in self.highways:
            vectors = highway(vectors)
        return vectors if self.projection is None else self.projection(vectors)

    @staticmethod
    def _convolve(windows: Tensor, weight: Tensor) -> Tensor:  # -> (types, windows, filters)
        if torch.is_grad_enabled():
            return windows @ weight.t()
        # One product per word: as fast, and with the same bits wherever in the block the word is.
        return torch.bmm(windows, weight.t().expand(len(windows), -1, -1))

    def _blocks(self, chars: Tensor) -> Iterator[tuple[Tensor, int]]:
        """Rows to encode together, and how many of their characters matter.

        A row ends in a run of one id (padding). All windows inside the run are the same, so of a
        run longer than the widest filter, the rest does not change the maximum of any filter.
        """
        max_characters = chars.shape[1]
        numbers = torch.arange(1, max_characters + 1, device=chars.device)
        lengths = ((chars != chars[:, -1:]) * numbers).amax(1)
        widest = max(width for width, _ in self.config.filters)
        rounded = (lengths + _LENGTH_MULTIPLE - 1) // _LENGTH_MULTIPLE * _LENGTH_MULTIPLE
        num_characters = (rounded + widest).clamp_(max=max_characters)
        for count in num_characters.unique().tolist():
            rows = (num_characters == count).nonzero().flatten()
            if torch.is_grad_enabled():
                yield rows, count
                continue
            for block in rows.split(_BLOCK_SIZE):
                yield torch.cat([block, block[:1].expand(_BLOCK_SIZE - len(block))]), count

    def _linears(self) -> Iterator[nn.Linear]:
        for layer in self.filters:
            assert isinstance(layer, nn.Linear)
            yield layer


class Highway(nn.Module):
    """A highway layer: a gate chooses between the transformed vector and the vector itself."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.transform = nn.Linear(dim, dim)
        self.gate = nn.Linear(dim, dim)
        for layer in (self.transform, self.gate):
            init_normal(layer.weight, dim)
        nn.init.zeros_(self.transform.bias)
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, vectors: Tensor) -> Tensor:  # (types, dim) -> (types, dim)
        gate = torch.sigmoid(self.gate(vectors)).to(vectors.dtype)  # autocast may have shortened it
        return torch.lerp(vectors, F.relu(self.transform(vectors)).to(vectors.dtype), gate)


class WordEmbedding(nn.Module):
    """A vector for each word of a vocabulary, for word-level models; row 0 is padding."""

    def __init__(self, num_words: int, dim: int) -> None:
        super().__init__()
        self.embedding = _embedding(num_words + 1, dim)
        nn.init.xavier_uniform_(self.embedding.weight)
        with torch.no_grad():
            self.embedding.weight[0] = 0

    def forward(self, chars: Tensor) -> Tensor:  # (types, 1) -> (types, dim)
        """The vector of each word type."""
        vectors: Tensor = self.embedding(chars[:, 0])
        return vectors


class LexiconEncoder(nn.Module):
    """ELMoForManyLangs' word encoder: the word's embedding and the features of its characters.

    Both are concatenated, and projected; a model may lack one of the two.
    """

    def __init__(self, config: LexiconConfig, dim: int) -> None:
        super().__init__()
        self.words = self.characters = None
        if config.num_words:
            self.words = WordEmbedding(config.num_words, config.word_embedding_size)
        if config.characters is not None:
            self.characters = CharacterEncoder(config.characters, config.characters.num_filters)
        self.projection = nn.Linear(config.num_features, dim)

    def forward(self, ids: Tensor) -> Tensor:  # (types, ids of a word) -> (types, dim)
        """The vector of each word type."""
        features = []
        if self.words is not None:
            features.append(self.words(ids))
            ids = ids[:, 1:]
        if self.characters is not None:
            features.append(self.characters(ids))
        rows = torch.cat(features, 1)
        if torch.is_grad_enabled():
            projected: Tensor = self.projection(rows)
            return projected
        padded = F.pad(rows, (0, 0, 0, -len(rows) % _BLOCK_SIZE))
        blocks = padded.split(_BLOCK_SIZE)
        vectors = run_side_by_side([partial(self.projection, block) for block in blocks])
        return torch.cat(vectors)[: len(rows)]


def _embedding(rows: int, dim: int) -> nn.Embedding:
    """An embedding without values yet; row 0, padding, gets no gradient."""
    return nn.Embedding(rows, dim, padding_idx=0, _weight=torch.empty(rows, dim))
