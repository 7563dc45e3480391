"""PretrainingSettings of pretraining, their presets, and reading them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from elmokit.config import PUBLISHED_FILTERS, BiLMConfig, CharacterConfig, Direction, make_record
from elmokit.errors import ConfigError
from elmokit.formats.bilm_tf_options import read_training_options
from elmokit.settings import (
    check_ranges,
    override_settings,
    parse_toml,
    read_toml,
    setting,
    to_toml,
)

_POSITIVE = (
    "lanes", "steps", "negatives", "accumulate", "encoder_every", "log_every", "learning_rate",
    "accumulator",
)  # fmt: skip
_NOT_NEGATIVE = (
    "start", "epochs", "updates", "seed", "threads", "decay", "warm_up", "patience",
    "validate_every", "validate_words", "clip_norm", "checkpoint_minutes",
)  # fmt: skip
_SHARES, _BELOW_ONE = ("reset", "final_rate"), ("dropout", "weight_dropout", "word_dropout", "beta")


@dataclass(frozen=True)
class PretrainingSettings:
    """Every number of a pretraining run: the model's shape, the softmax, the text, the learning."""

    dim: int = setting("size of a word vector and of a reader's output", 128)
    cell_dim: int = setting("size of a reader's memory", 1024)
    layers: int = setting("layers of each reader", 2)
    skip: bool = setting("each layer from the second on adds what it read", True)
    cell_clip: float = setting("largest number in a memory; 0 for no limit", 3.0)
    output_clip: float = setting("largest number in an output; 0 for no limit", 3.0)
    directions: Literal["both", "forward", "backward"] = setting("which readers there are", "both")
    input: Literal["characters", "words"] = setting("what is read of a word", "characters")
    width: int = setting("characters a word has at most, with its two marks", 50)
    character_dim: int = setting("size of a character's vector", 16)
    filters: tuple[tuple[int, int], ...] = setting(
        "(characters seen, features) of each filter", PUBLISHED_FILTERS
    )
    activation: Literal["relu", "tanh"] = setting("of the filters", "relu")
    highways: int = setting("highway layers after the filters", 1)

    softmax: Literal["sampled", "full", "adaptive"] = setting("how words are predicted", "sampled")
    negatives: int = setting("wrong answers drawn for each direction and window", 8192)
    cutoffs: tuple[int, ...] = setting(
        "first words of the adaptive softmax's classes", (4000, 20000)
    )
    share: bool = setting("words are predicted with the vectors by which they are read", False)
    table: Literal["auto", "sparse", "dense"] = setting("gradient of the softmax's table", "auto")

    lanes: int = setting("texts read side by side, over all ranks", 128)
    steps: int = setting("words of a window; gradients end at its edge", 20)
    reset: float = setting("probability that a lane starts a sentence from zero", 0.5)
    shuffle: Literal["sentences", "shards", "none"] = setting("what each epoch mixes", "sentences")
    streams: Literal["same", "independent"] = setting(
        "whether both readers read the same sentences at the same time", "same"
    )
    start: float = setting("how much of the text is passed over first, in epochs", 0.0)
    epochs: float = setting("how often the text is read", 10.0)
    updates: int = setting("how many updates instead, if not 0", 0)

    dropout: float = setting("share of numbers missing before each layer and the softmax", 0.1)
    locked: bool = setting("the same numbers are missing at each step of a window", False)
    weight_dropout: float = setting("share of recurrent weights missing in a window", 0.0)
    word_dropout: float = setting("share of word types missing in a window", 0.0)

    optimizer: Literal["adagrad", "adamw"] = setting("how gradients change weights", "adagrad")
    learning_rate: float = setting("size of an update", 0.2)
    accumulator: float = setting("what Adagrad's sums start from", 1.0)
    decay: float = setting("AdamW's weight decay", 0.01)
    beta: float = setting("AdamW's memory of squared gradients", 0.99)
    warm_up: int = setting("updates until the learning rate is reached", 0)
    schedule: Literal["constant", "linear", "cosine"] = setting(
        "how the learning rate falls", "constant"
    )
    final_rate: float = setting("share of the learning rate that is left at the end", 0.05)
    clip_norm: float = setting("largest length of all gradients together; 0 for no limit", 10.0)
    accumulate: int = setting("windows whose gradients make one update", 1)
    encoder_every: int = setting("updates of which one changes the encoder too", 1)
    precision: Literal["float32", "bfloat16"] = setting("of most products", "float32")

    validate_every: int = setting("updates between validations; 0 for none but the last", 1000)
    validate_words: int = setting("held-out words of a validation; 0: all", 50000)
    patience: int = setting("validations without a better one before stopping; 0: never", 0)
    checkpoint_minutes: float = setting("time between checkpoints", 10.0)
    log_every: int = setting("updates between lines of the log", 50)
    seed: int = setting("of every random choice", 0)
    threads: int = setting("threads to compute with; 0 for one a CPU that the process may use", 0)

    def __post_init__(self) -> None:
        check_ranges(
            self,
            positive=_POSITIVE,
            not_negative=_NOT_NEGATIVE,
            shares=_SHARES,
            below_one=_BELOW_ONE,
        )
        self._check_together()

    def _check_together(self) -> None:
        if not (self.epochs or self.updates):
            raise ConfigError("epochs and updates are both 0; say how long to train")
        if self.patience and not self.validate_every:
            raise ConfigError("patience counts validations, but validate_every is 0")
        if self.table == "sparse" and self.optimizer != "adagrad":
            raise ConfigError('table is "sparse", which works with Adagrad only')
        if self.encoder_every > 1 and self.input == "words":
            raise ConfigError(
                f"encoder_every is {self.encoder_every}, but a table of words learns at no cost; "
                "leave it 1"
            )
        if self.share and self.input != "words":
            raise ConfigError(
                "share is true, but words are read by their characters: there is no table to share"
            )
        if self.share and self.softmax == "adaptive":
            raise ConfigError("share is true: an adaptive softmax has no table of whole vectors")
        if sorted(set(self.cutoffs)) != list(self.cutoffs) or not self.cutoffs:
            raise ConfigError(f"cutoffs is {self.cutoffs}, expected rising numbers")

    def bilm(self, words: int) -> BiLMConfig:
        """The shape of the biLM, of which a word-level one has a table of so many words."""
        readers: dict[str, tuple[Direction, ...]] = {
            "both": ("forward", "backward"),
            "forward": ("forward",),
            "backward": ("backward",),
        }
        characters = CharacterConfig(
            max_characters=self.width,
            embedding_size=self.character_dim,
            filters=self.filters,
            activation=self.activation,
            highway_layers=self.highways,
        )
        return BiLMConfig(
            projection_size=self.dim,
            cell_size=self.cell_dim,
            num_layers=self.layers,
            characters=characters if self.input == "characters" else None,
            vocabulary_size=words if self.input == "words" else None,
            directions=readers[self.directions],
            skip_connections=self.skip,
            cell_clip=self.cell_clip or None,
            projection_clip=self.output_clip or None,
        )

    def to_toml(self) -> str:
        """The settings as a TOML file, each with what it means."""
        return to_toml(self)


