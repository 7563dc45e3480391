"""The threads and the device to compute with: independent pieces of work, a thread each.

Torch splits one product over its OpenMP threads, which wait for each other at its end and spin
meanwhile. In an LSTM that is thousands of waits a second, and when another process occupies one of
the CPUs, each wait lasts until the scheduler comes round. So here a product has one thread, and
threads take whole pieces of work, such as one direction of a biLM.
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
from threadpoolctl import threadpool_limits

from elmokit.errors import InputError

Result = TypeVar("Result")

_MAX_WORKERS = 64
_CGROUPS = Path("/sys/fs/cgroup")
_OWN_CGROUPS = Path("/proc/self/cgroup")


class _ThreadLocal(threading.local):
    """State of one thread."""

    has_used_torch_threads = False
    allowed: int | None = None  # number of threads for its work, None outside `using_threads`


_local = _ThreadLocal()
_lock = threading.Lock()
_native_lock = threading.RLock()
_num_changed = 0  # threads in which `torch_threads` has changed torch's setting
_user_threads = 1  # torch's setting before any of them changed it


def run_side_by_side(jobs: Sequence[Callable[[], Result]], *, grad: bool = False) -> list[Result]:
    """The results of independent jobs, in order; each job runs in one thread, without a barrier.

    The caller's thread and up to `allowed_threads() - 1` workers each take the next job when they
    are free, so a thread that shares its CPU with another process takes fewer. Gradients are
    recorded only with `grad`.
    """
    threads = min(allowed_threads(), len(jobs))
    results: dict[int, Result] = {}
    numbers = iter(range(len(jobs)))  # `next` of a range iterator is atomic

    def work() -> None:
        with torch.set_grad_enabled(grad):
            for number in numbers:
                results[number] = jobs[number]()

    def work_as_worker() -> None:
        # This changes the default of new threads, too: the caller restores it when all have ended.
        if torch.get_num_threads() != 1:
            torch.set_num_threads(1)
        _local.allowed = 1
        work()

    with using_threads(1):
        others: list[Future[None]] = [_pool().submit(work_as_worker) for _ in range(threads - 1)]
        try:
            work()
        finally:
            for _ in numbers:  # after a failure, start no more jobs
                pass
            failures = [other.exception() for other in others if not other.cancel()]
    for failure in failures:
        if failure is not None:
            raise failure
    return [results[number] for number in range(len(jobs))]


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Use this many threads for work inside the block, each job in one; None changes nothing."""
    before = _local.allowed
    _local.allowed = allowed_threads() if threads is None else threads
    try:
        with torch_threads(1):
            yield
    finally:
        _local.allowed = before


@contextmanager
def torch_threads(threads: int) -> Iterator[None]:
    """Let torch split each product over this many threads inside the block, in this thread.

    For products so large that waiting for the slowest thread hardly matters.
    """
    global _num_changed, _user_threads  # noqa: PLW0603
    with _lock:
        before = _user_torch_threads()
        _local.has_used_torch_threads = True
        unchanged = torch.get_num_threads() == threads == before
        if not unchanged:
            if not _num_changed:
                _user_threads = before
            _num_changed += 1
            torch.set_num_threads(threads)
    try:
        yield
    finally:
        if not unchanged:
            with _lock:
                _num_changed -= 1
                # This sets both this thread's number and the default of new threads.
                torch.set_num_threads(before)


@contextmanager
def native_threads(threads: int) -> Iterator[None]:
    """Let NumPy's BLAS, FAISS and scikit-learn use this many threads inside the block.

    One for what they split into many small steps, such as eigenvectors: at each step, their threads
    wait for each other as torch's do. The setting is of the process, so one block runs at a time.
    """
    with _native_lock, threadpool_limits(threads):
        yield


def allowed_threads() -> int:
    """How many threads this thread may use: the number of `using_threads`, or the default."""
    return default_threads() if _local.allowed is None else _local.allowed


def default_threads() -> int:
    """Torch's number of threads (OMP_NUM_THREADS, if set), but at most `usable_cpus()`."""
    return max(1, min(_user_torch_threads(), usable_cpus()))


def _user_torch_threads() -> int:
    """The user's setting of torch's threads, even while `torch_threads` has changed it.

    A thread that is new to torch inherits what was set last in any thread.
    """
    if _num_changed and not _local.has_used_torch_threads:
        return _user_threads
    return torch.get_num_threads()


def usable_cpus() -> int:
    """How many CPUs this process may use, by its affinity and the quota of its cgroups."""
    affinity = getattr(os, "sched_getaffinity", None)  # Linux has it
    cpus = len(affinity(0)) if affinity else os.cpu_count() or 1
    return max(1, int(min(cpus, _quota())))


@cache
def _quota() -> float:
    return cgroup_cpus(_CGROUPS, _OWN_CGROUPS)


def cgroup_cpus(root: Path, membership: Path) -> float:
    """How many CPUs the quotas of cgroups (version 1 or 2) allow; infinite without a quota.

    Cgroups are mounted at `root`. `membership` is /proc/self/cgroup, with a line
    `number:controllers:path` for each group of the process; quotas of the groups above count too.
    In a container the path may not be mounted; then the mounted root is the group.
    """
    try:
        lines = membership.read_text("utf-8").splitlines()
    except OSError:  # not Linux, or hidden
        return float("inf")
    cpus = float("inf")
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
            for group_dir in [group, *group.parents]:
                if group_dir.is_relative_to(mount):
                    cpus = min(cpus, _group_quota(group_dir))
    return cpus


def _group_quota(group_dir: Path) -> float:
    numbers: list[str] = []
    try:
        if (group_dir / "cpu.max").exists():
            numbers = (group_dir / "cpu.max").read_text("utf-8").split()  # "max 100000"
        elif (group_dir / "cpu.cfs_quota_us").exists():
            names = "cpu.cfs_quota_us", "cpu.cfs_period_us"
            numbers = [(group_dir / name).read_text("utf-8").strip() for name in names]
        quota, period = (float(number) for number in numbers)
    except (OSError, ValueError):  # no quota, or "max"
        return float("inf")
    return quota / period if quota > 0 and period > 0 else float("inf")


def find_device(name: str | torch.device) -> torch.device:
    """The device of that name; InputError if no tensor can be stored there."""
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(
            f"device {str(name)!r} cannot be used here: there is no such device, expected cpu, "
            "cuda, cuda:N or mps"
        ) from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(
            f"device {str(name)!r} cannot be used here ({reason}); try 'cpu'"
        ) from None
    return device


@cache
def _pool() -> ThreadPoolExecutor:
    """Worker threads, which are started once and then wait for work."""
    return ThreadPoolExecutor(_MAX_WORKERS, "elmokit-compute")


if hasattr(os, "register_at_fork"):

    def _forget_threads() -> None:
        """In a forked process the threads of the pool do not exist."""
        global _lock, _native_lock
        _lock, _native_lock = threading.Lock(), threading.RLock()
        _pool.cache_clear()

    os.register_at_fork(after_in_child=_forget_threads)
