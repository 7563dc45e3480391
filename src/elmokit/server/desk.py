"""Requests that wait become batches, which a model or its processes answer."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from elmokit.embedder import Embedder
from elmokit.errors import ServiceError
from elmokit.server.crew import Crew, Member
from elmokit.server.exchange import Exchange, in_time
from elmokit.server.jobs import Job, answer_all
from elmokit.server.limits import Limits
from elmokit.server.line import Line, Ticket, hand_out
from elmokit.server.metrics import Metrics
from elmokit.server.sentences import too_much

Answer = TypeVar("Answer")
Answering = Callable[[Sequence[Job[Any]]], Sequence[object]]

logger = logging.getLogger(__name__)

_SECONDS_TO_LOOK = 0.02  # whether the model is there


class Desk:
    """Where requests wait for a model.

    It takes none before it is given a model (`open`, from any thread) and none while `draining`;
    those that it has taken, `waiting`, are answered. Texts are prepared in one thread, the model
    reads in another and an index is searched in a third, so that none stops the loop that listens.
    With a crew, its processes read what travels.
    """

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.waiting = 0
        self.draining = False
        self._embedder: Embedder | None = None
        self._members: Sequence[Member] = ()
        self._crew_threads: ThreadPoolExecutor | None = None  # one thread waits for each process
        self._line, self._crew_line = Line(), Line()
        self._held_bytes = 0
        self._text_thread = ThreadPoolExecutor(1, "elmokit-text")
        self._model_thread = ThreadPoolExecutor(1, "elmokit-model")
        self._search_thread = ThreadPoolExecutor(1, "elmokit-search")

    def open(self, embedder: Embedder, crew: Crew | None = None) -> None:
        """Take requests from now on, for this model."""
        self._members = crew.members if crew else ()
        self._crew_threads = ThreadPoolExecutor(max(1, len(self._members)), "elmokit-crew")
        self._embedder = embedder

    @property
    def embedder(self) -> Embedder:
        """The model; an error of the service while there is none, or none any more."""
        if self.draining:
            raise ServiceError("the service is shutting down", status=503, retry_after=1)
        if self._embedder is None:
            raise ServiceError("the model is still being loaded", status=503, retry_after=1)
        return self._embedder

    async def ask(self, prepare: Callable[[Embedder], Job[Answer]], exchange: Exchange) -> Answer:
        """The answer to the job that `prepare` makes, in time or not at all.

        Until the end of the exchange the answer takes memory.
        """
        return await self.during(lambda embedder: self.read(embedder, prepare, exchange))

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
            return await in_time(answering(embedder), self.limits.seconds)
        except TimeoutError:
            raise ServiceError(
                f"no answer within {self.limits.seconds:g} seconds; ask again later, or for less",
                status=503,
                retry_after=1,
            ) from None
        finally:
            self.waiting -= 1

    async def read(
        self, embedder: Embedder, prepare: Callable[[Embedder], Job[Answer]], exchange: Exchange
    ) -> Answer:
        """The answer to a job of an exchange that waits already."""
        if exchange.little:
            job = prepare(embedder)
        else:
            job = await self.aside(lambda: prepare(embedder))
        self._make_room(job.bytes, exchange)
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        ticket = Ticket(job, answer)
        line = self._crew_line if self._members and job.travels else self._line
        line.join(ticket)
        try:
            return await answer
        finally:
            line.leave(ticket)  # one that nobody waits for any more is not computed

    async def aside(self, work: Callable[[], Answer]) -> Answer:
        """What a function of texts or arrays gives, worked out beside the loop."""
        return await asyncio.get_running_loop().run_in_executor(self._text_thread, work)

    async def fetch(self, work: Callable[[], Answer]) -> Answer:
        """What a function that looks things up gives; where it hangs, only others like it wait."""
        return await asyncio.get_running_loop().run_in_executor(self._search_thread, work)

    async def work(self) -> None:
        """Answer what arrives until cancelled, as soon as there is a model."""
        while self._embedder is None:
            await asyncio.sleep(_SECONDS_TO_LOOK)
        here = self._read_line(self._line, self._model_thread, partial(answer_all, self._embedder))
        there = (
            self._read_line(self._crew_line, self._crew_threads, member.answer)
            for member in self._members
        )
        await asyncio.gather(here, *there)

    async def _read_line(self, line: Line, thread: Executor | None, answer: Answering) -> None:
        """Answer those of a line, batch after batch.

        While answers are written, those that came meanwhile are read; only a model that has
        nothing to do waits for more to come.
        """
        line.idle += 1
        read: list[tuple[Ticket, object]] = []
        while True:
            if not read or not line:
                hand_out(read)
                await line.arrived.wait()
                await asyncio.sleep(self.limits.gather_milliseconds / 1000)
            batch = line.take(self.limits.batch_tokens)
            if not batch:
                continue
            line.idle -= 1
            read = await self._read_batch(batch, thread, answer, meanwhile=partial(hand_out, read))
            line.idle += 1
            del batch  # nothing of it is kept while there is nothing to do

    async def _read_batch(
        self,
        batch: list[Ticket],
        thread: Executor | None,
        answer: Answering,
        meanwhile: Callable[[], None],
    ) -> list[tuple[Ticket, object]]:
        """Those of a batch, each with its answer or exception."""
        jobs = [ticket.job for ticket in batch]
        self.metrics.count_batch(len(jobs), sum(job.tokens for job in jobs))
        reading = asyncio.get_running_loop().run_in_executor(thread, answer, jobs)
        meanwhile()
        try:
            return [*zip(batch, await reading, strict=True)]
        except Exception as error:  # not of a job: they are told, and the next batch is read
            logger.exception("a batch failed")
            return [(ticket, error) for ticket in batch]

    def close(self) -> None:
        """Let the threads go; what they have begun they end."""
        for threads in (
            self._text_thread,
            self._model_thread,
            self._search_thread,
            self._crew_threads,
        ):
            if threads is not None:
                threads.shutdown(wait=False, cancel_futures=True)

    def _make_room(self, needed: int, exchange: Exchange) -> None:
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
        exchange.callback(self._give_back, needed)

    def _give_back(self, held: int) -> None:
        self._held_bytes -= held
