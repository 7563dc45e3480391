"""A corpus in files: text, JSON Lines, CSV or Parquet, packed or not, on a disk or in a cloud."""

import csv
import hashlib
import io
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePosixPath
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from elmokit.errors import FormatError, InputError
from elmokit.files import STDIN, decompressed, find_files

Format = Literal["text", "jsonl", "csv", "parquet"]
Map = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]

ID = "id"  # the row's number in the corpus, unless the corpus has such a column
TEXT, WORDS = "text", "words"  # the columns that are embedded unless another one is named

_FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "csv",
    ".parquet": "parquet",
}  # fmt: skip
_PACKED = {".gz", ".xz", ".zst"}
_ROWS_PER_TABLE = 4096
_LARGEST_EXACT = 2**53  # of whole numbers that are floating point numbers, too


@dataclass(frozen=True)
class Source:
    """A file before it is read: its name as given, and what its file system says of it.

    `path` is where it is, for a process in any folder.
    """

    name: str
    size: int | None
    modified: int | None  # nanoseconds
    path: str = field(default="", compare=False)


@dataclass(frozen=True)
class CorpusFile:
    """A file whose rows have been counted and checked.

    `offsets` are the bytes at which every 4096th row begins; Parquet or a packed file has none.
    """

    source: Source
    sha256: str
    rows: int
    offsets: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.source.name


