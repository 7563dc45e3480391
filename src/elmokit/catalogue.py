"""The catalogue of published models, and where a model that is named lies on this machine.

catalogue.toml lists the models. An installed package adds its own by an entry point of the group
`elmokit.models`: the entry point's name is the model's, its value a module whose folder is that of
the model, or has a models.toml like catalogue.toml, or a function that returns a path or models.
"""

import hashlib
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

from pydantic import ConfigDict, TypeAdapter, ValidationError

from elmokit.atomic import write_atomically
from elmokit.errors import DownloadError, FormatError, InputError, OutputError
from elmokit.file_download import RemoteFile, check_content
from elmokit.file_download import download as download_file
from elmokit.model_config import make_record
from elmokit.toml_settings import read_toml

_CATALOGUE = Path(__file__).with_name("catalogue.toml")
_ENTRY_POINTS = "elmokit.models"
_PACKAGE_CATALOGUE = "models.toml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"(https?|s3|file)://", re.IGNORECASE)
_S3_BUCKET = re.compile(r"s3://([^/]+)/", re.IGNORECASE)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PublishedModel:
    """A model that `elmokit.load` finds by its name.

    `sources` are alternatives: the files of the first that can be downloaded are the model.
    `addresses` stand for the model where old programs name one; `tokenizer` is the one of elmokit's
    that is nearest to how the training text was split (`tokenization`). `align` is the file of the
    model that aligns it with another language's; it is applied when the model is named.

    Example:
        seqvec = elmokit.models("seqvec")[0]
        print(seqvec.description, seqvec.licence)
    """

    __pydantic_config__ = ConfigDict(extra="forbid")

    name: str
    description: str
    languages: tuple[str, ...] = ()  # ISO 639
    domain: str = "general"
    format: str = "bilm-tf"
    sources: tuple[tuple[RemoteFile, ...], ...] = ()
    folder: Path | None = None  # of a model that is installed
    aliases: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    tokenizer: str | None = None
    align: str | None = None
    tokenization: str = "not stated"
    layers: int | None = None  # the words' vectors count as one
    dimensions: int | None = None
    softmax: bool = False
    licence: str = "not stated"
    citation: tuple[str, ...] = ()
    page: str = ""
    notes: tuple[str, ...] = ()
    unsupported: str = ""  # why elmokit cannot load it
    package: str = ""  # that added it

    def __post_init__(self) -> None:
        for name in (self.name, *(file.name for source in self.sources for file in source)):
            if not _NAME.fullmatch(name):  # it is to be the name of a file
                raise InputError(f"{name!r} has characters that a file's name should not have")

    @property
    def size(self) -> int | None:
        """Bytes to download, of the files whose size is known; None if no size is."""
        return sum(f.size or 0 for source in self.sources[:1] for f in source) or None

    @property
    def path(self) -> Path | None:
        """Where the model lies on this machine; None if it must be downloaded first."""
        return self.folder or _ModelCache(self.name).path_of(self.sources, right_size=True)


@dataclass(frozen=True)
class Location:
    """A model, or a file of one, on this machine; and what the catalogue adds to it."""

    path: Path
    tokenizer: str | None = None
    published: PublishedModel | None = None  # the model that it is the whole of


def models(
    query: str = "", *, language: str | None = None, domain: str | None = None
) -> list[PublishedModel]:
    """The models that `load` finds by name: all, or those that fit.

    `query` are words of a name, a language, a domain or a description; `language` is a code such as
    "de" or an English name.

    Example:
        [model.name for model in elmokit.models("german", language="de")]
    """
    return [
        model
        for model in _all_models().values()
        if _fits(model, query)
        and (language is None or language.lower() in _languages_of(model))
        and (domain is None or domain.lower() == model.domain)
    ]


def download(name: str, *, offline: bool = False) -> Path:
    """Download a model if it is not there yet, check its files, and return where it lies.

    Raises InputError if no model has that name, DownloadError if it cannot be had.

    Example:
        folder = elmokit.download("medium")
    """
    model = find_model(name)
    if model is None:
        raise InputError(f"{name}: no model of that name{_suggestions(name)}")
    return _fetch(model, offline=offline, thoroughly=True)


def find_model(name: str) -> PublishedModel | None:
    """The model with that name or alias."""
    wanted, by_name = name.lower(), _all_models()
    aliases = {alias.lower(): model for model in by_name.values() for alias in model.aliases}
    return by_name.get(wanted) or aliases.get(wanted)


