"""Numbers become a model's shape: frozen records, checked on birth."""

from dataclasses import dataclass
from typing import Literal

from elmokit.errors import ConfigError

Direction = Literal["forward", "backward"]

# The filters of every published model: 2,048 in all.
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class BiLMConfig:
    """The shape of a biLM and the constants of its arithmetic.

    `dim` is the size of a word vector and of one reader's layer; `cell_dim` of its memory.
    Where the two are equal, a reader has no projection matrix. `characters` is None for a
    word-level model, whose table then has `table_words` rows.
    """

    dim: int
    cell_dim: int
    layers: int
    characters: "CharacterConfig | None"
    table_words: int | None = None
    directions: tuple[Direction, ...] = ("forward", "backward")
    skip: bool = True
    cell_clip: float | None = 3.0
    output_clip: float | None = 3.0
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        _positive("dim", self.dim)
        _positive("cell_dim", self.cell_dim)
        _positive("layers", self.layers, most=100)
        if self.dim > self.cell_dim:
            raise ConfigError(
                f"dim is {self.dim}, expected at most cell_dim ({self.cell_dim}): "
                "a reader projects its memory down, never up"
            )
        object.__setattr__(self, "forget_bias", float(self.forget_bias))
        if self.directions not in (("forward", "backward"), ("forward",), ("backward",)):
            raise ConfigError(
                f"directions is {self.directions!r}, "
                "expected ('forward', 'backward'), ('forward',) or ('backward',)"
            )
        if (self.characters is None) == (self.table_words is None):
            raise ConfigError(
                "expected either characters (a character model) or table_words (a word model): "
                f"found characters={self.characters!r}, table_words={self.table_words!r}"
            )
        if self.table_words is not None:
            _positive("table_words", self.table_words, most=2**30)
        for name in ("cell_clip", "output_clip"):
            clip = getattr(self, name)
            if clip is not None:
                object.__setattr__(self, name, float(clip))  # 3 and 3.0 are one model
            if clip is not None and not clip > 0:
                raise ConfigError(
                    f"{name} is {clip!r}, expected a positive number, or None for no clip"
                )

    @property
    def vector_dim(self) -> int:
        """The size of a layer's vector: all directions side by side."""
        return len(self.directions) * self.dim


@dataclass(frozen=True)
class CharacterConfig:
    """The shape of a character CNN.

    `width` is how many character ids a word has at most, its two marks included; `filters` are
    (characters seen, features) pairs.
    """

    width: int = 50
    alphabet_size: int = 262
    character_dim: int = 16
    filters: tuple[tuple[int, int], ...] = PUBLISHED_FILTERS
    activation: Literal["relu", "tanh"] = "relu"
    highways: int = 2

    def __post_init__(self) -> None:
        _positive("alphabet_size", self.alphabet_size)
        _positive("character_dim", self.character_dim)
        if not 3 <= self.width <= 2**20:
            raise ConfigError(
                f"width is {self.width}, expected 3 or more: two marks and a character"
            )
        if self.activation not in ("relu", "tanh"):
            raise ConfigError(f"activation is {self.activation!r}, expected 'relu' or 'tanh'")
        if not 0 <= self.highways <= 100:
            raise ConfigError(f"highways is {self.highways}, expected 0 to 100")
        if not self.filters:
            raise ConfigError("filters is empty, expected (characters, features) pairs")
        for seen, features in self.filters:
            _positive("filters: the characters that one sees", seen)
            _positive("filters: the features that one makes", features)
            if seen > self.width:
                raise ConfigError(
                    f"filters: one sees {seen} characters, but a word has only {self.width}"
                )

    @property
    def features(self) -> int:
        """How many features all filters make together."""
        return sum(features for _, features in self.filters)


def _positive(name: str, value: int, most: int = 2**20) -> None:
    """Refuse what no model has; a file may claim anything."""
    if not 1 <= value <= most:
        raise ConfigError(f"{name} is {value:,}, expected 1 to {most:,}")


# The models that AllenNLP published.
SIZES = {
    "small": BiLMConfig(dim=128, cell_dim=1024, layers=2, characters=CharacterConfig(highways=1)),
    "medium": BiLMConfig(dim=256, cell_dim=2048, layers=2, characters=CharacterConfig(highways=1)),
    "original": BiLMConfig(
        dim=512, cell_dim=4096, layers=2, characters=CharacterConfig(highways=2)
    ),
}
