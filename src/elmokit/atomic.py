"""Atomic writes, directory locks and checkpoints: files that are complete or not there."""

import os
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, BinaryIO, TypeVar

import torch

from elmokit.errors import FormatError, InputError, OutputError


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under another name, and give it its own when it is safe on disk."""
    unnamed = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with open(unnamed, "wb") as file:
            write(file)
        rename_atomically(unnamed, path)
    except OSError as error:
        if error.filename == str(unnamed):
            error.filename = str(path)  # the name that the caller knows
        raise
    finally:
        unnamed.unlink(missing_ok=True)


def rename_atomically(unnamed: Path, path: Path) -> None:
    """Give a finished file or folder its name, both safe against a loss of power.

    A file takes the place of one that has the name; a folder needs a name that is free.
    """
    if unnamed.is_dir():
        for inner in unnamed.rglob("*"):
            _sync(inner)
    _sync(unnamed)
    unnamed.replace(path)
    _sync(path.parent)


def _sync(path: Path) -> None:
    if os.name != "posix" and path.is_dir():  # which cannot be opened there
        return
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


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


Record = TypeVar("Record")

# What torch says of bytes that are no checkpoint, or are one no more.
_DAMAGED = (
    RuntimeError, TypeError, EOFError, ValueError, LookupError, AttributeError, struct.error,
    UnpicklingError,
)  # fmt: skip


def write_checkpoint(values: Mapping[str, Any], path: Path) -> None:
    """Put a checkpoint in place of the one before."""
    try:
        write_atomically(path, lambda file: torch.save(dict(values), file))
    except (OSError, RuntimeError) as error:  # torch says "RuntimeError" of a full disk
        raise OutputError(
            f"{path}: cannot be written ({error}); the last checkpoint is whole: make "
            "room and run the same command again"
        ) from None


def read_checkpoint(path: Path, kind: type[Record]) -> Record | None:
    """The record whose values a checkpoint holds, if there is one."""
    if not path.exists():
        return None
    try:
        return kind(**torch.load(path, weights_only=True, map_location="cpu"))
    except _DAMAGED:
        raise FormatError(
            f"{path}: not a checkpoint of elmokit for such a run, or a damaged one; name another "
            "folder, or remove it to begin anew"
        ) from None
