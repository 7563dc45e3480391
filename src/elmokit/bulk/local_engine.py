"""Shards written by processes on this machine."""

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, nullcontext
from multiprocessing.connection import Connection
from typing import Any

import torch

from elmokit.bulk.job import Job, ShardResult, ShardWriter
from elmokit.embedder import Embedder, LoadOptions
from elmokit.errors import InputError, OutputError
from elmokit.threads import default_threads

_MAX_DEATHS = 3  # in a row, before a shard is complete

_writers: list[ShardWriter] = []  # the one of a worker process


class LocalEngine:
    """Processes that compute in one thread each, and share the model where the system can fork.

    With one worker, it is this process that computes. A worker that is killed is replaced, and its
    shard begun again.
    """

    def __init__(self, workers: int | None = None, *, options: LoadOptions) -> None:
        if workers is not None and workers < 1:
            raise InputError(f"workers is {workers}, expected 1 or more")
        self._on_cpu = torch.device(options.device).type == "cpu"
        default = default_threads() if self._on_cpu and options.threads is None else 1
        self._workers = workers or default

    @property
    def one_process(self) -> bool:
        return self._workers == 1

    def opened(self) -> AbstractContextManager[None]:
        """Around the other calls, which need nothing."""
        return nullcontext()

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """The results of a function; reading a corpus takes little of the time of embedding it."""
        return map(function, items)

    def run(self, job: Job, embedder: Embedder, shards: Sequence[int]) -> Iterator[ShardResult]:
        """Write shards, in any order; each is yielded once, when it is in its folder."""
        if self._workers == 1:
            writer = ShardWriter(job, embedder)
            yield from map(writer.write, shards)
            return
        missing = dict.fromkeys(shards)
        deaths = 0
        while missing:
            try:
                for result in self._run_pool(job, embedder, [*missing]):
                    del missing[result.shard]
                    deaths = 0
                    yield result
            except BrokenProcessPool:
                deaths += 1
                if deaths == _MAX_DEATHS:
                    raise OutputError(
                        f"{job.folder.location}: workers were killed {deaths} times before one had "
                        "finished a shard; is there too little memory? Try fewer workers, or "
                        "smaller tokens_per_batch; the same call then goes on"
                    ) from None

    def _run_pool(
        self, job: Job, embedder: Embedder, shards: Sequence[int]
    ) -> Iterator[ShardResult]:
        """Write shards until one of the processes is killed, which raises BrokenProcessPool."""
        can_fork = sys.platform == "linux" and self._on_cpu
        model = embedder if can_fork else job.options
        workers = min(self._workers, len(shards))
        lifeline, end_of_parent = multiprocessing.Pipe(duplex=False)
        pool = ProcessPoolExecutor(
            workers,
            multiprocessing.get_context("fork" if can_fork else "spawn"),
            initializer=_start_worker,
            initargs=(job, model, lifeline, end_of_parent if can_fork else None),
        )
        waiting = deque(shards)
        running: set[Future[ShardResult]] = set()
        try:
            while waiting or running:
                while waiting and len(running) < 2 * workers:
                    running.add(pool.submit(_write_shard, waiting.popleft()))
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        finally:
            end_of_parent.close()  # the workers end, whatever they do
            pool.shutdown(wait=True, cancel_futures=True)
            lifeline.close()


def _start_worker(
    job: Job, model: Embedder | LoadOptions, lifeline: Connection, end_of_parent: Connection | None
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    if end_of_parent is not None:
        end_of_parent.close()  # inherited
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    job.folder.forget_lock()
    torch.set_num_threads(1)
    embedder = model.load() if isinstance(model, LoadOptions) else model
    _writers.append(ShardWriter(job, embedder))


def _end_with_parent(lifeline: Connection) -> None:
    """End this process when the other end is closed, by the parent or by its death."""
    lifeline.poll(None)
    os._exit(1)


def _write_shard(shard: int) -> ShardResult:
    (writer,) = _writers
    return writer.write(shard)
