"""Lines that cannot be used for training, such as those that are not UTF-8."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from elmokit.pretraining.line_ranges import MAX_BYTES, LineRange

MAX_LINE = 1_000_000  # characters
MAX_WITHOUT_SPACE = 10_000

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
    paragraph = _WrappedParagraph(lines.first_line)
    for number, line in enumerate(_decode(lines.text), lines.first_line):
        paragraph.size += len(line.object if isinstance(line, UnicodeDecodeError) else line) + 1
        if (problem := _find_problem(line, spaced=spaced)) is not None:
            report(BadLine(lines.file, number, *problem))
            continue
        text = str(line).removeprefix("\ufeff") if number == 1 else str(line)
        if not wrapped:
            yield text
        elif text.strip():
            paragraph.lines.append(text)
        else:
            yield from paragraph.end(lines.file, report)
            paragraph = _WrappedParagraph(number + 1)
    yield from paragraph.end(lines.file, report)


@dataclass
class _WrappedParagraph:
    """The lines of a paragraph that has not ended yet."""

    first_line: int
    size: int = 0  # characters, those of bad lines and line ends included
    lines: list[str] = field(default_factory=list)

    def end(self, file: str, report: Callable[[BadLine], None]) -> Iterator[str]:
        if self.lines and self.size > MAX_LINE:
            report(BadLine(file, self.first_line, "long", "lines without a blank one between them"))
        elif self.lines:
            yield "\n".join(self.lines)


def _decode(text: bytes) -> list[str | UnicodeDecodeError]:
    """The lines; in place of one that is not UTF-8, the error."""
    try:
        return [*text.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError:
        return [_decode_line(line) for line in text.removesuffix(b"\n").split(b"\n")]


def _decode_line(line: bytes) -> str | UnicodeDecodeError:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        return error


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
