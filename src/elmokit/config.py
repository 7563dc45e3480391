"""The shape of a model, and how validated records are read from JSON."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from elmokit.errors import ConfigError, FormatError

Direction = Literal["forward", "backward"]

# The filters of every published model: 2,048 in all.
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))


@dataclass(frozen=True)
class BiLMConfig:
    """The shape of a biLM and the constants of its arithmetic.

    `projection_size` is the size of a word vector and of one LSTM's output, `cell_size` that of its
    cells. Where the two are equal, the LSTM has no projection matrix. `characters` is None for a
    word-level model, whose embedding then has `vocabulary_size` rows.
    """

    projection_size: int
    cell_size: int
    num_layers: int
    characters: "CharacterConfig | None"
    vocabulary_size: int | None = None
    directions: tuple[Direction, ...] = ("forward", "backward")
    skip_connections: bool = True
    cell_clip: float | None = 3.0
    projection_clip: float | None = 3.0
    forget_bias: float = 1.0

    def __post_init__(self) -> None:
        _positive("projection_size", self.projection_size)
        _positive("cell_size", self.cell_size)
        _positive("num_layers", self.num_layers, most=100)
        if self.projection_size > self.cell_size:
            raise ConfigError(
                f"projection_size is {self.projection_size}, expected at most cell_size "
                f"({self.cell_size}): an LSTM projects its cells down, never up"
            )
        object.__setattr__(self, "forget_bias", float(self.forget_bias))
        if self.directions not in (("forward", "backward"), ("forward",), ("backward",)):
            raise ConfigError(
                f"directions is {self.directions!r}, "
                "expected ('forward', 'backward'), ('forward',) or ('backward',)"
            )
        if (self.characters is None) == (self.vocabulary_size is None):
            raise ConfigError(
                "expected either characters (a character model) or vocabulary_size (a word model): "
                f"found characters={self.characters!r}, vocabulary_size={self.vocabulary_size!r}"
            )
        if self.vocabulary_size is not None:
            _positive("vocabulary_size", self.vocabulary_size, most=2**30)
        for name in ("cell_clip", "projection_clip"):
            clip = getattr(self, name)
            if clip is not None:
                object.__setattr__(self, name, float(clip))  # 3 and 3.0 are one model
            if clip is not None and not clip > 0:
                raise ConfigError(
                    f"{name} is {clip!r}, expected a positive number, or None for no clip"
                )

    @property
    def output_size(self) -> int:
        """The size of a layer's vector: all directions side by side."""
        return len(self.directions) * self.projection_size


@dataclass(frozen=True)
class CharacterConfig:
    """The shape of a character CNN.

    `max_characters` is how many character ids a word has at most, begin and end of word included;
    `filters` are (width, number of filters) pairs.
    """

    max_characters: int = 50
    num_characters: int = 262
    embedding_size: int = 16
    filters: tuple[tuple[int, int], ...] = PUBLISHED_FILTERS
    activation: Literal["relu", "tanh"] = "relu"
    highway_layers: int = 2

    def __post_init__(self) -> None:
        _positive("num_characters", self.num_characters)
        _positive("embedding_size", self.embedding_size)
        if not 3 <= self.max_characters <= 2**20:
            raise ConfigError(
                f"max_characters is {self.max_characters}, expected 3 or more: "
                "begin and end of word, and a character"
            )
        if self.activation not in ("relu", "tanh"):
            raise ConfigError(f"activation is {self.activation!r}, expected 'relu' or 'tanh'")
        if not 0 <= self.highway_layers <= 100:
            raise ConfigError(f"highway_layers is {self.highway_layers}, expected 0 to 100")
        if not self.filters:
            raise ConfigError("filters is empty, expected (characters, features) pairs")
        for seen, features in self.filters:
            _positive("filters: the characters that one sees", seen)
            _positive("filters: the features that one makes", features)
            if seen > self.max_characters:
                raise ConfigError(
                    f"filters: one sees {seen} characters, but a word has only "
                    f"{self.max_characters}"
                )

    @property
    def num_filters(self) -> int:
        """How many features all filters make together."""
        return sum(features for _, features in self.filters)


def _positive(name: str, value: int, most: int = 2**20) -> None:
    """Refuse what no model has; a file may claim anything."""
    if not 1 <= value <= most:
        raise ConfigError(f"{name} is {value:,}, expected 1 to {most:,}")


# The models that AllenNLP published.
SIZES = {
    "small": BiLMConfig(
        projection_size=128,
        cell_size=1024,
        num_layers=2,
        characters=CharacterConfig(highway_layers=1),
    ),
    "medium": BiLMConfig(
        projection_size=256,
        cell_size=2048,
        num_layers=2,
        characters=CharacterConfig(highway_layers=1),
    ),
    "original": BiLMConfig(
        projection_size=512,
        cell_size=4096,
        num_layers=2,
        characters=CharacterConfig(highway_layers=2),
    ),
}


Record = TypeVar("Record")


def read_record(path: Path, kind: type[Record], expected: str) -> Record:
    """The record that a JSON file describes; `expected` says what the file should have been."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # a mark that some editors leave
    return parse_record(text, kind, str(path), expected)


def parse_record(text: str | bytes, kind: type[Record], name: str, expected: str) -> Record:
    """The record that JSON describes; `name` says whence it is, `expected` what it should be."""
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise FormatError(f"{name}: {_first_fault(error)}; expected {expected}") from None


def make_record(values: Mapping[str, Any], kind: type[Record], name: str) -> Record:
    """The record of those values; whole numbers serve as numbers, lists as tuples."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{name}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}{': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
