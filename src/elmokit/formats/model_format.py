"""The registry of model formats: which files each has, and how it is read."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from elmokit.formats.pretrained import Pretrained

ReadModel = Callable[[Path, str | None], Pretrained]  # of a folder, with a tokenizer's name


@dataclass(frozen=True)
class ModelFormat:
    """A format of model folders.

    `required` are the files of every model, by what they are: "weights file" to the patterns of
    their names. `optional` are the patterns of all other files that are read.
    """

    name: str
    required: Mapping[str, tuple[str, ...]]
    optional: tuple[str, ...]
    read: ReadModel

    def missing(self, files: Collection[str]) -> list[str]:
        """The kinds of required files that are not among these files of a folder."""
        return [
            f"{kind} ({' or '.join(patterns)})"
            for kind, patterns in self.required.items()
            if not any(_fits(file, patterns) for file in files)
        ]

    def select(self, files: Collection[str]) -> list[str]:
        """Those of a folder's files that belong to a model of this format."""
        return [file for file in files if _fits(file, self.patterns)]

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of all files that are read."""
        return sum(self.required.values(), self.optional)


# All formats by name, in the order in which a folder is tried.
FORMATS: dict[str, ModelFormat] = {}


def register_format(
    name: str, required: Mapping[str, tuple[str, ...]], optional: tuple[str, ...] = ()
) -> Callable[[ReadModel], ReadModel]:
    """A decorator that makes a function the reader of a format."""

    def register(read: ReadModel) -> ReadModel:
        FORMATS[name] = ModelFormat(name, required, optional, read)
        return read

    return register


def find_format(files: Collection[str]) -> ModelFormat | None:
    """The format of a folder with these files, by their paths in the folder."""
    return next((known for known in FORMATS.values() if not known.missing(files)), None)


def explain_missing(files: Collection[str]) -> str:
    """Why a folder with these files is no model: what the most similar format has beside them."""
    nearest = max(FORMATS.values(), key=lambda f: len(f.required) - len(f.missing(files)))
    missing = nearest.missing(files)
    if not missing:
        return f"the files of a model of the format {nearest.name} are not in one folder"
    if len(missing) < len(nearest.required):
        return f"no {missing[0]}, which a model of the format {nearest.name} has"
    names = ", ".join(sorted(files)[:8]) or "nothing"
    expected = "; ".join(
        f"{known.name}: {', '.join(patterns[0] for patterns in known.required.values())}"
        for known in FORMATS.values()
    )
    return f"no model here; found {names}. Expected the files of one of these formats: {expected}"


def _fits(file: str, patterns: Collection[str]) -> bool:
    return any(
        file.count("/") == pattern.count("/") and fnmatchcase(file, pattern) for pattern in patterns
    )
