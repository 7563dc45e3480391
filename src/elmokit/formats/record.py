"""JSON becomes a checked record, or a sentence that says what is wrong with it."""

from pathlib import Path
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from elmokit.errors import FormatError

Record = TypeVar("Record")


def read_record(path: Path, kind: type[Record], expected: str) -> Record:
    """The record that a JSON file describes; `expected` says what the file should have been."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # a mark that some editors leave
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise FormatError(
            f"{path}: {place}{': ' if place else ''}{first['msg']}; expected {expected}"
        ) from None
