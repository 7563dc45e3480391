"""Loading, saving and converting models in every supported format."""

import os
import shutil
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Literal

from elmokit.atomic import new_directory
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.formats import native
from elmokit.formats.bilm_tf import read_bilm_tf, write_bilm_tf
from elmokit.formats.pretrained import Pretrained
from elmokit.vocab import write_vocabulary

__all__ = ["Pretrained", "convert", "load", "save"]

Format = Literal["elmokit", "bilm-tf"]

ENGLISH = Path(__file__).parents[1] / "english"  # the model in the package

_SIGNATURES = {
    b"\x89HDF\r\n\x1a\n": "an HDF5 file",
    b"PK\x03\x04": "a zip archive",
    b"\x1f\x8b": "a gzip archive",
    b"\x80\x02": "a pickle",
    b"\x80\x03": "a pickle",
    b"\x80\x04": "a pickle",
}


def load(
    source: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    tokenizer: str | None = None,
) -> Pretrained:
    """The model of a folder, a zip, or an options and a weights file in either order.

    Without any of these it is the English model in the package. `tokenizer` replaces the one that
    is stored with the model.
    """
    if source is None and not ENGLISH.is_dir():
        raise FormatError("this copy of elmokit has no English model; name a folder or files")
    first = ENGLISH if source is None else _existing(source)
    if weights is not None:
        return _load_pair(first, _existing(weights), tokenizer)
    if first.is_dir():
        return _load_folder(first, tokenizer)
    kind = _kind(first)
    if kind == "a zip archive":
        return _load_zip(first, tokenizer)
    if kind in ("an HDF5 file", "text"):
        raise FormatError(
            f"{first}: one file of two; give the options file and the weights file, or their folder"
        )
    raise FormatError(
        f"{first}: this is {kind}, expected a folder, a zip, "
        "or an options file with its weights file (HDF5)"
    )


def save(
    pretrained: Pretrained,
    target: str | Path,
    *,
    format: Format = "elmokit",
    half: bool = False,
) -> None:
    """Save a model as a new folder, which appears only when complete; `half` means float16."""
    target = Path(target)
    if target.exists():
        raise InputError(f"{target}: exists already; give the name of a new folder")
    if not target.parent.is_dir():
        raise InputError(f"{target}: {target.parent} is not a folder; make it first")
    if format not in ("elmokit", "bilm-tf"):
        raise InputError(f"format is {format!r}, expected 'elmokit' or 'bilm-tf'")
    if format == "bilm-tf" and half:
        raise InputError("bilm-tf's files hold float32 only; leave out half")
    try:
        with new_directory(target) as folder:
            if format == "elmokit":
                native.write_native(pretrained, folder, half=half)
                return
            write_bilm_tf(pretrained, folder / "options.json", folder / "weights.hdf5")
            if pretrained.vocabulary is not None:
                write_vocabulary(pretrained.vocabulary, folder / "vocab.txt")
    except OSError as error:
        raise OutputError(f"{target}: cannot be written ({error.strerror or error})") from None


def convert(
    source: str | Path,
    target: str | Path,
    *,
    weights: str | Path | None = None,
    format: Format = "elmokit",
    tokenizer: str | None = None,
    half: bool = False,
) -> None:
    """Save a model of any format in another format; without loss, except for `half`."""
    save(load(source, weights, tokenizer=tokenizer), target, format=format, half=half)


def _load_folder(folder: Path, tokenizer: str | None) -> Pretrained:
    if (folder / "model" / native.CONFIG).is_file():  # the best model of a pretraining run
        folder = folder / "model"
    if (folder / native.CONFIG).is_file() and (folder / native.WEIGHTS).is_file():
        return native.read_native(folder, tokenizer=tokenizer)
    if (folder / "checkpoint.pt").is_file() and (folder / "settings.toml").is_file():
        raise FormatError(
            f"{folder}: this pretraining run has not saved a model yet; it saves the first one "
            "after its first validation (see validation_interval in settings.toml)"
        )
    options = _single(
        folder, sorted(folder.glob("*options*.json")), "options file (*options*.json)"
    )
    weights = _single(
        folder, sorted([*folder.glob("*.hdf5"), *folder.glob("*.h5")]), "weights file (*.hdf5)"
    )
    return _load_pair(options, weights, tokenizer)


