"""Ranges of lines of the input files, in chunks that are prepared in parallel."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.files import TextFile, TextReader

CHUNK_BYTES = 2**22
# Lines and paragraphs are cut at this size: more than the longest that are used, in any encoding.
MAX_BYTES = 4_000_000

# Without held-out files, one in so many paragraphs is held out, up to about so many words.
HELD_OUT_EVERY = 500
HELD_OUT_WORDS = 50_000


@dataclass(frozen=True)
class LineRange:
    """Consecutive lines of a file."""

    file: str
    first_line: int
    text: bytes
    held_out: bool


@dataclass(frozen=True)
class Chunk:
    """Line ranges that are prepared together."""

    index: int
    ranges: tuple[LineRange, ...]
    empty_files: tuple[str, ...]  # that ended in this chunk
    bytes_read: int  # of the compressed files, up to the end of this chunk

    def key(self, settings: str) -> str:
        """A name that depends on the contents and the settings."""
        digest = hashlib.sha256(settings.encode())
        for lines in self.ranges:
            head = f"{lines.file}\n{lines.first_line} {lines.held_out} {len(lines.text)}\n"
            digest.update(head.encode("utf-8", "surrogateescape"))
            digest.update(lines.text)
        digest.update("\n".join(self.empty_files).encode("utf-8", "surrogateescape"))
        return f"{self.index:06d}-{digest.hexdigest()[:32]}"


def read_chunks(
    files: Iterable[TextFile], held_out_files: Iterable[TextFile], *, wrapped: bool, hold_out: bool
) -> Iterator[Chunk]:
    """The chunks of all files, in order; the same files always give the same chunks.

    Each line is a paragraph; in `wrapped` text blank lines separate paragraphs, which are not
    split. `hold_out` holds out one in 500 paragraphs, until there are about 50,000 words.
    """
    builder = _ChunkBuilder()
    num_paragraphs, held_out_words = 0, 0
    for file, is_held_out in [(f, False) for f in files] + [(f, True) for f in held_out_files]:
        is_empty = True
        with file.open() as reader:
            for paragraph in _read_paragraphs(reader) if wrapped else _read_lines(reader):
                held_out = is_held_out
                if not paragraph.text.isspace():
                    is_empty = False
                    num_paragraphs += 1
                    if hold_out and not is_held_out and num_paragraphs % HELD_OUT_EVERY == 0:
                        held_out_words += len(paragraph.text.split())
                        held_out = True
                        hold_out = held_out_words < HELD_OUT_WORDS
                builder.add(file.name, paragraph, held_out=held_out)
                if builder.bytes >= CHUNK_BYTES:
                    yield builder.build(reader.bytes_read())
            builder.end_file(reader.bytes_read(), empty_file=file.name if is_empty else None)
    if builder.bytes or builder.empty_files:
        yield builder.build(0)


class _Paragraph(NamedTuple):
    first_line: int
    text: bytes  # cut at about MAX_BYTES


def _read_lines(reader: TextReader) -> Iterator[_Paragraph]:
    number = 0
    while text := reader.read_line(MAX_BYTES + 2):
        number += 1
        if len(text) > MAX_BYTES and not text.endswith(b"\n"):
            while (rest := reader.read_line(MAX_BYTES)) and not rest.endswith(b"\n"):
                pass  # the rest of a line that is too long never fills the memory
        yield _Paragraph(number, text if text.endswith(b"\n") else text + b"\n")


def _read_paragraphs(reader: TextReader) -> Iterator[_Paragraph]:
    """Lines up to a blank one, which is included."""
    first_line, lines, size = 1, list[bytes](), 0
    for number, text in _read_lines(reader):
        if size <= MAX_BYTES:
            lines.append(text)
            size += len(text)
        if text.isspace():
            yield _Paragraph(first_line, b"".join(lines))
            first_line, lines, size = number + 1, [], 0
    if lines:
        yield _Paragraph(first_line, b"".join(lines))


class _ChunkBuilder:
    """Collects paragraphs for a chunk."""

    def __init__(self) -> None:
        self.bytes = 0
        self.empty_files: list[str] = []
        self._num_chunks = 0
        self._bytes_before = 0  # in files that were read to their end
        self._ranges: list[LineRange] = []
        self._file, self._first_line, self._next_line, self._held_out = "", 0, 0, False
        self._texts: list[bytes] = []  # of the range that is being collected

    def add(self, file: str, paragraph: _Paragraph, *, held_out: bool) -> None:
        start = (file, paragraph.first_line, held_out)
        if start != (self._file, self._next_line, self._held_out):
            self._end_range()
            self._file, self._first_line, self._held_out = start
        self._texts.append(paragraph.text)
        self._next_line = paragraph.first_line + paragraph.text.count(b"\n")
        self.bytes += len(paragraph.text)

    def end_file(self, bytes_read: int, *, empty_file: str | None) -> None:
        self._bytes_before += bytes_read
        if empty_file is not None:
            self.empty_files.append(empty_file)

    def build(self, bytes_read: int) -> Chunk:
        """The chunk of what was added since the last one."""
        self._end_range()
        chunk = Chunk(
            self._num_chunks,
            tuple(self._ranges),
            tuple(self.empty_files),
            self._bytes_before + bytes_read,
        )
        self._num_chunks += 1
        self.bytes, self._ranges, self.empty_files = 0, [], []
        return chunk

    def _end_range(self) -> None:
        if self._texts:
            text = b"".join(self._texts)
            self._ranges.append(LineRange(self._file, self._first_line, text, self._held_out))
        self._texts, self._file = [], ""
