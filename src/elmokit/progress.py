"""Progress of long work, on a terminal or in a log."""

import sys
import time
from types import TracebackType

_QUIET_SECONDS = 2.0
_SECONDS_BETWEEN = 0.2


class Progress:
    """What is done, how fast, and how long the rest will take.

    `shown` None means: when stderr is a terminal and the work has taken two seconds. `done` was
    done before, and says nothing of the speed. `unit` names what is counted.
    """

    def __init__(
        self,
        total: int | None,
        *,
        unit: str = "sentences",
        shown: bool | None = None,
        done: int = 0,
    ) -> None:
        self._total, self._unit = total, unit
        self._before, self._done, self._words = done, done, 0
        self._started = time.monotonic()
        self._quiet_until = self._started + (0 if shown else _QUIET_SECONDS)
        self._shown = sys.stderr.isatty() if shown is None else shown
        self._written = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._written:
            self._write("\n")

    def advance(self, *, sentences: int, words: int) -> None:
        """So much more is done."""
        self.reach(self._done + sentences, words=words)

    def pass_over(self, done: int) -> None:
        """So much, all told, was done before, and says nothing of the speed."""
        self._before = self._done = done
        self._started = time.monotonic()

    def reach(self, done: int, *, words: int) -> None:
        """So much is done now, all told; and so many more words."""
        self._done = done
        self._words += words
        now = time.monotonic()
        if self._shown and now >= self._quiet_until:
            self._quiet_until = now + _SECONDS_BETWEEN
            self._write("")

    def _write(self, end: str) -> None:
        seconds = time.monotonic() - self._started
        line = f"{self._done:,} {self._unit}"
        if self._total is not None:
            line = f"{self._done:,} of {self._total:,} {self._unit}"
        line += f", {self._words / max(seconds, 1e-9):,.0f} words/s"
        if self._total is not None and self._before < self._done < self._total:
            left = seconds * (self._total - self._done) / (self._done - self._before)
            line += f", {int(left) // 60}:{int(left) % 60:02d} left"
        sys.stderr.write(f"\r{line}\033[K{end}")
        sys.stderr.flush()
        self._written = True
