"""The threads and the device to compute with: independent pieces of work, a thread each.

Torch splits one product over its OpenMP threads, which wait for each other at its end and spin
meanwhile. In a recurrence that is thousands of waits a second, and when another process holds one
of the CPUs, each of them lasts until the scheduler comes round. So here a product has one thread,
and threads share out whole pieces of work, such as one direction of a biLM.
"""

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TypeVar

import torch

from elmokit.errors import InputError

Result = TypeVar("Result")

_MOST_WORKERS = 64
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


class _ThreadLocal(threading.local):
    """What this module knows of one thread."""

    known = False  # it has been through `torch_threads`
    allowed: int | None = None  # threads for its work, None outside `using_threads`


_local = _ThreadLocal()
_lock = threading.Lock()
_changed_in = 0  # threads in which torch's setting is another than its user's
_process_threads = 1  # torch's setting before any of them changed it


def run_side_by_side(jobs: Sequence[Callable[[], Result]], *, grad: bool = False) -> list[Result]:
    """The results of independent jobs, in order; each job runs in one thread, without a barrier.

    The caller's thread and up to `allowed_threads() - 1` workers take the next job as soon as they
    are free, so one that shares its CPU with another process takes fewer. Gradients are recorded
    only with `grad`.
    """
    threads = min(allowed_threads(), len(jobs))
    results: dict[int, Result] = {}
    numbers = iter(range(len(jobs)))  # `next` of a range iterator is atomic

    def work() -> None:
        with torch.set_grad_enabled(grad):
            for number in numbers:
                results[number] = jobs[number]()

    def work_as_worker() -> None:
        # Part of this is the whole process's: the caller puts it back when all have ended.
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        _local.allowed = 1
        work()

    with using_threads(1):
        others: list[Future[None]] = [_pool().submit(work_as_worker) for _ in range(threads - 1)]
        try:
            work()
        finally:
            for _ in numbers:  # where a job has failed, none is begun any more
                pass
            failures = [other.exception() for other in others if not other.cancel()]
    for failure in failures:
        if failure is not None:
            raise failure
    return [results[number] for number in range(len(jobs))]


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Compute with so many threads meanwhile, one for a piece of work; None: as many as before."""
    before = _local.allowed
    _local.allowed = allowed_threads() if threads is None else threads
    try:
        with torch_threads(1):
            yield
    finally:
        _local.allowed = before


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch split products over so many threads meanwhile, in this thread.

    For products so large that waiting for the last thread is a small part of them.
    """
    global _changed_in, _process_threads  # noqa: PLW0603
    with _lock:
        before = _torch_threads_of_user()
        _local.known = True
        unchanged = torch.get_num_threads() == threads == before
        if not unchanged:
            if not _changed_in:
                _process_threads = before
            _changed_in += 1
            torch.set_num_threads(threads)
    try:
        yield
    finally:
        if not unchanged:
            with _lock:
                _changed_in -= 1
                # This thread's own setting, and that of threads to come.
                torch.set_num_threads(before)


def allowed_threads() -> int:
    """How many threads the work of this thread may use: as in `using_threads`, or the usual."""
    return usual_threads() if _local.allowed is None else _local.allowed


def usual_threads() -> int:
    """Torch's own number of threads (OMP_NUM_THREADS, if set), but no more than CPUs to use."""
    return max(1, min(_torch_threads_of_user(), usable_cpus()))


def _torch_threads_of_user() -> int:
    """Torch's setting in this thread, if it is not what another thread has set for itself.

    A thread that is new to torch takes over what was set last in any thread.
    """
    return _process_threads if _changed_in and not _local.known else torch.get_num_threads()


def usable_cpus() -> int:
    """How many CPUs this process may use: of its affinity and its cgroups' quota."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min(cpus, _quota())))


@cache
def _quota() -> float:
    return cgroup_cpus(_CGROUPS, _OWN_CGROUPS)


def cgroup_cpus(root: Path, membership: Path) -> float:
    """The CPUs that cgroups (version 1 or 2, mounted at `root`) leave a process; maybe infinite.

    `membership` is its /proc/self/cgroup: a line `number:controllers:path` each. A quota of any
    group above counts too. In a container the path may not be mounted; then its root is its group.
    """
    try:
        lines = membership.read_text("utf-8").splitlines()
    except OSError:  # not Linux, or hidden
        return float("inf")
    least = float("inf")
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            mounts = [root, root / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / controllers, root / "cpu"]
        else:
            continue
        for mount in mounts:
            group = mount / path.strip("/")
            for folder in [group, *group.parents]:
                if folder.is_relative_to(mount):
                    least = min(least, _folder_quota(folder))
    return least


def _folder_quota(folder: Path) -> float:
    """The CPUs that one cgroup's files leave it."""
    numbers: list[str] = []
    try:
        if (folder / "cpu.max").exists():
            numbers = (folder / "cpu.max").read_text("utf-8").split()  # "max 100000"
        elif (folder / "cpu.cfs_quota_us").exists():
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            numbers = [(folder / name).read_text("utf-8").strip() for name in names]
        quota, period = (float(number) for number in numbers)
    except (OSError, ValueError):  # no quota, or "max"
        return float("inf")
    return quota / period if quota > 0 and period > 0 else float("inf")


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; InputError if no tensor can be stored there."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"device {str(name)!r} cannot be used here ({reason}); try 'cpu'"
        ) from None
    return device


@cache
def _pool() -> ThreadPoolExecutor:
    """Threads that wait for work; a thread and its memory are made once."""
    return ThreadPoolExecutor(_MOST_WORKERS, "elmokit-compute")


if hasattr(os, "register_at_fork"):

    def _forget_threads() -> None:
        """In a forked process there are none of the pool's threads."""
        global _lock  # noqa: PLW0603
        _lock = threading.Lock()
        _pool.cache_clear()

    os.register_at_fork(after_in_child=_forget_threads)