def locate(source: str | Path, *, file_of_pair: bool = False, offline: bool = False) -> Location:
    """Where a model lies that is given by a path, a name or an address; downloaded if need be.

    A path that exists comes before a name. The address of a file of a model stands for the model,
    but for that file with `file_of_pair`.
    """
    path, name = Path(source), str(source)
    if _ADDRESS.match(name):
        return _locate_address(name, file_of_pair=file_of_pair, offline=offline)
    if os.path.exists(path):  # Path.exists raises an error for a name that is too long
        return Location(path)
    model = find_model(name)
    if model is None:
        hint = "" if path.name != name else f", and no model of that name{_suggestions(name)}"
        raise FormatError(f"{path}: no such file or folder{hint}")
    return _locate_model(model, offline=offline)


def cache_folder() -> Path:
    """The folder of downloaded models: ELMOKIT_CACHE, or where the system keeps caches."""
    if named := os.environ.get("ELMOKIT_CACHE"):
        return Path(named).expanduser()
    import platformdirs  # noqa: PLC0415  not needed for a model that is given by its path

    return platformdirs.user_cache_path("elmokit", appauthor=False)


def is_offline(offline: bool) -> bool:
    """Whether the network must not be used: as the caller says, or ELMOKIT_OFFLINE."""
    named = os.environ.get("ELMOKIT_OFFLINE", "").lower()
    return offline or named not in ("", "0", "false", "no")


def language_names(model: PublishedModel) -> list[str]:
    """The English names of a model's languages."""
    names = _tables()["languages"]
    return [names.get(code, code) for code in model.languages]


def _locate_model(model: PublishedModel, *, offline: bool) -> Location:
    if model.unsupported:
        raise FormatError(f"{model.name}: elmokit cannot load it: {model.unsupported}")
    return Location(_fetch(model, offline=offline), model.tokenizer, model)


def _locate_address(address: str, *, file_of_pair: bool, offline: bool) -> Location:
    """The model, or the file, that old programs name by its address."""
    try:
        name = unquote(urlsplit(address).path).rpartition("/")[2]
    except ValueError as error:
        raise FormatError(f"{address}: not an address ({error})") from None
    if folder := os.environ.get("ELMOKIT_MODELS"):
        path = Path(folder, name)
        if not path.exists():
            raise FormatError(
                f"{path}: no such file, and ELMOKIT_MODELS names its folder for {address}; put it "
                "there, or unset ELMOKIT_MODELS to have it downloaded"
            )
        return Location(path)
    if address.lower().startswith("file://"):
        path = Path(url2pathname(urlsplit(address).path))
        if not path.exists():
            raise FormatError(f"{address}: no such file or folder")
        return Location(path)
    for model in _all_models().values():
        if _address_key(address) in map(_address_key, model.addresses):
            return _locate_model(model, offline=offline)
        for file in (file for source in model.sources for file in source):
            if _address_key(address) in map(_address_key, file.urls):
                if not file_of_pair:
                    return _locate_model(model, offline=offline)
                path = _fetch(replace(model, sources=((file,),)), offline=offline)
                return Location(path, model.tokenizer)
    plain_name = re.sub("[^A-Za-z0-9._-]", "_", name).lstrip("._-") or "file"
    file = RemoteFile(plain_name, (_https_address(address),))
    digest = hashlib.sha256(address.encode()).hexdigest()[:16]
    model = PublishedModel(f"address-{digest}", description=address, sources=((file,),))
    return Location(_fetch(model, offline=offline))


def _https_address(address: str) -> str:
    """An address of S3's own form, which AllenNLP took too, as one of HTTP's."""
    return _S3_BUCKET.sub(r"https://\1.s3.amazonaws.com/", address)


def _address_key(address: str) -> str:
    """What two spellings of one address share."""
    parts = urlsplit(_https_address(address))
    query = parts.query.replace("tf-hub-format=compressed", "")
    return f"{parts.netloc}{parts.path.rstrip('/')}?{query}".lower()


def _fetch(model: PublishedModel, *, offline: bool, thoroughly: bool = False) -> Path:
    """Where the model lies, after downloading it if it is not there.

    Files that are there are compared by size with what was recorded, or `thoroughly` by content.
    """
    if model.folder is not None:
        return model.folder
    files = _ModelCache(model.name)
    if not files.path_of(model.sources):
        offline = is_offline(offline)
        if offline or not any(_addresses(model.name, f) for s in model.sources for f in s):
            reason = "offline mode is on" if offline else "no program can download it"
            raise DownloadError(
                f"{model.name}: not on this machine, and {reason}; {_by_hand(model)}"
            )
        with files.lock():
            if not files.path_of(model.sources):  # another process may have been faster
                files.download(model)
    path = files.path_of(model.sources)
    assert path is not None
    files.check(model.sources, thoroughly=thoroughly)
    return path


def _addresses(name: str, file: RemoteFile) -> tuple[str, ...]:
    """Where a file of a model can be had: from the user's mirror first, which is laid out alike."""
    mirror = os.environ.get("ELMOKIT_MIRROR", "").rstrip("/")
    return (*((f"{mirror}/{name}/{file.name}",) if mirror else ()), *file.urls)


