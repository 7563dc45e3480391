"""Bytes become a file, and files a folder, that is there only when all of it is."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file under another name, and give it its own when it is safe on disk."""
    unnamed = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    try:
        with open(unnamed, "wb") as file:
            write(file)
        name_whole(unnamed, path)
    except OSError as error:
        if error.filename == str(unnamed):
            error.filename = str(path)  # the name that the caller knows
        raise
    finally:
        unnamed.unlink(missing_ok=True)


def name_whole(unnamed: Path, path: Path) -> None:
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
