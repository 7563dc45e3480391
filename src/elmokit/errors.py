"""Every error that elmokit raises on purpose.

    ElmokitError
    ├── ConfigError(ValueError)       a model or run described by numbers that cannot be
    ├── FormatError(ValueError)       a file that is not what it should be
    ├── InputError(ValueError)        text or arguments that cannot be used
    ├── OutputError(OSError)          a result that cannot be written where it should be
    ├── NumericError(ArithmeticError) a vector that is not a number
    ├── RankError(ConnectionError)    a process of a run over several that is not heard of any more
    └── ServiceError(ConnectionError) a service that refuses a request, or cannot answer it now

A message says where, what was found, what was expected, and what to do.
"""

from functools import partial


class ElmokitError(Exception):
    """Any failure that elmokit expects and explains."""


class ConfigError(ElmokitError, ValueError):
    """A model or run described by numbers that cannot be."""


class FormatError(ElmokitError, ValueError):
    """A file that is not what it should be."""


class InputError(ElmokitError, ValueError):
    """Text or arguments that cannot be used."""


class OutputError(ElmokitError, OSError):
    """A result that cannot be written where it should be."""


class NumericError(ElmokitError, ArithmeticError):
    """A vector that is not a number."""


class RankError(ElmokitError, ConnectionError):
    """A process of a run over several that is not heard of any more."""


class ServiceError(ElmokitError, ConnectionError):
    """A service that refuses a request, or cannot answer it now.

    `status` is HTTP's, 0 where nobody answered; `retry_after` the seconds after which to ask again.
    """

    def __init__(self, message: str, *, status: int, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        """What another process makes it of again."""
        return partial(ServiceError, status=self.status, retry_after=self.retry_after), self.args
