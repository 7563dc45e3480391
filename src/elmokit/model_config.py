"""The configuration of a model, and reading validated records from JSON."""

import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import TypeAdapter, ValidationError

from elmokit.errors import ConfigError, FormatError

Direction = Literal["forward", "backward"]

# (width, number of filters) of every published model, 2,048 filters in all.
PUBLISHED_FILTERS = ((1, 32), (2, 32), (3, 64), (4, 128), (5, 256), (6, 512), (7, 1024))

_MAX_CHARACTERS = 1_000  # every word takes memory for so many characters

# The sentence heads that a model may come with, the best first.
HEAD_NAMES = "sentence", "whitened"


@dataclass(frozen=True)
class BiLMConfig:
    """The sizes of a biLM and the constants of its arithmetic.

    `projection_size` is the size of a word vector and of an LSTM's hidden state, `cell_size` that
    of its cell state. Where the two are equal, the LSTM has no projection. A model has one of
    `characters`, `vocabulary_size` (a word-level model, whose embedding has so many rows) and
    `lexicons`. `aligned_layers` are those that are turned to another language's model. With
    `peepholes`, the gates of the LSTMs also depend on the cell state.

    Example:
        elmokit.BiLMConfig(512, 4096, num_layers=2, characters=elmokit.CharacterConfig())
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
    lexicons: "LexiconConfig | None" = None
    aligned_layers: tuple[int, ...] = ()
    peepholes: bool = False

    def __post_init__(self) -> None:
        _positive("projection_size", self.projection_size)
        _positive("cell_size", self.cell_size)
        _positive("num_layers", self.num_layers, maximum=100)
        if self.projection_size > self.cell_size:
            raise ConfigError(
                f"projection_size is {self.projection_size}, expected at most cell_size "
                f"({self.cell_size}); lower projection_size or raise cell_size"
            )
        object.__setattr__(self, "forget_bias", float(self.forget_bias))
        if not math.isfinite(self.forget_bias):
            raise ConfigError(f"forget_bias is {self.forget_bias}, expected a finite number")
        if self.directions not in (("forward", "backward"), ("forward",), ("backward",)):
            raise ConfigError(
                f"directions is {self.directions!r}, "
                "expected ('forward', 'backward'), ('forward',) or ('backward',)"
            )
        encoders = self.characters, self.vocabulary_size, self.lexicons
        if encoders.count(None) != 2:
            raise ConfigError(
                "expected either characters (a character model) or vocabulary_size (a word model), "
                "or lexicons (ELMoForManyLangs): found "
                f"characters={self.characters!r}, vocabulary_size={self.vocabulary_size!r}, "
                f"lexicons={self.lexicons!r}"
            )
        if self.vocabulary_size is not None:
            _positive("vocabulary_size", self.vocabulary_size, maximum=2**30)
        for name in ("cell_clip", "projection_clip"):
            clip = getattr(self, name)
            if clip is not None:
                object.__setattr__(self, name, float(clip))  # 3 and 3.0 have one fingerprint
            if clip is not None and not clip > 0:
                raise ConfigError(
                    f"{name} is {clip!r}, expected a positive number, or None for no clip"
                )

        if not {*self.aligned_layers} <= {*range(self.num_layers + 1)} or (
            [*self.aligned_layers] != sorted({*self.aligned_layers})
        ):
            raise ConfigError(
                f"aligned_layers is {self.aligned_layers}, expected rising numbers of layers, 0 to "
                f"{self.num_layers}"
            )

    @property
    def output_size(self) -> int:
        """The size of a layer's vector: those of all directions, concatenated."""
        return len(self.directions) * self.projection_size


