"""What a run is becomes a file from which it goes on: whole or not there, and back."""

import struct
from collections.abc import Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, TypeVar

import torch

from elmokit.errors import FormatError, OutputError
from elmokit.whole import write_whole

Record = TypeVar("Record")

# What torch says of bytes that are no checkpoint, or are one no more.
_DAMAGED = (
    RuntimeError, TypeError, EOFError, ValueError, LookupError, AttributeError, struct.error,
    UnpicklingError,
)  # fmt: skip


def write_checkpoint(values: Mapping[str, Any], path: Path) -> None:
    """Put a checkpoint in place of the one before."""
    try:
        write_whole(path, lambda file: torch.save(dict(values), file))
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
