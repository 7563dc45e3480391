"""Settings of a pretraining run, the presets, and reading them from files and options."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from elmokit.errors import ConfigError
from elmokit.model_config import PUBLISHED_FILTERS, BiLMConfig, CharacterConfig, make_record
from elmokit.toml_settings import check_ranges, override_settings, parse_toml, read_toml, setting


@dataclass(frozen=True)
class PretrainingSettings:
    """Every setting of a pretraining run: model, softmax, batches, regularization, optimizer.

    Example:
        settings = elmokit.PretrainingSettings(projection_size=64, cell_size=256, epochs=3)
    """

    projection_size: int = setting("size of a word vector and of an LSTM's hidden state", 128)
    cell_size: int = setting("size of an LSTM's cell state", 1024)
    num_layers: int = setting("LSTM layers in each direction", 2)
    skip_connections: bool = setting("add an LSTM layer's input to its output, from layer 2", True)
    cell_clip: float = setting("clip cell states to this absolute value; 0: no limit", 3.0)
    projection_clip: float = setting("clip hidden states to this absolute value; 0: no limit", 3.0)
    directions: Literal["both", "forward", "backward"] = setting("directions of the LSTMs", "both")
    input: Literal["characters", "words"] = setting(
        "character CNN or word embeddings", "characters"
    )
    max_characters: int = setting("characters per word, including the two boundary characters", 50)
    character_embedding_size: int = setting("size of a character embedding", 16)
    filters: tuple[tuple[int, int], ...] = setting(
        "[width, features] of each convolution", PUBLISHED_FILTERS
    )
    activation: Literal["relu", "tanh"] = setting("activation after the convolutions", "relu")
    highway_layers: int = setting("highway layers after the convolutions", 1)

    softmax: Literal["sampled", "full", "adaptive"] = setting("output layer", "sampled")
    num_sampled: int = setting("negative samples per direction and batch", 8192, "> 0")
    cutoffs: tuple[int, ...] = setting("first word of each adaptive-softmax cluster", (4000, 20000))
    tie_weights: bool = setting("share the softmax's weights with the word embeddings", False)
    softmax_gradient: Literal["auto", "sparse", "dense"] = setting(
        "how the gradient of the softmax's weights is stored", "auto"
    )

    batch_size: int = setting("sequences per step, over all processes", 128, "> 0")
    micro_batches: int = setting(
        "parts of a batch, computed one after the other or by several processes; each reads its "
        "own part of the text",
        1,
        "> 0",
    )
    sequence_length: int = setting("words per sequence; gradients stop at its ends", 20, "> 0")
    reset_probability: float = setting(
        "probability that a sentence starts from a zero state", 0.5, "[0, 1]"
    )
    shuffle: Literal["sentences", "shards", "none"] = setting(
        "what is shuffled in each epoch", "sentences"
    )
    streams: Literal["same", "independent"] = setting(
        "whether both directions read the same sentences in a step", "same"
    )
    skip_epochs: float = setting("how much of the text to skip first, in epochs", 0.0, ">= 0")
    epochs: float = setting("passes over the text", 10.0, ">= 0")
    steps: int = setting("optimizer steps, instead of epochs if not 0", 0, ">= 0")

    dropout: float = setting("dropout before each layer and before the softmax", 0.1, "[0, 1)")
    variational_dropout: bool = setting("the same dropout mask at every word of a sequence", False)
    weight_dropout: float = setting(
        "dropout of recurrent weights, one mask per sequence", 0.0, "[0, 1)"
    )
    word_dropout: float = setting("dropout of word types, one mask per sequence", 0.0, "[0, 1)")

    optimizer: Literal["adagrad", "adamw"] = setting("optimizer", "adagrad")
    learning_rate: float = setting("highest learning rate", 0.2, "> 0")
    initial_accumulator: float = setting("initial value of Adagrad's accumulators", 1.0, "> 0")
    weight_decay: float = setting("weight decay of AdamW", 0.01, ">= 0")
    beta2: float = setting("decay rate of AdamW's second moment", 0.99, "[0, 1)")
    warmup_steps: int = setting("steps of linear warm-up", 0, ">= 0")
    schedule: Literal["constant", "linear", "cosine"] = setting(
        "how the learning rate falls after the warm-up", "constant"
    )
    final_learning_rate: float = setting(
        "learning rate at the end, as a fraction of the highest", 0.05, "[0, 1]"
    )
    max_grad_norm: float = setting("clip the gradients' norm to this; 0: no limit", 10.0, ">= 0")
    gradient_accumulation: int = setting("batches per optimizer step", 1, "> 0")
    encoder_every: int = setting("train the character CNN at one in so many steps", 1, "> 0")
    precision: Literal["float32", "bfloat16"] = setting("precision of most products", "float32")

    validation_interval: int = setting("steps between validations; 0: one at the end", 1000, ">= 0")
    validation_words: int = setting("held-out words per validation; 0: all", 50000, ">= 0")
    patience: int = setting("stop after so many validations without progress; 0: never", 0, ">= 0")
    checkpoint_minutes: float = setting("minutes between checkpoints", 10.0, ">= 0")
    log_interval: int = setting("steps between lines of the log", 50, "> 0")
    shard_optimizer: bool = setting(
        "each process keeps the optimizer's state of its share of the weights only (ZeRO-1)", False
    )
    seed: int = setting("seed of every random choice", 0, ">= 0")
    threads: int = setting("threads; 0: one per CPU that the process may use", 0, ">= 0")

    def __post_init__(self) -> None:
        check_ranges(self)
        if not (self.epochs or self.steps):
            raise ConfigError("epochs and steps are both 0; set one of them")
        if self.batch_size % self.micro_batches:
            raise ConfigError(
                f"batch_size is {self.batch_size}, expected a multiple of micro_batches, "
                f"{self.micro_batches}: each reads the same share of the text"
            )
        if self.patience and not self.validation_interval:
            raise ConfigError("patience counts validations, but validation_interval is 0")
        if self.softmax_gradient == "sparse" and self.optimizer != "adagrad":
            raise ConfigError('softmax_gradient is "sparse", which works with Adagrad only')
        if self.encoder_every > 1 and self.input == "words":
            raise ConfigError(
                f"encoder_every is {self.encoder_every}, but word embeddings cost nothing to "
                "train at every step; leave it 1"
            )
        if self.tie_weights and self.input != "words":
            raise ConfigError(
                "tie_weights is true, but words are encoded by a character CNN: there are no word "
                'embeddings to share; set input to "words"'
            )
        if self.tie_weights and self.softmax == "adaptive":
            raise ConfigError(
                "tie_weights is true, but an adaptive softmax has no weights of the embeddings' "
                "shape; use another softmax"
            )
        if sorted(set(self.cutoffs)) != list(self.cutoffs) or not self.cutoffs:
            raise ConfigError(f"cutoffs is {self.cutoffs}, expected rising numbers")

    @property
    def fixed(self) -> dict[str, Any]:
        """The settings that a run must keep when it is resumed."""
        return {name: value for name, value in vars(self).items() if name not in _MAY_CHANGE}

    def bilm(self, vocabulary_size: int) -> BiLMConfig:
        """The configuration of the biLM; only word embeddings depend on the vocabulary's size."""
        has_characters = self.input == "characters"
        characters = {field: getattr(self, name) for name, field in _CHARACTER_FIELDS.items()}
        return BiLMConfig(
            **{name: getattr(self, name) for name in _BILM_FIELDS},
            cell_clip=self.cell_clip or None,
            projection_clip=self.projection_clip or None,
            directions=("forward", "backward") if self.directions == "both" else (self.directions,),
            characters=CharacterConfig(**characters) if has_characters else None,
            vocabulary_size=None if has_characters else vocabulary_size,
        )


