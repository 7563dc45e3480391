"""The directory of a pretraining run: settings, checkpoint and best model."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from elmokit import formats
from elmokit.atomic import (
    DirectoryLock,
    read_checkpoint,
    rename_atomically,
    write_atomically,
    write_checkpoint,
)
from elmokit.errors import InputError, OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.settings import PretrainingSettings, changed_settings, parse_settings
from elmokit.pretraining.training_windows import Position
from elmokit.pretraining.validation import Validation
from elmokit.toml_settings import to_toml

if TYPE_CHECKING:
    from elmokit.pretraining.trainer import Trainer

SETTINGS, CHECKPOINT, MODEL = "settings.toml", "checkpoint.pt", "model"


@dataclass(frozen=True)
class Checkpoint:
    """All state of a run except its text. Random choices follow from the seed and `step`."""

    step: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    hidden: Tensor  # (directions, layers, batch_size, projection_size)
    cell: Tensor  # (directions, layers, batch_size, cell_size)
    positions: list[Position]  # of each direction's stream
    best_score: float
    best_step: int
    settings: str  # as TOML
    corpus: str  # its fingerprint
    initial_card: str | None = None  # the card of the model that the weights came from

    @classmethod
    def from_stored(cls, **values: Any) -> "Checkpoint":
        """The checkpoint of stored values, those that 0.1 wrote too."""
        values = _renamed(values, _KEYS_OF_0_1)
        values["positions"] = [_renamed(p, _POSITION_KEYS_OF_0_1) for p in values["positions"]]
        return cls(**values)


_KEYS_OF_0_1 = {
    "update": "step",
    "output": "hidden",
    "memory": "cell",
    "best": "best_score",
    "best_update": "best_step",
    "begun_with": "initial_card",
}
_POSITION_KEYS_OF_0_1 = {"left": "remaining", "read": "last_ids"}


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


@dataclass(frozen=True)
class RunDirectory:
    """The files of a run; only the first rank writes."""

    path: Path
    writes: bool

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Exclusive use of the directory, which is created; ranks that do not write need none."""
        if not self.writes:
            yield
            return
        if self.path.exists() and not self.path.is_dir():
            raise OutputError(f"{self.path}: cannot be written (it is a file)")
        busy = f"{self.path}: another process trains there; wait until it has ended"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = DirectoryLock(self.path, busy)
            self._clean_up()
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written ({error.strerror})") from None
        with lock:
            yield

    def read_checkpoint(self, corpus: Corpus, settings: PretrainingSettings) -> Checkpoint | None:
        """The checkpoint to resume from, None if no step is done yet.

        InputError if the run was started with another corpus or with other settings.
        """
        checkpoint = read_checkpoint(self.path / CHECKPOINT, Checkpoint.from_stored)
        has_model = (self.path / MODEL).exists()
        if checkpoint is None and has_model:
            raise OutputError(
                f"{self.path}: holds a {MODEL}, but no checkpoint of its run; give another --out "
                "(and --init-from, to start from that model)"
            )
        if checkpoint is None or not (checkpoint.step or has_model):
            return None
        if checkpoint.corpus != corpus.fingerprint:
            raise InputError(
                f"{self.path}: this run was started with another corpus than {corpus.folder}; give "
                "the same one, or another --out"
            )
        before = parse_settings(checkpoint.settings, str(self.path / CHECKPOINT))
        if names := changed_settings(settings, before):
            changes = [f"{n} {getattr(before, n)} → {getattr(settings, n)}" for n in names]
            raise InputError(
                f"{self.path}: this run was started with other settings ({', '.join(changes)}); "
                "resume with the same ones, or give another --out (and --init-from, to start from "
                "this model)"
            )
        return checkpoint

    def write_settings(self, settings: PretrainingSettings) -> None:
        """Write settings.toml."""
        if not self.writes:
            return
        try:
            write_atomically(self.path / SETTINGS, to_toml(settings))
        except OSError as error:
            raise OutputError(f"{self.path}: cannot be written ({error.strerror})") from None

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace the last checkpoint."""
        if self.writes:
            write_checkpoint(vars(checkpoint), self.path / CHECKPOINT)

    def save_model(self, pretrained: Pretrained) -> None:
        """Replace the best model so far."""
        if not self.writes:
            return
        pretrained.model.copy_tied_embedding()
        new, old, current = (self.path / name for name in (".model.new", ".model.old", MODEL))
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)
        formats.save(pretrained, new)
        if current.exists():
            current.rename(old)
        rename_atomically(new, current)
        shutil.rmtree(old, ignore_errors=True)

    def load_best_model(self) -> Pretrained:
        """The model that was saved last."""
        return formats.load(self.path / MODEL)

    def _clean_up(self) -> None:
        """Remove or restore what a killed process left."""
        for unfinished in self.path.glob(".*.unfinished"):
            shutil.rmtree(unfinished) if unfinished.is_dir() else unfinished.unlink()
        old, current = self.path / ".model.old", self.path / MODEL
        if old.exists() and not current.exists():  # killed between two renames
            rename_atomically(old, current)


def model_card(trainer: "Trainer", validation: Validation | None) -> str:
    """The card of a trained model, in Markdown."""
    corpus, settings = trainer.corpus, trainer.settings
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    return (
        "# An ELMo model\n\n"
        f"Pretrained by elmokit on {corpus.words:,} words in {corpus.sentences:,} sentences, "
        f"tokenized by `{corpus.tokenizer}`; {len(corpus.vocabulary):,} words to predict; "
        f"{parameters:,} parameters; {trainer.step:,} steps of {trainer.words_per_step:,} words.\n"
        f"\nHeld-out text: {validation or 'none'}.\n\n"
        f"Settings:\n\n```toml\n{to_toml(settings)}```\n{_quoted(trainer.initial_card)}"
    )


def _quoted(initial_card: str | None) -> str:
    if initial_card is None:
        return ""
    lines = initial_card.splitlines()
    quoted = "".join(f"> {line}".rstrip() + "\n" for line in lines) or "> nothing\n"
    return f"\nTraining started from the weights of another model. Its card:\n\n{quoted}"
