"""Reading without trust: the one model in a zip or tar archive, and what torch.save wrote."""

import bz2
import gzip
import io
import lzma
import os
import shutil
import struct
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from pickle import UnpicklingError
from tokenize import TokenError
from typing import Any

import torch

from elmokit.errors import FormatError, OutputError
from elmokit.formats.leveldb_table import TABLE_SIGNATURE
from elmokit.formats.model_format import FORMATS, ModelFormat, explain_missing, find_format

# How files begin.
_SIGNATURES = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ\x00": "an xz archive",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
}

_DECOMPRESSORS: dict[str, Callable[..., Any]] = {
    "a gzip archive": gzip.open,
    "a bzip2 archive": bz2.open,
    "an xz archive": lzma.open,
}

# What is raised for a damaged archive; an OSError may also be one of the system.
_DAMAGED_ARCHIVE = (
    OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError
)  # fmt: skip
_UNPACK_IT = "unpack it and give its folder"

# Weights hardly compress: an archive that promises more than this is damaged or malicious.
_MAX_EXPANSION = 100
_SMALL = 2**26  # bytes that any archive may have
_MAX_ENTRIES = 10_000  # files and folders
_MAX_NAME_LENGTH = 1_000  # of a path
_READ_SIZE = 2**17  # and the most that a header of a tar archive may have


@dataclass(frozen=True)
class _Member:
    """A file of an archive: its size in bytes, and what opens it for reading."""

    size: int
    open: Callable[[], Any]


def unpack_model(archive: Path, folder: Path) -> None:
    """Unpack the files of the model in an archive; they come to lie in `folder` itself.

    Only files that belong to a model of a known format are written, and only below `folder`.
    """
    with _explaining_errors(archive), _open(archive) as members:
        model_format, files = _find_model(members, archive)
        selected = model_format.select(files)
        needed = sum(members[files[path]].size for path in selected)
        if needed > (free := shutil.disk_usage(folder).free):
            raise OutputError(
                f"{archive}: needs {needed:,} bytes in {folder.parent}, but the disk has {free:,}; "
                "free some, or name another folder in TMPDIR"
            )
        for path in selected:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with members[files[path]].open() as packed, open(folder / path, "wb") as plain:
                shutil.copyfileobj(packed, plain, _READ_SIZE)


def file_kind(path: Path) -> str:
    """What a file is, by its first bytes: "an HDF5 file", "a zip archive", "text", ..."""
    if path.is_dir():
        return "a folder"
    with open(path, "rb") as file:
        head = file.read(512)
        file.seek(-min(len(head), len(TABLE_SIGNATURE)), os.SEEK_END)
        tail = file.read()
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return kind
    if head[257:262] == b"ustar":
        return "a tar archive"
    if tail == TABLE_SIGNATURE:
        return "a TensorFlow checkpoint"
    if not head:
        return "an empty file"
    return "text" if b"\0" not in head else "a binary file of another kind"


def _find_model(members: Collection[str], archive: Path) -> tuple[ModelFormat, dict[str, str]]:
    """The format of the one model in an archive, and its folder's files with their full paths."""
    # No format has files further below its folder; a malicious archive may.
    depth = max(pattern.count("/") for known in FORMATS.values() for pattern in known.patterns)
    folders: dict[PurePosixPath, dict[str, str]] = {}
    for name in members:
        for parent in PurePosixPath(name).parents[: depth + 1]:
            files = folders.setdefault(parent, {})
            files[PurePosixPath(name).relative_to(parent).as_posix()] = name
    formats = {folder: find_format(files) for folder, files in folders.items()}
    models = {folder: model for folder, model in formats.items() if model is not None}
    # A TensorFlow checkpoint may be a part of the model in a folder around it.
    outermost = sorted(folder for folder in models if not models.keys() & {*folder.parents})
    if not outermost:
        names = {PurePosixPath(name).name for name in members}
        raise FormatError(f"{archive}: {explain_missing(names)}")
    if len(outermost) > 1:
        raise FormatError(
            f"{archive}: has {len(outermost)} models, in {', '.join(map(str, outermost[:4]))}; "
            "unpack it and give the folder of one model"
        )
    return models[outermost[0]], folders[outermost[0]]