@dataclass(frozen=True)
class CharacterConfig:
    """The sizes of a character CNN.

    `max_characters` is how many character ids a word has at most, including begin and end of word;
    `filters` are (width, number of filters) pairs.

    Example:
        elmokit.CharacterConfig(max_characters=30, filters=((1, 32), (3, 64)), highway_layers=1)
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
        if not 3 <= self.max_characters <= _MAX_CHARACTERS:
            raise ConfigError(
                f"max_characters is {self.max_characters:,}, expected 3 to {_MAX_CHARACTERS:,}: "
                "begin and end of word count, too"
            )
        if self.activation not in ("relu", "tanh"):
            raise ConfigError(f"activation is {self.activation!r}, expected 'relu' or 'tanh'")
        if not 0 <= self.highway_layers <= 100:
            raise ConfigError(f"highway_layers is {self.highway_layers}, expected 0 to 100")
        if not self.filters:
            raise ConfigError("filters is empty, expected (width, number of filters) pairs")
        for width, number in self.filters:
            _positive("filters: a width", width)
            _positive("filters: a number of filters", number)
            if width > self.max_characters:
                raise ConfigError(
                    f"filters: a width is {width}, expected at most max_characters "
                    f"({self.max_characters})"
                )

    @property
    def num_filters(self) -> int:
        """The number of filters of all widths."""
        return sum(number for _, number in self.filters)


@dataclass(frozen=True)
class LexiconConfig:
    """The sizes of ELMoForManyLangs' word encoder, which looks up characters and words in lexicons.

    `characters` is its character CNN, `num_words` and `word_embedding_size` are the sizes of its
    word embedding; a model may lack one of the two. A word is cut to `max_characters` characters,
    begin and end of word included, before it is looked up.
    """

    max_characters: int
    characters: CharacterConfig | None
    num_words: int = 0
    word_embedding_size: int = 0

    def __post_init__(self) -> None:
        _positive("max_characters", self.max_characters)
        if self.num_words or self.word_embedding_size:
            _positive("num_words", self.num_words, maximum=2**30)
            _positive("word_embedding_size", self.word_embedding_size)
        elif self.characters is None:
            raise ConfigError("lexicons has neither characters nor words, expected at least one")
        if self.characters is not None and self.characters.max_characters != self.max_characters:
            raise ConfigError(
                f"max_characters is {self.max_characters}, but that of characters is "
                f"{self.characters.max_characters}; expected one number"
            )

    @property
    def num_characters(self) -> int:
        """How many characters the lexicon has; the embedding has one more row, for no word."""
        return 0 if self.characters is None else self.characters.num_characters - 1

    @property
    def num_features(self) -> int:
        """The size of a word's features before they are projected."""
        num_filters = 0 if self.characters is None else self.characters.num_filters
        return self.word_embedding_size + num_filters


def _positive(name: str, value: int, maximum: int = 2**20) -> None:
    # The maximum is far beyond any model, but a damaged or malicious file may claim anything.
    if not 1 <= value <= maximum:
        raise ConfigError(f"{name} is {value:,}, expected 1 to {maximum:,}")


Record = TypeVar("Record")


def read_record(path: Path, kind: type[Record], expected: str) -> Record:
    """The record in a JSON file; `expected` is what error messages say the file should be."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # the byte-order mark of some editors
    return parse_record(text, kind, str(path), expected)


def parse_record(text: str | bytes, kind: type[Record], name: str, expected: str) -> Record:
    """The record in JSON text; error messages call it `name` and say what it is expected to be."""
    try:
        return _reader(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise FormatError(f"{name}: {_first_problem(error)}; expected {expected}") from None


def make_record(values: Mapping[str, Any], kind: type[Record], name: str) -> Record:
    """The record with these values; an int is taken for a float, and a list for a tuple."""
    try:
        return _reader(kind).validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{name}: {_first_problem(error)}") from None


def _reader(kind: type[Record]) -> TypeAdapter[Record]:
    """What reads a record; it takes milliseconds to make, so it is made once."""
    if kind not in _readers:
        _readers[kind] = TypeAdapter(kind)
    return _readers[kind]


_readers: dict[type, TypeAdapter[Any]] = {}


# Pydantic's types of mistakes, in plain words.
_EXPECTED = {
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "float_type": "a number",
    "float_parsing": "a number",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "list_type": "a list",
    "string_type": "a text in quotes",
    "tuple_type": "a list",
}


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"])
    expected = _EXPECTED.get(first["type"])
    if first["type"] == "literal_error":
        expected = first["ctx"]["expected"]
    if expected is not None:
        return f"{field or 'it'} is {reprlib.repr(first['input'])}, expected {expected}"
    return f"{field}{': ' if field else ''}{first['msg'].removeprefix('Value error, ')}"