@dataclass(frozen=True)
class Corpus:
    """The rows of some files one after the other, cut into shards of so many rows.

    All rows have the columns of `schema`; `column` is the one that is embedded.
    """

    files: tuple[CorpusFile, ...]
    schema: pa.Schema
    column: str
    rows_per_shard: int

    @classmethod
    def scan(
        cls,
        sources: Sequence[Source],
        *,
        column: str | None = None,
        rows_per_shard: int,
        map: Map = map,
    ) -> "Corpus":
        """Count and check the rows, so that nothing is found wrong after hours of work.

        `map` reads the files, each by itself. Without `column`, "text" or "words" is embedded.
        """
        names = (TEXT, WORDS) if column is None else (column,)
        scanned = [*map(_Scan(names), sources)]
        with_rows = [part for part in scanned if part.file.rows] or scanned
        schema = with_rows[0].schema
        for part in with_rows[1:]:
            try:
                schema = pa.unify_schemas([schema, part.schema], promote_options="permissive")
            except pa.ArrowException as error:
                raise InputError(
                    f"{part.file.name}: its columns do not fit those of {with_rows[0].file.name} "
                    f"({_one_line(error)}); embed them into different folders"
                ) from None
        chosen = next((name for name in names if name in schema.names), None)
        if chosen is None:
            expected = ", ".join(schema.names) or "one"
            raise InputError(
                f"{with_rows[0].file.name}: has no column {' or '.join(_quoted(names))}, expected "
                f"{expected}; name the column of the text (column=, --column)"
            )
        check_column(schema.field(chosen))
        for part in with_rows:
            part.check_numbers(schema)
            row = part.missing.get(chosen) if chosen in part.schema.names else 0
            if row is not None:
                raise InputError(
                    f"{part.file.name}, row {row + 1}: has no value in column {chosen!r}; fill in "
                    "an empty one, or drop the row"
                )
        return cls(tuple(part.file for part in scanned), schema, chosen, rows_per_shard)

    def unless_changed(self, sources: Sequence[Source]) -> "Corpus | None":
        """The corpus, if the files have the sizes and times that they had when it was scanned."""
        times_known = all(source.modified is not None for source in sources)
        if not times_known or [file.source for file in self.files] != [*sources]:
            return None
        pairs = zip(self.files, sources, strict=True)
        return replace(self, files=tuple(replace(file, source=source) for file, source in pairs))

    @property
    def rows(self) -> int:
        """The number of rows in all files."""
        return sum(file.rows for file in self.files)

    @property
    def num_shards(self) -> int:
        return -(-self.rows // self.rows_per_shard)

    def rows_of(self, shard: int) -> range:
        """The rows of a shard."""
        start = shard * self.rows_per_shard
        return range(start, min(start + self.rows_per_shard, self.rows))

    @property
    def schema_with_ids(self) -> pa.Schema:
        """The columns of what `CorpusReader` reads."""
        if ID in self.schema.names:
            return self.schema
        return self.schema.insert(0, pa.field(ID, pa.int64(), nullable=False))


def _quoted(values: Iterable[str]) -> Iterator[str]:
    """Each value in quotes."""
    return (repr(value) for value in values)


def check_column(field: pa.Field) -> bool:
    """Whether a column holds lists of words, not texts; InputError if it holds neither."""
    if pa.types.is_null(field.type) or _is_string(field.type):
        return False
    if _is_list(field.type) and _is_string(field.type.value_type):
        return True
    raise InputError(
        f"column {field.name!r} is of type {field.type}, expected text or lists of words; name "
        "another one (column=, --column)"
    )


def _is_string(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )


class CorpusReader:
    """Reads rows of a corpus; in a packed file, it goes on from where it stopped, if it can."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self._stopped: tuple[CorpusFile, int, Iterator[Any]] | None = None

    def read(self, rows: range) -> Iterator[pa.Table]:
        """Tables of these rows, with their ids."""
        first = 0  # row of the file
        for file in self._corpus.files:
            start, stop = max(rows.start, first), min(rows.stop, first + file.rows)
            if start < stop:
                done = start
                for table in self._read_file(file, start - first, stop - first):
                    yield self._with_ids(_conform(table, self._corpus.schema, file.name), done)
                    done += len(table)
                if done != stop:
                    raise InputError(
                        f"{file.name}: has {done - first:,} rows, but had {file.rows:,}; leave it "
                        "as it is until it is embedded"
                    )
            first += file.rows

    def _with_ids(self, table: pa.Table, first: int) -> pa.Table:
        schema = self._corpus.schema_with_ids
        if len(schema) == len(table.schema):
            return table
        ids = pa.array(range(first, first + len(table)), pa.int64())
        return table.add_column(0, schema.field(0), ids)

    def _read_file(self, file: CorpusFile, start: int, stop: int) -> Iterator[pa.Table]:
        if _format_of(file.name) == "parquet":
            yield from _read_parquet(file.source, start, stop)
            return
        stopped_file, position, rows = self._stopped or (None, 0, iter(()))
        self._stopped = None
        with _explaining_errors(file.name):
            if stopped_file != file or position > start or (position < start and file.offsets):
                entry = start // _ROWS_PER_TABLE if file.offsets else 0
                position = entry * _ROWS_PER_TABLE
                rows = _read_rows(file.source, file.offsets[entry] if file.offsets else 0)
            for _ in islice(rows, start - position):
                pass
            while start < stop:
                listed = [*islice(rows, min(_ROWS_PER_TABLE, stop - start))]
                if not listed:
                    return
                yield _table_of(listed, file.name, start, self._corpus.schema)
                start += len(listed)
        self._stopped = file, stop, rows


def find_sources(names: Iterable[str], *, output: str | None = None) -> list[Source]:
    """The files for files, folders and globs here, and for addresses such as s3://bucket/folder.

    In folders, names that begin with "." or "_" are left out, and so is what is in `output`.
    """
    sources: list[Source] = []
    for name in names:
        if name == STDIN:
            raise InputError(
                "stdin cannot be read twice, to count its rows and to embed them; write it to a "
                "file first"
            )
        if "://" in name:
            sources += _find_remote(name)
        else:
            start = len(name) if os.path.isdir(name) else None
            sources += (
                Source(file.path, file.size, file.modified, os.path.abspath(file.path))
                for file in find_files([name])
                if start is None or not _is_hidden(file.path[start:])
            )
    if output is not None:
        inside = absolute(output).partition("?")[0].rstrip("/") + "/"
        sources = [source for source in sources if not source.path.startswith(inside)]
    if not sources:
        raise InputError("no input is there; name files, folders, globs or addresses")
    seen = set[str]()
    for source in sources:
        if source.path in seen:
            raise InputError(f"{source.name}: named twice; name it once")
        seen.add(source.path)
    return sources


def _is_hidden(path: str) -> bool:
    """Whether a part of a path is a name of hidden files, or of marks such as _SUCCESS."""
    return any(part.startswith((".", "_")) for part in path.split("/"))


def _find_remote(address: str) -> list[Source]:
    filesystem, path = open_filesystem(address)
    path = path.rstrip("/")
    found = filesystem.get_file_info([path])
    if found[0].type == pafs.FileType.Directory:
        inner = filesystem.get_file_info(pafs.FileSelector(path, recursive=True))
        found = sorted(inner, key=lambda info: str(info.path))
    sources = []
    for info in found:
        rest = info.path[len(path) :]
        if info.type == pafs.FileType.File and not _is_hidden(rest):
            name = extended(address, rest)
            sources.append(Source(name, info.size, info.mtime_ns, name))
    if not sources:
        raise InputError(f"{address}: no file there; name a file or a folder")
    return sources


def absolute(location: str) -> str:
    """A path for processes in any folder; an address is one."""
    return location if "://" in location else os.path.abspath(location)


def extended(location: str, more: str) -> str:
    """A path or address with more at its end, which in an address is before the query."""
    if "://" not in location:
        return location.rstrip("/") + more
    base, mark, query = location.partition("?")
    return base.rstrip("/") + more + mark + query


def open_filesystem(address: str) -> tuple[pafs.FileSystem, str]:
    """The file system of an address, and the path in it; without "://" it is a path on disk."""
    if "://" not in address:
        return pafs.LocalFileSystem(), address
    try:
        filesystem, path = pafs.FileSystem.from_uri(address)
    except (pa.ArrowException, ImportError, ValueError) as error:
        raise InputError(
            f"{address}: cannot be opened ({_one_line(error)}); expected a path, or the address of "
            "a file system that pyarrow opens, such as s3://, gs:// or hdfs://"
        ) from None
    return filesystem, path


def _open(source: Source) -> Any:
    """A file for reading, here or far away."""
    if "://" not in source.path:
        return open(source.path, "rb")
    filesystem, path = open_filesystem(source.path)
    return filesystem.open_input_file(path)


def _format_of(name: str) -> Format:
    path = PurePosixPath(name.partition("?")[0] if "://" in name else name)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in _PACKED:
        suffixes.pop()
    return _FORMATS.get(suffixes[-1] if suffixes else "", "text")


@dataclass(frozen=True)
class _Scanned:
    """A file, its columns, and rows that may be wrong, by the names of columns.

    `missing` are the first ones without a value, `large` those with a whole number that a floating
    point number cannot be.
    """

    file: CorpusFile
    schema: pa.Schema
    missing: dict[str, int]
    large: dict[str, int]

    def check_numbers(self, schema: pa.Schema) -> None:
        """Refuse whole numbers that would change in a column of floating point numbers."""
        for name in self.schema.names:
            if not pa.types.is_floating(schema.field(name).type):
                continue
            if name in self.large:
                raise InputError(
                    f"{self.file.name}, row {self.large[name] + 1}: column {name!r} has a whole "
                    "number beyond 2^53, and fractions elsewhere; make them text"
                )
            if _format_of(self.file.name) == "parquet" and pa.types.is_integer(
                self.schema.field(name).type
            ):
                raise InputError(
                    f"{self.file.name}: column {name!r} is of type {self.schema.field(name).type}, "
                    f"but of type {schema.field(name).type} elsewhere; give it one type"
                )


@dataclass(frozen=True)
class _Scan:
    """Reads a whole file, counts its rows, and checks those that are to be embedded."""

    columns: tuple[str, ...]

    def __call__(self, source: Source) -> _Scanned:
        name, rows = source.name, 0
        schema: pa.Schema | None = None
        offsets: list[int] = []
        missing: dict[str, int] = {}
        large: dict[str, int] = {}
        is_parquet = _format_of(name) == "parquet"
        with _explaining_errors(name), _HashedFile(_open(source)) as file, _buffered(file) as start:
            if is_parquet:
                tables = self._parquet(source)
            else:
                tables = _tables_with_offsets(start, name, offsets)
            for table in tables:
                schema = table.schema if schema is None else _unify(schema, table, name, rows)
                for column in self.columns:
                    row = _first_missing(table, column)
                    if row is not None:
                        missing.setdefault(column, rows + row)
                for column in table.column_names:
                    row = None if column in large else _first_large(table[column])
                    if row is not None:
                        large[column] = rows + row
                rows += len(table)
            digest = file.digest()
        if is_parquet:
            with _open(source) as opened, _explaining_errors(name):
                schema = pq.read_schema(opened)
        assert schema is not None  # the first table may be empty, but there is one
        scanned = CorpusFile(source, digest, rows, tuple(offsets))
        return _Scanned(scanned, schema.remove_metadata(), missing, large)

    def _parquet(self, source: Source) -> Iterator[pa.Table]:
        with _open(source) as opened:
            file = pq.ParquetFile(opened)
            columns = [column for column in self.columns if column in file.schema_arrow.names]
            for batch in file.iter_batches(_ROWS_PER_TABLE, columns=columns):
                yield pa.Table.from_batches([batch])


def _unify(schema: pa.Schema, table: pa.Table, name: str, rows: int) -> pa.Schema:
    if schema == table.schema:
        return schema
    try:
        return pa.unify_schemas([schema, table.schema], promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(
            f"{name}, after row {rows:,}: a column changes its type ({_one_line(error)}); expected "
            "values of one type in each column"
        ) from None


def _first_missing(table: pa.Table, column: str) -> int | None:
    """The first row that has no value in a column, or a list with a missing word."""
    if column not in table.column_names:
        return 0 if len(table) else None
    values = table[column]
    if not values.null_count and not (
        _is_list(values.type) and any(chunk.flatten().null_count for chunk in values.chunks)
    ):
        return None
    listed = values.to_pylist()
    return next(
        row
        for row, value in enumerate(listed)
        if value is None or (isinstance(value, list) and None in value)
    )


def _first_large(values: pa.ChunkedArray) -> int | None:
    """The first row with a whole number that a floating point number cannot be."""
    if not pa.types.is_integer(values.type) or not len(values):
        return None
    bounds = pc.min_max(values).as_py()
    if bounds["min"] is None or max(-bounds["min"], bounds["max"]) <= _LARGEST_EXACT:
        return None
    listed = values.to_pylist()
    return next(n for n, v in enumerate(listed) if v is not None and abs(v) > _LARGEST_EXACT)


class _RawFile(io.RawIOBase):
    """A file of Python or of pyarrow, for `io.BufferedReader`."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def close(self) -> None:
        self._file.close()
        super().close()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def _read(self, size: int) -> bytes:
        block: bytes = self._file.read(size)
        return block


class _HashedFile(_RawFile):
    """A file whose hash is computed from the bytes that are read."""

    def __init__(self, file: Any) -> None:
        super().__init__(file)
        self._hash = hashlib.sha256()

    def _read(self, size: int) -> bytes:
        block = super()._read(size)
        self._hash.update(block)
        return block

    def digest(self) -> str:
        """The hash of the whole file; what was not read is read now."""
        while self._read(2**20):
            pass
        return self._hash.hexdigest()


def _tables_with_offsets(
    file: io.BufferedReader, name: str, offsets: list[int]
) -> Iterator[pa.Table]:
    """All rows; `offsets` receives where each table begins, unless the file is packed.

    There is one table or more, so that the columns of a file without rows are known.
    """
    contents = decompressed(name, file)
    rows = _Rows(contents, name)
    first = 0
    while True:
        offset = rows.offset
        listed = [*islice(rows, _ROWS_PER_TABLE)]
        if not listed and first:
            return
        if contents is file and listed:
            offsets.append(offset)
        yield _table_of(listed, name, first, rows.schema)
        if not listed:
            return
        first += len(listed)


def _read_rows(source: Source, offset: int) -> Iterator[Any]:
    """The rows of a file from an offset on, which is 0 or one that a scan has found."""
    header: list[str] = []
    if offset and _format_of(source.name) == "csv":
        with _buffered(_RawFile(_open(source))) as file:
            header = _Rows(file, source.name).header
    opened = _open(source)
    if offset:
        opened.seek(offset)
    with _buffered(_RawFile(opened)) as file:
        contents = file if offset else decompressed(source.name, file)
        yield from _Rows(contents, source.name, offset, header)


def _buffered(file: io.RawIOBase) -> io.BufferedReader:
    return io.BufferedReader(file, 2**20)


class _Rows:
    """The rows of lines of text, JSON or CSV: strings, or dictionaries.

    `offset` is the byte after the last line that was read.
    """

    def __init__(
        self, contents: Any, name: str, offset: int = 0, header: Sequence[str] = ()
    ) -> None:
        self.offset, self._line = offset, 0
        self._contents, self._name = contents, name
        self.header = [*header]
        self.schema: pa.Schema | None = None
        self._rows: Iterator[Any]
        kind = _format_of(name)
        if kind == "csv":
            self._rows = self._parse_csv()
            self.schema = pa.schema([(column, pa.string()) for column in self.header])
        elif kind == "jsonl":
            self._rows = self._parse_json()
        else:
            self._rows = (line.removesuffix("\n").removesuffix("\r") for line in self._lines())
            self.schema = pa.schema([(TEXT, pa.string())])

    def __iter__(self) -> Iterator[Any]:
        return self._rows

    def _lines(self) -> Iterator[str]:
        for raw in self._contents:
            line = raw if self.offset else raw.removeprefix(b"\xef\xbb\xbf")
            self.offset += len(raw)
            self._line += 1
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise InputError(
                    f"{self._name}, line {self._line}: not UTF-8 (byte 0x{line[error.start]:02x} "
                    f"at column {error.start + 1}); convert the file to UTF-8 first"
                ) from None

    def _parse_json(self) -> Iterator[dict[str, Any]]:
        for line in self._lines():
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise InputError(
                    f"{self._name}, line {self._line}: not JSON ({error}); expected an object on "
                    "each line"
                ) from None
            if not isinstance(row, dict):
                raise InputError(
                    f"{self._name}, line {self._line}: is a {type(row).__name__}, expected an "
                    'object on each line, such as {"text": "A cat."}'
                )
            yield row

    def _parse_csv(self) -> Iterator[Any]:
        if csv.field_size_limit() < 2**31 - 1:
            csv.field_size_limit(2**31 - 1)  # or a text of more than 128 KB would be refused
        suffixes = PurePosixPath(self._name).suffixes
        dialect = "excel-tab" if ".tsv" in suffixes else "excel"
        reader = csv.reader(self._lines(), dialect, strict=True)
        header = self.header or self._next_values(reader) or []
        if not header or len({*header}) < len(header):
            raise InputError(
                f"{self._name}: its first line is {','.join(header)!r}, expected the names of the "
                "columns, each once"
            )
        self.header = header
        return self._dictionaries(reader, header)

    def _dictionaries(
        self, reader: Iterator[list[str]], header: Sequence[str]
    ) -> Iterator[dict[str, str]]:
        while (values := self._next_values(reader)) is not None:
            if len(values) != len(header):
                raise InputError(
                    f"{self._name}, line {self._line}: has {len(values)} values, expected "
                    f"{len(header)} ({', '.join(header)}); are quotes missing?"
                )
            yield dict(zip(header, values, strict=True))

    def _next_values(self, reader: Iterator[list[str]]) -> list[str] | None:
        try:
            return next((values for values in reader if values), None)
        except csv.Error as error:
            raise InputError(
                f"{self._name}, line {self._line}: not CSV ({error}); are quotes missing?"
            ) from None


def _table_of(rows: list[Any], name: str, first: int, schema: pa.Schema | None) -> pa.Table:
    """A table of strings of text, or of dictionaries, whose columns are found without a schema.

    `first` is the number of its first row.
    """
    if _format_of(name) == "text":
        return pa.table({TEXT: pa.array(rows, pa.string())})
    try:
        kind = None if schema is None else pa.struct([*schema])
        return pa.Table.from_struct_array(pa.array(rows, kind or (None if rows else pa.struct([]))))
    except _NOT_A_COLUMN as error:
        column, row = _find_problem(rows)
        where = f"row {first + row + 1}, column {column!r}" if column else f"row {first + 1} on"
        raise InputError(
            f"{name}, {where}: cannot be in a table ({_one_line(error)}); expected values of one "
            "type in each column"
        ) from None


_NOT_A_COLUMN = pa.ArrowException, UnicodeEncodeError, OverflowError, TypeError


def _find_problem(rows: list[dict[str, Any]]) -> tuple[str | None, int]:
    """The column whose values cannot be in one, and the first row with which they cannot."""
    for column in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(column) for row in rows]
        if _is_column(values):
            continue
        good, bad = 0, len(values)  # the first so many are a column, or not
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if _is_column(values[:middle]) else (good, middle)
        return column, bad - 1
    return None, 0


