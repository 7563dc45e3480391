"""What the routes of a service share: the batcher, the search index, trained heads, threads."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.formats import ENGLISH
from elmokit.model_config import read_record
from elmokit.pca_tsne import cluster
from elmokit.search.index import Index
from elmokit.server.batcher import DynamicBatcher
from elmokit.server.limits import Limits, too_large
from elmokit.server.metrics import Metrics
from elmokit.server.middleware import RequestContext
from elmokit.server.model_calls import ModelCall
from elmokit.server.schemas import LearnedLayerWeights
from elmokit.server.worker_processes import WorkerPool
from elmokit.tasks.saved_model import TaskModel, load_task

Result = TypeVar("Result")

_SHIPPED_LAYER_WEIGHTS = "layer_weights.json"  # beside the English model


class AppResources:
    """The model and everything beside it; filled while the server already listens.

    Texts are tokenized in one thread, the model computes in the batcher's and the index is searched
    in a third, so that none of them stops the event loop or another.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self.batcher = DynamicBatcher(limits, self.metrics)
        self.metrics.watch_queue(lambda: self.batcher.num_waiting)
        self.model_name, self.model_source = "english", "the package"
        self.tasks: Mapping[str, TaskModel] = {}
        self.layer_weights: Sequence[LearnedLayerWeights] = ()
        self.index: Index | None = None
        self.open_index: Callable[[], Index] | None = None  # again, if it was rebuilt
        self._reserved_bytes = 0
        self._text_thread = ThreadPoolExecutor(1, "elmokit-text")
        self._search_thread = ThreadPoolExecutor(1, "elmokit-search")

    def open(self, embedder: Embedder, worker_pool: WorkerPool | None = None) -> None:
        """Admit requests from now on, for this model."""
        cluster(np.eye(2, dtype=np.float32), clusters=2)  # importing scikit-learn takes seconds
        self.batcher.open(embedder, worker_pool)

    async def run(self, call: ModelCall[Result], context: RequestContext) -> Result:
        """The result of a model call; its memory is reserved until the request ends.

        Raises ServiceError if there is no memory left for it.
        """
        self._reserve(call.result_bytes, context)
        return await self.batcher.run(call)

    async def prepare(self, work: Callable[[], Result], context: RequestContext) -> Result:
        """What a function of a request's texts returns; long texts are left to the text thread."""
        return work() if context.is_small else await self.run_in_text_thread(work)

    async def run_in_text_thread(self, work: Callable[[], Result]) -> Result:
        """What a function of texts or arrays returns, computed beside the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._text_thread, work)

    async def run_in_search_thread(self, work: Callable[[], Result]) -> Result:
        """What a search returns; if a database hangs, only other searches wait."""
        return await asyncio.get_running_loop().run_in_executor(self._search_thread, work)

    def reopen_index(self, stale: Index) -> Index:
        """The index as it is now, for one that has been rebuilt; called in the search thread."""
        stale.close()
        if self.index is stale and self.open_index is not None:
            try:
                self.index = self.open_index()
            except (FormatError, InputError) as error:  # no mistake of whoever searches
                raise ServiceError(str(error), status=503, retry_after=1) from None
        return stale if self.index is None else self.index

    def close_threads(self) -> None:
        """Release the threads; what they have begun they finish."""
        self.batcher.close()
        for thread in (self._text_thread, self._search_thread):
            thread.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        """Close the index."""
        if self.index is not None:
            self.index.close()

    def _reserve(self, num_bytes: int, context: RequestContext) -> None:
        limit = self.limits.max_response_bytes
        if num_bytes > limit:
            raise too_large(f"the vectors would take {num_bytes:,} bytes", limit)
        if self._reserved_bytes + num_bytes > limit:
            raise ServiceError(
                f"the vectors of other requests take most of {limit:,} bytes, the limit; "
                "try again in a moment",
                status=429,
                retry_after=1,
            )
        self._reserved_bytes += num_bytes
        context.callback(self._release, num_bytes)

    def _release(self, num_bytes: int) -> None:
        self._reserved_bytes -= num_bytes


def load_tasks(folders: Iterable[Path]) -> dict[str, TaskModel]:
    """Trained heads by the name of their task; those of one task by the names of their folders."""
    loaded = [(folder.resolve().name, load_task(folder)) for folder in folders]
    names = [trained.task.name for _, trained in loaded]
    return {
        name if names.count(name) == 1 else folder: trained
        for name, (folder, trained) in zip(names, loaded, strict=True)
    }


def read_layer_weights(folders: Iterable[Path]) -> list[LearnedLayerWeights]:
    """The layer weights of trained tasks."""
    return [
        LearnedLayerWeights(
            trained.task.name, folder.resolve().name, position, list(trained.layers), weights
        )
        for folder in folders
        for trained in [load_task(folder)]
        for position, weights in trained.layer_weights().items()
    ]


@dataclass(frozen=True)
class ShippedLayerWeights:
    """Layer weights of tasks that were trained with one biLM, given by its fingerprint."""

    fingerprint: str
    layer_weights: list[LearnedLayerWeights]


def read_shipped_layer_weights(
    embedder: Embedder, folder: Path = ENGLISH
) -> list[LearnedLayerWeights]:
    """The layer weights that ship with the English model; none for any other model."""
    path = folder / _SHIPPED_LAYER_WEIGHTS
    if not path.is_file():
        return []
    expected = (
        "the fingerprint of a biLM, and layer_weights of task, name, position, layers and weights"
    )
    shipped = read_record(path, ShippedLayerWeights, expected)
    return shipped.layer_weights if shipped.fingerprint == embedder.pretrained.fingerprint() else []
