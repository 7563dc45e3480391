"""Numbered lines of a text file, packed or not, and the errors that point to them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

from elmokit.errors import FormatError
from elmokit.files import TextFile, read_lines

Examples = TypeVar("Examples", bound=Sequence[object])
File: TypeAlias = "str | Path | Iterable[Line]"  # a path, or lines that were read already


class Line(NamedTuple):
    """A line of a file, without its line break."""

    file: str
    number: int
    text: str

    def error(self, message: str) -> FormatError:
        """A FormatError that begins with the file and the line."""
        return FormatError(f"{self.file}, line {self.number}: {message}")

    @property
    def blank(self) -> bool:
        """Whether the line holds only spaces and tabs."""
        return not self.text.strip(" \t\r")


def numbered_lines(file: File) -> Iterator[Line]:
    """The lines of a UTF-8 file, plain or packed by gzip, xz or Zstandard."""
    if not isinstance(file, str | Path):
        yield from file
        return
    text_file = TextFile(str(file))
    with text_file.open() as opened:
        yield from number_lines(opened, text_file.name)


def number_lines(opened: Iterable[bytes], name: str) -> Iterator[Line]:
    """The lines of a file that is already open."""
    for number, text in enumerate(read_lines(opened, name), 1):
        yield Line(name, number, text)


def blocks_of(lines: Iterable[Line], *, also: str | None = None) -> Iterator[list[Line]]:
    """Groups of lines between blank ones, or between lines that begin with `also`."""

    def separates(line: Line) -> bool:
        return line.blank or (also is not None and line.text.startswith(also))

    for is_separator, block in groupby(lines, separates):
        if not is_separator:
            yield [*block]


def check_not_empty(examples: Examples, path: str | Path, expected: str) -> Examples:
    """The examples of a file; an error if there are none."""
    if not examples:
        raise FormatError(
            f"{TextFile(str(path)).name}: holds no example, expected {expected}; is it the right "
            "file?"
        )
    return examples


def parse_whole_number(text: str) -> int | None:
    """A number of at most nine ASCII digits, or None."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def check_label(label: str, line: Line, labels: Sequence[str] | None = None) -> str:
    """A label without spaces around it; an error if it is empty or not one of `labels`."""
    label = label.strip()
    if not label:
        raise line.error("no label, expected one; write it or remove the line")
    if labels is not None and label not in labels:
        raise line.error(
            f"label {label!r}, expected one of {', '.join(labels)}; correct it or remove the line"
        )
    return label
