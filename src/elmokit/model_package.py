"""A Python package around a model: once it is installed, `elmokit.load` knows the model by name."""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from elmokit import formats
from elmokit.atomic import new_directory
from elmokit.errors import InputError, OutputError
from elmokit.formats.native import CARD, without_metadata

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_VERSION = re.compile(r"\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?")
# The form of an SPDX expression; whether SPDX lists the names in it is checked by the build.
_LICENCE_NAME = r"\(*[a-z0-9][a-z0-9.-]*\+?\)*"
_LICENCE = re.compile(
    rf"{_LICENCE_NAME}( (and|or|with) {_LICENCE_NAME})*", re.ASCII | re.IGNORECASE
)
_UNWRITABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # in TOML or UTF-8
_PYPROJECT = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = {project}
version = {version}
description = {description}
readme = "README.md"
{license}requires-python = ">=3.10"
dependencies = ["elmokit"]

[project.entry-points."elmokit.models"]
{name} = {module}

[tool.hatch.build.targets.wheel]
packages = [{module}]
"""
_CATALOGUE = """\
[[group]]

[[group.models]]
name = {name}
description = {description}
languages = {languages}
format = "elmokit"
folder = "."
tokenizer = {tokenizer}
layers = {layers}
dimensions = {dimensions}
softmax = {softmax}
{licence}"""


def write_package(
    source: str | Path,
    target: str | Path,
    *,
    name: str,
    version: str = "1.0.0",
    description: str = "",
    languages: str | Sequence[str] = (),
    licence: str = "",
    half: bool = False,
    offline: bool = False,
) -> None:
    """Write a package that can be built, uploaded and installed: `elmokit-NAME` around a model.

    `languages` are ISO 639 codes, `licence` is an SPDX expression. The model's README.md, its card,
    stays with it and is the package's.

    Example:
        elmokit.write_package("run", "elmokit-swahili", name="swahili", languages=["sw"])
    """
    if not _NAME.fullmatch(name):
        raise InputError(f"name is {name!r}, expected small letters and digits, and - between them")
    if not _VERSION.fullmatch(version):
        raise InputError(f"version is {version!r}, expected one such as 1.0.0")
    if licence and not _LICENCE.fullmatch(licence):
        raise InputError(
            f"licence is {licence!r}, expected an SPDX expression such as CC-BY-SA-4.0, or "
            "LicenseRef- and a name for a licence that SPDX does not list"
        )
    languages = [languages] if isinstance(languages, str) else list(languages)
    for text in (description, *languages):
        if character := _UNWRITABLE.search(text):
            raise InputError(
                f"{text!r} has the character {character[0]!r}, expected one line of text"
            )
    target = Path(target)
    if target.exists():
        raise InputError(f"{target}: exists already; give the name of a new folder")
    pretrained = formats.load(source, offline=offline)
    bilm = pretrained.model.bilm.config
    module = f"elmokit_{name.replace('-', '_')}"
    description = description or f"{name}, an ELMo model"
    facts = {
        "name": name, "project": f"elmokit-{name}", "version": version, "module": module,
        "description": description, "languages": languages, "layers": bilm.num_layers + 1,
        "tokenizer": pretrained.tokenizer, "dimensions": bilm.output_size,
        "softmax": pretrained.model.softmax is not None,
    }  # fmt: skip
    values = {key: json.dumps(value, ensure_ascii=False) for key, value in facts.items()}
    stated = json.dumps(licence, ensure_ascii=False)
    values["license"] = f"license = {stated}\n" if licence else ""
    values["licence"] = f"licence = {stated}\n" if licence else ""
    try:
        with new_directory(target) as folder:
            formats.save(pretrained, folder / module, half=half)
            card = (folder / module / CARD).read_text(encoding="utf-8")
            (folder / CARD).write_text(without_metadata(card), encoding="utf-8")
            (folder / module / "__init__.py").write_text(
                f'"""{name}, an ELMo model."""\n', encoding="utf-8"
            )
            (folder / module / "models.toml").write_text(
                _CATALOGUE.format_map(values), encoding="utf-8"
            )
            (folder / "pyproject.toml").write_text(
                _PYPROJECT.format_map({**values, "name": name}), encoding="utf-8"
            )
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None
