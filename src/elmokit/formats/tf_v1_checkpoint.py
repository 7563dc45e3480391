"""TensorFlow's first checkpoint format, read without TensorFlow.

A checkpoint is one file, or several with different tensors: LevelDB tables of protocol buffers, the
numbers among them. TensorFlow wrote it until version 0.11, and does with `Saver(write_version=V1)`.
"""

import math
import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError
from elmokit.formats.leveldb_table import (
    MAX_INDEX_SIZE,
    DamageError,
    Message,
    explaining_damage,
    read_shape,
    read_table,
)

# numpy's types by TensorFlow's DataType, and the field of a TensorProto that has such numbers.
_STORED_TYPES = {1: ("<f4", 5), 2: ("<f8", 6)}


def read_slices(path: Path) -> "dict[str, SavedTensor]":
    """The float32 and float64 tensors of a checkpoint's file by name.

    All checksums are verified, but the numbers stay in the file until they are asked for.
    """
    with explaining_damage(path):
        with open(path, "rb") as file:
            if path.stat().st_size == 0:
                raise DamageError("it is empty")
            table = read_table(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))
        header = table.pop(b"", memoryview(b""))
        if len(header) > MAX_INDEX_SIZE:
            raise DamageError(f"the list of its tensors has {len(header):,} bytes")
        saved: dict[str, Message] = {}
        for value in table.values():
            for slice_ in Message(value).messages(2):
                name = slice_.text(1)
                if name in saved:
                    raise FormatError(
                        f"{path}: {name} is in several pieces, which elmokit reads of TensorFlow's "
                        "second format only; save it anew with tf.compat.v1.train.Saver"
                    )
                saved[name] = slice_
        tensors = {}
        for meta in Message(header).messages(1):
            for described in meta.messages(1):
                name, dtype = described.text(1), described.integer(3)
                if dtype in _STORED_TYPES:
                    if name not in saved:
                        raise DamageError(f"the numbers of {name} are missing")
                    shape = read_shape(described, 2)
                    tensors[name] = SavedTensor.of(name, shape, dtype, saved[name])
    return tensors


@dataclass(frozen=True)
class SavedTensor:
    """A tensor of a checkpoint; `tensor[()]` copies its numbers."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    parts: list[memoryview]  # of the numbers, one after the other

    @classmethod
    def of(cls, name: str, shape: tuple[int, ...], dtype: int, saved: Message) -> "SavedTensor":
        """A tensor in one piece, which has the bytes that its shape needs."""
        stored, field = _STORED_TYPES[dtype]
        parts = [part for data in saved.messages(3) for part in data.texts(field)]
        found, needed = sum(map(len, parts)), math.prod(shape) * np.dtype(stored).itemsize
        if found != needed or any(len(part) % np.dtype(stored).itemsize for part in parts):
            raise DamageError(
                f"{name} has the shape {shape}, which needs {needed:,} bytes, but there are "
                f"{found:,}"
            )
        return cls(shape, np.dtype(stored), parts)

    def __getitem__(self, _: tuple[()]) -> npt.NDArray[Any]:
        numbers = np.empty(math.prod(self.shape), self.dtype)
        position = 0
        for part in self.parts:
            values = np.frombuffer(part, self.dtype)
            numbers[position : position + len(values)] = values
            position += len(values)
        return numbers.reshape(self.shape)
