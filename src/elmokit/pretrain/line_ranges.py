"""Ranges of lines of the input files, the unit of parallel preparation."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from elmokit.files import TextFile, TextReader

BLOCK_BYTES = 2**22
# More than the longest line or paragraph that is text, whatever its characters.
LONGEST_BYTES = 4_000_000

# Without a file of its own, held-out text is every so manieth line, up to about so many words.
HELD_OUT_EVERY = 500
HELD_OUT_WORDS = 50_000


@dataclass(frozen=True)
class Stretch:
    """Lines that follow one another in a file."""

    file: str
    line: int  # the number of the first
    text: bytes
    held_out: bool


@dataclass(frozen=True)
class Block:
    """Stretches that become a part of the corpus together."""

    place: int
    stretches: tuple[Stretch, ...]
    empty_files: tuple[str, ...]  # that ended in this block
    bytes_read: int  # of the packed files, up to the end of this block

    def key(self, settings: str) -> str:
        """A name that blocks of the same contents and settings share, and no others."""
        digest = hashlib.sha256(settings.encode())
        for stretch in self.stretches:
            head = f"{stretch.file}\n{stretch.line} {stretch.held_out} {len(stretch.text)}\n"
            digest.update(head.encode("utf-8", "surrogateescape"))
            digest.update(stretch.text)
        digest.update("\n".join(self.empty_files).encode("utf-8", "surrogateescape"))
        return f"{self.place:06d}-{digest.hexdigest()[:32]}"


def read_blocks(
    files: Iterable[TextFile], held_out_files: Iterable[TextFile], *, wrapped: bool, hold_out: bool
) -> Iterator[Block]:
    """The blocks of all files, in order; the same files always give the same blocks.

    `wrapped` text is in paragraphs between blank lines, which are not torn; else each line is a
    paragraph. `hold_out` holds out every 500th paragraph, until there are about 50,000 words.
    """
    gathered = _Gathered()
    paragraphs, held_out_words = 0, 0
    for file, held in [(f, False) for f in files] + [(f, True) for f in held_out_files]:
        empty = True
        with file.open() as opened:
            for paragraph in _paragraphs(opened) if wrapped else _lines(opened):
                held_out = held
                if not paragraph.text.isspace():
                    empty = False
                    paragraphs += 1
                    if hold_out and not held and paragraphs % HELD_OUT_EVERY == 0:
                        held_out_words += len(paragraph.text.split())
                        held_out = True
                        hold_out = held_out_words < HELD_OUT_WORDS
                gathered.add(file.name, paragraph, held_out=held_out)
                if gathered.bytes >= BLOCK_BYTES:
                    yield gathered.block(opened.bytes_read())
            gathered.end_file(opened.bytes_read(), empty=file.name if empty else None)
    if gathered.bytes or gathered.empty_files:
        yield gathered.block(0)


class _Paragraph(NamedTuple):
    line: int
    text: bytes  # what is longer than text may be is cut


def _lines(opened: TextReader) -> Iterator[_Paragraph]:
    number = 0
    while text := opened.read_line(LONGEST_BYTES + 2):
        number += 1
        if len(text) > LONGEST_BYTES and not text.endswith(b"\n"):
            while (rest := opened.read_line(LONGEST_BYTES)) and not rest.endswith(b"\n"):
                pass  # what is too long for a line is not kept in memory
        yield _Paragraph(number, text if text.endswith(b"\n") else text + b"\n")


def _paragraphs(opened: TextReader) -> Iterator[_Paragraph]:
    """Lines up to a blank one, that included."""
    first, gathered, size = 1, list[bytes](), 0
    for number, text in _lines(opened):
        if size <= LONGEST_BYTES:
            gathered.append(text)
            size += len(text)
        if text.isspace():
            yield _Paragraph(first, b"".join(gathered))
            first, gathered, size = number + 1, [], 0
    if gathered:
        yield _Paragraph(first, b"".join(gathered))


class _Gathered:
    """Paragraphs on their way into a block."""

    def __init__(self) -> None:
        self.bytes = 0
        self.empty_files: list[str] = []
        self._blocks = 0
        self._bytes_before = 0  # in files that were read to their end
        self._stretches: list[Stretch] = []
        self._file, self._line, self._next_line, self._held_out = "", 0, 0, False
        self._texts: list[bytes] = []

    def add(self, file: str, paragraph: _Paragraph, *, held_out: bool) -> None:
        here = (file, paragraph.line, held_out)
        if here != (self._file, self._next_line, self._held_out):
            self._end_stretch()
            self._file, self._line, self._held_out = here
        self._texts.append(paragraph.text)
        self._next_line = paragraph.line + paragraph.text.count(b"\n")
        self.bytes += len(paragraph.text)

    def end_file(self, bytes_read: int, *, empty: str | None) -> None:
        self._bytes_before += bytes_read
        if empty is not None:
            self.empty_files.append(empty)

    def block(self, bytes_read: int) -> Block:
        self._end_stretch()
        block = Block(
            self._blocks,
            tuple(self._stretches),
            tuple(self.empty_files),
            self._bytes_before + bytes_read,
        )
        self._blocks += 1
        self.bytes, self._stretches, self.empty_files = 0, [], []
        return block

    def _end_stretch(self) -> None:
        if self._texts:
            text = b"".join(self._texts)
            self._stretches.append(Stretch(self._file, self._line, text, self._held_out))
        self._texts, self._file = [], ""
