"""Unpacking the one model in a zip or tar archive, without trusting the archive."""

import lzma
import os
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

from elmokit.errors import FormatError
from elmokit.formats.model_format import ModelFormat, explain_missing, find_format
from elmokit.formats.tensor_bundle import TABLE_SIGNATURE

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

Opener = Callable[[], Any]  # opens a file of an archive for reading

# Weights hardly compress: an archive that promises more than this is damaged or malicious.
_MAX_EXPANSION = 100
_SMALL = 2**26  # bytes that any archive may have
_MAX_FILES = 10_000


def unpack_model(archive: Path, folder: Path) -> None:
    """Unpack the files of the model in an archive; they come to lie in `folder` itself.

    Only files that belong to a model of a known format are written, and only below `folder`.
    """
    with _explaining_errors(archive), _open(archive) as members:
        model_format, files = _find_model(members, archive)
        for path in model_format.select(files):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            with members[files[path]]() as packed, open(folder / path, "wb") as plain:
                shutil.copyfileobj(packed, plain, 2**20)


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
    folders: dict[PurePosixPath, dict[str, str]] = {}
    for name in members:
        for parent in PurePosixPath(name).parents:
            files = folders.setdefault(parent, {})
            files[PurePosixPath(name).relative_to(parent).as_posix()] = name
    formats = {folder: find_format(files) for folder, files in folders.items()}
    models = {folder: found for folder, found in formats.items() if found is not None}
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
def _open(path: Path) -> Iterator[dict[str, Opener]]:
    """The regular files of an archive by their paths, those that lie elsewhere left out."""
    if file_kind(path) == "a zip archive":
        with zipfile.ZipFile(path) as archive:
            files = (info for info in archive.infolist() if not info.is_dir())
            yield _checked(
                path, ((f.filename, f.file_size, partial(archive.open, f)) for f in files)
            )
    else:
        with tarfile.open(path) as tar:
            entries = (info for info in tar if info.isreg())
            yield _checked(path, ((f.name, f.size, partial(tar.extractfile, f)) for f in entries))


def _checked(path: Path, members: Iterable[tuple[str, int, Opener]]) -> dict[str, Opener]:
    limit = max(_SMALL, _MAX_EXPANSION * path.stat().st_size)
    listed: dict[str, Opener] = {}
    declared = 0
    for name, size, opener in members:
        # Files stay inside, whatever the archive says, and what macOS adds is left out.
        parts = [p for p in PurePosixPath(name.replace("\\", "/")).parts if p not in ("/", "..")]
        if not parts or any(part.startswith((".", "__MACOSX")) for part in parts):
            continue
        declared += size
        if declared > limit or len(listed) == _MAX_FILES:
            raise FormatError(
                f"{path}: declares {declared:,} bytes or more in {len(listed) + 1:,} files, but "
                f"has {path.stat().st_size:,} bytes; it is damaged or malicious"
            )
        listed["/".join(parts)] = opener
    return listed


@contextmanager
def _explaining_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError) as error:
        raise FormatError(
            f"{path}: cannot be unpacked ({error}); was the file cut short?"
        ) from None
    except (NotImplementedError, RuntimeError) as error:  # an unknown compression, or a password
        raise FormatError(
            f"{path}: cannot be unpacked ({error}); unpack it and give its folder"
        ) from None
