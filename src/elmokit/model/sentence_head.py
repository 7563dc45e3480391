"""Sentence heads: an attention over the words of a text, and a projection of their mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from elmokit.errors import ConfigError

_CODEBOOK_SIZE = 256  # rows; a code is a byte
_MAX_NUMBERS = 2**27  # of one kind of weights


@dataclass(frozen=True)
class SentenceHeadConfig:
    """The sizes of a sentence head.

    A word's features are its context-free vector, the signs of its hashed spelling and a vector
    from a table, in this order. `context_layers` are the layers from which the attention reads the
    word's vector too; without `attention`, a word weighs what its IDF weight says.
    """

    context_free_size: int
    projection_size: int
    attention: bool = False
    context_layers: tuple[int, ...] = ()
    context_size: int = 0  # of the context layers' vectors, side by side
    num_signs: int = 0
    table_words: int = 0
    table_codes: int = 0  # for each word
    table_code_size: int = 0  # how many numbers a code stands for
    hidden_size: int = 0

    def __post_init__(self) -> None:
        for name in ("context_free_size", "projection_size"):
            if not 1 <= getattr(self, name) <= 2**20:
                raise ConfigError(f"{name} is {getattr(self, name):,}, expected 1 to {2**20:,}")
        for name in (
            "context_size", "num_signs", "table_words", "table_codes", "table_code_size",
            "hidden_size",
        ):  # fmt: skip
            if not 0 <= getattr(self, name) <= 2**24:
                raise ConfigError(f"{name} is {getattr(self, name):,}, expected 0 to {2**24:,}")
        if bool(self.context_layers) != bool(self.context_size):
            raise ConfigError(
                f"context_layers is {self.context_layers} and context_size {self.context_size}, "
                "expected both or neither"
            )
        if self.context_layers and not self.attention:
            raise ConfigError("context_layers are for the attention, expected attention = true")
        table = self.table_words, self.table_codes, self.table_code_size
        if any(table) and not all(table):
            raise ConfigError(
                f"table_words, table_codes and table_code_size are {table}, expected all or none"
            )
        for name, size in (
            (
                "the features of a word",
                self.num_features * (self.projection_size + self.hidden_size),
            ),
            ("the codes of all words", self.table_words * self.table_codes),
        ):
            if size > _MAX_NUMBERS:
                raise ConfigError(
                    f"{name} need {size:,} numbers, expected {_MAX_NUMBERS:,} or fewer"
                )

    @property
    def table_size(self) -> int:
        """The size of a word's vector in the table."""
        return self.table_codes * self.table_code_size

    @property
    def num_features(self) -> int:
        """The size of a word's features."""
        return self.context_free_size + self.num_signs + self.table_size

    @property
    def output_size(self) -> int:
        """The size of a text's vector."""
        return self.projection_size + self.hidden_size


@dataclass(frozen=True)
class HeadInput:
    """What a sentence head reads of texts; `rows` are those of the table, -1 for other words."""

    context_free: Tensor  # (texts, words, context_free_size)
    context: Tensor | None  # (texts, words, context_size)
    signs: Tensor  # (texts, words, num_signs)
    rows: Tensor  # (texts, words)
    idf_weights: Tensor  # (texts, words), 0 for padding and for words that do not count

    def to(self, device: torch.device) -> "HeadInput":
        """The same input on a device."""
        return self._map(lambda tensor: tensor.to(device))

    def select(self, texts: Tensor) -> "HeadInput":
        """The input of some of the texts, by a mask."""
        return self._map(lambda tensor: tensor[texts])

    def split_words(self) -> "HeadInput":
        """Each word of one text as a text by itself, also one that does not count in the text."""
        words = self._map(lambda tensor: tensor.transpose(0, 1))
        return replace(words, idf_weights=torch.ones_like(words.idf_weights))

    def _map(self, function: Callable[[Tensor], Tensor]) -> "HeadInput":
        return HeadInput(
            function(self.context_free),
            None if self.context is None else function(self.context),
            function(self.signs),
            function(self.rows),
            function(self.idf_weights),
        )

    @classmethod
    def pad(cls, texts: Sequence["HeadInput"]) -> "HeadInput":
        """Several texts as one input; padding has the weight 0."""

        def stack(tensors: Sequence[Tensor]) -> Tensor:
            return nn.utils.rnn.pad_sequence([t[0] for t in tensors], batch_first=True)

        contexts = [text.context for text in texts if text.context is not None]
        return cls(
            stack([text.context_free for text in texts]),
            stack(contexts) if contexts else None,
            stack([text.signs for text in texts]),
            stack([text.rows for text in texts]),
            stack([text.idf_weights for text in texts]),
        )


class SentenceHead(nn.Module):
    """One vector for a text: the weighted mean of its words' features, projected.

    With a hidden layer, the weighted mean of a ReLU layer over the same features stands beside it.
    The vectors of the table are put together from codebooks (product quantization).
    """

    def __init__(self, config: SentenceHeadConfig) -> None:
        super().__init__()
        self.config = config
        features = config.num_features
        self.projection = nn.Linear(features, config.projection_size)
        if config.attention:
            self.attention = nn.Parameter(torch.zeros(features + config.context_size))
        if config.table_words:
            self.codebooks = nn.Parameter(
                torch.zeros(config.table_codes, _CODEBOOK_SIZE, config.table_code_size)
            )
            codes = torch.zeros(config.table_words, config.table_codes, dtype=torch.uint8)
            self.register_buffer("codes", codes)
        if config.hidden_size:
            self.hidden = nn.Linear(features, config.hidden_size)
            self.output = nn.Linear(config.hidden_size, config.hidden_size, bias=False)

    def forward(self, text: HeadInput) -> Tensor:  # -> (texts, output_size)
        """The vector of each text."""
        features = self.features(text)
        weights = self.weights(text, features)[:, None]  # (texts, 1, words)
        vectors: Tensor = self.projection((weights @ features)[:, 0])
        if self.config.hidden_size:
            hidden = torch.relu(self.hidden(features))
            vectors = torch.cat([vectors, self.output((weights @ hidden)[:, 0])], -1)
        return vectors

    def features(self, text: HeadInput) -> Tensor:  # -> (texts, words, num_features)
        """The features of each word."""
        parts = [text.context_free, text.signs]
        if self.config.table_words:
            parts.append(self._look_up(text.rows))
        return torch.cat(parts, -1)

    def weights(self, text: HeadInput, features: Tensor) -> Tensor:  # -> (texts, words)
        """How much each word counts; 1 in all for a text."""
        scores = text.idf_weights.log()  # -inf for padding
        if self.config.attention:
            known = features if text.context is None else torch.cat([features, text.context], -1)
            scores = scores + known @ self.attention
        weights: Tensor = torch.softmax(scores, -1)
        return weights

    def _look_up(self, rows: Tensor) -> Tensor:  # -> (texts, words, table_size)
        assert isinstance(self.codes, Tensor)
        codes = self.codes[rows.clamp(min=0)].long()  # (texts, words, codes)
        numbers = torch.arange(self.config.table_codes, device=codes.device)
        vectors = self.codebooks[numbers, codes].flatten(-2)
        return vectors * (rows >= 0)[..., None]
