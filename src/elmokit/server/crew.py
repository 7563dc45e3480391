"""A model becomes processes that share its memory, and each answers a batch at a time."""

import logging
import multiprocessing
import os
import signal
import warnings
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from elmokit.embedder import Embedder
from elmokit.errors import ElmokitError, ServiceError
from elmokit.server.jobs import Job, answer_all

logger = logging.getLogger(__name__)

_MOST = 8  # processes, unless more are asked for
_SECONDS_TO_END = 5
_MOST_FILES = 2**16


def usual_size(device: str) -> int:
    """How many processes serve a model best: one a core, where processes can share memory."""
    if device != "cpu" or "fork" not in multiprocessing.get_all_start_methods():
        return 1
    return min(torch.get_num_threads(), _MOST)


class Crew:
    """Processes that were forked from this one, so that the model is in memory once.

    Each computes with one thread. Several threads on one batch would wait for one another at every
    step of a sentence, and all the longer, as the service itself needs a core now and then; and
    in this process the model would have to wait, at every step, until Python's lock is free.
    """

    def __init__(self, embedder: Embedder, size: int) -> None:
        embedder.embed([["."]])  # lays out the weights, which are then shared too
        self.members = [Member(embedder) for _ in range(size)]

    def close(self) -> None:
        """End the processes."""
        for member in self.members:
            member.close()


class Member:
    """One process of a crew. Where it ends before its time, another takes its place."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._start()

    @property
    def pid(self) -> int | None:
        """The process' number."""
        return self._process.pid

    def answer(self, jobs: Sequence[Job[Any]]) -> list[object]:
        """An answer or an exception for each job."""
        try:
            self._connection.send(jobs)
            answers: list[object] = self._connection.recv()
        except (EOFError, OSError):
            logger.warning("process %s of the model ended, another begins", self.pid)
            self.close()
            self._start()
            gone = "the process that computed the answer has ended; ask again, or for less"
            return [ServiceError(gone, status=503, retry_after=1) for _ in jobs]
        return answers

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()
        self._process.join()

    def _start(self) -> None:
        forking = multiprocessing.get_context("fork")
        self._connection, end = forking.Pipe()
        self._process = forking.Process(target=_work, args=(end, self._embedder), daemon=True)
        with warnings.catch_warnings():
            # Python warns of a fork beside threads. The new process does not have them and uses
            # nothing of theirs: it computes with one thread, and closes all files but its own.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._process.start()
        end.close()


def _work(connection: Connection, embedder: Embedder) -> None:
    """Answer batches until the other end is closed, which a process that is killed does too."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what waits is answered first
        signal.signal(number, signal.SIG_IGN)
    own = connection.fileno()
    os.closerange(3, own)
    os.closerange(own + 1, _MOST_FILES)
    torch.set_num_threads(1)
    while True:
        try:
            jobs = connection.recv()
        except EOFError:
            return
        connection.send([_sendable(answer) for answer in answer_all(embedder, jobs)])


def _sendable(answer: object) -> object:
    """An answer; of another's exception only what it says, as not all can be sent."""
    if isinstance(answer, Exception) and not isinstance(answer, ElmokitError):
        return RuntimeError(repr(answer))
    return answer
