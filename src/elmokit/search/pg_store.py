"""An index in PostgreSQL with pgvector, for many machines and processes; and its builder.

Text is stored as the bytes of UTF-8: a database may have another encoding, and none can store the
character 0.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import psycopg
from pgvector import HalfVector

from elmokit.atomic import check_manifest
from elmokit.errors import FormatError, InputError, OutputError
from elmokit.pooling import Vectors
from elmokit.search.faiss_vectors import MAX_FLAT_VECTORS
from elmokit.search.passage_vectors import IndexConfig, Kind, current_settings
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.pg_connection import Database, PostgresAddress, register_pgvector
from elmokit.search.store import (
    BuildProgress,
    Counts,
    HalfVectors,
    Hit,
    PassageRef,
    no_index_error,
)
from elmokit.whitening import Whitening

_MAX_HNSW_DIM = 4000  # beyond it pgvector makes no graph
_EF_SEARCH, _MAX_EF_SEARCH = 128, 1000  # as with FAISS; pgvector's limit

# Names of tables and columns are those of 0.1, whose indexes are still read: `made` has the config
# of a finished index (recipe) or the manifest of a build (begun).
_CREATE_BUILD = """
CREATE SCHEMA {s};
CREATE TABLE {s}.made (
    begun text NOT NULL, recipe text, whitening bytea, passages bigint NOT NULL DEFAULT 0
);
CREATE TABLE {s}.parts (
    number serial PRIMARY KEY, passages bytea NOT NULL, rows bytea NOT NULL,
    counted bigint NOT NULL, vectored bigint NOT NULL, vectors bytea NOT NULL
)
"""
_CREATE_TABLES = """
CREATE TABLE {s}.passages (
    id bigint NOT NULL,
    file bytea NOT NULL,
    line bigint NOT NULL,
    start bigint NOT NULL,
    stop bigint NOT NULL,
    text bytea NOT NULL
);
CREATE TABLE {s}.vectors (
    passage bigint NOT NULL,
    word bytea,
    form bytea,
    place bigint,
    numbers halfvec({n}) NOT NULL
)
"""
# Hash indexes take words and file names of any length; B-trees do not.
_CREATE_INDEXES = """
ALTER TABLE {s}.passages ADD PRIMARY KEY (id);
CREATE INDEX ON {s}.passages USING hash (file);
CREATE INDEX ON {s}.vectors (passage);
CREATE INDEX ON {s}.vectors USING hash (form) WHERE form IS NOT NULL
"""
_CREATE_HNSW = """
CREATE INDEX ON {s}.vectors USING hnsw (numbers halfvec_ip_ops)
WITH (m = 32, ef_construction = 200)
"""
_NEAREST = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, numbers <#> %(query)b AS distance
    FROM {s}.vectors ORDER BY numbers <#> %(query)b LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
# The "+ 0" keeps PostgreSQL from using the graph, which would miss some occurrences.
_NEAREST_OCCURRENCES = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, (numbers <#> %(query)b) + 0 AS distance
    FROM {s}.vectors WHERE form = %(form)s ORDER BY distance, passage, place LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
_COUNTS = """
SELECT (SELECT count(*) FROM {s}.passages), (SELECT count(*) FROM {s}.vectors),
    (SELECT count(DISTINCT file) FROM {s}.passages)
"""
_SIZE = """
SELECT pg_total_relation_size('{s}.passages'::regclass)
    + pg_total_relation_size('{s}.vectors'::regclass)
