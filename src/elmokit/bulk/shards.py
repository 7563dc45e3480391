"""A folder of vectors: Parquet shards that are whole or not there, and a manifest."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from elmokit.atomic import DirectoryLock, check_manifest, rename_atomically
from elmokit.bulk.corpus import (
    Corpus,
    CorpusFile,
    Source,
    absolute,
    extended,
    open_filesystem,
)
from elmokit.bulk.table_encoder import SHAPE, VECTORS
from elmokit.errors import FormatError, InputError, OutputError

MANIFEST = "manifest.json"
_FORMAT = "elmokit vectors"
_UNFINISHED = ".unfinished"
_DAMAGED = ValueError, TypeError, LookupError, AttributeError, RecursionError, OSError


class ShardFolder:
    """A folder on a disk, or at an address such as s3://bucket/vectors, that shards are put into.

    A file is written under a name of its own and renamed when it is complete. So a shard is
    complete or not there, and one that is written twice, by a process that was thought to be dead,
    is the same as if it were written once.
    """

    def __init__(self, location: str, path: str | None = None) -> None:
        self.location = location  # as it was named
        self._path = path or absolute(location)
        self._lock: DirectoryLock | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy in another process, in any folder, does not hold the lock."""
        return ShardFolder, (self.location, self._path)

    @property
    def is_local(self) -> bool:
        return "://" not in self.location

    def shards(self) -> set[int]:
        """The numbers of the shards that are there."""
        names = (Path(path).name for path in self._list())
        stems = (name.removeprefix("part-").removesuffix(".parquet") for name in names)
        return {int(stem) for stem in stems if stem.isdigit()}

    def path_of(self, shard: int) -> str:
        """The path or address of a shard, whether or not it is there."""
        return extended(self.location, f"/{_name_of(shard)}")

    def write_shard(
        self, shard: int, schema: pa.Schema, tables: Iterable[pa.Table], *, num_rows: int
    ) -> None:
        """Write a shard of so many rows, each table a group of them."""
        written = 0
        others = [name for name in schema.names if name not in (VECTORS, SHAPE)]
        with (
            self._replacing(_name_of(shard)) as sink,
            pq.ParquetWriter(
                sink, schema, compression="zstd", use_dictionary=others, write_statistics=others
            ) as writer,
        ):
            for table in tables:
                writer.write_table(table)
                written += len(table)
            assert written == num_rows, f"{written} rows of shard {shard}, expected {num_rows}"

    def read_shard(self, shard: int, columns: list[str] | None = None) -> pa.Table:
        """The rows of a shard."""
        filesystem, path = self._filesystem()
        with filesystem.open_input_file(f"{path}/{_name_of(shard)}") as file:
            return pq.ParquetFile(file).read(columns)

    def read_tables(self, shard: int) -> Iterator[pa.Table]:
        """The rows of a shard, in groups of about 32 MB of vectors."""
        filesystem, path = self._filesystem()
        with filesystem.open_input_file(f"{path}/{_name_of(shard)}") as opened:
            file = pq.ParquetFile(opened)
            for group in range(file.num_row_groups):
                yield file.read_row_group(group)

    def read_manifest(self) -> "Manifest | None":
        """What is in the folder, or None if nothing is."""
        filesystem, path = self._filesystem()
        if filesystem.get_file_info([f"{path}/{MANIFEST}"])[0].type == pafs.FileType.NotFound:
            return None
        with filesystem.open_input_file(f"{path}/{MANIFEST}") as file:
            return Manifest.from_json(file.read(), f"{self.location}/{MANIFEST}")

    def write_manifest(self, manifest: "Manifest") -> None:
        """Begin the folder, which has to be new or empty."""
        other = next((name for name in map(_last_part, self._list()) if name[0] != "."), None)
        if other is not None:
            raise OutputError(
                f"{self.location}: holds {other}, but no {MANIFEST} of work to go on with; "
                "expected a new or an empty folder, name another one"
            )
        with self._replacing(MANIFEST) as sink:
            sink.write(manifest.to_json().encode())

    def remove_unfinished(self) -> None:
        """Remove what killed processes were writing."""
        filesystem, _ = self._filesystem()
        for path in self._list():
            if path.endswith(_UNFINISHED):
                with suppress(FileNotFoundError):
                    filesystem.delete_file(path)

    @contextmanager
    def open(self) -> Iterator[None]:
        """Make the folder, and use it alone: on a disk, two runs at once are refused."""
        with self._explaining_errors():
            filesystem, path = self._filesystem()
            if filesystem.get_file_info([path])[0].type == pafs.FileType.File:
                raise OutputError(f"{self.location}: is a file; name a folder")
            filesystem.create_dir(path, recursive=True)
            if self.is_local:
                busy = f"{self.location}: another process is writing it; wait until it has ended"
                self._lock = DirectoryLock(Path(path), busy)
            try:
                self.remove_unfinished()
                yield
                self.remove_unfinished()
            finally:
                self.forget_lock()

    def forget_lock(self) -> None:
        """Let others open the folder; in a forked process, leave that to its parent."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    @contextmanager
    def _replacing(self, name: str) -> Iterator[Any]:
        """A file to write, which has its name only when the block has ended without an error."""
        filesystem, folder = self._filesystem()
        temporary = f"{folder}/.{name}.{uuid4().hex}{_UNFINISHED}"
        with self._explaining_errors():
            try:
                with filesystem.open_output_stream(temporary) as sink:
                    yield sink
                if self.is_local:
                    rename_atomically(Path(temporary), Path(folder, name))
                else:
                    filesystem.move(temporary, f"{folder}/{name}")
            except BaseException:
                with suppress(OSError):
                    filesystem.delete_file(temporary)
                raise

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except (OutputError, FormatError):
            raise
        except OSError as error:
            if error.filename is not None and not self._has(str(error.filename)):
                raise  # of an input
            reason = error.strerror or " ".join(str(error).split())
            raise OutputError(
                f"{self.location}: cannot be written ({reason}); the shards that are there are "
                "safe: fix that, and run the same command again"
            ) from None

    def _has(self, name: str) -> bool:
        folder = Path(self._filesystem()[1])
        return folder in (Path(name), *Path(name).parents)

    def _list(self) -> list[str]:
        filesystem, path = self._filesystem()
        selector = pafs.FileSelector(path, allow_not_found=True)
        return sorted(info.path for info in filesystem.get_file_info(selector))

    def _filesystem(self) -> tuple[pafs.FileSystem, str]:
        filesystem, path = open_filesystem(self._path)
        return filesystem, path.rstrip("/") or "/"


def _name_of(shard: int) -> str:
    return f"part-{shard:08d}.parquet"


def _last_part(path: str) -> str:
    return path.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class Manifest:
    """What a folder of shards was made from: settings by name, and the corpus."""

    settings: Mapping[str, Any]
    corpus: Corpus

    def to_json(self) -> str:
        corpus = self.corpus
        files = [asdict(file) for file in corpus.files]
        return json.dumps(
            {
                "format": _FORMAT,
                "version": 1,
                **self.settings,
                "column": corpus.column,
                "rows_per_shard": corpus.rows_per_shard,
                "rows": corpus.rows,
                "shards": corpus.num_shards,
                "columns": {field.name: str(field.type) for field in corpus.schema},
                "schema": corpus.schema.serialize().to_pybytes().hex(),
                "inputs": [_flat(file) for file in files],
            },
            indent=1,
        )

    @classmethod
    def from_json(cls, text: bytes, name: str) -> "Manifest":
        """The manifest in a file that error messages call `name`."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict) or values.get("format") != _FORMAT:
                raise InputError(f"{name}: is not one of {_FORMAT}; name another folder")
            if values.get("version") != 1:
                raise InputError(
                    f"{name}: was written by a later version of elmokit; install that one"
                )
            files = tuple(
                CorpusFile(
                    Source(str(file["name"]), file["size"], file["modified"]),
                    str(file["sha256"]),
                    int(file["rows"]),
                    tuple(map(int, file["offsets"])),
                )
                for file in values["inputs"]
            )
            schema = pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(values["schema"])))
            rows_per_shard = int(values["rows_per_shard"])
            if rows_per_shard < 1:
                raise ValueError("rows_per_shard is below 1")
            corpus = Corpus(files, schema, str(values["column"]), rows_per_shard)
            return cls(values, corpus)
        except InputError:
            raise
        except (
            ValueError,
            TypeError,
            LookupError,
            AttributeError,
            RecursionError,
            OSError,
        ) as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise FormatError(
                f"{name}: not a manifest of vectors, or a damaged one ({reason}); remove the "
                "folder to start again"
            ) from None

    def check(self, now: "Manifest", location: str) -> None:
        """Raise InputError, which says what differs, unless the work goes on from this one."""
        corpus, other = self.corpus, now.corpus
        check_manifest(
            {**self.settings, "column": corpus.column, "rows_per_shard": corpus.rows_per_shard},
            {**now.settings, "column": other.column, "rows_per_shard": other.rows_per_shard},
            name=location,
            remedy="go on as it was started, or name another folder",
        )
        if [file.sha256 for file in corpus.files] == [file.sha256 for file in other.files]:
            return  # they may have other names
        hashes = {file.name: file.sha256 for file in corpus.files}
        change = "they are named in another order"
        for file in other.files:
            if hashes.get(file.name) != file.sha256:
                change = f"{file.name} {'has changed' if file.name in hashes else 'is new'}"
        if missing := sorted({*hashes} - {file.name for file in other.files}):
            change = f"{missing[0]} is missing"
        raise InputError(
            f"{location}: was started with other inputs ({change}); go on with the same ones, or "
            "name another folder"
        )


def _flat(file: dict[str, Any]) -> dict[str, Any]:
    """A file of the manifest, which does not say where on this machine it is."""
    source = file.pop("source")
    source.pop("path")
    return {**source, **file}


def is_shard_folder(location: str) -> bool:
    """Whether vectors of ours are in a folder on disk, or begun there."""
    try:
        values = json.loads((Path(location) / MANIFEST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(values, dict) and values.get("format") == _FORMAT


def open_shards(location: str | Path) -> tuple[ShardFolder, Manifest]:
    """A folder of vectors that is complete, and its manifest."""
    folder = ShardFolder(str(location))
    manifest = folder.read_manifest()
    if manifest is None:
        raise InputError(f"{location}: has no {MANIFEST}, expected a folder that elmo embed wrote")
    missing = {*range(manifest.corpus.num_shards)} - folder.shards()
    if missing:
        raise InputError(
            f"{location}: {len(missing):,} of {manifest.corpus.num_shards:,} shards are not there "
            "yet; run the command that writes them again"
        )
    return folder, manifest
