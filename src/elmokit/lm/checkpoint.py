"""A run becomes a file from which it goes on: whole or not there, the newest one only."""

from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from torch import Tensor

from elmokit.errors import FormatError, OutputError
from elmokit.lm.stream import Position
from elmokit.whole import write_whole

NAME = "checkpoint.pt"


@dataclass(frozen=True)
class Checkpoint:
    """All that a run is, but for its settings and its text. Random choices follow from `update`."""

    update: int
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    output: Tensor  # what the lanes' readers remember
    memory: Tensor
    positions: list[Position]
    best: float
    best_update: int
    settings: str  # as TOML
    corpus: str  # its fingerprint

    def write(self, folder: Path) -> None:
        """Put it in place of the one before."""
        try:
            write_whole(folder / NAME, lambda file: torch.save(vars(self), file))
        except (OSError, RuntimeError) as error:  # torch says "RuntimeError" of a full disk
            raise OutputError(
                f"{folder / NAME}: cannot be written ({error}); the last checkpoint is whole: make "
                "room and run the same command again"
            ) from None


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run's folder, if there is one."""
    path = folder / NAME
    if not path.exists():
        return None
    try:
        return Checkpoint(**torch.load(path, weights_only=True, map_location="cpu"))
    except (RuntimeError, TypeError, EOFError, ValueError, UnpicklingError):
        raise FormatError(
            f"{path}: not a checkpoint of elmokit, or a damaged one; remove it to begin anew"
        ) from None
