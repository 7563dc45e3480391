"""The options.json of bilm-tf and AllenNLP."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from elmokit.character_ids import CharacterIndexer
from elmokit.formats.pretrained import DEFAULT_TOKENIZER, Pretrained, StoredMix
from elmokit.model_config import BiLMConfig, CharacterConfig, Direction, read_record


@dataclass(frozen=True)
class LstmOptions:
    """The LSTMs, by bilm-tf's names."""

    dim: int
    projection_dim: int
    n_layers: int = 1
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = False


@dataclass(frozen=True)
class EmbeddingOptions:
    """The character embedding, by bilm-tf's names."""

    dim: int = 16


@dataclass(frozen=True)
class CharacterOptions:
    """The character CNN, by bilm-tf's names."""

    activation: Literal["relu", "tanh"]
    filters: tuple[tuple[int, int], ...]
    embedding: EmbeddingOptions = field(default_factory=EmbeddingOptions)
    max_characters_per_token: int = 50
    n_characters: Literal[261, 262] = 262  # bilm-tf wants 261 to train and 262 to use
    n_highway: int | None = None


@dataclass(frozen=True)
class OwnOptions:
    """What elmokit adds to options.json; other programs ignore it."""

    split: str = DEFAULT_TOKENIZER
    card: str = ""
    mix: StoredMix | None = None


@dataclass(frozen=True)
class Options:
    """The configuration of a model in options.json; its settings of training are ignored."""

    lstm: LstmOptions
    char_cnn: CharacterOptions | None = None
    bidirectional: bool = True  # bilm-tf's default is False, but published files leave it out
    elmokit: OwnOptions = field(default_factory=OwnOptions)

    def config(self, vocabulary_size: int | None, *, bidirectional: bool) -> BiLMConfig:
        """The configuration; the vocabulary size of a word-level model is not in the options."""
        lstm, cnn = self.lstm, self.char_cnn
        directions: tuple[Direction, ...] = (
            ("forward", "backward") if bidirectional else ("forward",)
        )
        characters = None
        if cnn is not None:
            characters = CharacterConfig(
                max_characters=cnn.max_characters_per_token,
                num_characters=CharacterIndexer.NUM_CHARACTERS,
                embedding_size=cnn.embedding.dim,
                filters=cnn.filters,
                activation=cnn.activation,
                highway_layers=cnn.n_highway or 0,
            )
        return BiLMConfig(
            projection_size=lstm.projection_dim,
            cell_size=lstm.dim,
            num_layers=lstm.n_layers,
            characters=characters,
            vocabulary_size=vocabulary_size,
            directions=directions,
            skip_connections=lstm.use_skip_connections,
            cell_clip=lstm.cell_clip or None,  # AllenNLP: 0 is no clip
            projection_clip=lstm.proj_clip or None,
        )


def read_options(path: Path) -> Options:
    """The configuration in an options.json."""
    return read_record(path, Options, "the options.json of a bilm-tf model")


@dataclass(frozen=True)
class TrainingOptions(Options):
    """The settings of training in options.json; its counts of words are ignored."""

    bidirectional: bool = False
    dropout: float = 0.0
    all_clip_norm_val: float = 0.0
    n_epochs: int = 10
    batch_size: int = 128
    unroll_steps: int = 20
    n_negative_samples_batch: int = 8192
    learning_rate: float = 0.2
    sample_softmax: bool = True
    share_embedding_softmax: bool = False


def read_training_options(path: Path) -> dict[str, Any]:
    """The settings of a pretraining run in an options.json, by the names of PretrainingSettings."""
    options = read_record(path, TrainingOptions, "the options.json of a bilm-tf run")
    settings: dict[str, Any] = {
        "projection_size": options.lstm.projection_dim,
        "cell_size": options.lstm.dim,
        "num_layers": options.lstm.n_layers,
        "skip_connections": options.lstm.use_skip_connections,
        "cell_clip": options.lstm.cell_clip or 0.0,
        "projection_clip": options.lstm.proj_clip or 0.0,
        "directions": "both" if options.bidirectional else "forward",
        "dropout": options.dropout,
        "max_grad_norm": options.all_clip_norm_val,
        "epochs": options.n_epochs,
        "batch_size": options.batch_size,
        "sequence_length": options.unroll_steps,
        "num_sampled": options.n_negative_samples_batch,
        "learning_rate": options.learning_rate,
        "softmax": "sampled" if options.sample_softmax else "full",
        "tie_weights": options.share_embedding_softmax,
        "input": "words" if options.char_cnn is None else "characters",
    }
    if options.char_cnn is not None:
        settings |= {
            "max_characters": options.char_cnn.max_characters_per_token,
            "character_embedding_size": options.char_cnn.embedding.dim,
            "filters": options.char_cnn.filters,
            "activation": options.char_cnn.activation,
            "highway_layers": options.char_cnn.n_highway or 0,
        }
    return settings


def write_options(pretrained: Pretrained, path: Path) -> None:
    """Write the options.json of a model."""
    config = pretrained.model.bilm.config
    characters, mix = config.characters, pretrained.mix
    options = Options(
        LstmOptions(
            dim=config.cell_size,
            projection_dim=config.projection_size,
            n_layers=config.num_layers,
            cell_clip=config.cell_clip,
            proj_clip=config.projection_clip,
            use_skip_connections=config.skip_connections,
        ),
        None
        if characters is None
        else CharacterOptions(
            activation=characters.activation,
            filters=characters.filters,
            embedding=EmbeddingOptions(characters.embedding_size),
            max_characters_per_token=characters.max_characters,
            n_highway=characters.highway_layers,
        ),
        bidirectional=config.directions == ("forward", "backward"),
        elmokit=OwnOptions(
            pretrained.tokenizer, pretrained.card, None if mix is None else StoredMix.of(mix)
        ),
    )
    values = asdict(options, dict_factory=lambda items: {k: v for k, v in items if v is not None})
    path.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