# Settings with the names that they have in a biLM's configuration, and those of its character CNN
# with their names there.
_BILM_FIELDS = ("projection_size", "cell_size", "num_layers", "skip_connections")
_CHARACTER_FIELDS = {
    "max_characters": "max_characters",
    "character_embedding_size": "embedding_size",
    "filters": "filters",
    "activation": "activation",
    "highway_layers": "highway_layers",
}


def settings_of_bilm(config: BiLMConfig) -> dict[str, Any]:
    """The settings that give a biLM this configuration."""
    characters = config.characters
    return {
        **{name: getattr(config, name) for name in _BILM_FIELDS},
        "cell_clip": config.cell_clip or 0.0,
        "projection_clip": config.projection_clip or 0.0,
        "directions": "both" if len(config.directions) > 1 else config.directions[0],
        "input": "words" if characters is None else "characters",
        **{n: getattr(characters, field) for n, field in _CHARACTER_FIELDS.items() if characters},
    }


# The published sizes, trained as published; a tiny one to try things; and the one that ships.
PRESETS = {
    "tiny": PretrainingSettings(
        projection_size=32,
        cell_size=128,
        filters=((1, 16), (2, 16), (3, 32)),
        batch_size=16,
        num_sampled=512,
    ),
    "small": PretrainingSettings(),
    "medium": PretrainingSettings(projection_size=256, cell_size=2048),
    "original": PretrainingSettings(projection_size=512, cell_size=4096, highway_layers=2),
    "english": PretrainingSettings(
        projection_size=224,
        cell_size=768,
        filters=((1, 32), (2, 32), (3, 64), (4, 128), (5, 192), (6, 192)),
        num_sampled=4096,
        sequence_length=32,
        reset_probability=0.9,
        dropout=0.0,
        optimizer="adamw",
        learning_rate=0.002,
        warmup_steps=500,
        max_grad_norm=32.0,
    ),
}