def _is_column(values: list[Any]) -> bool:
    try:
        pa.array(values)
    except _NOT_A_COLUMN:
        return False
    return True


def _read_parquet(source: Source, start: int, stop: int) -> Iterator[pa.Table]:
    """Rows of a Parquet file; row groups without any of them are not read."""
    with _explaining_errors(source.name), _open(source) as opened:
        file = pq.ParquetFile(opened)
        groups: list[int] = []
        first = skipped = 0
        for number in range(file.num_row_groups):
            rows = file.metadata.row_group(number).num_rows
            if first < stop and first + rows > start:
                if not groups:
                    skipped = start - first
                groups.append(number)
            first += rows
        left = stop - start
        for batch in file.iter_batches(_ROWS_PER_TABLE, row_groups=groups):
            table = pa.Table.from_batches([batch])[skipped:][:left]
            skipped = max(0, skipped - len(batch))
            left -= len(table)
            if len(table):
                yield table
            if not left:
                return


def _conform(table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    """The table with the columns of the corpus, those that its file lacks being null."""
    if table.schema.equals(schema):
        return table
    columns = []
    for wanted in schema:
        if wanted.name not in table.column_names:
            columns.append(pa.nulls(len(table), wanted.type))
            continue
        try:
            columns.append(table[wanted.name].cast(wanted.type))
        except pa.ArrowException as error:
            raise InputError(
                f"{name}, column {wanted.name!r}: is not of type {wanted.type} "
                f"({_one_line(error)}); leave the file as it is until it is embedded"
            ) from None
    return pa.Table.from_arrays(columns, schema=schema)


@contextmanager
def _explaining_errors(name: str) -> Iterator[None]:
    """Turn what is raised for a damaged file into a FormatError."""
    try:
        yield
    except (EOFError, lzma.LZMAError, zlib.error, pa.ArrowInvalid) as error:
        raise FormatError(
            f"{name}: cannot be read ({_one_line(error)}); was the file cut short?"
        ) from None
    except OSError as error:
        # Those of the system have a number; others are of gzip, and of pyarrow for damaged files.
        if error.errno is not None:
            raise OSError(error.errno, error.strerror or _one_line(error), name) from None
        raise FormatError(
            f"{name}: cannot be read ({_one_line(error)}); was the file cut short?"
        ) from None


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
