"""Settings of a run: dataclasses read from TOML files and command-line options."""

import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import field, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, TypeVar

from elmokit.errors import ConfigError
from elmokit.model_config import make_record

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Record = TypeVar("Record")
Range = Literal["> 0", ">= 0", "[0, 1]", "[0, 1)"]

_RANGES: dict[Range, tuple[str, Callable[[float], bool]]] = {
    "> 0": ("more than 0", lambda value: 0 < value < math.inf),
    ">= 0": ("0 or more", lambda value: 0 <= value < math.inf),
    "[0, 1]": ("0 to 1", lambda value: 0 <= value <= 1),
    "[0, 1)": ("0 to below 1", lambda value: 0 <= value < 1),
}


def setting(
    help: str, default: Any, range: Range | None = None, *, maximum: float | None = None
) -> Any:
    """A field of a settings dataclass: its help text, its default, and the values it may have."""
    return field(default=default, metadata={"help": help, "range": range, "maximum": maximum})


def check_ranges(record: Any) -> None:
    """Raise ConfigError if a setting is out of its range."""
    for f in fields(record):
        value, maximum = getattr(record, f.name), f.metadata["maximum"]
        if (interval := f.metadata["range"]) is not None:
            expected, is_inside = _RANGES[interval]
            if not is_inside(value):
                raise ConfigError(f"{f.name} is {value}, expected {expected}")
        if maximum is not None and value > maximum:
            raise ConfigError(f"{f.name} is {value}, expected at most {maximum}")


def to_toml(record: Any) -> str:
    """The settings as a TOML file, each with its help text as a comment."""
    return "".join(
        f"{f.name} = {json.dumps(getattr(record, f.name))}  # {f.metadata['help']}\n"
        for f in fields(record)
    )


def read_settings(defaults: Record, path: Path | None, options: Mapping[str, str]) -> Record:
    """A record of defaults, then the values of a TOML file, then options given as text."""
    if path is None:
        return override_settings(defaults, {}, options, "the settings")
    return override_settings(defaults, read_toml(path), options, str(path))


def override_settings(
    defaults: Record, values: Mapping[str, Any], options: Mapping[str, str], name: str
) -> Record:
    """A record of defaults with some values replaced, then others by options given as text.

    Error messages call the source of the values `name`.
    """
    assert is_dataclass(defaults)
    settings = {f.name: getattr(defaults, f.name) for f in fields(defaults)}
    if options:  # a mistake may be in a value or in an option: name both
        typed = " ".join(_as_typed(key, text) for key, text in options.items())
        name = f"{name} {typed}" if values else typed
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


def _as_typed(key: str, text: str) -> str:
    option = key.replace("_", "-")
    return {"true": f"--{option}", "false": f"--no-{option}"}.get(text, f"--{option} {text}")


def _parse_value(text: str) -> Any:
    """A value in TOML's notation; a bare word is a string."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
