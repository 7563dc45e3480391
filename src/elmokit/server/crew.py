"""A model becomes processes that share its memory, and each answers a batch at a time."""

import ctypes
import logging
import math
import os
import signal
import socket
import struct
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

import torch

from elmokit.embedder import Embedder
from elmokit.errors import ElmokitError, InputError, ServiceError
from elmokit.server.jobs import Job, answer_all
from elmokit.threads import default_threads

logger = logging.getLogger(__name__)

_MOST = 8  # processes, unless more are asked for
_MOST_FILES = 2**16
_SECONDS_TO_MAKE = 10  # a process
_SECONDS_WITHOUT = 1  # one, until it is tried again
_PR_SET_PDEATHSIG = 1  # of Linux' prctl


def usual_size(device: str) -> int:
    """How many processes serve a model best: one a core, where processes can share memory."""
    return min(default_threads(), _MOST) if _can_share(device) else 1


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
        self._control.settimeout(_SECONDS_TO_MAKE)
        try:
            self.members = [Member(self, seconds) for _ in range(size)]
        except OSError as error:
            self.close()
            raise InputError(f"{size} processes cannot be made ({error}); try fewer") from None

    def make_process(self, seconds: float) -> tuple[Connection, int]:
        """A new process: its number, and a connection that takes and brings parts in `seconds`."""
        kept, given = socket.socketpair()
        for way in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            kept.setsockopt(socket.SOL_SOCKET, way, struct.pack("ll", math.ceil(seconds), 0))
        with kept, given, self._lock:
            try:
                socket.send_fds(self._control, [b"make"], [given.fileno()])
                told = self._control.recv(16)
            except TimeoutError:
                self._control.close()  # what it says later would be taken for another answer
                raise
            if not told.isdigit():
                raise OSError("no other process could be made")
            return Connection(kept.detach()), int(told)

    def end_process(self, number: int) -> None:
        """End a process, whatever it does."""
        with self._lock:
            self._control.send(b"%d" % number)

    def close(self) -> None:
        """End all processes, whatever they do: members end with the root."""
        os.kill(self._root, signal.SIGKILL)
        with self._lock, suppress(ChildProcessError):  # where nobody waits for children
            self._control.close()
            os.waitpid(self._root, 0)


class Member:
    """One process of a crew, and the next when that has ended."""

    def __init__(self, crew: Crew, seconds: float) -> None:
        self._crew, self._seconds = crew, seconds
        self._connection, self.number = crew.make_process(seconds)

    def answer(self, jobs: Sequence[Job[Any]]) -> Sequence[object]:
        """An answer or an exception for each job."""
        try:
            return self._exchange(jobs)
        except Exception as error:  # whatever it is, what comes next could be half of an answer
            logger.warning("process %d of the model is given up: %r", self.number, error)
            self._connection.close()
            with suppress(OSError):
                self._crew.end_process(self.number)
            gone = "the process that computed the answer has ended; ask again, or for less"
            return [ServiceError(gone, status=503, retry_after=1) for _ in jobs]

    def _exchange(self, jobs: Sequence[Job[Any]]) -> Sequence[object]:
        try:
            self._connection.send(jobs)
        except OSError:  # it ended since its last batch
            self._connection.close()
            self._replace()
            self._connection.send(jobs)
        if not self._connection.poll(self._seconds):
            raise TimeoutError(f"no answer within {self._seconds:g} seconds")
        answers: Sequence[object] = self._connection.recv()
        return answers

    def _replace(self) -> None:
        try:
            self._connection, self.number = self._crew.make_process(self._seconds)
        except OSError:
            time.sleep(_SECONDS_WITHOUT)  # or it would have time for what others could answer
            raise


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
    """Make a process of each connection that comes, and end those named."""
    for number in (signal.SIGINT, signal.SIGTERM):  # what waits is answered first
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _close_all_but(control.fileno())
    torch.set_num_threads(1)
    members: set[int] = set()
    while True:
        told, files, _, _ = socket.recv_fds(control, 16, 1)
        while members and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            members.remove(ended)  # from now on its number may be another's
        if not told:
            return
        if not files:
            if int(told) in members:
                os.kill(int(told), signal.SIGKILL)
            continue
        connection = Connection(files[0])
        try:
            member = _fork(_answer_batches, connection, embedder)
            members.add(member)
            control.send(b"%d" % member)
        except OSError:  # no room for another process
            control.send(b"none")
        connection.close()


def _answer_batches(connection: Connection, embedder: Embedder) -> None:
    """Answer until the other end is closed, which the end of its process does too."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # end with the root
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
