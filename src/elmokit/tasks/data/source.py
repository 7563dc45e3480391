"""A file, packed or not, becomes numbered lines that can say what is wrong with them."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

from elmokit.errors import FormatError
from elmokit.files import TextFile, read_lines

_Example = TypeVar("_Example")


class Line(NamedTuple):
    """A line of a file, without its end."""

    file: str
    number: int
    text: str

    def wrong(self, what: str) -> FormatError:
        """The error that says what is wrong in this line."""
        return FormatError(f"{self.file}, line {self.number}: {what}")

    @property
    def blank(self) -> bool:
        """Whether there is nothing but spaces and tabs."""
        return not self.text.strip(" \t\r")


def lines_of(path: str | Path) -> Iterator[Line]:
    """The lines of a UTF-8 file, plain or packed by gzip, xz or Zstandard."""
    file = TextFile(str(path))
    with file.open() as opened:
        yield from numbered(opened, file.name)


def numbered(opened: Iterable[bytes], name: str) -> Iterator[Line]:
    """The lines of what is open already."""
    for number, text in enumerate(read_lines(opened, name), 1):
        yield Line(name, number, text)


def blocks_of(lines: Iterable[Line]) -> Iterator[list[Line]]:
    """Lines that stand together, without the blank ones between them."""
    block: list[Line] = []
    for line in lines:
        if not line.blank:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def some(examples: list[_Example], path: str | Path, expected: str) -> list[_Example]:
    """The examples of a file, refused where there are none."""
    if not examples:
        raise FormatError(
            f"{TextFile(str(path)).name}: holds no example, expected {expected}; is it the right "
            "file?"
        )
    return examples


def whole_number(text: str) -> int | None:
    """The number of at most nine plain digits that a text is, if it is one."""
    return int(text) if re.fullmatch("[0-9]{1,9}", text) else None


def known(label: str, line: Line, labels: Sequence[str] | None = None) -> str:
    """The label in a line, refused where it is empty or, if `labels` are given, none of them."""
    label = label.strip()
    if not label:
        raise line.wrong("no label, expected one; write it or remove the line")
    if labels is not None and label not in labels:
        raise line.wrong(
            f"label {label!r}, expected one of {', '.join(labels)}; correct it or remove the line"
        )
    return label
