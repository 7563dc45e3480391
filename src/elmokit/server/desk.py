"""Requests that wait become batches, which one thread computes with the one model."""

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, TypeVar

from elmokit.embedder import Embedder
from elmokit.errors import ServiceError
from elmokit.server.jobs import Job, answer_all
from elmokit.server.limits import Limits
from elmokit.server.metrics import Metrics
from elmokit.server.sentences import too_much

Answer = TypeVar("Answer")


class Desk:
    """Where requests wait for a model.

    It takes none before it is given a model (`open`, from any thread) and none while `draining`;
    those that it has taken, `waiting`, are answered. Texts are prepared in one thread, the model
    reads in another and an index is searched in a third, so that none stops the loop that listens.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.waiting = 0
        self.draining = False
        self._embedder: Embedder | None = None
        self._queue: dict[_Ticket, None] = {}  # in order of arrival
        self._held_bytes = 0
        self._arrived = asyncio.Event()
        self._text_thread = ThreadPoolExecutor(1, "elmokit-text")
        self._model_thread = ThreadPoolExecutor(1, "elmokit-model")
        self._search_thread = ThreadPoolExecutor(1, "elmokit-search")

    def open(self, embedder: Embedder) -> None:
        """Take requests from now on, for this model."""
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """The model; an error of the service while there is none, or none any more."""
        if self.draining:
            raise ServiceError("the service is shutting down", status=503, retry_after=1)
        if self._embedder is None:
            raise ServiceError("the model is still being loaded", status=503, retry_after=1)
        return self._embedder

    async def ask(self, prepare: Callable[[Embedder], Job[Answer]], end: ExitStack) -> Answer:
        """The answer to the job that `prepare` makes, in time or not at all.

        `end` is that of the exchange: until then the answer takes memory.
        """
        return await self.during(lambda embedder: self.read(embedder, prepare, end))

    async def during(self, answering: Callable[[Embedder], Coroutine[Any, Any, Answer]]) -> Answer:
        """What an exchange of several steps ends with: it waits once, and in time for all."""
        embedder = self.embedder
        if self.waiting >= self.limits.queue:
            raise ServiceError(
                f"{self.waiting} requests are waiting, the limit is {self.limits.queue}; "
                "ask again in a moment",
                status=429,
                retry_after=1,
            )
        self.waiting += 1
        try:
            return await asyncio.wait_for(answering(embedder), self.limits.seconds)
        except asyncio.TimeoutError:
            raise ServiceError(
                f"no answer within {self.limits.seconds:g} seconds; ask again later, or for less",
                status=503,
                retry_after=1,
            ) from None
        finally:
            self.waiting -= 1

    async def read(
        self, embedder: Embedder, prepare: Callable[[Embedder], Job[Answer]], end: ExitStack
    ) -> Answer:
        """The answer to a job of an exchange that waits already."""
        job = await self.aside(lambda: prepare(embedder))
        self._make_room(job.bytes, end)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        ticket = _Ticket(embedder, job, answer)
        self._queue[ticket] = None
        self._arrived.set()
        try:
            return await answer
        finally:
            self._queue.pop(ticket, None)  # one that nobody waits for any more is not computed

    async def aside(self, work: Callable[[], Answer]) -> Answer:
        """What a function of texts or arrays gives, worked out beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._text_thread, work)

    async def fetch(self, work: Callable[[], Answer]) -> Answer:
        """What a function that looks things up gives; where it hangs, only others like it wait."""
        return await asyncio.get_running_loop().run_in_executor(self._search_thread, work)

    async def work(self) -> None:
        """Answer what arrives, batch after batch, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._arrived.wait()
            if sum(ticket.job.tokens for ticket in self._queue) < self.limits.batch_tokens:
                await asyncio.sleep(self.limits.gather_milliseconds / 1000)
            batch = self._take()
            if not batch:
                continue
            jobs = [ticket.job for ticket in batch]
            self.metrics.count_batch(len(jobs), sum(job.tokens for job in jobs))
            found = await loop.run_in_executor(
                self._model_thread, answer_all, batch[0].embedder, jobs
            )
            for ticket, answer in zip(batch, found, strict=True):
                ticket.give(answer)

    def close(self) -> None:
        """Let the threads go; what they have begun they end."""
        for thread in (self._text_thread, self._model_thread, self._search_thread):
            thread.shutdown(wait=False, cancel_futures=True)

    def _make_room(self, needed: int, end: ExitStack) -> None:
        """Hold bytes for an answer until the exchange ends, if there are so many left."""
        limit = self.limits.answer_bytes
        if needed > limit:
            raise too_much(f"the vectors would take {needed:,} bytes", limit)
        if self._held_bytes + needed > limit:
            raise ServiceError(
                f"the vectors of other requests take most of {limit:,} bytes, the limit; "
                "ask again in a moment",
                status=429,
                retry_after=1,
            )
        self._held_bytes += needed
        end.callback(self._give_back, needed)

    def _give_back(self, held: int) -> None:
        self._held_bytes -= held

    def _take(self) -> "list[_Ticket]":
        """Those that came first, as many as a batch holds, and one at least."""
        batch: list[_Ticket] = []
        tokens = 0
        for ticket in self._queue:
            tokens += ticket.job.tokens
            if batch and tokens > self.limits.batch_tokens:
                break
            batch.append(ticket)
        for ticket in batch:
            del self._queue[ticket]
        if not self._queue:
            self._arrived.clear()
        return batch


@dataclass(frozen=True, eq=False)
class _Ticket:
    """A job, the model that it is for, and where its answer goes."""

    embedder: Embedder
    job: Job[Any]
    answer: "asyncio.Future[Any]"

    def give(self, answer: object) -> None:
        """Hand over an answer, or raise what went wrong, if somebody still waits."""
        if self.answer.done():
            return
        if isinstance(answer, Exception):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)
