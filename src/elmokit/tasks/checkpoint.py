"""A supervised run becomes a file from which it goes on: whole epochs only."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import read_checkpoint, write_checkpoint
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.tasks.folder import TASK
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task import Head, Task

NAME = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """How far a run is, and what it is a run of."""

    what: str  # what `digest` says
    epoch: int = 0
    best: float = float("-inf")
    best_epoch: int = 0
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, what: str) -> "Checkpoint":
        """The checkpoint of a run's folder, or that of a run not yet begun.

        A folder without one, in which other things are, is left alone.
        """
        check_folder(folder)
        found = read_checkpoint(folder / NAME, cls)
        if found is None or (not found.epoch and not (folder / TASK).exists()):
            return cls(what)
        if found.what != what:
            raise another_run(folder)
        return found

    def restore(self, folder: Path, head: Head, optimizer: torch.optim.Optimizer) -> None:
        """Let a head and its optimiser be as they were."""
        if not self.epoch:
            return
        try:
            head.load_state_dict(self.weights)
        except RuntimeError:  # an older version's head had other labels
            raise another_run(folder) from None
        optimizer.load_state_dict(self.optimizer)

    def write(self, folder: Path, head: Head, optimizer: torch.optim.Optimizer) -> None:
        """Put it in place of the one before."""
        now = replace(self, weights=head.state_dict(), optimizer=optimizer.state_dict())
        write_checkpoint(vars(now), folder / NAME)

    def close(self, folder: Path) -> None:
        """Say that the run is over; what only a run that goes on needs is gone."""
        write_checkpoint(vars(replace(self, weights={}, optimizer={})), folder / NAME)

    def after(self, score: float) -> "Checkpoint":
        """The next epoch's, with its score."""
        epoch = self.epoch + 1
        if score > self.best:
            return replace(self, epoch=epoch, best=score, best_epoch=epoch)
        return replace(self, epoch=epoch)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch was the best."""
        return self.best_epoch == self.epoch

    def over(self, settings: TaskSettings) -> bool:
        """Whether all epochs are done, or none has become better for too long."""
        waited = self.epoch - self.best_epoch
        return self.epoch >= settings.epochs or 0 < settings.patience <= waited


def another_run(folder: Path) -> InputError:
    """What is wrong with a folder that holds a run of something else."""
    return InputError(
        f"{folder}: holds a run with other examples, settings or another biLM; go on with the "
        "same, or name another folder"
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder in which there are things, but no run."""
    if not folder.exists() or (folder / NAME).exists():
        return
    if not folder.is_dir():
        raise OutputError(f"{folder}: is a file, expected a folder; name another")
    others = (path for path in folder.iterdir() if not path.name.endswith(".unfinished"))
    if (other := next(others, None)) is not None:
        raise OutputError(
            f"{folder}: holds {other.name}, but no checkpoint of a run; name a new folder"
        )


def digest(
    task: Task,
    settings: TaskSettings,
    elmo: Embedder | None,
    train: Sequence[Any],
    dev: Sequence[Any],
) -> str:
    """What a run is a run of: the same for the same task, settings, biLM and examples."""
    bilm = () if elmo is None else (elmo.pretrained.fingerprint(), elmo.pretrained.tokenizer)
    found = hashlib.sha256(repr((task.revision, task.name, bilm, asdict(settings))).encode())
    if settings.vectors:
        found.update(Path(settings.vectors).read_bytes())
    for example in (*train, None, *dev):
        found.update(repr(example).encode("utf-8", "surrogatepass"))
    return found.hexdigest()
