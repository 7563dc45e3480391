"""JSON or named values become a checked record, or a sentence that says what is wrong."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from elmokit.errors import ConfigError, FormatError

Record = TypeVar("Record")


def read_record(path: Path, kind: type[Record], expected: str) -> Record:
    """The record that a JSON file describes; `expected` says what the file should have been."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # a mark that some editors leave
    return parse_record(text, kind, str(path), expected)


def parse_record(text: str | bytes, kind: type[Record], name: str, expected: str) -> Record:
    """The record that JSON describes; `name` says whence it is, `expected` what it should be."""
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise FormatError(f"{name}: {_first_fault(error)}; expected {expected}") from None


def make_record(values: Mapping[str, Any], kind: type[Record], name: str) -> Record:
    """The record of those values; whole numbers serve as numbers, lists as tuples."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{name}: {_first_fault(error)}") from None


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}{': ' if place else ''}{first['msg'].removeprefix('Value error, ')}"
