"""TensorFlow's checkpoint format of today ("tensor bundle"), read without TensorFlow.

A checkpoint is an index, which is a LevelDB table of protocol buffers, and data files of plain
numbers. The one other reader on PyPI, tensorflow-checkpoint-reader, needs protobuf < 3.19 and has
not changed since 2023.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError
from elmokit.formats.leveldb_table import (
    MAX_INDEX_SIZE,
    DamageError,
    Message,
    explaining_damage,
    masked,
    read_shape,
    read_table,
)

_READ_SIZE = 2**22

# numpy's types by TensorFlow's DataType.
_BFLOAT16 = 14
_STORED_TYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", _BFLOAT16: "<u2",
    17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip


def read_bundle(index: Path) -> "dict[str, BundleTensor]":
    """The numeric tensors of a checkpoint by name, given its index; none is read yet."""
    with explaining_damage(index):
        if index.stat().st_size > MAX_INDEX_SIZE:
            raise DamageError(f"the index has {index.stat().st_size:,} bytes")
        table = read_table(memoryview(index.read_bytes()))
        header = Message(table.pop(b"", memoryview(b"")))
        if header.integer(2) != 0:
            raise DamageError("it was written on a big-endian machine")
        shards = _find_shards(index, header.integer(1))
        entries = {key: _Entry(Message(value)) for key, value in table.items()}
        declared = sum(entry.size for entry in entries.values())
        if declared > sum(shards.values()):
            raise DamageError(
                f"the index declares {declared:,} bytes of tensors, but the data files have "
                f"{sum(shards.values()):,}"
            )
        tensors = {}
        for key, entry in entries.items():
            is_piece = key.startswith(b"\0")
            if not is_piece and entry.dtype in _STORED_TYPES:
                axis, pieces = _find_pieces(key, entry, entries)
                stored = [_StoredPiece.of(key, piece, [*shards.items()]) for piece in pieces]
                tensors[key.decode("utf-8", "replace")] = BundleTensor(entry.shape, axis, stored)
    return tensors


@dataclass(frozen=True)
class BundleTensor:
    """A tensor of a checkpoint; `tensor[()]` reads it and checks its checksums.

    A partitioned variable is in several pieces, one after the other along an axis.
    """

    shape: tuple[int, ...]
    axis: int
    pieces: "list[_StoredPiece]"

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of its numbers when read: bfloat16, which numpy has not, becomes float32."""
        return self.pieces[0].dtype

    def __getitem__(self, _: tuple[()]) -> npt.NDArray[Any]:
        arrays = [piece.read() for piece in self.pieces]
        return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, self.axis)


@dataclass(frozen=True)
class _StoredPiece:
    """A range of a data file; it lies within the file, and has the bytes that its shape needs."""

    name: str
    path: Path
    entry: "_Entry"

    @classmethod
    def of(cls, key: bytes, entry: "_Entry", shards: list[tuple[Path, int]]) -> "_StoredPiece":
        name = key.decode("utf-8", "replace")
        if entry.dtype not in _STORED_TYPES or not 0 <= entry.shard < len(shards):
            raise DamageError(f"the entry of {name} is not valid")
        path, file_size = shards[entry.shard]
        needed = math.prod(entry.shape) * np.dtype(_STORED_TYPES[entry.dtype]).itemsize
        if entry.size != needed:
            raise DamageError(
                f"{name} has the shape {entry.shape}, which needs {needed:,} bytes, but the index "
                f"gives it {entry.size:,}"
            )
        if entry.offset + entry.size > file_size:
            raise DamageError(
                f"{name} ends at byte {entry.offset + entry.size:,} of {path.name}, which has "
                f"{file_size:,}"
            )
        return cls(name, path, entry)

    @property
    def dtype(self) -> np.dtype[Any]:
        is_bfloat16 = self.entry.dtype == _BFLOAT16
        return np.dtype(np.float32 if is_bfloat16 else _STORED_TYPES[self.entry.dtype])

    def read(self) -> npt.NDArray[Any]:
        numbers = np.empty(self.entry.shape, _STORED_TYPES[self.entry.dtype])
        target, position, checksum = numbers.reshape(-1).view(np.uint8), 0, 0
        with open(self.path, "rb") as file:
            file.seek(self.entry.offset)
            while position < self.entry.size:
                block = file.read(min(_READ_SIZE, self.entry.size - position))
                if not block:
                    break
                checksum = google_crc32c.extend(checksum, block)
                target[position : position + len(block)] = np.frombuffer(block, np.uint8)
                position += len(block)
        if masked(checksum) != self.entry.checksum:
            raise FormatError(
                f"{self.path}: the checksum of {self.name} is wrong; the file is damaged, copy it "
                "again"
            )
        if self.entry.dtype == _BFLOAT16:
            return (numbers.astype(np.uint32) << 16).view(np.float32)
        return numbers


