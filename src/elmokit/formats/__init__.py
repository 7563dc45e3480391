"""Loading, saving and converting models in every supported format."""

import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Literal

from elmokit.atomic import new_directory
from elmokit.catalogue import Location, is_offline
from elmokit.catalogue import locate as locate_in_catalogue
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.formats import hub, native
from elmokit.formats.alignment import Align, read_alignment
from elmokit.formats.archives import file_kind, unpack_model
from elmokit.formats.bilm_tf import read_bilm_tf, write_bilm_tf
from elmokit.formats.lm_1b import read_lm_1b  # noqa: F401  registers the format
from elmokit.formats.manylangs import read_manylangs  # noqa: F401  registers the format
from elmokit.formats.model_format import FORMATS, explain_missing, find_format
from elmokit.formats.pretrained import Pretrained, check_finite
from elmokit.formats.tf_checkpoint import read_checkpoint
from elmokit.vocab import write_vocabulary

__all__ = ["Pretrained", "convert", "load", "locate", "push", "save"]

Format = Literal["elmokit", "bilm-tf"]

_PART_OF_CHECKPOINT = re.compile(r"\.(data-\d+-of-\d+|meta)$")

ENGLISH = Path(__file__).parents[1] / "english"  # the model in the package


def load(
    source: str | Path | None = None,
    weights: str | Path | None = None,
    *,
    tokenizer: str | None = None,
    align: Align | None = None,
    offline: bool = False,
    allow_nonfinite: bool = False,
) -> Pretrained:
    """The model with a name, of a folder, an archive, or an options and a weights file.

    Without any of these it is the English model in the package. A name is that of a published model
    (`elmokit.models`), which is downloaded at its first use unless `offline` is set, here or by
    ELMOKIT_OFFLINE=1; hf://user/model[@revision][/folder] is one of the Hugging Face Hub, for which
    HF_HUB_OFFLINE=1 says the same. `tokenizer` replaces the one that is stored with the model, and
    `align` (see LoadOptions) its alignment; a published model that is named is aligned if matrices
    of it are published. Weights that hold a NaN or an infinity are refused unless `allow_nonfinite`
    is set.
    """
    pair = weights is not None
    location = Location(ENGLISH)
    if source is not None:
        location = locate(source, file_of_pair=pair, offline=offline)
    first, second = location.path, None
    if first == ENGLISH and not ENGLISH.is_dir():
        raise FormatError("this copy of elmokit has no English model; name another")
    if weights is not None:
        second = locate(weights, file_of_pair=pair, offline=offline).path
    pretrained = _load(first, second, tokenizer or location.tokenizer)
    if not allow_nonfinite:
        mix = pretrained.mix
        mixes = () if mix is None else mix.named_parameters(prefix="mix")
        check_finite(chain(pretrained.model.named_parameters(), mixes), str(second or first))
    published = location.published
    if published is not None and not pretrained.card:
        pretrained = replace(pretrained, card=native.published_card(published))
    if align is None and published is not None and published.align is not None:
        align = first / published.align
    if align is not None:
        bilm = pretrained.model.bilm
        if isinstance(align, str | Path) and first.is_dir() and not Path(align).is_file():
            align = first / align  # a published model has its matrix beside its weights
        bilm.set_alignment(read_alignment(align, bilm.config))
        pretrained = replace(pretrained, heads={})  # they were fitted to other vectors
    return pretrained


def _load(first: Path, second: Path | None, tokenizer: str | None) -> Pretrained:
    if second is not None:
        return _load_pair(first, second, tokenizer)
    if first.is_dir():
        return _load_folder(first, tokenizer)
    kind = file_kind(first)
    if kind.endswith("archive"):
        return _load_archive(first, tokenizer)
    if kind == "a TensorFlow checkpoint":
        return read_checkpoint(first, tokenizer=tokenizer)
    if kind in ("an HDF5 file", "text"):
        raise FormatError(
            f"{first}: one file of two; give the options file and the weights file, or their folder"
        )
    raise FormatError(
        f"{first}: this is {kind}, expected a folder, a zip or tar archive, "
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


def push(
    pretrained: Pretrained,
    repo: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    languages: str | Sequence[str] = (),
    licence: str = "",
    half: bool = False,
) -> str:
    """Upload a model to a repository of the Hugging Face Hub, and return its hf:// address.

    The repository, "user/model", and the branch `revision` are made if they are missing; `private`
    is for a new one. `languages` (ISO 639 codes) and `licence` (SPDX) are written to the metadata
    of the model card; `half` uploads float16 weights.
    """
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "model")
        save(pretrained, folder, half=half)
        if languages or licence:
            hub.update_metadata(folder / native.CARD, native.card_facts(languages, licence))
        return hub.upload(
            folder, repo, private=private, revision=revision, obsolete=[*native.OPTIONAL_FILES]
        )


