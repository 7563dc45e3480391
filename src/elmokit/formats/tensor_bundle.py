"""TensorFlow's checkpoint format ("tensor bundle"), read without TensorFlow.

A checkpoint is an index, which is a LevelDB table of protocol buffers, and data files of plain
numbers. The one other reader on PyPI, tensorflow-checkpoint-reader, needs protobuf < 3.19 and has
not changed since 2023.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError

# How an index ends, and the only file of a checkpoint in TensorFlow's first format.
TABLE_SIGNATURE = (0xDB4775248B80FB57).to_bytes(8, "little")

_FOOTER_SIZE = 48
_BLOCK_TRAILER_SIZE = 5  # kind of compression, checksum
_MAX_INDEX_SIZE = 2**24  # of an index, and of all names in it; real ones have some kilobytes
_MAX_KEY_SIZE = 2**12
_MAX_RANK = 32
_READ_SIZE = 2**22

# numpy's types by TensorFlow's DataType.
_BFLOAT16 = 14
_STORED_TYPES = {
    1: "<f4", 2: "<f8", 3: "<i4", 4: "u1", 5: "<i2", 6: "i1", 9: "<i8", 10: "?", _BFLOAT16: "<u2",
    17: "<u2", 19: "<f2", 22: "<u4", 23: "<u8",
}  # fmt: skip


def read_bundle(index: Path) -> "dict[str, BundleTensor]":
    """The numeric tensors of a checkpoint by name, given its index; none is read yet."""
    if index.suffix != ".index":
        raise FormatError(
            f"{index}: this is a checkpoint in TensorFlow's first format (one file), expected one "
            "of .index and .data files; save it anew with tf.compat.v1.train.Saver"
        )
    with _explaining_damage(index):
        if index.stat().st_size > _MAX_INDEX_SIZE:
            raise _DamageError(f"the index has {index.stat().st_size:,} bytes")
        table = _read_table(index.read_bytes())
        header = _Message(table.pop(b"", b""))
        if header.integer(2) != 0:
            raise _DamageError("it was written on a big-endian machine")
        shards = _find_shards(index, header.integer(1))
        entries = {key: _Entry(_Message(value)) for key, value in table.items()}
        declared = sum(entry.size for entry in entries.values())
        if declared > sum(shards.values()):
            raise _DamageError(
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
            raise _DamageError(f"the entry of {name} is not valid")
        path, file_size = shards[entry.shard]
        needed = math.prod(entry.shape) * np.dtype(_STORED_TYPES[entry.dtype]).itemsize
        if entry.size != needed:
            raise _DamageError(
                f"{name} has the shape {entry.shape}, which needs {needed:,} bytes, but the index "
                f"gives it {entry.size:,}"
            )
        if entry.offset + entry.size > file_size:
            raise _DamageError(
                f"{name} ends at byte {entry.offset + entry.size:,} of {path.name}, which has "
                f"{file_size:,}"
            )
        return cls(name, path, entry)

    @property
    def dtype(self) -> np.dtype[Any]:
        is_bfloat16 = self.entry.dtype == _BFLOAT16
        return np.dtype(np.float32 if is_bfloat16 else _STORED_TYPES[self.entry.dtype])

    def read(self) -> npt.NDArray[Any]:
        """The numbers."""
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
        if _masked(checksum) != self.entry.checksum:
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

    def __init__(self, message: "_Message") -> None:
        self.dtype = message.integer(1)
        self.shape = tuple(
            size.integer(1) for shape in message.messages(2) for size in shape.messages(2)
        )
        if len(self.shape) > _MAX_RANK or not all(0 <= size < 2**40 for size in self.shape):
            raise _DamageError(f"a tensor has the shape {self.shape}")
        self.shard, self.offset, self.size = map(message.integer, (3, 4, 5))
        if self.offset < 0 or self.size < 0:
            raise _DamageError(f"a tensor has {self.size:,} bytes at byte {self.offset:,}")
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
        raise _DamageError(f"the pieces of {key!r} have not the axes of the whole")
    # The length of an axis that is not cut is -1 or that of the whole.
    cut_axes = {
        axis
        for piece in entry.slices
        for axis, ((_, length), whole) in enumerate(zip(piece, entry.shape, strict=True))
        if length not in (-1, whole)
    }
    if len(cut_axes) > 1 or not entry.shape:
        raise _DamageError(f"{key!r} is cut along {len(cut_axes)} axes, expected one")
    axis = min(cut_axes, default=0)
    pieces, end = [], 0
    for piece in sorted(entry.slices, key=lambda piece: piece[axis]):
        start, length = piece[axis]
        length = entry.shape[axis] if length < 0 else length
        found = entries.get(_piece_key(key, piece))
        shape = (*entry.shape[:axis], length, *entry.shape[axis + 1 :])
        if found is None or found.shape != shape or found.dtype != entry.dtype or start != end:
            raise _DamageError(f"the pieces of {key!r} do not fit together")
        pieces.append(found)
        end += length
    if end != entry.shape[axis]:
        raise _DamageError(f"a piece of {key!r} is missing")
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
            raise _DamageError(f"{path.name} is not beside it")
        sizes[path] = path.stat().st_size
    return sizes


def _read_table(data: bytes) -> dict[bytes, bytes]:
    """The keys and values of a LevelDB table."""
    if len(data) < _FOOTER_SIZE or not data.endswith(TABLE_SIGNATURE):
        raise _DamageError("it does not end as a checkpoint's index does")
    footer = _Cursor(data[-_FOOTER_SIZE:])
    _, _, *index_position = (footer.varint() for _ in range(4))  # before it that of an unused block
    data = data[:-_FOOTER_SIZE]
    table: dict[bytes, bytes] = {}
    end_of_block, last_key, size_of_keys = 0, b"", 0
    for _, handle in _block_entries(_block(data, *index_position)):
        position = _Cursor(handle)
        offset, size = position.varint(), position.varint()
        if offset < end_of_block:
            raise _DamageError("its blocks overlap")
        for key, value in _block_entries(_block(data, offset, size)):
            size_of_keys += len(key)
            if (table and key <= last_key) or size_of_keys > _MAX_INDEX_SIZE:
                raise _DamageError("its names are not in order")
            table[key], last_key = value, key
        end_of_block = offset + size
    return table


def _block(data: bytes, offset: int, size: int) -> bytes:
    """The contents of a block of a table."""
    block = data[offset : offset + size + _BLOCK_TRAILER_SIZE]
    if len(block) != size + _BLOCK_TRAILER_SIZE:
        raise _DamageError("a block lies beyond its end")
    checksum = int.from_bytes(block[-4:], "little")
    if _masked(google_crc32c.value(block[:-4])) != checksum:
        raise _DamageError("the checksum of a block is wrong")
    if block[size] != 0:
        raise _DamageError("it is compressed, which TensorFlow's checkpoints of today never are")
    return block[:size]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a block, of whose keys the beginnings are left out."""
    num_restarts = int.from_bytes(block[-4:], "little")
    cursor = _Cursor(block[: max(0, len(block) - 4 - 4 * num_restarts)])
    key = b""
    while not cursor.at_end:
        shared, added, size = cursor.varint(), cursor.varint(), cursor.varint()
        key = key[:shared] + cursor.take(added)
        if len(key) > _MAX_KEY_SIZE:
            raise _DamageError(f"a name has {len(key):,} bytes")
        yield key, cursor.take(size)