# What may differ when a run is resumed: how long it is, how it is watched, not what a step does.
_MAY_CHANGE = {
    "epochs", "steps", "patience", "validation_interval", "checkpoint_minutes", "log_interval",
    "shard_optimizer", "threads",
}  # fmt: skip

# The names that elmokit 0.1 used, in the files of its runs too.
RENAMED = {
    "dim": "projection_size", "cell_dim": "cell_size", "layers": "num_layers",
    "skip": "skip_connections", "output_clip": "projection_clip", "width": "max_characters",
    "character_dim": "character_embedding_size", "highways": "highway_layers",
    "negatives": "num_sampled", "share": "tie_weights", "table": "softmax_gradient",
    "lanes": "batch_size", "steps": "sequence_length", "reset": "reset_probability",
    "start": "skip_epochs", "updates": "steps", "locked": "variational_dropout",
    "accumulator": "initial_accumulator", "decay": "weight_decay", "beta": "beta2",
    "warm_up": "warmup_steps", "final_rate": "final_learning_rate", "clip_norm": "max_grad_norm",
    "accumulate": "gradient_accumulation", "validate_every": "validation_interval",
    "validate_words": "validation_words", "log_every": "log_interval",
}  # fmt: skip

# The settings that 0.1 did not have, and what it did.
_LATER = {"micro_batches": 1, "shard_optimizer": False}


def read_settings(source: str | Path | None, options: Mapping[str, str]) -> PretrainingSettings:
    """The settings of a preset, a TOML file or a bilm-tf options file, then those of `options`.

    A TOML file may start from a preset: `preset = "small"`. The settings.toml of any run is read,
    one written by elmokit 0.1 too.
    """
    if source is None:
        values: dict[str, Any] = {}
    elif str(source) in PRESETS:
        values = {"preset": str(source)}
    elif str(source).endswith(".json"):
        from elmokit.formats.options_json import read_training_options  # noqa: PLC0415  (torch)

        values = read_training_options(Path(source))
    else:
        expected = f"and no preset ({', '.join(PRESETS)}) either"
        values = _current_names(read_toml(Path(source), expected))
    name = "the settings" if source is None else str(source)
    _refuse_old_names(values, name)
    _refuse_old_names(options, "the options")
    preset = values.pop("preset", "small")
    if preset not in list(PRESETS):  # a file may have any type here
        raise ConfigError(f"no preset is called {preset!r}, expected one of {sorted(PRESETS)}")
    return override_settings(PRESETS[preset], values, options, name)


def parse_settings(toml: str, name: str) -> PretrainingSettings:
    """The settings that `to_toml` wrote, in this version or in 0.1."""
    return make_record(_current_names(parse_toml(toml, name)), PretrainingSettings, name)


def _current_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by their names of today; 0.1 wrote all settings under its own names."""
    renamed = RENAMED if values.keys() >= RENAMED.keys() else {}
    return {renamed.get(name, name): value for name, value in values.items()}


def _refuse_old_names(values: Mapping[str, Any], source: str) -> None:
    """Raise ConfigError for the names of 0.1, some of which mean something else now."""
    if RENAMED.keys() & values.keys() - {f.name for f in fields(PretrainingSettings)}:
        new_names = (f"{old} is now {RENAMED[old]}" for old in values if old in RENAMED)
        raise ConfigError(f"{source}: settings have been renamed: {', '.join(new_names)}")


def names_of_0_1(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by the names that 0.1 gave them, in the same order, for digests that it stored.

    Later settings are left out where they have the value that 0.1 implied.
    """
    old_names = {new: old for old, new in RENAMED.items()}
    return {
        old_names.get(name, name): value
        for name, value in settings.items()
        if name not in _LATER or value != _LATER[name]
    }
