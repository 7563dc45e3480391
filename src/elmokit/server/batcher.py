"""Dynamic batching: requests that wait at the same time are computed together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeVar

import anyio

from elmokit.embedder import Embedder
from elmokit.server.limits import Limits, busy
from elmokit.server.model_calls import ModelCall, run_calls
from elmokit.server.worker_processes import Worker, WorkerPool

Result = TypeVar("Result")
Future = asyncio.Future[Any]  # of the result of a call
BatchFunction = Callable[[Sequence[ModelCall[Any]]], Sequence[object]]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.02  # for the model, while it is being loaded


class DynamicBatcher:
    """Queues of model calls, computed batch by batch in a thread or by worker processes.

    It admits no request before it has a model (`open`, from any thread) and none while it is
    `draining`; those that it has admitted (`num_waiting`) are answered.
    """

    def __init__(self, limits: Limits, count_batch: Callable[[int, int], None]) -> None:
        self.num_waiting = 0
        self.draining = False
        self._limits = limits
        self._count_batch = count_batch  # its numbers of requests and tokens
        self._embedder: Embedder | None = None
        self._workers: Sequence[Worker] = ()
        self._local_queue, self._worker_queue = RequestQueue(), RequestQueue()
        self._threads: list[ThreadPoolExecutor] = []

    def open(self, embedder: Embedder, worker_pool: WorkerPool | None = None) -> None:
        """Admit requests from now on."""
        self._workers = worker_pool.workers if worker_pool else ()
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """The model.

        Raises ServiceError (503) while it is being loaded and when the service shuts down.
        """
        if self.draining:
            raise busy("the service is shutting down", 503)
        if self._embedder is None:
            raise busy("the model is still being loaded", 503)
        return self._embedder

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[Embedder]:
        """Count the request among those that wait, and give it its time for the whole block.

        Raises ServiceError: 429 if too many wait, 503 when the time is up.
        """
        embedder, limits = self.embedder, self._limits
        if self.num_waiting >= limits.max_queued:
            raise busy(
                f"{self.num_waiting} requests are waiting, the limit is {limits.max_queued}; "
                "try again in a moment"
            )
        self.num_waiting += 1
        try:
            with anyio.fail_after(limits.timeout_seconds):
                yield embedder
        except TimeoutError:
            message = (
                f"no answer within {limits.timeout_seconds:g} seconds; "
                "try again later, or with a smaller request"
            )
            raise busy(message, 503) from None
        finally:
            self.num_waiting -= 1

    async def run(self, call: ModelCall[Result]) -> Result:
        """The result of a call of an admitted request."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        queue = self._worker_queue if self._workers and call.in_worker else self._local_queue
        queue.add(future, call)
        try:
            return await future
        finally:
            queue.remove(future)  # cancelled or timed out: it need not be computed

    async def process_queues(self) -> None:
        """Compute batches until cancelled, as soon as there is a model."""
        while self._embedder is None:
            await asyncio.sleep(_POLL_SECONDS)
        consumers: list[tuple[RequestQueue, BatchFunction]] = [
            (self._local_queue, partial(run_calls, self._embedder)),
            *((self._worker_queue, worker.run_calls) for worker in self._workers),
        ]
        self._threads = [ThreadPoolExecutor(1, "elmokit-batches") for _ in consumers]
        await asyncio.gather(
            *(
                self._process(queue, thread, run_batch)
                for (queue, run_batch), thread in zip(consumers, self._threads, strict=True)
            )
        )

    def close(self) -> None:
        """Release the threads; what they have begun they finish."""
        for thread in self._threads:
            thread.shutdown(wait=False, cancel_futures=True)

    async def _process(
        self, queue: "RequestQueue", thread: Executor, run_batch: BatchFunction
    ) -> None:
        """Compute a queue's requests, batch after batch.

        Results of one batch are handed out while the next one is computed. Only an idle model
        waits for more requests to arrive.
        """
        queue.num_idle += 1
        results: list[tuple[Future, object]] = []
        while True:
            if not results or not queue:
                _deliver(results)
                await queue.has_requests.wait()
                await asyncio.sleep(self._limits.batch_wait_milliseconds / 1000)
            batch = queue.take_batch(self._limits.tokens_per_batch)
            if not batch:
                continue
            queue.num_idle -= 1
            self._count_batch(len(batch), sum(call.num_tokens for _, call in batch))
            computing = asyncio.get_running_loop().run_in_executor(
                thread, run_batch, [call for _, call in batch]
            )
            _deliver(results)
            try:
                results = [*zip((future for future, _ in batch), await computing, strict=True)]
            except Exception as error:  # not of one call: all of the batch get it, the next goes on
                logger.exception("a batch failed")
                results = [(future, error) for future, _ in batch]
            queue.num_idle += 1
            del batch, computing  # or they would stay in memory while the queue is empty


class RequestQueue(dict[Future, ModelCall[Any]]):
    """Calls that wait to be computed, in order of arrival, for `num_idle` idle consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.has_requests = asyncio.Event()
        self.num_idle = 0

    def add(self, future: Future, call: ModelCall[Any]) -> None:
        self[future] = call
        self.has_requests.set()

    def remove(self, future: Future) -> None:
        """Take a call out, if it is still there."""
        self.pop(future, None)
        if not self:
            self.has_requests.clear()

    def take_batch(self, max_tokens: int) -> list[tuple[Future, ModelCall[Any]]]:
        """The first calls: one idle consumer's share, up to `max_tokens`, at least one."""
        share = min(max_tokens, sum(call.num_tokens for call in self.values()) / self.num_idle)
        batch: list[tuple[Future, ModelCall[Any]]] = []
        num_tokens = 0
        for future, call in self.items():
            num_tokens += call.num_tokens
            if batch and num_tokens > share:
                break
            batch.append((future, call))
        for future, _ in batch:
            self.remove(future)
        return batch


def _deliver(results: list[tuple[Future, object]]) -> None:
    """Resolve the futures still waited for, and empty the list so that no result stays here."""
    while results:
        future, result = results.pop(0)
        if future.done():
            continue
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
