"""Settings of a run: dataclasses read from TOML files and command-line options."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from elmokit.errors import ConfigError
from elmokit.model_config import make_record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = TypeVar("Record")


def setting(help: str, default: Any) -> Any:
    """A field of a settings dataclass, with its help text and its default."""
    return field(default=default, metadata={"help": help})


def check_ranges(
    record: object,
    *,
    positive: Sequence[str] = (),
    not_negative: Sequence[str] = (),
    from_0_to_1: Sequence[str] = (),
    below_one: Sequence[str] = (),
) -> None:
    """Raise ConfigError if one of the named settings is out of its range.

    `from_0_to_1` includes 1, `below_one` does not.
    """
    for name in positive:
        if not 0 < getattr(record, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(record, name)}, expected more than 0")
    for name in not_negative:
        if not 0 <= getattr(record, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(record, name)}, expected 0 or more")
    for name in from_0_to_1:
        if not 0 <= getattr(record, name) <= 1:
            raise ConfigError(f"{name} is {getattr(record, name)}, expected 0 to 1")
    for name in below_one:
        if not 0 <= getattr(record, name) < 1:
            raise ConfigError(f"{name} is {getattr(record, name)}, expected 0 to below 1")


def to_toml(record: Any) -> str:
    """The settings as a TOML file, each with its help text as a comment."""
    return "".join(
        f"{f.name} = {json.dumps(getattr(record, f.name))}  # {f.metadata['help']}\n"
        for f in fields(record)
    )


def override_settings(
    defaults: Record, values: Mapping[str, Any], options: Mapping[str, str], name: str
) -> Record:
    """A record of defaults with some values replaced, then others by options given as text.

    Error messages call the source of the values `name`.
    """
    assert is_dataclass(defaults)
    settings = {f.name: getattr(defaults, f.name) for f in fields(defaults)}
    if values:  # a mistake may be in a value or in an option: name both
        name += "".join(f" --{key.replace('_', '-')} {text}" for key, text in options.items())
    for key in (*values, *options):
        if key not in settings:
            close = get_close_matches(key, settings, 1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            known = ", ".join(sorted(settings))
            raise ConfigError(f"{name}: there is no setting {key!r}; known are {known}{hint}")
    changes = {**values, **{key: _parse_value(text) for key, text in options.items()}}
    for key, value in changes.items():
        if isinstance(settings[key], tuple) and not isinstance(value, list | tuple):
            changes[key] = [value]  # --layers 2
    return make_record({**settings, **changes}, type(defaults), name)


def read_toml(path: Path, expected: str = "expected a TOML file of settings") -> dict[str, Any]:
    """The values of a TOML file; `expected` ends the error message if there is no such file."""
    if not path.is_file():
        raise ConfigError(f"{path}: no such file, {expected}")
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not a TOML file ({error})") from None


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """The values in TOML text, which error messages call `name`."""
    try:
        values: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{name}: not a TOML file ({error})") from None
    return values


def _parse_value(text: str) -> Any:
    """A value in TOML's notation; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