@contextmanager
def _open(path: Path) -> Iterator[dict[str, _Member]]:
    """The regular files of an archive by their paths, those that lie elsewhere left out."""
    limit = max(_SMALL, _MAX_EXPANSION * path.stat().st_size)
    kind = file_kind(path)
    if kind == "a zip archive":
        with zipfile.ZipFile(path) as archive:
            # A damaged entry may have no name, which is_dir() of Python 3.11 does not expect.
            entries = (
                (
                    f.filename,
                    None
                    if f.filename.endswith("/")
                    else _Member(f.file_size, partial(archive.open, f)),
                )
                for f in archive.infolist()
            )
            yield _checked(path, entries, limit)
    else:
        with (
            _DECOMPRESSORS.get(kind, open)(path, "rb") as file,
            _LimitedReader(file, path, limit) as plain,
            tarfile.open(fileobj=plain, mode="r:") as tar,
        ):
            yield _checked(path, _tar_entries(tar), limit)


def _tar_entries(tar: tarfile.TarFile) -> Iterator[tuple[str, _Member | None]]:
    for info in tar:
        info.pax_headers = {}  # each file has a copy of those of the whole archive
        extract = partial(tar.extractfile, info)
        yield info.name, _Member(info.size, extract) if info.isreg() else None


class _LimitedReader(io.BufferedReader):
    """The decompressed bytes of a tar archive; those after the first `limit` are refused.

    tarfile reads a header in one piece, however long it says that it is.
    """

    def __init__(self, file: Any, path: Path, limit: int) -> None:
        super().__init__(file)
        self._path, self._limit = path, limit

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or not 0 <= size <= _READ_SIZE:
            raise FormatError(
                f"{self._path}: declares a header of {size} bytes, expected at most "
                f"{_READ_SIZE:,}; it is damaged or malicious"
            )
        check_declared_size(self._path, self.tell() + size, self._limit)
        return super().read(size)

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        check_declared_size(self._path, offset, self._limit)  # tarfile seeks from the start only
        return super().seek(offset, whence)


def _checked(
    path: Path, entries: Iterable[tuple[str, _Member | None]], limit: int
) -> dict[str, _Member]:
    """The files by their paths, given the names of all entries, of which folders have no member."""
    listed: dict[str, _Member] = {}
    declared = 0
    for number, (name, member) in enumerate(entries, 1):
        if number > _MAX_ENTRIES or len(name) > _MAX_NAME_LENGTH:
            raise FormatError(
                f"{path}: has {number:,} entries or more, this one with a name of {len(name):,} "
                f"characters, expected at most {_MAX_ENTRIES:,}, with names of at most "
                f"{_MAX_NAME_LENGTH:,}; it is damaged or malicious"
            )
        # Files stay inside, whatever the archive says, and what macOS adds is left out.
        parts = [p for p in PurePosixPath(name.replace("\\", "/")).parts if p not in ("/", "..")]
        is_hidden = any(part.startswith((".", "__MACOSX")) for part in parts)
        if member is None or not parts or is_hidden:
            continue
        declared += member.size
        check_declared_size(path, declared, limit)
        listed["/".join(parts)] = member
    return listed


def check_declared_size(path: Path, declared: int, limit: float, what: str = "bytes") -> None:
    """Raise FormatError if a file declares that it unpacks to more than a limit."""
    if declared > limit:
        raise FormatError(
            f"{path}: declares {declared:,} {what} or more, but has {path.stat().st_size:,} bytes; "
            "it is damaged or malicious"
        )


# What torch raises for a damaged file.
DAMAGED = (
    AssertionError, AttributeError, EOFError, LookupError, MemoryError, OSError, RuntimeError,
    TokenError, TypeError, ValueError, UnpicklingError, struct.error, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


def load_torch_file(path: Path) -> Any:
    """What torch.save wrote to a file; of a pickle only tensors and plain values are made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what torch says of a damaged file
        return torch.load(path, map_location="cpu", weights_only=True)


@contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OutputError:
        raise
    except (NotImplementedError, RuntimeError) as error:  # an unknown compression, or a password
        raise FormatError(f"{path}: cannot be unpacked ({error}); {_UNPACK_IT}") from None
    except _DAMAGED_ARCHIVE as error:
        reason, advice = str(error), "was the file cut short?"
        if isinstance(error, OSError) and error.errno is not None:  # not of a decompressor
            reason, advice = str(error.strerror), _UNPACK_IT
        raise FormatError(f"{path}: cannot be unpacked ({reason}); {advice}") from None
