"""Worker processes that prepare ranges of lines side by side."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from pathlib import Path

from elmokit.errors import OutputError
from elmokit.pretrain.line_ranges import Block
from elmokit.pretrain.shard_parts import make_part
from elmokit.progress import Progress

# Parts made by an earlier way of cutting text are not taken for those of today.
_PARTS_VERSION = 2


def make_parts(
    blocks: Iterable[Block],
    folder: Path,
    *,
    split: str,
    wrapped: bool,
    workers: int,
    progress: Progress,
) -> list[Path]:
    """The parts of all blocks, in their order.

    A part is named by what its block holds, so one that a killed run left is known again. With
    one worker, or one block to work on, everything is done in this process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = f"{_PARTS_VERSION} {split} {wrapped}"
    parts: list[Path] = []

    def missing() -> Iterable[tuple[Block, Path]]:
        for block in blocks:
            parts.append(folder / f"{block.key(settings)}.npz")
            if parts[-1].exists():
                progress.pass_over(block.bytes_read // 10**6)
            else:
                yield block, parts[-1]

    rest = iter(missing())
    first = [*islice(rest, 2)]
    todo = chain(first, rest)
    if workers == 1 or len(first) == 1:
        for block, path in todo:
            words = make_part(block, path, split=split, wrapped=wrapped)
            progress.reach(block.bytes_read // 10**6, words=words)
    else:
        _make_together(todo, split=split, wrapped=wrapped, workers=workers, progress=progress)
    return parts


def _make_together(
    missing: Iterable[tuple[Block, Path]],
    *,
    split: str,
    wrapped: bool,
    workers: int,
    progress: Progress,
) -> None:
    """Make parts in processes of their own, a few blocks ahead of them in memory."""
    making: dict[Future[int], int] = {}
    furthest = 0
    pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _end_with_parent)

    def collect(at_most: int) -> None:
        nonlocal furthest
        while len(making) > at_most:
            for done in wait(making, return_when=FIRST_COMPLETED).done:
                furthest = max(furthest, making.pop(done))
                progress.reach(furthest // 10**6, words=done.result())

    try:
        for block, path in missing:
            future = pool.submit(make_part, block, path, split=split, wrapped=wrapped)
            making[future] = block.bytes_read
            collect(2 * workers)
        collect(0)
    except BrokenProcessPool:
        raise OutputError(
            "a worker was killed, perhaps for want of memory; run the same again to go on where "
            "it stopped, with fewer workers. (A script that calls prepare needs "
            "`if __name__ == '__main__':` around it, or workers=1)"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _end_with_parent() -> None:
    """In a worker: end when the parent has been killed, and leave Ctrl-C to it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