def _load_pair(first: Path, second: Path, tokenizer: str | None) -> Pretrained:
    kinds = {_kind(path): path for path in (first, second)}
    if set(kinds) != {"an HDF5 file", "text"}:
        files = ", ".join(f"{path} is {_kind(path)}" for path in (first, second))
        raise FormatError(f"{files}; expected one options file (JSON) and one weights file (HDF5)")
    return read_bilm_tf(kinds["text"], kinds["an HDF5 file"], tokenizer=tokenizer)


def _load_zip(path: Path, tokenizer: str | None) -> Pretrained:
    """The model in a zip archive, as in the NLPL repository."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            with zipfile.ZipFile(path) as archive:
                _unpack(archive, Path(folder), path)
            return _load_folder(Path(folder), tokenizer)
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise FormatError(
                f"{path}: cannot be unpacked ({error}); was the file cut short?"
            ) from None
        except (
            NotImplementedError,
            RuntimeError,
        ) as error:  # an unknown compression, or a password
            raise FormatError(
                f"{path}: cannot be unpacked ({error}); unpack it and give its folder"
            ) from None
        except FormatError as error:
            raise FormatError(str(error).replace(folder, str(path))) from None


def _unpack(archive: zipfile.ZipFile, folder: Path, path: Path) -> None:
    """Unpack the files of a model by their bare names, so that none is written elsewhere."""
    extensions = (".json", ".hdf5", ".h5", ".txt", ".safetensors", ".md")
    members = {}
    for member in archive.infolist():
        name = Path(member.filename).name
        if member.is_dir() or name.startswith(".") or not name.endswith(extensions):
            continue
        if name in members:
            raise FormatError(
                f"{path}: has two files called {name}; unpack it and give the folder of one model"
            )
        members[name] = member
    declared = sum(member.file_size for member in members.values())
    if declared > max(2**26, 100 * path.stat().st_size):
        raise FormatError(
            f"{path}: declares {declared:,} bytes in a file of {path.stat().st_size:,}; "
            "it is damaged or malicious"
        )
    for name, member in members.items():
        with archive.open(member) as packed, open(folder / name, "wb") as plain:
            shutil.copyfileobj(packed, plain, 2**20)


def _single(folder: Path, paths: list[Path], description: str) -> Path:
    if len(paths) == 1:
        return paths[0]
    if paths:
        names = ", ".join(path.name for path in paths)
        raise FormatError(
            f"{folder}: more than one {description}: {names}; give the two files by name"
        )
    names = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
    raise FormatError(
        f"{folder}: no {description}; found {names}. Expected an elmokit folder "
        "(config.json, model.safetensors) or options.json with weights.hdf5"
    )


def _existing(source: str | Path) -> Path:
    path = Path(source)
    if str(source).startswith(("http://", "https://", "s3://")):
        path = Path(os.environ.get("ELMOKIT_MODELS", "."), path.name)
        if not path.exists():
            raise FormatError(
                f"{source}: nothing is downloaded here; download the file, then give its path, "
                "or name its folder in the environment variable ELMOKIT_MODELS"
            )
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    return path


def _kind(path: Path) -> str:
    """What a file is, by its first bytes: "an HDF5 file", "text", ..."""
    if path.is_dir():
        return "a folder"
    with open(path, "rb") as file:
        head = file.read(512)
    for signature, kind in _SIGNATURES.items():
        if head.startswith(signature):
            return kind
    if not head:
        return "an empty file"
    return "text" if b"\0" not in head else "a binary file of another kind"