def convert(
    source: str | Path,
    target: str | Path,
    *,
    weights: str | Path | None = None,
    format: Format = "elmokit",
    tokenizer: str | None = None,
    align: Align | None = None,
    half: bool = False,
    offline: bool = False,
) -> None:
    """Save a model of any format in another format; without loss, except for `half`.

    Example:
        elmokit.convert("english", "english_bilm_tf", format="bilm-tf")
    """
    pretrained = load(source, weights, tokenizer=tokenizer, align=align, offline=offline)
    save(pretrained, target, format=format, half=half)


def _load_folder(folder: Path, tokenizer: str | None) -> Pretrained:
    if (folder / "model" / native.CONFIG).is_file():  # the best model of a pretraining run
        folder = folder / "model"
    patterns = sum((f.patterns for f in FORMATS.values()), ())
    deeper = {pattern for pattern in patterns if pattern.count("/") > 1 or "**" in pattern}
    paths = {path for pattern in ("*", "*/*", *deeper) for path in folder.glob(pattern)}
    files = [path.relative_to(folder).as_posix() for path in paths]
    model_format = find_format(files)
    if model_format is not None:
        return model_format.read(folder, tokenizer)
    if (folder / "checkpoint.pt").is_file() and (folder / "settings.toml").is_file():
        raise FormatError(
            f"{folder}: this pretraining run has not saved a model yet; it saves the first one "
            "after its first validation (see validation_interval in settings.toml)"
        )
    raise FormatError(f"{folder}: {explain_missing(files)}")


def _load_pair(first: Path, second: Path, tokenizer: str | None) -> Pretrained:
    kinds = {file_kind(path): path for path in (first, second)}
    if set(kinds) == {"a TensorFlow checkpoint", "text"}:
        return read_checkpoint(kinds["a TensorFlow checkpoint"], kinds["text"], tokenizer)
    if set(kinds) != {"an HDF5 file", "text"}:
        files = ", ".join(f"{path} is {file_kind(path)}" for path in (first, second))
        raise FormatError(f"{files}; expected one options file (JSON) and one weights file (HDF5)")
    return read_bilm_tf(kinds["text"], kinds["an HDF5 file"], tokenizer=tokenizer)


def _load_archive(path: Path, tokenizer: str | None) -> Pretrained:
    """The model in an archive, such as a zip of the NLPL repository."""
    with tempfile.TemporaryDirectory() as folder:
        unpack_model(path, Path(folder))
        try:
            return _load_folder(Path(folder), tokenizer)
        except FormatError as error:
            raise FormatError(str(error).replace(folder, str(path))) from None


def locate(source: str | Path, *, file_of_pair: bool = False, offline: bool = False) -> Location:
    """Where a model lies that is given by a path, a name or an address; see `catalogue.locate`.

    An address of the Hugging Face Hub stands for the model of its folder, or for its file.
    """
    if hub.is_address(str(source)):
        return Location(hub.fetch(str(source), offline=is_offline(offline)))
    path = Path(source)
    # Path.exists and is_file raise an error for a name that is too long.
    if not os.path.exists(path) or _PART_OF_CHECKPOINT.search(path.name):
        # TensorFlow names a checkpoint without the ending of any of its files.
        index = path.with_name(_PART_OF_CHECKPOINT.sub("", path.name) + ".index")
        if os.path.isfile(index):
            return Location(index)
    return locate_in_catalogue(source, file_of_pair=file_of_pair, offline=offline)