def _by_hand(model: PublishedModel) -> str:
    """What a user has to do for a model that cannot be downloaded from here."""
    source = model.sources[0] if model.sources else ()
    names = [f.name + (f" (from {f.urls[0]})" if f.urls else "") for f in source]
    page = f"; see {model.page}" if model.page else ""
    files = " and ".join(names) or "its files"
    return f"put {files} into {_ModelCache(model.name).folder}{page}"


@dataclass(frozen=True)
class _FileRecord:
    """What was downloaded, from where, and when; `url` is "" for a file put there by hand."""

    sha256: str
    size: int  # bytes
    url: str
    date: str


_FILE_RECORDS = TypeAdapter(dict[str, _FileRecord])


class _ModelCache:
    """The files of one model in the cache folder, and the record of what was downloaded.

    The record lies beside the folder, so that a file which is removed and downloaded again is
    still compared with the first one.
    """

    def __init__(self, name: str) -> None:
        self.folder = cache_folder() / name
        self._record = cache_folder() / f"{name}.json"

    def path_of(
        self, sources: Sequence[Sequence[RemoteFile]], *, right_size: bool = False
    ) -> Path | None:
        """The folder of the files, or the only file, of the first source that is complete.

        With `right_size`, files of another size than the published one do not count.
        """
        for source in sources:
            if all(self._has(file, right_size=right_size) for file in source):
                return self.folder if len(source) > 1 else self.folder / source[0].name
        return None

    def _has(self, file: RemoteFile, *, right_size: bool) -> bool:
        path = self.folder / file.name
        return path.is_file() and (not right_size or file.size in (None, path.stat().st_size))

    def check(self, sources: Sequence[Sequence[RemoteFile]], *, thoroughly: bool) -> None:
        """Raise DownloadError if a file is not what it was; record one put there by hand."""
        for file in (file for source in sources for file in source):
            path, recorded = self.folder / file.name, self._records().get(file.name)
            if not path.is_file():
                continue
            size = path.stat().st_size
            if recorded is not None and size != recorded.size:
                raise DownloadError(
                    f"{path}: has {size:,} bytes, but had {recorded.size:,} when it was "
                    "downloaded; remove it to download it again"
                )
            if recorded is None or thoroughly:
                sha256 = check_content(path, file, recorded.sha256 if recorded else None)
                try:
                    self._add(file.name, sha256=sha256, size=size, url="")
                except OSError as error:  # a cache that others keep may be read-only
                    _warn_once(
                        f"{self._record}: cannot be written ({error.strerror or error}); without "
                        "it, the model's files are checked in full each time they are loaded"
                    )

    def download(self, model: PublishedModel) -> None:
        """Download the files of the first source that has them all."""
        problems = []
        for source in model.sources:
            try:
                for file in source:
                    if not (self.folder / file.name).is_file():
                        self._download(model.name, file)
                return
            except DownloadError as error:
                problems.append(str(error))
        raise DownloadError(f"{model.name}: {'; '.join(problems)}; try again, or {_by_hand(model)}")

    def _download(self, name: str, file: RemoteFile) -> None:
        recorded = self._records().get(file.name)
        try:
            result = download_file(
                replace(file, urls=_addresses(name, file)),
                self.folder / file.name,
                sha256=recorded.sha256 if recorded else None,
            )
        except DownloadError as error:
            if recorded is None:
                raise
            raise DownloadError(f"{error} (to accept a change, remove {self._record})") from None
        self._add(file.name, sha256=result.sha256, size=result.size, url=result.url)

    def lock(self) -> AbstractContextManager[object]:
        """A context in which no other process downloads this model."""
        from filelock import FileLock, Timeout  # noqa: PLC0415  only for a download

        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.folder.with_name(f"{self.folder.name}.lock"))
            try:
                return lock.acquire(timeout=0)
            except Timeout:
                logger.warning("%s: another process downloads it; waiting", self.folder.name)
                return lock.acquire()
        except OSError as error:
            raise OutputError(
                f"{self.folder}: cannot be written ({error.strerror}); name another folder in "
                "ELMOKIT_CACHE"
            ) from None

    def _records(self) -> dict[str, _FileRecord]:
        try:
            return _FILE_RECORDS.validate_json(self._record.read_bytes())
        except FileNotFoundError:
            return {}
        except ValidationError:
            raise DownloadError(
                f"{self._record}: is damaged, expected the sha256 and size of each downloaded "
                "file; remove it to accept the files that are there, or the next download"
            ) from None

    def _add(self, name: str, *, sha256: str, size: int, url: str) -> None:
        """Record a file, unless there is a record of it, which stays."""
        records = self._records()
        if name not in records:
            date = datetime.now(timezone.utc).date().isoformat()
            records[name] = _FileRecord(sha256, size, url, date)
            write_atomically(self._record, _FILE_RECORDS.dump_json(records, indent=2) + b"\n")


