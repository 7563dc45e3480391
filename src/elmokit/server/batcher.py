"""Dynamic batching: requests that wait at the same time are computed together."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import anyio

from elmokit.embedder import Embedder
from elmokit.errors import ServiceError
from elmokit.server.limits import Limits
from elmokit.server.metrics import Metrics
from elmokit.server.model_calls import ModelCall, run_calls
from elmokit.server.worker_processes import Worker, WorkerPool

Result = TypeVar("Result")
BatchFunction = Callable[[Sequence[ModelCall[Any]]], Sequence[object]]

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.02  # for the model, while it is being loaded


class DynamicBatcher:
    """Queues of model calls, computed batch by batch in a thread or by worker processes.

    It admits no request before it has a model (`open`, from any thread) and none while it is
    `draining`; those that it has admitted (`num_waiting`) are answered.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.num_waiting = 0
        self.draining = False
        self._limits = limits
        self._metrics = metrics
        self._embedder: Embedder | None = None
        self._workers: Sequence[Worker] = ()
        self._local_queue, self._worker_queue = RequestQueue(), RequestQueue()
        self._model_thread = ThreadPoolExecutor(1, "elmokit-model")
        self._worker_threads: ThreadPoolExecutor | None = None  # one waits for each process

    def open(self, embedder: Embedder, worker_pool: WorkerPool | None = None) -> None:
        """Admit requests from now on."""
        self._workers = worker_pool.workers if worker_pool else ()
        self._worker_threads = ThreadPoolExecutor(max(1, len(self._workers)), "elmokit-worker")
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """The model.

        Raises ServiceError (503) while it is being loaded and when the service shuts down.
        """
        if self.draining:
            raise ServiceError("the service is shutting down", status=503, retry_after=1)
        if self._embedder is None:
            raise ServiceError("the model is still being loaded", status=503, retry_after=1)
        return self._embedder

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[Embedder]:
        """Count the request among those that wait, and give it its time for the whole block.

        Raises ServiceError: 429 if too many wait, 503 when the time is up.
        """
        embedder = self.embedder
        if self.num_waiting >= self._limits.max_queued:
            raise ServiceError(
                f"{self.num_waiting} requests are waiting, the limit is "
                f"{self._limits.max_queued}; try again in a moment",
                status=429,
                retry_after=1,
            )
        self.num_waiting += 1
        try:
            with anyio.fail_after(self._limits.timeout_seconds):
                yield embedder
        except TimeoutError:
            raise ServiceError(
                f"no answer within {self._limits.timeout_seconds:g} seconds; "
                "try again later, or with a smaller request",
                status=503,
                retry_after=1,
            ) from None
        finally:
            self.num_waiting -= 1

    async def run(self, call: ModelCall[Result]) -> Result:
        """The result of a call of an admitted request."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        pending = PendingRequest(call, future)
        queue = self._worker_queue if self._workers and call.in_worker else self._local_queue
        queue.add(pending)
        try:
            return await future
        finally:
            queue.remove(pending)  # cancelled or timed out: it need not be computed

    async def process_queues(self) -> None:
        """Compute batches until cancelled, as soon as there is a model."""
        while self._embedder is None:
            await asyncio.sleep(_POLL_SECONDS)
        run_here = partial(run_calls, self._embedder)
        await asyncio.gather(
            self._process(self._local_queue, self._model_thread, run_here),
            *(
                self._process(self._worker_queue, self._worker_threads, worker.run_calls)
                for worker in self._workers
            ),
        )

    def close(self) -> None:
        """Release the threads; what they have begun they finish."""
        for threads in (self._model_thread, self._worker_threads):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)

    async def _process(
        self, queue: "RequestQueue", thread: Executor | None, run_batch: BatchFunction
    ) -> None:
        """Compute a queue's requests, batch after batch.

        Results of one batch are handed out while the next one is computed. Only an idle model
        waits for more requests to arrive.
        """
        queue.num_idle += 1
        results: list[tuple[PendingRequest, object]] = []
        while True:
            if not results or not queue:
                _deliver(results)
                await queue.has_requests.wait()
                await asyncio.sleep(self._limits.batch_wait_milliseconds / 1000)
            batch = queue.take_batch(self._limits.tokens_per_batch)
            if not batch:
                continue
            queue.num_idle -= 1
            results = await self._compute(
                batch, thread, run_batch, meanwhile=partial(_deliver, results)
            )
            queue.num_idle += 1
            del batch  # or its requests would stay in memory while the queue is empty

    async def _compute(
        self,
        batch: list["PendingRequest"],
        thread: Executor | None,
        run_batch: BatchFunction,
        meanwhile: Callable[[], None],
    ) -> list[tuple["PendingRequest", object]]:
        """Each request of a batch with its result or exception."""
        calls = [pending.call for pending in batch]
        self._metrics.count_batch(len(calls), sum(call.num_tokens for call in calls))
        computing = asyncio.get_running_loop().run_in_executor(thread, run_batch, calls)
        meanwhile()
        try:
            return [*zip(batch, await computing, strict=True)]
        except Exception as error:  # not of one call: all of the batch get it, the next goes on
            logger.exception("a batch failed")
            return [(pending, error) for pending in batch]


@dataclass(frozen=True, eq=False)
class PendingRequest:
    """A call that waits to be computed, and the future of its result."""

    call: ModelCall[Any]
    future: "asyncio.Future[Any]"

    def resolve(self, result: object) -> None:
        """Set the result, or the exception, if the request still waits."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.future.set_exception(result)
        else:
            self.future.set_result(result)


class RequestQueue(dict[PendingRequest, None]):
    """Pending requests in order of arrival, for `num_idle` idle consumers."""

    def __init__(self) -> None:
        super().__init__()
        self.has_requests = asyncio.Event()
        self.num_idle = 0

    def add(self, pending: PendingRequest) -> None:
        """Put a request at the end."""
        self[pending] = None
        self.has_requests.set()

    def remove(self, pending: PendingRequest) -> None:
        """Take a request out, if it is still there."""
        self.pop(pending, None)
        if not self:
            self.has_requests.clear()

    def take_batch(self, max_tokens: int) -> list[PendingRequest]:
        """The first requests: one idle consumer's share, up to `max_tokens`, at least one."""
        all_tokens = sum(pending.call.num_tokens for pending in self)
        share = min(max_tokens, all_tokens / self.num_idle)
        batch: list[PendingRequest] = []
        num_tokens = 0
        for pending in self:
            num_tokens += pending.call.num_tokens
            if batch and num_tokens > share:
                break
            batch.append(pending)
        for pending in batch:
            self.remove(pending)
        return batch


def _deliver(results: list[tuple[PendingRequest, object]]) -> None:
    """Resolve each request, and empty the list so that no result stays in memory."""
    while results:
        pending, result = results.pop(0)
        pending.resolve(result)
