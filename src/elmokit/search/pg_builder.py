"""Building an index in PostgreSQL: parts that survive a kill, then all tables at once."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import psycopg

from elmokit.atomic import check_manifest
from elmokit.errors import InputError, OutputError
from elmokit.search import pg_terms
from elmokit.search.faiss_vectors import MAX_FLAT_VECTORS
from elmokit.search.lexical import LexicalPart
from elmokit.search.passage_vectors import IndexConfig, Kind, current_manifest
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.pg_connection import Database, PostgresAddress, register_pgvector
from elmokit.search.pg_store import PASSAGES_PER_QUERY, copy_rows, lock
from elmokit.search.store import BuildProgress, HalfVectors
from elmokit.whitening import Whitening

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
_SESSION_LOCK = "SELECT pg_try_advisory_lock(hashtextextended(%(schema)s, 0))"
_MAX_HNSW_DIM = 4000  # beyond it pgvector makes no graph


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
            lock(database, _SESSION_LOCK)  # until the connection is closed
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
                [(p.file, p.line, p.start, p.end, p.sentences, p.text) for p in passages]
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

    def sample_texts(self, limit: int) -> list[str]:
        stride, texts = max(1, self.progress().passages // limit), list[str]()
        first = 0  # number of the first passage of a part
        for number in self._part_numbers():
            passages, _ = self._part(number)
            texts += [passage.text for passage in passages[-first % stride :: stride]]
            first += len(passages)
        return texts[:limit]

    def finish(
        self, config: IndexConfig, whitening: Whitening, lexical_part: LexicalPart | None
    ) -> None:
        kind = config.kind if config.kind != "auto" else self._choose_kind()
        query = "SELECT vectors FROM {s}.parts WHERE number = %(number)s"
        sample = [] if lexical_part is None else self.sample_texts(PASSAGES_PER_QUERY)
        with self._database.transaction():
            self._database.execute(_CREATE_TABLES, dim=self._dim)
            if lexical_part is not None:
                pg_terms.create_terms(self._database, lexical_part, [*map(config.words, sample)])
            counts = pg_terms.TermCounts()
            for number in self._part_numbers():
                passages, sources = self._part(number)
                ((vectors,),) = self._database.query(query, number=number)
                whitened = whitening.transform(self._array(vectors))
                first_id = copy_rows(self._database, passages, sources, whitened)
                words = (
                    (id_, passage.words or config.words(passage.text))
                    for id_, passage in enumerate(passages, first_id)
                )
                pg_terms.add_terms(self._database, words, counts)
            pg_terms.count_terms(self._database, counts)
            self._database.execute(_CREATE_INDEXES)
            if lexical_part is not None:
                pg_terms.index_terms(self._database)
            if kind == "hnsw":
                self._database.execute(_CREATE_HNSW)
            self._database.execute("DROP TABLE {s}.parts")
            self._database.execute(
                "UPDATE {s}.made SET recipe = %(config)s, whitening = %(whitening)s",
                config=replace(config, kind=kind).to_json(),
                whitening=whitening.to_bytes(),
            )
        self._database.execute("ANALYZE {s}.passages, {s}.vectors")
        if lexical_part is not None:
            self._database.execute("ANALYZE {s}.terms, {s}.frequencies")

    def remove(self) -> None:
        self._database.execute("DROP SCHEMA {s} CASCADE")

    def _part_numbers(self) -> list[int]:
        rows = self._database.query("SELECT number FROM {s}.parts ORDER BY number")
        return [number for (number,) in rows]

    def _part(self, number: int) -> tuple[list[Passage], list[VectorSource]]:
        """The passages and the sources of a part; earlier versions stored no sentences."""
        query = "SELECT passages, rows FROM {s}.parts WHERE number = %(number)s"
        ((stored, sources),) = self._database.query(query, number=number)
        passages = [
            Passage(file, line, start, end, text, tuple(map(tuple, chain(*sentences))))
            for file, line, start, end, *sentences, text in json.loads(stored)
        ]
        return passages, [VectorSource(*fields) for fields in json.loads(sources)]

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
        current_manifest(json.loads(stored)), manifest, name=database.name, remedy=remedy
    )
