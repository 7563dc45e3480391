"""A request and its answer become one exchange: how big it is, its end, and its time."""

import asyncio
from collections.abc import Awaitable
from contextlib import ExitStack
from typing import TypeVar

Awaited = TypeVar("Awaited")

EXCHANGE = "elmokit.exchange"  # where a scope has it
_LITTLE_BYTES = 512


class Exchange(ExitStack):
    """What is to be done when all is sent or given up, and how many bytes were asked with."""

    body_bytes = 0

    @property
    def little(self) -> bool:
        """Whether its texts are prepared sooner than another thread would have its turn."""
        return self.body_bytes <= _LITTLE_BYTES


async def in_time(work: Awaitable[Awaited], seconds: float) -> Awaited:
    """What is awaited, or TimeoutError; without the task that asyncio.wait_for makes each time."""
    task, late = asyncio.current_task(), False
    assert task is not None

    def stop() -> None:
        nonlocal late
        late = True
        task.cancel()

    timer = asyncio.get_running_loop().call_later(seconds, stop)
    try:
        return await work
    except asyncio.CancelledError:
        if not late:
            raise
        if hasattr(task, "uncancel"):  # from Python 3.11 on, a task counts what cancelled it
            task.uncancel()
        raise TimeoutError from None
    finally:
        timer.cancel()
