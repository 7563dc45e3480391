"""Jobs become results, side by side: each in a thread of its own, with a share of the cores."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")


def side_by_side(jobs: Sequence[Callable[[], Result]], *, learning: bool = False) -> list[Result]:
    """The results of jobs, each with its share of torch's threads; gradients only in learning."""
    before = torch.get_num_threads()
    share = max(1, before // len(jobs))

    def run(job: Callable[[], Result]) -> Result:
        torch.set_num_threads(share)
        with torch.set_grad_enabled(learning):
            return job()

    try:
        with ThreadPoolExecutor(len(jobs) - 1) as pool:
            others = [pool.submit(run, job) for job in jobs[1:]]
            return [run(jobs[0]), *(other.result() for other in others)]
    finally:  # once, when all have ended: part of the setting is the whole process's
        torch.set_num_threads(before)


@contextmanager
def using_threads(threads: int | None) -> Iterator[None]:
    """Let torch compute with so many threads meanwhile; None leaves it as it is."""
    before = torch.get_num_threads()
    if threads is None or threads == before:
        yield
        return
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)
