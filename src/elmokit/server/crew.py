"""A model becomes processes that share its memory, and each answers a batch at a time."""

import logging
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from elmokit.embedder import Embedder
from elmokit.errors import ElmokitError, InputError, ServiceError
from elmokit.server.jobs import Job, answer_all

logger = logging.getLogger(__name__)

_MOST = 8  # processes, unless more are asked for
_MOST_FILES = 2**16


def usual_size(device: str) -> int:
    """How many processes serve a model best: one a core, where processes can share memory."""
    return min(torch.get_num_threads(), _MOST) if _can_share(device) else 1


class Crew:
    """Processes that are forked from one another, so that the model is in memory once.

    Each computes with one thread. Several threads on one batch would wait for one another at every
    step of a sentence, and all the longer, as the service itself needs a core now and then; and
    in this process the model would have to wait, at every step, until Python's lock is free.

    A member that ends before its time is replaced, and one that has not answered for so many
    `seconds` is ended. This process is forked once, before it serves: a fork beside threads that
    compute may never return. What comes of that fork, the root, has no threads, makes the members
    and ends them.
    """

    def __init__(self, embedder: Embedder, size: int, *, seconds: float = 60.0) -> None:
        if not _can_share("cpu"):
            raise InputError("processes share a model on Linux only; leave --processes out")
        self._lock = threading.Lock()
        self._control, given = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            # Python warns of a fork beside threads: the root uses nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._root = _fork(_lead, given, embedder)
        given.close()
        self.members = [Member(self, seconds) for _ in range(size)]

    def make_process(self) -> tuple[Connection, int]:
        """A new process: its connection and its number."""
        kept, given = socket.socketpair()
        with kept, given, self._lock:
            socket.send_fds(self._control, [b"make"], [given.fileno()])
            told = self._control.recv(16)
            if not told.isdigit():
                raise OSError("no other process could be made")
            return Connection(kept.detach()), int(told)

    def end_process(self, number: int) -> None:
        """End a process, whatever it does."""
        with self._lock:
            self._control.send(b"%d" % number)

    def close(self) -> None:
        """End all processes, whatever they do."""
        with self._lock:
            self._control.close()
        os.waitpid(self._root, 0)


class Member:
    """One process of a crew, and the next when that has ended."""

    def __init__(self, crew: Crew, seconds: float) -> None:
        self._crew, self._seconds = crew, seconds
        self._connection, self.number = crew.make_process()

    def answer(self, jobs: Sequence[Job[Any]]) -> Sequence[object]:
        """An answer or an exception for each job."""
        try:
            try:
                self._connection.send(jobs)
            except OSError:  # it ended since its last batch
                self._connection.close()
                self._connection, self.number = self._crew.make_process()
                self._connection.send(jobs)
            if self._connection.poll(self._seconds):
                answers: Sequence[object] = self._connection.recv()
                return answers
            logger.warning("process %d of the model does not answer and is ended", self.number)
            self._crew.end_process(self.number)
        except (EOFError, OSError) as error:
            logger.warning("process %d of the model has ended: %s", self.number, error)
        self._connection.close()
        gone = "the process that computed the answer has ended; ask again, or for less"
        return [ServiceError(gone, status=503, retry_after=1) for _ in jobs]


def _can_share(device: str) -> bool:
    return device == "cpu" and sys.platform == "linux"


def _fork(work: Callable[..., None], *given: object) -> int:
    """The number of a new process, which does some work and ends."""
    number = os.fork()
    if number:
        return number
    try:
        work(*given)
    except BaseException:
        logger.exception("a process of the model failed")
    finally:
        os._exit(0)


def _lead(control: socket.socket, embedder: Embedder) -> None:
    """Make a process of each connection that comes and end those named; at the end, all of them."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what waits is answered first
        signal.signal(number, signal.SIG_IGN)
    _close_all_but(control.fileno())
    torch.set_num_threads(1)
    members: set[int] = set()
    while True:
        told, files, _, _ = socket.recv_fds(control, 16, 1)
        while members and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            members.remove(ended)  # from now on its number may be another's
        if not told:
            break
        if not files:
            _end(members.intersection([int(told)]))
            continue
        connection = Connection(files[0])
        try:
            member = _fork(_answer_batches, connection, embedder)
            members.add(member)
            control.send(b"%d" % member)
        except OSError:  # no room for another process
            control.send(b"none")
        connection.close()
    _end(members)


def _end(processes: set[int]) -> None:
    for number in processes:
        os.kill(number, signal.SIGKILL)


def _answer_batches(connection: Connection, embedder: Embedder) -> None:
    """Answer until the other end is closed, which the end of its process does too."""
    _close_all_but(connection.fileno())
    try:
        while True:
            jobs = connection.recv()
            connection.send([_sendable(answer) for answer in answer_all(embedder, jobs)])
    except (EOFError, OSError):
        pass  # nobody asks any more


def _close_all_but(own: int) -> None:
    """Close the files of the process that was forked: connections end when it closes them."""
    os.closerange(3, own)
    os.closerange(own + 1, _MOST_FILES)


def _sendable(answer: object) -> object:
    """An answer; of another's exception only what it says, as not all can be sent."""
    if isinstance(answer, Exception) and not isinstance(answer, ElmokitError):
        return RuntimeError(repr(answer))
    return answer
