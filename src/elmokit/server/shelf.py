"""Folders become what a service shows beside its model: an index to search, and learnt mixes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.config import read_record
from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.formats import ENGLISH
from elmokit.search.index import Index
from elmokit.server.forms import LearntMix
from elmokit.tasks.folder import load_trained

_MIXES = "mixes.json"  # beside the model that ships


@dataclass
class Shelf:
    """What a service has besides its model; empty until it is filled, before the desk opens.

    `open_index` opens its index, where that may have to be done again.
    """

    index: Index | None = None
    mixes: Sequence[LearntMix] = ()
    open_index: Callable[[], Index] | None = None

    def open_again(self, stale: Index) -> Index:
        """The index as it is now, for one that was built again since; by one thread at a time."""
        stale.close()
        if self.index is stale and self.open_index is not None:
            try:
                self.index = self.open_index()
            except (FormatError, InputError) as error:  # no mistake of whoever searches
                raise ServiceError(str(error), status=503, retry_after=1) from None
        return stale if self.index is None else self.index

    def close(self) -> None:
        """Let go of what the index is kept in."""
        if self.index is not None:
            self.index.close()


def read_mixes(folders: Iterable[Path]) -> list[LearntMix]:
    """The mixes of trained tasks."""
    return [
        LearntMix(trained.task.name, folder.resolve().name, place, list(words.layers), shares)
        for folder in folders
        for trained in [load_trained(folder)]
        for words in [trained.head.words]
        for place, shares in words.shares().items()
    ]


@dataclass(frozen=True)
class ShippedMixes:
    """The mixes of tasks that were learnt with one biLM, by its fingerprint."""

    elmo: str
    mixes: list[LearntMix]


def read_shipped_mixes(embedder: Embedder, folder: Path = ENGLISH) -> list[LearntMix]:
    """The mixes that ship with the English model; none where they are of another one."""
    path = folder / _MIXES
    if not path.is_file():
        return []
    expected = "the fingerprint of a biLM, and mixes of task, folder, place, layers and shares"
    shipped = read_record(path, ShippedMixes, expected)
    return shipped.mixes if shipped.elmo == embedder.pretrained.fingerprint() else []