def _masked(checksum: int) -> int:
    """A CRC-32C as LevelDB and TensorFlow store it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


class _Message:
    """The fields of a protocol buffer message by number."""

    def __init__(self, encoded: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        cursor = _Cursor(encoded)
        while not cursor.at_end:
            tag = cursor.varint()
            value: int | bytes
            if tag & 7 == 0:
                value = cursor.varint()
            elif tag & 7 == 2:
                value = cursor.take(cursor.varint())
            elif tag & 7 in (1, 5):
                value = int.from_bytes(cursor.take(8 if tag & 7 == 1 else 4), "little")
            else:
                raise _DamageError("it has a field of an unknown type")
            self._fields.setdefault(tag >> 3, []).append(value)

    def integer(self, number: int, default: int = 0) -> int:
        """A field with a number, signed."""
        value = self._fields.get(number, [default])[-1]
        if isinstance(value, bytes):
            raise _DamageError("it has a text where a number is expected")
        return value - 2**64 if value >= 2**63 else value

    def messages(self, number: int) -> "list[_Message]":
        """A repeated field of messages."""
        values = self._fields.get(number, [])
        if any(isinstance(value, int) for value in values):
            raise _DamageError("it has a number where a message is expected")
        return [_Message(value) for value in values if isinstance(value, bytes)]


class _Cursor:
    """Bytes that are read from the beginning to the end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        taken = self._data[self._position : self._position + count]
        if len(taken) != count:
            raise _DamageError("a part of it is missing")
        self._position += count
        return taken

    def varint(self) -> int:
        """The next number, of seven bits in each byte."""
        number = 0
        for shift in range(0, 64, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise _DamageError("it has a number that is too long")


class _DamageError(Exception):
    """What is wrong with an index."""


@contextmanager
def _explaining_damage(index: Path) -> Iterator[None]:
    try:
        yield
    except _DamageError as error:
        raise FormatError(
            f"{index}: cannot be read as the index of a TensorFlow checkpoint: {error}; was a file "
            "cut short or damaged? Copy the checkpoint again"
        ) from None
