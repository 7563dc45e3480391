"""Jobs become results, side by side: each in a thread of its own, with a share of the cores."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Result = TypeVar("Result")


def side_by_side(jobs: Sequence[Callable[[], Result]], threads: int) -> list[Result]:
    """The results of jobs that need no gradient; torch's number of threads is restored."""
    share = max(1, threads // len(jobs))

    def run(job: Callable[[], Result]) -> Result:
        torch.set_num_threads(share)
        with torch.no_grad():
            return job()

    before = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(len(jobs) - 1) as pool:
            others = [pool.submit(run, job) for job in jobs[1:]]
            return [run(jobs[0]), *(other.result() for other in others)]
    finally:
        torch.set_num_threads(before)
