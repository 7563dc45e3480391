"""Folders become what a service shows beside its model: an index to search, and learnt mixes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.explore.index import Index
from elmokit.server.forms import LearntMix
from elmokit.tasks.catalog import TASKS
from elmokit.tasks.folder import load_trained


@dataclass
class Shelf:
    """What a service has besides its model; empty until it is filled, before the desk opens."""

    index: Index | None = None
    mixes: Sequence[LearntMix] = ()


def read_mixes(folders: Iterable[Path]) -> list[LearntMix]:
    """The mixes of trained tasks."""
    return [
        LearntMix(trained.task.name, folder.resolve().name, place, shares)
        for folder in folders
        for trained in [load_trained(folder, TASKS)]
        for place, shares in trained.head.words.shares().items()
    ]
