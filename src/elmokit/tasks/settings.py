"""Options become the settings of a supervised run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from elmokit.errors import ConfigError
from elmokit.settings import check_ranges, override_settings, read_toml, setting
from elmokit.tokenizers import check_tokenizer


@dataclass(frozen=True)
class TaskSettings:
    """Every number of a supervised run: what is read of a word, the head's size, the learning."""

    elmo: Literal["none", "input", "output", "both"] = setting(
        "where the mixed layers go in: nowhere is the baseline", "input"
    )
    layers: tuple[int, ...] = setting("layers to mix, [0, 2] for two; none for all", ())
    l2: float = setting("λ of the penalty λ‖w‖² on the mixes' weights", 0.001)
    elmo_dropout: float = setting("share of the mix's numbers missing in learning", 0.5)
    by_sentence: bool = setting("the biLM reads a text sentence by sentence, not as a whole", True)
    tune: bool = setting("the biLM learns too, instead of staying frozen", False)

    split: str = setting("how raw text becomes words, in files and when asked; none: as usual", "")
    word_dim: int = setting("size of a vector for each word of the training text; 0 for none", 100)
    vectors: str = setting("a file of word vectors to begin with, word2vec's or GloVe's text", "")
    freeze_vectors: bool = setting("the vectors of that file do not learn", False)
    characters: int = setting("features of each filter over a word's characters; 0 for none", 32)

    hidden: int = setting("size of the memory of a reader of the head, each way", 128)
    depth: int = setting("layers of that reader", 1)
    dropout: float = setting("share of numbers missing in learning", 0.5)
    crf: bool = setting("tags are chosen together, not one by one (ner, chunking, pos)", True)

    epochs: int = setting("how often the examples are read", 15)
    patience: int = setting("epochs without a better one before stopping; 0 for never", 0)
    words_per_batch: int = setting("words of the examples of an update, at most", 1000)
    learning_rate: float = setting("size of the first update; it falls to 0 by the last", 0.002)
    decay: float = setting("AdamW's weight decay", 0.0)
    clip_norm: float = setting("largest length of all gradients together", 5.0)
    seed: int = setting("of every random choice", 0)

    def __post_init__(self) -> None:
        check_ranges(
            self,
            positive=(
                "hidden", "depth", "epochs", "words_per_batch", "learning_rate", "clip_norm",
            ),
            not_negative=("word_dim", "characters", "patience", "l2", "decay", "seed"),
            below_one=("dropout", "elmo_dropout"),
        )  # fmt: skip
        for name, most in (
            ("hidden", 2**20),
            ("word_dim", 2**20),
            ("characters", 2**20),
            ("depth", 100),
            ("seed", 2**63 - 1),
        ):
            if getattr(self, name) > most:  # a file may claim anything
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at most {most}")
        if self.elmo == "none" and (self.tune or self.layers):
            raise ConfigError("elmo is 'none': there are no layers to choose, no biLM to tune")
        if len(set(self.layers)) < len(self.layers):
            raise ConfigError(f"layers is {self.layers}, expected each once")
        if self.split:
            check_tokenizer(self.split)
        if self.elmo in ("none", "output") and not (self.word_dim or self.characters):
            raise ConfigError(f"elmo is {self.elmo!r}: word_dim and characters cannot both be 0")
        if self.freeze_vectors and not self.vectors:
            raise ConfigError("freeze_vectors is true, but no vectors are given")
        if self.freeze_vectors and self.decay:
            raise ConfigError("freeze_vectors is true: decay must be 0, or it would shrink them")

    @property
    def at_input(self) -> bool:
        """Whether the mixed layers stand beside the words' own vectors."""
        return self.elmo in ("input", "both")

    @property
    def at_output(self) -> bool:
        """Whether they stand beside what the head's reader says."""
        return self.elmo in ("output", "both")


def read_settings(
    start: TaskSettings, source: Path | None, given: Mapping[str, str]
) -> TaskSettings:
    """A task's settings, some replaced by those of a TOML file, and then by given ones."""
    values = {} if source is None else read_toml(source)
    name = "the settings" if source is None else str(source)
    return override_settings(start, values, given, name)
