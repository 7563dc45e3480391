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
from typing import Any, BinaryIO, cast

from elmokit.errors import FormatError, InputError

STDIN = "-"

# How a packed file begins; none of these is how UTF-8 text could begin.
COMPRESSED_SIGNATURES = _GZIP, _XZ, _ZSTANDARD = b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd"


@dataclass(frozen=True)
class TextFile:
    """A file of text, packed or not, or stdin."""

    path: str
    size: int | None = None  # bytes on disk
    modified: int | None = None  # nanoseconds

    @property
    def name(self) -> str:
        """What the file is called where only UTF-8 can stand."""
        return os.fsencode(self.path).decode("utf-8", "backslashreplace")

    @contextmanager
    def open(self) -> Iterator["TextReader"]:
        """The file, to be read from its beginning."""
        with self.open_compressed() as file:
            yield TextReader(self.name, file)

    @contextmanager
    def open_compressed(self) -> Iterator[io.BufferedReader]:
        """Its bytes as they are stored."""
        if self.path == STDIN:
            if sys.stdin is None:
                raise InputError("stdin is closed; name a file")
            yield cast(io.BufferedReader, sys.stdin.buffer)
            return
        with open(self.path, "rb") as file:
            yield file


class TextReader:
    """The unpacked bytes of a file, and how much of the packed ones was read."""

    def __init__(self, name: str, packed: io.BufferedReader) -> None:
        self._name, self._packed = name, packed
        self._bytes = decompressed(name, self._packed)

    def read_line(self, limit: int) -> bytes:
        """The next line with its line feed, or its first `limit` bytes; nothing at the end."""
        try:
            return self._bytes.readline(limit)
        except (EOFError, lzma.LZMAError, gzip.BadGzipFile, zlib.error) as error:
            raise FormatError(
                f"{self._name}: cannot be unpacked ({error}); was the file cut short?"
            ) from None

    def __iter__(self) -> Iterator[bytes]:
        return iter(lambda: self.read_line(-1), b"")

    def bytes_read(self) -> int:
        """How many bytes of the packed file were read."""
        return self._packed.tell() if self._packed.seekable() else 0


def decompressed(name: str, packed: io.BufferedReader) -> BinaryIO:
    """What is packed in a file by gzip, xz or Zstandard, told by its first bytes."""
    start = packed.peek(len(_XZ))[: len(_XZ)]
    if start.startswith(_GZIP):
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=packed), 2**20))
    if start.startswith(_XZ):
        return cast(BinaryIO, io.BufferedReader(lzma.LZMAFile(packed), 2**20))
    if start.startswith(_ZSTANDARD):
        return io.BufferedReader(_Frames(name, packed), 2**20)
    return packed


class _Frames(io.RawIOBase):
    """The frames of a Zstandard file, one after another; EOFError where the last is cut short."""

    def __init__(self, name: str, packed: BinaryIO) -> None:
        self._packed = packed
        self._new, self._error = _zstandard(name)
        self._frame = self._new()
        self._within, self._waiting = False, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting:
            read = self._frame.unused_data if self._frame.eof else b""
            if self._frame.eof:
                self._frame, self._within = self._new(), False
            if not (read := read or self._packed.read(2**14)):
                if self._within:
                    raise EOFError("the last frame is not whole")
                return 0
            self._within = True
            try:
                self._waiting = self._frame.decompress(read)
            except self._error as error:
                raise EOFError(str(error)) from None
        taken = self._waiting[: len(buffer)]
        buffer[: len(taken)] = taken
        self._waiting = self._waiting[len(taken) :]
        return len(taken)


def _zstandard(name: str) -> tuple[Callable[[], Any], type[Exception]]:
    """What unpacks a frame, and how it fails."""
    if sys.version_info >= (3, 14):
        from compression import zstd  # noqa: PLC0415  not before Python 3.14

        return zstd.ZstdDecompressor, zstd.ZstdError
    try:
        import zstandard  # noqa: PLC0415  an extra
    except ImportError:
        raise InputError(
            f"{name}: packed by Zstandard, which is not installed: pip install 'elmokit[zst]'"
        ) from None
    return zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError


def find_files(names: Iterable[str]) -> list[TextFile]:
    """The files that names stand for, in the order of the names: files, globs, folders, `-`.

    A folder stands for all files in and below it, by name; hidden ones are left out.
    """
    files = [file for name in names for file in _stands_for(name)]
    seen: dict[Path | str, str] = {}
    for file in files:
        key = STDIN if file.path == STDIN else Path(file.path).resolve()
        if key in seen:
            raise InputError(f"{file.name}: named twice (as {seen[key]} before); name it once")
        seen[key] = file.name
    return files


def _stands_for(name: str) -> list[TextFile]:
    if name == STDIN:
        return [TextFile(STDIN)]
    path = Path(name)
    if path.is_dir():
        found = [inner for inner in path.rglob("*") if not _hidden(inner.relative_to(path))]
    elif path.exists() or not glob.has_magic(name):
        return [_text_file(path)]
    else:
        found = [Path(inner) for inner in glob.glob(name, recursive=True)]
    files = [_text_file(inner) for inner in sorted(found) if not inner.is_dir()]
    if not files:
        raise InputError(f"{name}: no file there; name files, folders, globs, or - for stdin")
    return files


def _text_file(path: Path) -> TextFile:
    about = path.stat()
    return TextFile(str(path), about.st_size, about.st_mtime_ns)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def read_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; only a line feed ends a line."""
    for number, raw in enumerate(file, 1):
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")  # noqa: PLW2901  a mark of some editors
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{name}, line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column "
                f"{error.start + 1}); convert the file to UTF-8 first"
            ) from None
        yield line.removesuffix("\n").removesuffix("\r")
