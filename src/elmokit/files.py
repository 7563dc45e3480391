"""Text files: find them, decompress them, and read their lines."""

import glob
import gzip
import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO, cast

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError, InputError, needs_extra

STDIN = "-"

# How compressed files begin; UTF-8 text cannot begin with any of these.
COMPRESSED_SIGNATURES = _GZIP, _XZ, _ZSTANDARD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class TextFile:
    """A text file, compressed or not, or stdin."""

    path: str
    size: int | None = None  # bytes on disk
    modified: int | None = None  # nanoseconds

    @property
    def name(self) -> str:
        """The path as valid UTF-8, for messages and records."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    @property
    def can_be_read_again(self) -> bool:
        """Whether it is a file on disk, not stdin or a pipe."""
        return self.path != STDIN and Path(self.path).is_file()

    @contextmanager
    def open(self) -> Iterator["TextReader"]:
        """The decompressed contents."""
        with self.open_compressed() as file:
            yield TextReader(self.name, file)

    @contextmanager
    def open_compressed(self) -> Iterator[io.BufferedReader]:
        """The bytes as they are on disk."""
        if self.path == STDIN:
            if sys.stdin is None:
                raise InputError("stdin is closed; name a file")
            yield cast(io.BufferedReader, sys.stdin.buffer)
            return
        with open(self.path, "rb") as file:
            yield file


class TextReader:
    """The decompressed bytes of a file, and how much of the file was read."""

    def __init__(self, name: str, compressed: io.BufferedReader) -> None:
        self._name, self._compressed = name, compressed
        self._decompressed = decompressed(name, compressed)

    def read_line(self, limit: int) -> bytes:
        """The next line with its line feed, or its first `limit` bytes; empty at the end."""
        try:
            return self._decompressed.readline(limit)
        except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
            raise FormatError(
                f"{self._name}: cannot be unpacked ({error}); was the file cut short?"
            ) from None

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.read_line(-1), b"")

    def bytes_read(self) -> int:
        """How many bytes of the file on disk were read; 0 if it is a pipe."""
        return self._compressed.tell() if self._compressed.seekable() else 0


def decompressed(name: str, compressed: io.BufferedReader) -> BinaryIO:
    """The contents of a gzip, xz or Zstandard file, recognised by its first bytes, or of any other.

    Error messages call the file `name`.
    """
    start = compressed.peek(len(_XZ))[: len(_XZ)]
    if start.startswith(_GZIP):
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=compressed), 2**20))
    if start.startswith(_XZ):
        return cast(BinaryIO, io.BufferedReader(lzma.LZMAFile(compressed), 2**20))
    if start.startswith(_ZSTANDARD):
        return io.BufferedReader(_ZstandardFile(name, compressed), 2**20)
    return compressed


class _ZstandardFile(io.RawIOBase):
    """The frames of a Zstandard file, concatenated; EOFError if the last is cut short."""

    def __init__(self, name: str, compressed: BinaryIO) -> None:
        self._compressed = compressed
        self._new_decompressor, self._error = _zstandard(name)
        self._decompressor = self._new_decompressor()
        self._inside_frame, self._pending = False, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._pending:
            block = b""
            if self._decompressor.eof:
                block = self._decompressor.unused_data
                self._decompressor, self._inside_frame = self._new_decompressor(), False
            if not (block := block or self._compressed.read(2**14)):
                if self._inside_frame:
                    raise EOFError("the last frame is incomplete")
                return 0
            self._inside_frame = True
            try:
                self._pending = self._decompressor.decompress(block)
            except self._error as error:
                raise EOFError(str(error)) from None
        read = self._pending[: len(buffer)]
        buffer[: len(read)] = read
        self._pending = self._pending[len(read) :]
        return len(read)


def _zstandard(name: str) -> tuple[Callable[[], Any], type[Exception]]:
    """A function that makes a decompressor of one frame, and the error it raises."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415  not before Python 3.14

        return zstd.ZstdDecompressor, zstd.ZstdError
    with needs_extra(f"{name}: packed by Zstandard, which is not installed", "zst"):
        import zstandard  # noqa: PLC0415  an extra
    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError


def find_files(names: Iterable[str]) -> list[TextFile]:
    """The files for a list of files, folders, globs, and `-` for stdin, in the order of the list.

    A folder stands for all files in it and below it, sorted by name, without hidden ones.
    """
    files = [file for name in names for file in _matching_files(name)]
    names_seen: dict[Path | str, str] = {}
    for file in files:
        key = STDIN if file.path == STDIN else Path(file.path).resolve()
        if key in names_seen:
            raise InputError(
                f"{file.name}: named twice (as {names_seen[key]} before); name it once"
            )
        names_seen[key] = file.name
    return files


def _matching_files(name: str) -> list[TextFile]:
    if name == STDIN:
        return [TextFile(STDIN)]
    path = Path(name)
    if path.is_dir():
        inner = ((file, file.relative_to(path).parts) for file in path.rglob("*"))
        paths = [file for file, parts in inner if not any(p.startswith(".") for p in parts)]
    elif path.exists() or not glob.has_magic(name):
        return [_text_file(path)]
    else:
        paths = [Path(match) for match in glob.glob(name, recursive=True)]
    files = [_text_file(path) for path in sorted(paths) if not path.is_dir()]
    if not files:
        raise InputError(f"{name}: no file there; name files, folders, globs, or - for stdin")
    return files


def _text_file(path: Path) -> TextFile:
    status = path.stat()
    return TextFile(str(path), status.st_size, status.st_mtime_ns)


def read_array(content: bytes, name: str, remedy: str) -> npt.NDArray[Any]:
    """The array of a .npy file, no larger than the file.

    The FormatError for a damaged file calls it `name` and ends in what is to be done.
    """
    file = io.BytesIO(content)
    try:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("an array of an unknown version")
        shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(file)
        # np.load would allocate what the header declares.
        numbers: npt.NDArray[Any] = np.frombuffer(bytearray(content[file.tell() :]), dtype)
        return numbers.reshape(shape, order="F" if is_fortran else "C")
    except (ValueError, TypeError, EOFError, RecursionError, TokenError) as error:
        reason = " ".join(str(error).split())
        raise FormatError(f"{name}: not an array ({reason}); {remedy}") from None


def read_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; only a line feed ends a line.

    Error messages call the file `name`.
    """
    for number, raw in enumerate(file, 1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901  byte-order mark
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column "
                f"{error.start + 1}); convert the file to UTF-8 first"
            ) from None
        yield line.removesuffix("\n").removesuffix("\r")
