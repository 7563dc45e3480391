"""What the routes of a service share: batcher, index, trained heads, threads, metrics."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TypeVar

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from elmokit.embedder import Embedder, Text
from elmokit.errors import FormatError, InputError
from elmokit.inference_session import Directions, Layers
from elmokit.pooling import Vectors
from elmokit.search.index import Index
from elmokit.server.batcher import DynamicBatcher
from elmokit.server.limits import Limits, busy, too_large
from elmokit.server.model_calls import ModelCall, TokenizedTexts, embed_call
from elmokit.server.schemas import LearnedLayerWeights
from elmokit.server.worker_processes import WorkerPool
from elmokit.tasks.saved_model import TaskModel
from elmokit.word_occurrences import cluster

Result = TypeVar("Result")

_SMALL_BODY_BYTES = 512

# Upper bounds of the buckets of histograms.
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_REQUESTS = (1, 2, 4, 8, 16, 32, 64)
_TOKENS = (16, 64, 256, 1024, 4096, 16384)


class AppResources:
    """The model and everything beside it; filled while the server already listens.

    Texts are tokenized in one thread, the model computes in the batcher's and the index is searched
    in a third, so that none of them stops the event loop or another: if a database hangs, only
    other searches wait.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.metrics = Metrics()
        self.batcher = DynamicBatcher(limits, self.metrics.count_batch)
        self.metrics.queue_length.set_function(lambda: self.batcher.num_waiting)
        self.tasks: Mapping[str, TaskModel] = {}
        self.layer_weights: Sequence[LearnedLayerWeights] = ()
        self.index: Index | None = None
        self.open_index: Callable[[], Index] | None = None  # again, if it was rebuilt
        self.reserved_bytes = 0  # for vectors that are computed or sent
        self.text_thread = ThreadPoolExecutor(1, "elmokit-text")
        self.search_thread = ThreadPoolExecutor(1, "elmokit-search")

    def open(self, embedder: Embedder, worker_pool: WorkerPool | None = None) -> None:
        """Admit requests from now on, for this model."""
        cluster(np.eye(2, dtype=np.float32), clusters=2)  # importing scikit-learn takes seconds
        self.batcher.open(embedder, worker_pool)

    def reopen_index(self, stale: Index) -> Index:
        """The index as it is now, for one that has been rebuilt; called in the search thread."""
        stale.close()
        if self.index is stale and self.open_index is not None:
            try:
                self.index = self.open_index()
            except (FormatError, InputError) as error:  # no mistake of whoever searches
                raise busy(str(error), 503) from None
        return stale if self.index is None else self.index

    def close_threads(self) -> None:
        """Release the threads; what they have begun they finish."""
        self.batcher.close()
        for thread in (self.text_thread, self.search_thread):
            thread.shutdown(wait=False, cancel_futures=True)

    def close(self) -> None:
        if self.index is not None:
            self.index.close()


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.requests = Counter(
            "elmokit_requests", "Requests by route and status.", ["route", "status"],
            registry=registry,
        )  # fmt: skip
        self.tokens = Counter(
            "elmokit_tokens", "Words and special tokens read by the model.", registry=registry
        )
        self.queue_length = Gauge(
            "elmokit_queue_length", "Requests waiting for an answer.", registry=registry
        )
        self.batch_requests = Histogram(
            "elmokit_batch_requests", "Requests computed together.", buckets=_REQUESTS,
            registry=registry,
        )  # fmt: skip
        self.batch_tokens = Histogram(
            "elmokit_batch_tokens", "Words and special tokens computed together.",
            buckets=_TOKENS, registry=registry,
        )  # fmt: skip
        self.seconds = Histogram(
            "elmokit_request_seconds", "Seconds from a request to the end of its response.",
            ["route"], buckets=_SECONDS, registry=registry,
        )  # fmt: skip

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered, refused, or given up by its client (499)."""
        self.requests.labels(route, status).inc()
        self.seconds.labels(route).observe(seconds)

    def count_batch(self, requests: int, tokens: int) -> None:
        """Count requests that are computed together."""
        self.tokens.inc(tokens)
        self.batch_requests.observe(requests)
        self.batch_tokens.observe(tokens)


class RequestContext(ExitStack):
    """How a route uses the resources for one request.

    Its callbacks are called when the response has been sent or given up.
    """

    def __init__(self, resources: AppResources, body_bytes: int) -> None:
        super().__init__()
        self.resources, self.admit = resources, resources.batcher.admit
        self._is_small = body_bytes <= _SMALL_BODY_BYTES

    async def tokenize(self, embedder: Embedder, texts: Sequence[Text]) -> TokenizedTexts:
        """The texts of an admitted request, within the limits."""
        work = partial(TokenizedTexts.from_texts, embedder, texts, self.resources.limits)
        if self._is_small:  # sooner than another thread would have its turn
            return work()
        return await run_in(self.resources.text_thread, work)

    async def embed(
        self,
        embedder: Embedder,
        sentences: list[list[str]],
        layers: Layers = "all",
        directions: Directions = "both",
    ) -> list[Vectors]:
        """The vectors of sentences, (layers, words, dim) each; freed when the request ends."""
        vectors = await self.run(embed_call(embedder, sentences, layers, directions))
        self.callback(vectors.clear)  # the response may live longer, in a traceback
        return vectors

    async def run(self, call: ModelCall[Result]) -> Result:
        """The result of a model call; its memory is reserved until the request ends.

        Raises ServiceError if there is no memory left for it.
        """
        resources, limit = self.resources, self.resources.limits.max_response_bytes
        if call.result_bytes > limit:
            raise too_large(f"the vectors would take {call.result_bytes:,} bytes", limit)
        if resources.reserved_bytes + call.result_bytes > limit:
            raise busy(
                f"the vectors of other requests take most of {limit:,} bytes, the limit; "
                "try again in a moment"
            )
        resources.reserved_bytes += call.result_bytes
        self.callback(self._release, call.result_bytes)
        return await resources.batcher.run(call)

    def _release(self, num_bytes: int) -> None:
        self.resources.reserved_bytes -= num_bytes


async def run_in(thread: Executor, function: Callable[..., Result], *arguments: object) -> Result:
    """What a function returns that is called in a thread."""
    return await asyncio.get_running_loop().run_in_executor(thread, function, *arguments)
