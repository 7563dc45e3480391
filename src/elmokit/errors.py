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

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


class ElmokitError(Exception):
    """Any error that elmokit raises on purpose; its message needs no traceback.

    Example:
        try:
            model = elmokit.load("my-model")
        except elmokit.ElmokitError as error:
            print(error)
    """


class ConfigError(ElmokitError, ValueError):
    """Settings of a model or a run that are out of range or unknown.

    Example:
        try:
            elmo = elmokit.Elmo(model.bilm, mixes=0)
        except elmokit.ConfigError as error:
            print(error)  # mixes is 0, expected 1 or more
    """


class FormatError(ElmokitError, ValueError):
    """A file that is damaged, or of another kind than expected.

    Example:
        try:
            model = elmokit.load("text.txt")
        except elmokit.FormatError as error:
            print(error)
    """


class InputError(ElmokitError, ValueError):
    """Text or arguments that cannot be used.

    Example:
        try:
            model.embed([["a", "cat"]], layers=7)
        except elmokit.InputError as error:
            print(error)  # layer 7 was asked for, but the model has 0 to 2
    """


class OutputError(ElmokitError, OSError):
    """A result that cannot be written.

    Example:
        try:
            elmokit.write_vectors(model.encode(["A cat."]), "no/such/folder/vectors.npy")
        except elmokit.OutputError as error:
            print(error)
    """


class NumericError(ElmokitError, ArithmeticError):
    """A NaN or an infinity.

    Example:
        try:
            elmokit.Whitening.fit([[float("nan")]])
        except elmokit.NumericError as error:
            print(error)
    """


class DownloadError(ElmokitError, ConnectionError):
    """A file that cannot be downloaded, or not as it was published.

    Example:
        try:
            elmokit.download("original", offline=True)
        except elmokit.DownloadError as error:
            print(error)  # which files are missing, and where they belong
    """


class RankError(ElmokitError, ConnectionError):
    """Another process of a distributed run has failed.

    Example:
        settings = elmokit.PretrainingSettings(projection_size=16, cell_size=32, steps=3)
        try:
            elmokit.pretrain(elmokit.Corpus.open("corpus"), settings, "run")  # with torchrun
        except elmokit.RankError as error:
            print(error)  # the same call resumes the run
    """


class ServiceError(ElmokitError, ConnectionError):
    """A service that refuses a request, or cannot answer it now.

    `status` is the HTTP status, 0 where there was no answer; `retry_after` is how many seconds to
    wait before the next try.

    Example:
        try:
            Client("http://localhost:9", max_retries=0).info()
        except elmokit.ServiceError as error:
            print(error.status)
    """

    def __init__(self, message: str, *, status: int, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        """Lets worker processes send the error, with its status."""
        return partial(ServiceError, status=self.status, retry_after=self.retry_after), self.args


@contextmanager
def needs_extra(reason: str, extra: str) -> Iterator[None]:
    """Around the import of an optional package: say which extra of elmokit installs it."""
    try:
        yield
    except ImportError:
        raise InputError(f"{reason}: pip install 'elmokit[{extra}]'") from None