class _Entry:
    """What an index says of a tensor, or of a piece of one: a BundleEntryProto.

    `slices` are the pieces of a partitioned variable: of each axis its start, and its length, -1
    for all of it.
    """

    def __init__(self, message: "Message") -> None:
        self.dtype = message.integer(1)
        self.shape = read_shape(message, 2)
        self.shard, self.offset, self.size = map(message.integer, (3, 4, 5))
        if self.offset < 0 or self.size < 0:
            raise DamageError(f"a tensor has {self.size:,} bytes at byte {self.offset:,}")
        self.checksum = message.integer(6)
        self.slices = [
            [(extent.integer(1), extent.integer(2, -1)) for extent in piece.messages(1)]
            for piece in message.messages(7)
        ]


def _find_pieces(
    key: bytes, entry: _Entry, entries: Mapping[bytes, _Entry]
) -> tuple[int, list[_Entry]]:
    """The axis along which a tensor is cut, and the entries of its pieces in order."""
    if not entry.slices:
        return 0, [entry]
    if any(len(piece) != len(entry.shape) for piece in entry.slices):
        raise DamageError(f"the pieces of {key!r} have not the axes of the whole")
    # The length of an axis that is not cut is -1 or that of the whole.
    cut_axes = {
        axis
        for piece in entry.slices
        for axis, ((_, length), whole) in enumerate(zip(piece, entry.shape, strict=True))
        if length not in (-1, whole)
    }
    if len(cut_axes) > 1 or not entry.shape:
        raise DamageError(f"{key!r} is cut along {len(cut_axes)} axes, expected one")
    axis = min(cut_axes, default=0)
    pieces, end = [], 0
    for piece in sorted(entry.slices, key=lambda piece: piece[axis]):
        start, length = piece[axis]
        length = entry.shape[axis] if length < 0 else length
        stored = entries.get(_piece_key(key, piece))
        shape = (*entry.shape[:axis], length, *entry.shape[axis + 1 :])
        if stored is None or stored.shape != shape or stored.dtype != entry.dtype or start != end:
            raise DamageError(f"the pieces of {key!r} do not fit together")
        pieces.append(stored)
        end += length
    if end != entry.shape[axis]:
        raise DamageError(f"a piece of {key!r} is missing")
    return axis, pieces


def _piece_key(name: bytes, piece: list[tuple[int, int]]) -> bytes:
    """The key of a piece of a tensor: its name and place, so encoded that keys sort in order."""
    escaped = name.replace(b"\xff", b"\xff\x00").replace(b"\0", b"\0\xff")
    numbers = b"".join(_ordered(number) for extent in piece for number in extent)
    return b"\0" + escaped + b"\0\1" + bytes([1, len(piece)]) + numbers


def _ordered(number: int) -> bytes:
    """A signed number as bytes that sort in order: as many leading ones as it has bytes."""
    magnitude = ~number if number < 0 else number
    length = magnitude.bit_length() // 7 + 1
    marker = ((1 << length) - 1) << 7 * length
    encoded = number & ((1 << 8 * length) - 1)
    return (encoded ^ marker).to_bytes(length, "big")


def _find_shards(index: Path, count: int) -> dict[Path, int]:
    """The sizes of a checkpoint's data files, in order."""
    sizes = {}
    for number in range(count):
        path = index.with_suffix(f".data-{number:05}-of-{count:05}")
        if not path.is_file():
            raise DamageError(f"{path.name} is not beside it")
        sizes[path] = path.stat().st_size
    return sizes
