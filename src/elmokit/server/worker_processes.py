"""Worker processes that share one model, each computing one batch at a time.

They are forked, by hand: a worker then shares the model as it is packed for use (for the published
English size 300 MB that each spawned process would hold for itself) and a dead one is replaced in
milliseconds instead of the seconds that importing torch takes. `ProcessPoolExecutor` can neither
replace one worker nor stop one that hangs, and `multiprocessing` would fork the service itself,
whose threads may hold locks at that moment.
"""

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
from elmokit.server.model_calls import ModelCall, run_calls
from elmokit.threads import default_threads

logger = logging.getLogger(__name__)

_DEFAULT_MAX_WORKERS = 8
_MAX_FILES = 2**16
_START_SECONDS = 10
_RETRY_SECONDS = 1
_PR_SET_PDEATHSIG = 1  # of Linux's prctl


def default_num_workers(device: str) -> int:
    """One worker per CPU where processes can share the model's memory, otherwise one."""
    return min(default_threads(), _DEFAULT_MAX_WORKERS) if _can_share(device) else 1


class WorkerPool:
    """Processes with one thread each; threads would wait for each other at every step of a batch.

    A worker that dies is replaced; one that has not answered for `timeout_seconds` is killed. The
    service's process is forked once, before it serves, because a fork beside threads that compute
    may never return. That child, the root, has no threads; it forks the workers and kills them.
    """

    def __init__(
        self, embedder: Embedder, num_workers: int, *, timeout_seconds: float = 60.0
    ) -> None:
        if not _can_share("cpu"):
            raise InputError("processes share a model on Linux only; leave out --processes")
        self._lock = threading.Lock()
        self._control, root_control = socket.socketpair(type=socket.SOCK_SEQPACKET)
        with warnings.catch_warnings():
            # Python warns of a fork beside threads: the root uses nothing of theirs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._root_pid = _fork(_run_root, root_control, embedder)
        root_control.close()
        self._control.settimeout(_START_SECONDS)
        try:
            self.workers = [Worker(self, timeout_seconds) for _ in range(num_workers)]
        except OSError as error:
            self.close()
            raise InputError(
                f"{num_workers} processes cannot be started ({error}); try fewer"
            ) from None

    def start_process(self, timeout_seconds: float) -> tuple[Connection, int]:
        """A connection to a new worker process, which sends and receives in time, and its pid."""
        own, workers = socket.socketpair()
        for option in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            seconds = struct.pack("ll", math.ceil(timeout_seconds), 0)
            own.setsockopt(socket.SOL_SOCKET, option, seconds)
        with own, workers, self._lock:
            try:
                socket.send_fds(self._control, [b"start"], [workers.fileno()])
                reply = self._control.recv(16)
            except TimeoutError:
                self._control.close()  # a late reply would be taken for that of another request
                raise
            if not reply.isdigit():
                raise OSError("no further process could be started")
            return Connection(own.detach()), int(reply)

    def kill_process(self, pid: int) -> None:
        """Kill a worker process, whatever it does."""
        with self._lock:
            self._control.send(b"%d" % pid)

    def close(self) -> None:
        """Kill all processes: the workers die with the root."""
        os.kill(self._root_pid, signal.SIGKILL)
        with self._lock, suppress(ChildProcessError):  # where SIGCHLD is ignored
            self._control.close()
            os.waitpid(self._root_pid, 0)


class Worker:
    """One process of a pool, and its replacement when it has died."""

    def __init__(self, pool: WorkerPool, timeout_seconds: float) -> None:
        self._pool, self._timeout_seconds = pool, timeout_seconds
        self._connection, self.pid = pool.start_process(timeout_seconds)

    def run_calls(self, calls: Sequence[ModelCall[Any]]) -> Sequence[object]:
        """A result or an exception for each call."""
        try:
            return self._send_and_receive(calls)
        except Exception as error:  # whatever it is, half a reply may be left in the connection
            logger.warning("worker process %d is given up: %r", self.pid, error)
            self._connection.close()
            with suppress(OSError):
                self._pool.kill_process(self.pid)
            message = "the process that computed the answer has ended; try again, or with less text"
            return [ServiceError(message, status=503, retry_after=1) for _ in calls]

    def _send_and_receive(self, calls: Sequence[ModelCall[Any]]) -> Sequence[object]:
        try:
            self._connection.send(calls)
        except OSError:  # it has died since its last batch
            self._connection.close()
            self._replace()
            self._connection.send(calls)
        if not self._connection.poll(self._timeout_seconds):
            raise TimeoutError(f"no answer within {self._timeout_seconds:g} seconds")
        results: Sequence[object] = self._connection.recv()
        return results

    def _replace(self) -> None:
        try:
            self._connection, self.pid = self._pool.start_process(self._timeout_seconds)
        except OSError:
            time.sleep(_RETRY_SECONDS)  # or it would take the batches that others could compute
            raise


def _can_share(device: str) -> bool:
    return device == "cpu" and sys.platform == "linux"


def _fork(function: Callable[..., None], *arguments: object) -> int:
    """The pid of a new process that calls a function and exits."""
    pid = os.fork()
    if pid:
        return pid
    try:
        function(*arguments)
    except BaseException:
        logger.exception("a worker process failed")
    finally:
        os._exit(0)


def _run_root(control: socket.socket, embedder: Embedder) -> None:
    """Fork a worker for each connection received, and kill the workers whose pids are received."""
    for number in (signal.SIGINT, signal.SIGTERM):  # pending requests are answered first
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    _close_files_except(control.fileno())
    torch.set_num_threads(1)
    pids: set[int] = set()
    while True:
        message, files, _, _ = socket.recv_fds(control, 16, 1)
        while pids and (ended := os.waitpid(-1, os.WNOHANG)[0]):
            pids.remove(ended)  # from now on another process may have this pid
        if not message:
            return
        if not files:
            if int(message) in pids:
                os.kill(int(message), signal.SIGKILL)
            continue
        connection = Connection(files[0])
        try:
            pid = _fork(_run_worker, connection, embedder)
            pids.add(pid)
            control.send(b"%d" % pid)
        except OSError:  # too many processes, or no memory
            control.send(b"none")
        connection.close()


def _run_worker(connection: Connection, embedder: Embedder) -> None:
    """Compute batches until the other end is closed, by the service or by its death."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # die with the root
    _close_files_except(connection.fileno())
    try:
        while True:
            calls = connection.recv()
            connection.send([_picklable(result) for result in run_calls(embedder, calls)])
    except (EOFError, OSError):
        pass  # the service is gone


def _close_files_except(own: int) -> None:
    """Close inherited files, or connections would stay open when the service closes them."""
    os.closerange(3, own)
    os.closerange(own + 1, _MAX_FILES)


def _picklable(result: object) -> object:
    """A result; of exceptions that are not elmokit's only the text, as not all can be pickled."""
    if isinstance(result, Exception) and not isinstance(result, ElmokitError):
        return RuntimeError(repr(result))
    return result
