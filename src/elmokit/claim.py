"""A folder becomes one process's own, until it lets go or ends."""

import os
from pathlib import Path

from elmokit.errors import InputError

try:
    import fcntl
except ImportError:  # not a POSIX system: two processes at once are not noticed there
    fcntl = None  # type: ignore[assignment]


class Claim:
    """A hold on a folder; InputError if another process, or this one, has it already."""

    def __init__(self, folder: Path, busy: str) -> None:
        self._opened: int | None = None
        if fcntl is None:
            return
        opened = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(opened)
            raise InputError(busy) from None
        self._opened = opened

    def __enter__(self) -> "Claim":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others have the folder."""
        if self._opened is not None:
            os.close(self._opened)
            self._opened = None
