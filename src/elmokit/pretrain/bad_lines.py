"""Lines that cannot be trained on: found, reported, left out."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from elmokit.pretrain.line_ranges import LONGEST_BYTES, Stretch

LONGEST_LINE = 1_000_000  # characters
LONGEST_WITHOUT_SPACE = 10_000

FAULTS = {
    "bytes": "not UTF-8",
    "nul": "with a NUL character",
    "long": f"longer than {LONGEST_LINE:,} characters",
    "spaceless": f"longer than {LONGEST_WITHOUT_SPACE:,} characters without white space",
    "empty": "without text",
}


@dataclass(frozen=True)
class Fault:
    """A line that cannot be used, or a file without text (line 0)."""

    file: str
    line: int
    kind: str  # one of FAULTS
    found: str = ""

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{where}: {FAULTS[self.kind]}" + (f" ({self.found})" if self.found else "")


def paragraphs_of(
    stretch: Stretch, report: Callable[[Fault], None], *, spaced: bool, wrapped: bool
) -> Iterator[str]:
    """The paragraphs of a stretch, without the lines that cannot be used; those are reported.

    `spaced` text has white space between its words.
    """
    paragraph = _Wrapped(stretch.line)
    for number, line in enumerate(_decoded(stretch.text), stretch.line):
        paragraph.size += len(line.object if isinstance(line, UnicodeDecodeError) else line) + 1
        if (fault := _fault_of(line, spaced=spaced)) is not None:
            report(Fault(stretch.file, number, *fault))
            continue
        text = str(line).removeprefix("\ufeff") if number == 1 else str(line)
        if not wrapped:
            yield text
        elif text.strip():
            paragraph.lines.append(text)
        else:
            yield from paragraph.end(stretch.file, report)
            paragraph = _Wrapped(number + 1)
    yield from paragraph.end(stretch.file, report)


@dataclass
class _Wrapped:
    """Lines on their way into a paragraph."""

    first: int
    size: int = 0  # in characters, or more: lines that cannot be used count too
    lines: list[str] = field(default_factory=list)

    def end(self, file: str, report: Callable[[Fault], None]) -> Iterator[str]:
        if self.lines and self.size > LONGEST_LINE:
            report(Fault(file, self.first, "long", "lines without a blank one between them"))
        elif self.lines:
            yield "\n".join(self.lines)


def _decoded(text: bytes) -> list[str | UnicodeDecodeError]:
    """The lines, or why one is not UTF-8."""
    try:
        return [*text.decode().removesuffix("\n").split("\n")]
    except UnicodeDecodeError:
        return [_decoded_line(line) for line in text.removesuffix(b"\n").split(b"\n")]


def _decoded_line(line: bytes) -> str | UnicodeDecodeError:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        return error


def _fault_of(line: str | UnicodeDecodeError, *, spaced: bool) -> tuple[str, str] | None:
    """What is wrong with a line: the kind, and what was found."""
    if isinstance(line, UnicodeDecodeError):
        if len(line.object) > LONGEST_BYTES:
            return "long", ""  # it was cut, perhaps within a character
        return "bytes", f"byte 0x{line.object[line.start]:02x} at column {line.start + 1}"
    if len(line) > LONGEST_LINE:
        return "long", ""
    if "\0" in line:
        return "nul", f"at column {line.index(chr(0)) + 1}"
    if spaced and len(line) > LONGEST_WITHOUT_SPACE and len(line.split(None, 1)) == 1:
        return "spaceless", f"{len(line):,} characters"
    return None
