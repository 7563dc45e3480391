"""JSON, TOML or named values become a checked record, or a sentence that says what is wrong."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from elmokit.errors import ConfigError, FormatError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = TypeVar("Record")


def read_record(path: Path, kind: type[Record], expected: str) -> Record:
    """The record that a JSON file describes; `expected` says what the file should have been."""
    text = path.read_bytes().removeprefix(b"\xef\xbb\xbf")  # a mark that some editors leave
    try:
        return TypeAdapter(kind).validate_json(text, strict=True)
    except ValidationError as error:
        raise FormatError(f"{path}: {_first_fault(error)}; expected {expected}") from None


def make_record(values: Mapping[str, Any], kind: type[Record], name: str) -> Record:
    """The record of those values; whole numbers serve as numbers, lists as tuples."""
    try:
        return TypeAdapter(kind).validate_python(dict(values))
    except ValidationError as error:
        raise ConfigError(f"{name}: {_first_fault(error)}") from None


def read_toml(path: Path, otherwise: str = "name a TOML file") -> dict[str, Any]:
    """The values of a TOML file; `otherwise` ends the sentence that says there is none."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, and {otherwise}")
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The values of TOML text."""
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not a TOML file ({error})") from None
    return values


def parse_value(text: str) -> Any:
    """A value as TOML would have it; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _first_fault(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}{': ' if place else ''}{first['msg']}"