# The published sizes, trained as published; a tiny one to try things; and the one that ships.
PRESETS = {
    "tiny": PretrainingSettings(
        dim=32, cell_dim=128, filters=((1, 16), (2, 16), (3, 32)), lanes=16, negatives=512
    ),
    "small": PretrainingSettings(),
    "medium": PretrainingSettings(dim=256, cell_dim=2048),
    "original": PretrainingSettings(dim=512, cell_dim=4096, highways=2),
    "english": PretrainingSettings(
        dim=224,
        cell_dim=768,
        filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 192), (6, 192)),
        negatives=4096,
        steps=32,
        reset=0.9,
        dropout=0.0,
        optimizer="adamw",
        learning_rate=0.002,
        warm_up=500,
        clip_norm=32.0,
    ),
}


def read_settings(source: str | Path | None, given: Mapping[str, str]) -> PretrainingSettings:
    """The settings of a preset, a TOML file or a bilm-tf options file, some of them replaced.

    A TOML file may begin from a preset: `preset = "small"`.
    """
    if source is None:
        values: dict[str, Any] = {}
    elif str(source) in PRESETS:
        values = {"preset": str(source)}
    elif str(source).endswith(".json"):
        values = read_training_options(Path(source))
    else:
        values = read_toml(Path(source), f"and no preset ({', '.join(PRESETS)}) either")
    preset = values.pop("preset", "small")
    if preset not in PRESETS:
        raise ConfigError(f"no preset is called {preset!r}, expected one of {sorted(PRESETS)}")
    name = "the settings" if source is None else str(source)
    return override_settings(PRESETS[preset], values, given, name)


def parse_settings(toml: str, name: str) -> PretrainingSettings:
    """The settings that `to_toml` wrote."""
    return make_record(parse_toml(toml, name), PretrainingSettings, name)


def differing(mine: PretrainingSettings, other: PretrainingSettings) -> list[str]:
    """The names of settings that differ and change what is learnt."""
    harmless = {"log_every", "checkpoint_minutes", "threads"}
    return [
        f.name
        for f in fields(PretrainingSettings)
        if f.name not in harmless and getattr(mine, f.name) != getattr(other, f.name)
    ]