"""
_SESSION_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%(schema)s, 0))"
_TRANSACTION_LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%(schema)s, 0))"


class PostgresStore:
    """The store of an index in a schema of PostgreSQL."""

    def __init__(
        self, database: Database, config: IndexConfig, whitening: Whitening, *, table_id: int
    ) -> None:
        self.name, self.config, self.whitening = database.name, config, whitening
        self.dim = len(whitening.mean)
        self._database, self._table_id = database, table_id

    @classmethod
    def open(cls, url: str) -> "PostgresStore":
        database = Database(PostgresAddress.from_url(url))
        try:
            ((table,),) = database.query(
                "SELECT to_regclass(%(made)s)", made=f"{database.schema}.made"
            )
            started = table is not None
            rows = []
            if started:
                rows = database.query("SELECT recipe, whitening, tableoid FROM {s}.made")
            if not rows or rows[0][0] is None:
                raise no_index_error(database.name, started=started)
            ((config_json, packed_whitening, table_id),) = rows
            config = IndexConfig.from_json(config_json, f"{database.name}: config")
            whitening = Whitening.from_bytes(packed_whitening, f"{database.name}: whitening")
        except BaseException:
            database.close()
            raise
        return cls(database, config, whitening, table_id=table_id)

    def counts(self) -> Counts:
        return Counts(*self._database.query(_COUNTS)[0])

    def size_bytes(self) -> int:
        return int(self._database.query(_SIZE)[0][0])

    def nearest(self, query: Vectors, k: int) -> list[Hit]:
        self._check_not_rebuilt()
        if self.config.kind == "hnsw":
            ef_search = str(min(max(_EF_SEARCH, 2 * k), _MAX_EF_SEARCH))
            self._database.query("SELECT set_config('hnsw.ef_search', %(ef)s, false)", ef=ef_search)
        return [*map(_hit, self._database.query(_NEAREST, query=HalfVector(query), k=k))]

    def nearest_occurrences(self, word: str, query: Vectors, k: int) -> list[Hit]:
        self._check_not_rebuilt()
        rows = self._database.query(
            _NEAREST_OCCURRENCES, query=HalfVector(query), form=_folded(word), k=k
        )
        return [*map(_hit, rows)]

    def passages_of(self, file: str) -> list[int]:
        query = "SELECT id FROM {s}.passages WHERE file = %(file)s ORDER BY id"
        return [id_ for (id_,) in self._database.query(query, file=file.encode())]

    def missing(self, ids: Sequence[int]) -> list[int]:
        query = "SELECT id FROM {s}.passages WHERE id = ANY(%(ids)s::bigint[])"
        present = {id_ for (id_,) in self._database.query(query, ids=[*ids])}
        return [id_ for id_ in ids if id_ not in present]

    @contextmanager
    def changing(self) -> Iterator[None]:
        with self._database.transaction():
            _lock(self._database, _TRANSACTION_LOCK)
            self._check_not_rebuilt()
            yield

    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None:
        _copy_rows(self._database, passages, sources, vectors)

    def delete(self, ids: Sequence[int]) -> None:
        for statement in (
            "DELETE FROM {s}.vectors WHERE passage = ANY(%(ids)s::bigint[])",
            "DELETE FROM {s}.passages WHERE id = ANY(%(ids)s::bigint[])",
        ):
            self._database.execute(statement, ids=[*ids])

    def close(self) -> None:
        self._database.close()

    def _check_not_rebuilt(self) -> None:
        # A rebuilt index has another whitening than the one that was read when this was opened.
        if self._database.query("SELECT tableoid FROM {s}.made") != [(self._table_id,)]:
            raise FormatError(
                f"{self.name}: the index was built again since it was opened; open it again"
            )


class PostgresBuilder:
    """A schema where an index is being built: parts, then the store's tables in one transaction.

    If that transaction fails, or a process is killed, the parts are still there to resume from.
    """

    def __init__(self, database: Database, dim: int) -> None:
        self.name = database.name
        self._database, self._dim = database, dim

    @classmethod
    @contextmanager
    def open(
        cls, url: str, manifest: Mapping[str, Any], *, dim: int
    ) -> Iterator["PostgresBuilder"]:
        """Start a build, or resume the same one; its vectors have `dim` numbers."""
        database = Database(PostgresAddress.from_url(url))
        try:
            _check_kind(manifest["kind"], dim, database.name)
            _create_extension(database)
            _lock(database, _SESSION_LOCK)  # until the connection is closed
            _start_or_resume(database, manifest)
            yield cls(database, dim)
        finally:
            database.close()

    def progress(self) -> BuildProgress:
        query = "SELECT sum(counted)::bigint, sum(vectored)::bigint FROM {s}.parts"
        ((passages, vectors),) = self._database.query(query)
        last = self._database.query("SELECT passages FROM {s}.parts ORDER BY number DESC LIMIT 1")
        last_text = json.loads(last[0][0])[-1][-1] if last else ""
        return BuildProgress(passages or 0, vectors or 0, last_text)

    def add_part(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: HalfVectors
    ) -> None:
        self._database.execute(
            "INSERT INTO {s}.parts (passages, rows, counted, vectored, vectors) "
            "VALUES (%(passages)s, %(rows)s, %(counted)s, %(vectored)s, %(vectors)s)",
            passages=json.dumps(
                [(p.file, p.line, p.start, p.end, p.text) for p in passages]
            ).encode(),
            rows=json.dumps([(s.passage, s.word, s.word_index) for s in sources]).encode(),
            counted=len(passages),
            vectored=len(sources),
            vectors=vectors.tobytes(),
        )

    def parts(self) -> Iterator[HalfVectors]:
        query = "SELECT vectors FROM {s}.parts WHERE number = %(number)s"
        for number in self._part_numbers():
            ((vectors,),) = self._database.query(query, number=number)
            yield self._array(vectors)

    def finish(self, config: IndexConfig, whitening: Whitening) -> None:
        kind = config.kind if config.kind != "auto" else self._choose_kind()
        query = "SELECT passages, rows, vectors FROM {s}.parts WHERE number = %(number)s"
        with self._database.transaction():
            self._database.execute(_CREATE_TABLES, dim=self._dim)
            for number in self._part_numbers():
                ((passages, sources, vectors),) = self._database.query(query, number=number)
                _copy_rows(
                    self._database,
                    [
                        Passage(f, line, start, end, text, ())
                        for f, line, start, end, text in json.loads(passages)
                    ],
                    [VectorSource(*fields) for fields in json.loads(sources)],
                    whitening.transform(self._array(vectors)),
                )
            self._database.execute(_CREATE_INDEXES)
            if kind == "hnsw":
                self._database.execute(_CREATE_HNSW)
            self._database.execute("DROP TABLE {s}.parts")
            self._database.execute(
                "UPDATE {s}.made SET recipe = %(config)s, whitening = %(whitening)s",
                config=replace(config, kind=kind).to_json(),
                whitening=whitening.to_bytes(),
            )
        self._database.execute("ANALYZE {s}.passages, {s}.vectors")

    def remove(self) -> None:
        self._database.execute("DROP SCHEMA {s} CASCADE")

    def _part_numbers(self) -> list[int]:
        rows = self._database.query("SELECT number FROM {s}.parts ORDER BY number")
        return [number for (number,) in rows]

    def _array(self, stored: bytes) -> HalfVectors:
        return np.frombuffer(stored, np.float16).reshape(-1, self._dim)

    def _choose_kind(self) -> Kind:
        few = self.progress().vectors <= MAX_FLAT_VECTORS
        return "flat" if few or self._dim > _MAX_HNSW_DIM else "hnsw"


def _check_kind(kind: str, dim: int, name: str) -> None:
    if kind == "ivf":
        raise InputError(f"{name}: kind is 'ivf', in PostgreSQL expected auto, flat or hnsw")
    if kind == "hnsw" and dim > _MAX_HNSW_DIM:
        raise InputError(
            f"{name}: vectors have {dim:,} numbers, pgvector makes no graph of more than "
            f"{_MAX_HNSW_DIM:,}; choose other layers, or kind flat"
        )


def _create_extension(database: Database) -> None:
    """Create the extension pgvector in the database, if it is not there."""
    with database.explaining_errors():
        connection = database.connection()
        if register_pgvector(connection, database.name):
            return
        try:
            connection.execute("CREATE EXTENSION vector")
        except (psycopg.NotSupportedError, psycopg.errors.UndefinedFile):
            raise InputError(
                f"{database.name}: the server of PostgreSQL has no pgvector; install it there"
            ) from None
        register_pgvector(connection, database.name)


def _lock(database: Database, query: Any) -> None:
    ((locked,),) = database.query(query, schema=database.schema)
    if not locked:
        raise InputError(
            f"{database.name}: another process is changing this index; wait until it ends"
        )


def _start_or_resume(database: Database, manifest: Mapping[str, Any]) -> None:
    """Write the manifest of a new build, or check that of the build that is resumed."""
    query = "SELECT to_regnamespace(%(s)s), to_regclass(%(made)s)"
    ((schema, table),) = database.query(query, s=database.schema, made=f"{database.schema}.made")
    if schema is None:
        insert = "INSERT INTO {s}.made (begun) VALUES (%(manifest)s)"
        with database.transaction():
            database.execute(_CREATE_BUILD)
            database.execute(insert, manifest=json.dumps(dict(manifest)))
        return
    if table is None:
        raise OutputError(
            f"{database.name}: the schema {database.schema} exists and is no index; choose another "
            "name"
        )
    ((stored, finished),) = database.query("SELECT begun, recipe IS NOT NULL FROM {s}.made")
    if finished:
        raise OutputError(
            f"{database.name}: there is an index already; add to it, or choose another name"
        )
    remedy = f'finish it as it was started, or remove it (DROP SCHEMA "{database.schema}" CASCADE)'
    check_manifest(
        current_settings(json.loads(stored)), manifest, name=database.name, remedy=remedy
    )


def _copy_rows(
    database: Database,
    passages: Sequence[Passage],
    sources: Sequence[VectorSource],
    vectors: Vectors,  # (sources, dim)
) -> None:
    """Copy passages and vectors into the tables, within a transaction."""
    reserve_ids = "UPDATE {s}.made SET passages = passages + %(more)s RETURNING passages"
    ((last_id,),) = database.query(reserve_ids, more=len(passages))
    first_id, connection = last_id - len(passages) + 1, database.connection()
    into = database.sql("COPY {s}.passages FROM STDIN (FORMAT binary)")
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        copy.set_types(["int8", "bytea", "int8", "int8", "int8", "bytea"])
        for id_, p in enumerate(passages, first_id):
            copy.write_row((id_, p.file.encode(), p.line, p.start, p.end, p.text.encode()))
    into = database.sql("COPY {s}.vectors FROM STDIN (FORMAT binary)")
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        copy.set_types(["int8", "bytea", "bytea", "int8", "halfvec"])
        for source, vector in zip(sources, vectors, strict=True):
            word = source.word and source.word.encode()
            folded = source.word and _folded(source.word)
            row = first_id + source.passage, word, folded, source.word_index, HalfVector(vector)
            copy.write_row(row)


def _folded(word: str) -> bytes:
    return word.casefold().encode()


def _hit(row: Sequence[Any]) -> Hit:
    distance, id_, file, line, start, end, text, word, word_index = row
    decoded = None if word is None else word.decode()
    ref = PassageRef(id_, file.decode(), line, start, end, text.decode(), decoded, word_index)
    return Hit(-distance, ref)
