"""Bytes become a file that is there only when all of it is."""

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
    finally:
        unnamed.unlink(missing_ok=True)


def name_whole(unnamed: Path, path: Path) -> None:
    """Give a finished file its name, both safe against a loss of power."""
    _sync(unnamed)
    unnamed.replace(path)
    if os.name == "posix":  # elsewhere a folder cannot be opened
        _sync(path.parent)


def _sync(path: Path) -> None:
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
