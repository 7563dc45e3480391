"""LevelDB tables of protocol buffers, in which TensorFlow keeps checkpoints."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import google_crc32c

from elmokit.errors import FormatError

# How a table ends: the index of a checkpoint, and a checkpoint in TensorFlow's first format.
TABLE_SIGNATURE = (0xDB4775248B80FB57).to_bytes(8, "little")

MAX_INDEX_SIZE = 2**24  # of an index, and of all names in it; real ones have some kilobytes
_FOOTER_SIZE = 48
_BLOCK_TRAILER_SIZE = 5  # kind of compression, checksum
_MAX_KEY_SIZE = 2**12
_CHECKED_AT_ONCE = 2**22
_MAX_RANK = 32
_MAX_FIELDS = 2**20  # of a message


def read_table(data: memoryview) -> dict[bytes, memoryview]:
    """The keys and values of a table; the values are parts of `data`, not copies."""
    if len(data) < _FOOTER_SIZE or data[-len(TABLE_SIGNATURE) :] != TABLE_SIGNATURE:
        raise DamageError("it does not end as a checkpoint does")
    footer = _Cursor(data[-_FOOTER_SIZE:])
    _, _, *index_position = (footer.varint() for _ in range(4))  # before it that of an unused block
    data = data[:-_FOOTER_SIZE]
    table: dict[bytes, memoryview] = {}
    end_of_block, last_key, size_of_keys = 0, b"", 0
    for _, handle in _block_entries(_block(data, *index_position)):
        position = _Cursor(handle)
        offset, size = position.varint(), position.varint()
        if offset < end_of_block:
            raise DamageError("its blocks overlap")
        for key, value in _block_entries(_block(data, offset, size)):
            size_of_keys += len(key)
            if (table and key <= last_key) or size_of_keys > MAX_INDEX_SIZE:
                raise DamageError("its names are not in order")
            table[key], last_key = value, key
        end_of_block = offset + size
    return table


def _block(data: memoryview, offset: int, size: int) -> memoryview:
    """The contents of a block of a table."""
    block = data[offset : offset + size + _BLOCK_TRAILER_SIZE]
    if len(block) != size + _BLOCK_TRAILER_SIZE:
        raise DamageError("a block lies beyond its end")
    checksum = int.from_bytes(block[-4:], "little")
    actual = 0
    for start in range(0, len(block) - 4, _CHECKED_AT_ONCE):  # only of bytes it has the checksum
        part = block[start : min(start + _CHECKED_AT_ONCE, len(block) - 4)]
        actual = google_crc32c.extend(actual, bytes(part))
    if masked(actual) != checksum:
        raise DamageError("the checksum of a block is wrong")
    if block[size] != 0:
        raise DamageError("it is compressed, which TensorFlow's checkpoints of today never are")
    return block[:size]


def _block_entries(block: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    """The keys and values of a block, of whose keys the beginnings are left out."""
    num_restarts = int.from_bytes(block[-4:], "little")
    cursor = _Cursor(block[: max(0, len(block) - 4 - 4 * num_restarts)])
    key = b""
    while not cursor.at_end:
        shared, added, size = cursor.varint(), cursor.varint(), cursor.varint()
        if shared + added > _MAX_KEY_SIZE:
            raise DamageError(f"a name has {shared + added:,} bytes")
        key = key[:shared] + bytes(cursor.take(added))
        yield key, cursor.take(size)


def masked(checksum: int) -> int:
    """A CRC-32C as LevelDB and TensorFlow store it."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


class Message:
    """The fields of a protocol buffer message by number."""

    def __init__(self, encoded: memoryview) -> None:
        self._fields: dict[int, list[int | memoryview]] = {}
        cursor = _Cursor(encoded)
        for number in count():
            if cursor.at_end:
                break
            if number == _MAX_FIELDS:
                raise DamageError(f"it has a message of more than {_MAX_FIELDS:,} fields")
            tag = cursor.varint()
            value: int | memoryview
            if tag & 7 == 0:
                value = cursor.varint()
            elif tag & 7 == 2:
                value = cursor.take(cursor.varint())
            elif tag & 7 in (1, 5):
                value = int.from_bytes(cursor.take(8 if tag & 7 == 1 else 4), "little")
            else:
                raise DamageError("it has a field of an unknown type")
            self._fields.setdefault(tag >> 3, []).append(value)

    def integer(self, number: int, default: int = 0) -> int:
        """A field with a number, signed."""
        value = self._fields.get(number, [default])[-1]
        if not isinstance(value, int):
            raise DamageError("it has a text where a number is expected")
        return value - 2**64 if value >= 2**63 else value

    def messages(self, number: int) -> "list[Message]":
        """A repeated field of messages."""
        return [Message(value) for value in self.texts(number)]

    def text(self, number: int) -> str:
        """A field with a text; "" if there is none."""
        return bytes((self.texts(number) or [memoryview(b"")])[-1]).decode("utf-8", "replace")

    def texts(self, number: int) -> list[memoryview]:
        """A repeated field of texts, or of the bytes of something else."""
        values = self._fields.get(number, [])
        texts = [value for value in values if not isinstance(value, int)]
        if len(texts) < len(values):
            raise DamageError("it has a number where a message is expected")
        return texts


def read_shape(message: Message, number: int) -> tuple[int, ...]:
    """The shape in a field of a message, a TensorShapeProto."""
    shape = tuple(
        size.integer(1) for field in message.messages(number) for size in field.messages(2)
    )
    if len(shape) > _MAX_RANK or not all(0 <= size < 2**40 for size in shape):
        raise DamageError(f"a tensor has the shape {shape}")
    return shape


class _Cursor:
    """Bytes that are read from the beginning to the end."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._position = 0

    @property
    def at_end(self) -> bool:
        return self._position == len(self._data)

    def take(self, count: int) -> memoryview:
        """The next bytes."""
        taken = self._data[self._position : self._position + count]
        if len(taken) != count:
            raise DamageError("a part of it is missing")
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
        raise DamageError("it has a number that is too long")


class DamageError(Exception):
    """What is wrong with a table, or with a checkpoint in one."""


@contextmanager
def explaining_damage(path: Path) -> Iterator[None]:
    """Say of which file a DamageError speaks, and what to do."""
    try:
        yield
    except DamageError as error:
        raise FormatError(
            f"{path}: cannot be read as a TensorFlow checkpoint: {error}; was a file cut short or "
            "damaged? Copy the checkpoint again"
        ) from None
