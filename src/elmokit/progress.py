"""Progress of long work: one line that changes on a terminal, a line a minute in a log."""

import sys
import time

_SECONDS_BEFORE_FIRST_LINE = 2.0
_SECONDS_BETWEEN_UPDATES = 0.2
_SECONDS_BETWEEN_LOG_LINES = 60.0


class Progress:
    """What is done, how fast, and how long the rest will take, on stderr.

    `shown` None means: when the work has taken two seconds, and where stderr is not a terminal,
    after a minute. `done` was done before, and does not count for the speed. `unit` names what is
    counted.
    """

    # Written by hand: rich draws from a thread, which must not run where processes are forked, and
    # neither rich nor tqdm writes whole lines to a log.

    def __init__(
        self,
        total: int | None,
        *,
        unit: str = "sentences",
        shown: bool | None = None,
        done: int = 0,
    ) -> None:
        self._total, self._unit = total, unit
        self._done_before, self._done, self._words = done, done, 0
        self._started = time.monotonic()
        self._terminal = sys.stderr.isatty()
        self._shown = shown is not False
        first = _SECONDS_BEFORE_FIRST_LINE if self._terminal else _SECONDS_BETWEEN_LOG_LINES
        self._next_update = self._started + (0 if shown else first)
        self._line_open = False

    def __enter__(self) -> "Progress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._line_open:
            self._write("\n")

    def advance(self, count: int, *, words: int) -> None:
        """So much more is done."""
        self.update(self._done + count, words=words)

    def update(self, done: int, *, words: int = 0) -> None:
        """So much is done in all, with so many more words."""
        self._done = done
        self._words += words
        now = time.monotonic()
        if self._shown and now >= self._next_update:
            between = _SECONDS_BETWEEN_UPDATES if self._terminal else _SECONDS_BETWEEN_LOG_LINES
            self._next_update = now + between
            self._write("" if self._terminal else "\n")
            self._line_open = self._terminal

    def resume_at(self, done: int) -> None:
        """So much in all was done before, and does not count for the speed."""
        self._done_before = self._done = done
        self._started = time.monotonic()

    def _write(self, end: str) -> None:
        seconds = time.monotonic() - self._started
        line = self._describe(max(seconds, 1e-9))
        if self._total is not None and self._done_before < self._done < self._total:
            left = seconds * (self._total - self._done) / (self._done - self._done_before)
            line += f", {duration(left)} left"
        sys.stderr.write(f"\r{line}\033[K{end}" if self._terminal else line + end)
        sys.stderr.flush()

    def _describe(self, seconds: float) -> str:
        line = f"{self._done:,} {self._unit}"
        if self._total is not None:
            line = f"{self._done:,} of {self._total:,} {self._unit}"
        return line + f", {self._words / seconds:,.0f} words/s"


class DownloadProgress(Progress):
    """Progress in bytes."""

    def _describe(self, seconds: float) -> str:
        line = f"downloaded {self._done / 1e6:,.1f}"
        if self._total is not None:
            line += f" of {self._total / 1e6:,.1f}"
        return line + f" MB, {(self._done - self._done_before) / 1e6 / seconds:,.1f} MB/s"


def duration(seconds: float) -> str:
    """A length of time to read: 12 s, 4 m 05 s, 1 h 02 m."""
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 1:
        return f"{seconds} s"
    if minutes < 60:
        return f"{minutes} m {seconds:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} m"
