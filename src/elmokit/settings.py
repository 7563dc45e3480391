"""Settings of a run: dataclasses read from TOML files and command-line options."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

from elmokit.config import make_record
from elmokit.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = TypeVar("Record")


def setting(help: str, default: Any) -> Any:
    """A field of a dataclass, with its meaning and its default."""
    return field(default=default, metadata={"help": help})


def check_ranges(
    record: object,
    *,
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    shares: Sequence[str] = (),
    below_one: Sequence[str] = (),
) -> None:
    """Refuse numbers that are out of their range, by their names; of `below_one` 1 is too."""
    for name in positive:
        if not 0 < getattr(record, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(record, name)}, expected more than 0")
    for name in not_negative:
        if not 0 <= getattr(record, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(record, name)}, expected 0 or more")
    for name in shares:
        if not 0 <= getattr(record, name) <= 1:
            raise ConfigError(f"{name} is {getattr(record, name)}, expected 0 to 1")
    for name in below_one:
        if not 0 <= getattr(record, name) < 1:
            raise ConfigError(f"{name} is {getattr(record, name)}, expected 0 to below 1")


def to_toml(record: Any) -> str:
    """The settings as a TOML file, each with what it means."""
    return "".join(
        f"{f.name} = {json.dumps(getattr(record, f.name))}  # {f.metadata['help']}\n"
        for f in fields(record)
    )


def override_settings(
    start: Record, values: Mapping[str, Any], given: Mapping[str, str], name: str
) -> Record:
    """A record with some values replaced, and then others that are given as text.

    `name` says where the values come from.
    """
    assert is_dataclass(start)
    before = {f.name: getattr(start, f.name) for f in fields(start)}
    if values:  # a mistake may be theirs or an option's
        name += "".join(f" --{key.replace('_', '-')} {text}" for key, text in given.items())
    for key in (*values, *given):
        if key not in before:
            raise ConfigError(f"{name}: there is no setting {key!r}; known are {sorted(before)}")
    told = {**values, **{key: _parse_value(text) for key, text in given.items()}}
    for key, value in told.items():
        if isinstance(before[key], tuple) and not isinstance(value, list | tuple):
            told[key] = [value]  # --layers 2
    return make_record({**before, **told}, type(start), name)


def read_toml(path: Path, otherwise: str = "expected a TOML file of settings") -> dict[str, Any]:
    """The values of a TOML file; `otherwise` ends the sentence that says there is none."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, {otherwise}")
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


def _parse_value(text: str) -> Any:
    """A value as TOML would have it; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
