"""Checkpoint of a supervised run, written after every epoch, and what identifies the run."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from elmokit.atomic import read_checkpoint, write_checkpoint
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.tasks.legacy_0_1 import (
    digest_of_example,
    digest_of_settings,
    digest_of_task,
    rename_weights,
)
from elmokit.tasks.saved_model import TASK_FILE
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task

CHECKPOINT_FILE = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """The progress of a run, and the digest of its task, settings, biLM and examples."""

    what: str  # the digest
    epoch: int = 0
    best: float = float("-inf")
    best_epoch: int = 0
    weights: dict[str, torch.Tensor] = field(default_factory=dict)
    optimizer: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path, digest: str) -> "Checkpoint":
        """The checkpoint of a run's folder, or of a run that has not begun.

        A folder with other files and no checkpoint is left alone.
        """
        check_folder(folder)
        checkpoint = read_checkpoint(folder / CHECKPOINT_FILE, cls)
        has_head = (folder / TASK_FILE).exists()
        if checkpoint is None or (not checkpoint.epoch and not has_head):
            return cls(digest)
        if checkpoint.what != digest:
            raise different_run_error(folder)
        return checkpoint

    def restore(
        self, folder: Path, task: Task, head: Head, optimizer: torch.optim.Optimizer
    ) -> None:
        """Load the weights and the optimizer's state."""
        if not self.epoch:
            return
        try:
            head.load_state_dict(rename_weights(task.name, head.state_dict(), self.weights))
        except RuntimeError:  # an older version's head had other labels
            raise different_run_error(folder) from None
        optimizer.load_state_dict(self.optimizer)
        for group in optimizer.param_groups:
            if "pace" in group:  # its name in 0.1
                group["rate_factor"] = group.pop("pace")

    def write(self, folder: Path, head: Head, optimizer: torch.optim.Optimizer) -> None:
        """Replace the checkpoint in the folder."""
        now = replace(self, weights=head.state_dict(), optimizer=optimizer.state_dict())
        write_checkpoint(vars(now), folder / CHECKPOINT_FILE)

    def close(self, folder: Path) -> None:
        """Write that the run is over, without the weights and state that only resuming needs."""
        write_checkpoint(vars(replace(self, weights={}, optimizer={})), folder / CHECKPOINT_FILE)

    def after_epoch(self, score: float) -> "Checkpoint":
        """The checkpoint after one more epoch with that score."""
        epoch = self.epoch + 1
        if score > self.best:
            return replace(self, epoch=epoch, best=score, best_epoch=epoch)
        return replace(self, epoch=epoch)

    @property
    def is_best(self) -> bool:
        """Whether the last epoch was the best."""
        return self.best_epoch == self.epoch

    def is_over(self, settings: TaskSettings) -> bool:
        """Whether all epochs are done, or the patience is used up."""
        waited = self.epoch - self.best_epoch
        return self.epoch >= settings.epochs or 0 < settings.patience <= waited


def different_run_error(folder: Path) -> InputError:
    """The error for a folder that holds another run."""
    return InputError(
        f"{folder}: holds a run with other examples, settings or another biLM; resume with the "
        "same, or name another folder"
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder that holds other files and no run."""
    if not folder.exists() or (folder / CHECKPOINT_FILE).exists():
        return
    if not folder.is_dir():
        raise OutputError(f"{folder}: is a file, expected a folder; name another")
    others = (path for path in folder.iterdir() if not path.name.endswith(".unfinished"))
    if (other := next(others, None)) is not None:
        raise OutputError(
            f"{folder}: holds {other.name}, but no checkpoint of a run; name a new folder"
        )


def digest_of_run(
    task: Task,
    settings: TaskSettings,
    model: Embedder | None,
    train: Sequence[Any],
    dev: Sequence[Any],
) -> str:
    """The same digest for the same task, settings, biLM and examples."""
    bilm = () if model is None else (model.pretrained.fingerprint(), model.pretrained.tokenizer)
    run = task.revision, digest_of_task(task.name), bilm, digest_of_settings(settings)
    digest = hashlib.sha256(repr(run).encode())
    if settings.word_vectors:
        digest.update(Path(settings.word_vectors).read_bytes())
    for example in (*train, None, *dev):
        digest.update(digest_of_example(example).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
