"""The exceptions of elmokit.

    ElmokitError
    ├── ConfigError(ValueError)        settings of a model or a run that are out of range or unknown
    ├── FormatError(ValueError)        a file that is damaged, or of another kind than expected
    ├── InputError(ValueError)         text or arguments that cannot be used
    ├── OutputError(OSError)           a result that cannot be written
    ├── NumericError(ArithmeticError)  a NaN or an infinity
    ├── DownloadError(ConnectionError) a file that cannot be downloaded, or not as it was published
    ├── RankError(ConnectionError)     another process of a distributed run has failed
    └── ServiceError(ConnectionError)  a service that refuses a request, or cannot answer it now

A message says where, what was found, what was expected, and what to do.
"""

from functools import partial


class ElmokitError(Exception):
    """Any error that elmokit raises on purpose; its message needs no traceback."""


class ConfigError(ElmokitError, ValueError):
    """Settings of a model or a run that are out of range or unknown."""


class FormatError(ElmokitError, ValueError):
    """A file that is damaged, or of another kind than expected."""


class InputError(ElmokitError, ValueError):
    """Text or arguments that cannot be used."""


class OutputError(ElmokitError, OSError):
    """A result that cannot be written."""


class NumericError(ElmokitError, ArithmeticError):
    """A NaN or an infinity."""


class DownloadError(ElmokitError, ConnectionError):
    """A file that cannot be downloaded, or not as it was published."""


class RankError(ElmokitError, ConnectionError):
    """Another process of a distributed run has failed."""


class ServiceError(ElmokitError, ConnectionError):
    """A service that refuses a request, or cannot answer it now.

    `status` is the HTTP status, 0 where there was no answer; `retry_after` is how many seconds to
    wait before the next try.
    """

    def __init__(self, message: str, *, status: int, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        """Lets worker processes send the error, with its status."""
        return partial(ServiceError, status=self.status, retry_after=self.retry_after), self.args