def _fits(model: PublishedModel, query: str) -> bool:
    """Whether all words of a query occur; short ones, such as codes, as whole words."""
    texts = [model.name, model.domain, model.description, *model.aliases, *_languages_of(model)]
    text = " ".join(texts).lower()
    words = set(re.split(r"[^\w]+", text))
    return all(word in words if len(word) < 4 else word in text for word in query.lower().split())


def _languages_of(model: PublishedModel) -> set[str]:
    """The codes and names that a model's languages go by."""
    return {name.lower() for name in (*model.languages, *language_names(model))}


def _suggestions(name: str) -> str:
    by_name = _all_models()
    names = [*by_name, *(alias for model in by_name.values() for alias in model.aliases)]
    close = get_close_matches(name.lower(), names, n=3)
    close = [model.name for model in models(language=name)][:5] or close
    meant = f"; did you mean {' or '.join(close)}?" if close else ""
    return f"{meant} (elmo models lists them all)"


def _all_models() -> dict[str, PublishedModel]:
    """Every model by its name; one of an installed package comes before ours of that name."""
    by_name = {model.name.lower(): model for model in _published()}
    added: dict[str, PublishedModel] = {}
    for model in _installed():
        name = model.name.lower()
        if name in added:
            _warn_once(
                f"the packages {added[name].package} and {model.package} both add a model "
                f"{model.name}; that of the first is used"
            )
        added.setdefault(name, model)
    return by_name | added


@cache
def _published() -> tuple[PublishedModel, ...]:
    return tuple(_read_models(_CATALOGUE))


def _installed() -> Iterator[PublishedModel]:
    """The models that installed packages add."""
    for entry_point in entry_points(group=_ENTRY_POINTS):
        package = "an unknown package"
        if entry_point.dist is not None:
            package = f"{entry_point.dist.name} {entry_point.dist.version}"
        try:
            added = [*_models_of(entry_point, entry_point.load())]
        except Exception as error:  # whatever the code of another package raises
            _warn_once(f"{package}: its model {entry_point.name} is left out ({error})")
            continue
        yield from (replace(model, package=package) for model in added)


@cache
def _warn_once(message: str) -> None:
    """Log a warning, the first time: the packages are looked at for each name."""
    logger.warning("%s", message)


def _models_of(entry_point: EntryPoint, value: Any) -> Iterable[PublishedModel]:
    if isinstance(value, ModuleType):
        folder = Path(next(iter(value.__path__)))
        catalogue = folder / _PACKAGE_CATALOGUE
        return _read_models(catalogue) if catalogue.is_file() else _models_of(entry_point, folder)
    if callable(value):
        return _models_of(entry_point, value())
    if isinstance(value, str | Path):
        metadata: Any = entry_point.dist.metadata if entry_point.dist else {}
        model = PublishedModel(
            entry_point.name,
            description=metadata.get("Summary") or "",
            format="elmokit",
            folder=Path(value),
            licence=metadata.get("License-Expression") or metadata.get("License") or "not stated",
            page=metadata.get("Home-page") or "",
        )
        return [model]
    return [value] if isinstance(value, PublishedModel) else value


@dataclass(frozen=True)
class _Catalogue:
    models: tuple[PublishedModel, ...]


@cache
def _tables() -> dict[str, Any]:
    return read_toml(_CATALOGUE)


def _read_models(path: Path) -> Sequence[PublishedModel]:
    """The models of a TOML file.

    Each row of a group has the group's values, and its own. In their texts, `{name}` stands for the
    value that the row's `fill` gives to that name. Before a colon, a name of the table `hosts`
    stands for each of its addresses; `cite` names entries of the table `papers`.
    """
    content = _tables() if path == _CATALOGUE else read_toml(path)
    tables = _tables() | content
    rows = [
        _filled({**group, **row, "models": None}, row.get("fill", {}))
        for group in content["group"]
        for row in group["models"]
    ]
    for row in rows:
        del row["models"]
        row.pop("fill", None)
        row["citation"] = [tables["papers"][key] for key in row.pop("cite", ())]
        for file in (file for source in row.get("sources", ()) for file in source):
            parts = [url.partition(":") for url in file.get("urls", ())]
            file["urls"] = [
                prefix + path
                for host, colon, path in parts
                for prefix in tables["hosts"].get(host, [host + colon])
            ]
        if "folder" in row:
            row["folder"] = path.parent / row["folder"]
    return make_record({"models": rows}, _Catalogue, str(path)).models


def _filled(value: Any, names: Mapping[str, object]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(inner, names) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, names) for inner in value]
    return value.format_map(names) if isinstance(value, str) and names else value
