"""Options become the settings of a supervised run."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from elmokit.errors import ConfigError
from elmokit.formats.record import make_record, parse_value, read_toml


def _says(help: str, default: Any) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True)
class Settings:
    """Every number of a supervised run: what is read of a word, the head's size, the learning."""

    elmo: Literal["none", "input", "output", "both"] = _says(
        "where the mixed layers go in: nowhere is the baseline", "input"
    )
    layers: tuple[int, ...] = _says("layers to mix; none for all", ())
    l2: float = _says("λ of the penalty λ‖w‖² on the mixes' weights", 0.001)
    elmo_dropout: float = _says("share of the mix's numbers missing in learning", 0.5)
    tune: bool = _says("the biLM learns too, instead of staying frozen", False)

    word_dim: int = _says("size of a vector for each word of the training text; 0 for none", 100)
    vectors: str = _says("a file of word vectors to begin with, word2vec's or GloVe's text", "")
    freeze_vectors: bool = _says("the vectors of that file do not learn", False)
    characters: int = _says("features of each filter over a word's characters; 0 for none", 32)

    hidden: int = _says("size of the memory of a reader of the head, each way", 200)
    depth: int = _says("layers of that reader", 1)
    dropout: float = _says("share of numbers missing in learning", 0.5)
    crf: bool = _says("tags are chosen together, not one by one", True)

    epochs: int = _says("how often the examples are read", 40)
    patience: int = _says("epochs without a better one before stopping", 8)
    words_per_batch: int = _says("words of the examples of an update, at most", 600)
    learning_rate: float = _says("size of an update", 0.001)
    decay: float = _says("AdamW's weight decay", 0.0)
    clip_norm: float = _says("largest length of all gradients together", 5.0)
    seed: int = _says("of every random choice", 0)

    def __post_init__(self) -> None:
        for name in ("hidden", "depth", "epochs", "words_per_batch", "learning_rate", "clip_norm"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}, expected more than 0")
        for name in ("word_dim", "characters", "patience", "l2", "decay", "seed"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 0 or more")
        for name in ("dropout", "elmo_dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected 0 to below 1")
        if self.elmo in ("none", "output") and not (self.word_dim or self.characters):
            raise ConfigError(f"elmo is {self.elmo!r}: word_dim and characters cannot both be 0")
        if self.freeze_vectors and not self.vectors:
            raise ConfigError("freeze_vectors is true, but no vectors are given")

    @property
    def at_input(self) -> bool:
        """Whether the mixed layers stand beside the words' own vectors."""
        return self.elmo in ("input", "both")

    @property
    def at_output(self) -> bool:
        """Whether they stand beside what the head's reader says."""
        return self.elmo in ("output", "both")

    def to_toml(self) -> str:
        """The settings as a TOML file, each with what it means."""
        return "".join(
            f"{f.name} = {json.dumps(getattr(self, f.name))}  # {f.metadata['help']}\n"
            for f in fields(self)
        )


def read_settings(start: Settings, source: Path | None, given: Mapping[str, str]) -> Settings:
    """A task's settings, some replaced by those of a TOML file, and then by given ones."""
    values = {} if source is None else read_toml(source)
    name = "the settings" if source is None else str(source)
    known = {f.name for f in fields(Settings)}
    for key in (*values, *given):
        if key not in known:
            raise ConfigError(f"{name}: there is no setting {key!r}; known are {sorted(known)}")
    values |= {key: parse_value(text) for key, text in given.items()}
    return make_record(asdict(start) | values, Settings, name)
