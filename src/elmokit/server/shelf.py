"""Folders become what a service shows beside its model: an index to search, and learnt mixes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elmokit.config import read_record
from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.formats import ENGLISH
from elmokit.search.index import Index
from elmokit.server.forms import LearnedLayerWeights
from elmokit.tasks.folder import load_trained

_SHIPPED = "layer_weights.json"  # beside the model that ships


@dataclass
class Shelf:
    """What a service has besides its model; empty until it is filled, before the desk opens.

    `open_index` opens its index, where that may have to be done again.
    """

    index: Index | None = None
    layer_weights: Sequence[LearnedLayerWeights] = ()
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


def read_layer_weights(folders: Iterable[Path]) -> list[LearnedLayerWeights]:
    """The mixes of trained tasks."""
    return [
        LearnedLayerWeights(
            trained.task.name, folder.resolve().name, place, list(words.layers), shares
        )
        for folder in folders
        for trained in [load_trained(folder)]
        for words in [trained.head.words]
        for place, shares in words.layer_weights().items()
    ]


@dataclass(frozen=True)
class ShippedLayerWeights:
    """The mixes of tasks that were learnt with one biLM, by its fingerprint."""

    fingerprint: str
    layer_weights: list[LearnedLayerWeights]


def read_shipped_layer_weights(
    embedder: Embedder, folder: Path = ENGLISH
) -> list[LearnedLayerWeights]:
    """The mixes that ship with the English model; none where they are of another one."""
    path = folder / _SHIPPED
    if not path.is_file():
        return []
    expected = (
        "the fingerprint of a biLM, and layer_weights of task, name, position, layers and weights"
    )
    shipped = read_record(path, ShippedLayerWeights, expected)
    return shipped.layer_weights if shipped.fingerprint == embedder.pretrained.fingerprint() else []
