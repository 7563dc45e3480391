"""Chunks of the input text, which are prepared in parallel; their paragraphs and bad lines."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from elmokit.files import TextFile, TextReader

CHUNK_BYTES = 2**22
# Lines and paragraphs are cut at this size: more than the longest that are used, in any encoding.
MAX_BYTES = 4_000_000
MAX_LINE = 1_000_000  # characters
MAX_WITHOUT_SPACE = 10_000

# Without held-out files, one in so many paragraphs is held out, up to about so many words.
HELD_OUT_EVERY = 500
HELD_OUT_WORDS = 50_000


@dataclass(frozen=True)
class LineRange:
    """Consecutive lines of a file."""

    file: str
    first_line: int
    text: bytearray
    held_out: bool


@dataclass(frozen=True)
class Chunk:
    """Line ranges that are prepared together."""

    index: int
    ranges: list[LineRange]
    empty_files: list[str]  # that ended in this chunk
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
    files: Iterable[tuple[TextFile, bool]], *, wrapped: bool, hold_out: bool
) -> Iterator[Chunk]:
    """The chunks of all files, in order; the same files always give the same chunks.

    `files` says of each whether it is held out. Each line is a paragraph; in `wrapped` text blank
    lines separate paragraphs, which are not split. `hold_out` holds out one in 500 paragraphs,
    until there are about 50,000 words.
    """
    ranges, empty_files = list[LineRange](), list[str]()
    index = chunk_bytes = num_paragraphs = held_out_words = bytes_of_files = 0
    for file, is_held_out in files:
        is_empty, next_line = True, 0
        with file.open() as reader:
            for first_line, text in _read_paragraphs(reader) if wrapped else _read_lines(reader):
                held_out = is_held_out
                if not text.isspace():
                    is_empty = False
                    num_paragraphs += 1
                    if hold_out and not is_held_out and num_paragraphs % HELD_OUT_EVERY == 0:
                        held_out_words += len(text.split())
                        held_out = True
                        hold_out = held_out_words < HELD_OUT_WORDS
                if not (ranges and (first_line, held_out) == (next_line, ranges[-1].held_out)):
                    ranges.append(LineRange(file.name, first_line, bytearray(), held_out))
                ranges[-1].text.extend(text)
                next_line = first_line + text.count(b"\n")
                chunk_bytes += len(text)
                if chunk_bytes >= CHUNK_BYTES:
                    yield Chunk(index, ranges, empty_files, bytes_of_files + reader.bytes_read())
                    ranges, empty_files, index, chunk_bytes = [], [], index + 1, 0
            bytes_of_files += reader.bytes_read()
        if is_empty:
            empty_files.append(file.name)
    if ranges or empty_files:
        yield Chunk(index, ranges, empty_files, bytes_of_files)


def _read_lines(reader: TextReader) -> Iterator[tuple[int, bytes]]:
    """Lines and their numbers, cut at about MAX_BYTES."""
    number = 0
    while text := reader.read_line(MAX_BYTES + 2):
        number += 1
        if len(text) > MAX_BYTES and not text.endswith(b"\n"):
            while (rest := reader.read_line(MAX_BYTES)) and not rest.endswith(b"\n"):
                pass  # the rest of a line that is too long never fills the memory
        yield number, text if text.endswith(b"\n") else text + b"\n"


def _read_paragraphs(reader: TextReader) -> Iterator[tuple[int, bytes]]:
    """Lines up to a blank one, which is included, and the number of the first."""
    first_line, lines, size = 1, list[bytes](), 0
    for number, text in _read_lines(reader):
        if size <= MAX_BYTES:
            lines.append(text)
            size += len(text)
        if text.isspace():
            yield first_line, b"".join(lines)
            first_line, lines, size = number + 1, [], 0
    if lines:
        yield first_line, b"".join(lines)


KINDS = {
    "bytes": "not UTF-8",
    "nul": "with a NUL character",
    "long": f"longer than {MAX_LINE:,} characters",
    "spaceless": f"longer than {MAX_WITHOUT_SPACE:,} characters without white space",
    "empty": "without text",
}


@dataclass(frozen=True)
class BadLine:
    """A line that cannot be used, or a file without text (line 0)."""

    file: str
    line: int
    kind: str  # one of KINDS
    detail: str = ""

    def __str__(self) -> str:
        location = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{location}: {KINDS[self.kind]}" + (f" ({self.detail})" if self.detail else "")


def split_paragraphs(
    lines: LineRange, report: Callable[[BadLine], None], *, spaced: bool, wrapped: bool
) -> Iterator[str]:
    """The paragraphs of a range, without its bad lines, which are reported.

    In `spaced` text there is white space between words.
    """
    first_line, size = lines.first_line, 0  # characters, those of bad lines and line ends included
    paragraph: list[str] = []

    def end_paragraph() -> Iterator[str]:
        if paragraph and size > MAX_LINE:
            detail = "lines without a blank one between them"
            report(BadLine(lines.file, first_line, "long", detail))
        elif paragraph:
            yield "\n".join(paragraph)

    for number, line in enumerate(_decode(lines.text), lines.first_line):
        size += len(line.object if isinstance(line, UnicodeDecodeError) else line) + 1
        if (problem := _find_problem(line, spaced=spaced)) is not None:
            report(BadLine(lines.file, number, *problem))
            continue
        text = str(line).removeprefix("\ufeff") if number == 1 else str(line)
        if not wrapped:
            yield text
        elif text.strip():
            paragraph.append(text)
        else:
            yield from end_paragraph()
            first_line, size, paragraph = number + 1, 0, []
    yield from end_paragraph()


def _decode(text: bytearray) -> Iterator[str | UnicodeDecodeError]:
    """The lines; in place of one that is not UTF-8, the error."""
    for line in text.removesuffix(b"\n").split(b"\n"):
        try:
            yield line.decode()
        except UnicodeDecodeError as error:
            yield error


def _find_problem(line: str | UnicodeDecodeError, *, spaced: bool) -> tuple[str, str] | None:
    """The kind and the detail of what is wrong with a line."""
    if isinstance(line, UnicodeDecodeError):
        if len(line.object) > MAX_BYTES:
            return "long", ""  # it was cut, perhaps within a character
        return "bytes", f"byte 0x{line.object[line.start]:02x} at column {line.start + 1}"
    if len(line) > MAX_LINE:
        return "long", ""
    if "\0" in line:
        return "nul", f"at column {line.index(chr(0)) + 1}"
    if spaced and len(line) > MAX_WITHOUT_SPACE and len(line.split(None, 1)) == 1:
        return "spaceless", f"{len(line):,} characters"
    return None
