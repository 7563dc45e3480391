"""The directory of a pretraining run: settings, checkpoint and best model."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from elmokit import formats
from elmokit.atomic import ResumableDirectory, read_checkpoint, write_atomically, write_checkpoint
from elmokit.errors import OutputError
from elmokit.formats.pretrained import Pretrained
from elmokit.pretraining.corpus import Corpus
from elmokit.pretraining.settings import PretrainingSettings, parse_settings
from elmokit.pretraining.training_windows import Position
from elmokit.toml_settings import to_toml

SETTINGS, CHECKPOINT, MODEL = "settings.toml", "checkpoint.pt", "model"

_REMEDY = "resume with the same, or give another --out (and --init-from, to start from this model)"


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
    "update": "step", "output": "hidden", "memory": "cell", "best": "best_score",
    "best_update": "best_step", "begun_with": "initial_card",
}  # fmt: skip
_POSITION_KEYS_OF_0_1 = {"left": "remaining", "read": "last_ids"}


def _renamed(values: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {names.get(name, name): value for name, value in values.items()}


class RunDirectory:
    """The files of a run; only the first rank writes."""

    def __init__(
        self, path: Path, corpus: Corpus, settings: PretrainingSettings, *, writes: bool
    ) -> None:
        self.path = path
        self._settings, self._writes = settings, writes
        manifest = {**settings.fixed, "corpus": corpus.fingerprint}
        self._directory = ResumableDirectory(path, manifest, manifest_name=None, remedy=_REMEDY)

    def lock(self) -> AbstractContextManager[object]:
        """Exclusive use of the directory, which is created; ranks that do not write need none."""
        return self._directory if self._writes else nullcontext()

    def read_checkpoint(self) -> Checkpoint | None:
        """The checkpoint to resume from, None if no step is done yet.

        InputError if the run was started with another corpus or with other settings.
        """
        path, has_model = self.path / CHECKPOINT, (self.path / MODEL).exists()
        checkpoint = read_checkpoint(path, Checkpoint.from_stored)
        if checkpoint is None and has_model:
            raise OutputError(
                f"{self.path}: holds a {MODEL}, but no checkpoint of its run; give another --out "
                "(and --init-from, to start from that model)"
            )
        if checkpoint is None or not (checkpoint.step or has_model):
            return None
        before = parse_settings(checkpoint.settings, str(path))
        self._directory.check_manifest({**before.fixed, "corpus": checkpoint.corpus})
        return checkpoint

    def write_settings(self) -> None:
        if self._writes:
            with self._directory.explaining_errors():
                write_atomically(self.path / SETTINGS, to_toml(self._settings))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        if self._writes:
            write_checkpoint(vars(checkpoint), self.path / CHECKPOINT)

    def save_model(self, pretrained: Pretrained, card: str) -> None:
        """Replace the best model so far."""
        if self._writes:
            pretrained.model.copy_tied_embedding()
            save = partial(formats.save, replace(pretrained, card=card))
            self._directory.replace_directory(MODEL, save)

    def load_best_model(self) -> Pretrained:
        """The model that was saved last."""
        return formats.load(self.path / MODEL)
