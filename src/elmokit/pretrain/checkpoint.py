"""The checkpoint of a pretraining run."""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from elmokit.pretrain.stream import Position

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
    begun_with: str | None = None  # the card of the model whose weights it began with
