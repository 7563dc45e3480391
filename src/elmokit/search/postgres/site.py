"""A database becomes the site of a build: parts that outlive a kill, then one transaction.

Until that transaction nothing is an index; when it fails, or a process is killed, nothing of it
is left but the parts, and a build that is started again goes on with them.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import psycopg

from elmokit.errors import InputError, OutputError
from elmokit.search.nearest import FLAT_ROWS, Kind
from elmokit.search.passages import Passage, Row
from elmokit.search.postgres.address import Address
from elmokit.search.postgres.database import Database
from elmokit.search.postgres.halfvec import MOST_NUMBERS, learn_halfvec
from elmokit.search.postgres.rows import GRAPH, INDEXES, TABLES, add_rows
from elmokit.search.recipe import Begun, Recipe
from elmokit.search.site import HalfVectors, Kept
from elmokit.whitening import Whitening

_BEGIN = """
CREATE SCHEMA {s};
CREATE TABLE {s}.made (
    begun text NOT NULL, recipe text, whitening bytea, passages bigint NOT NULL DEFAULT 0
);
CREATE TABLE {s}.parts (
    number serial PRIMARY KEY, passages bytea NOT NULL, rows bytea NOT NULL,
    counted bigint NOT NULL, vectored bigint NOT NULL, vectors bytea NOT NULL
)
"""
_CLAIM = "SELECT pg_try_advisory_lock(hashtextextended(%(schema)s, 0))"


class DatabaseSite:
    """A schema where an index is being made: parts with their passages and vectors."""

    def __init__(self, database: Database, dim: int) -> None:
        self.name = database.name
        self._database, self._dim = database, dim

    @classmethod
    @contextmanager
    def begin(cls, url: str, begun: Begun, *, dim: int) -> Iterator["DatabaseSite"]:
        """The site of a build that begins, or goes on; its vectors have `dim` numbers."""
        database = Database(Address.of(url))
        try:
            _check_kind(begun.recipe, dim, database.name)
            _have_pgvector(database)
            ((mine,),) = database.ask(_CLAIM, schema=database.schema)  # until it is closed
            if not mine:
                raise InputError(
                    f"{database.name}: another process changes this index; wait for its end"
                )
            _leave_word(database, begun.text())
            yield cls(database, dim)
        finally:
            database.close()

    def kept(self) -> Kept:
        """What is there already."""
        counted = "SELECT sum(counted)::bigint, sum(vectored)::bigint FROM {s}.parts"
        ((passages, vectors),) = self._database.ask(counted)
        last = self._database.ask("SELECT passages FROM {s}.parts ORDER BY number DESC LIMIT 1")
        return Kept(passages or 0, vectors or 0, json.loads(last[0][0])[-1][-1] if last else "")

    def keep(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: HalfVectors) -> None:
        """Keep a part, all at once."""
        self._database.do(
            "INSERT INTO {s}.parts (passages, rows, counted, vectored, vectors) "
            "VALUES (%(passages)s, %(rows)s, %(counted)s, %(vectored)s, %(vectors)s)",
            passages=json.dumps(
                [(p.file, p.line, p.start, p.end, p.text) for p in passages]
            ).encode(),
            rows=json.dumps([(row.passage, row.word, row.place) for row in rows]).encode(),
            counted=len(passages),
            vectored=len(rows),
            vectors=vectors.tobytes(),
        )

    def parts(self) -> Iterator[HalfVectors]:
        """The vectors of each part."""
        for number in self._numbers():
            one = "SELECT vectors FROM {s}.parts WHERE number = %(number)s"
            ((vectors,),) = self._database.ask(one, number=number)
            yield self._array(vectors)

    def finish(self, recipe: Recipe, whitening: Whitening) -> None:
        """Make the store of all parts, in one transaction."""
        kind = recipe.kind if recipe.kind != "auto" else self._choose_kind()
        with self._database.transaction():
            self._database.do(TABLES, numbers=self._dim)
            for number in self._numbers():
                one = "SELECT passages, rows, vectors FROM {s}.parts WHERE number = %(number)s"
                ((told, rows, vectors),) = self._database.ask(one, number=number)
                add_rows(
                    self._database,
                    [Passage(f, line, s, e, text, ()) for f, line, s, e, text in json.loads(told)],
                    [Row(*fields) for fields in json.loads(rows)],
                    whitening.apply(self._array(vectors)),
                )
            self._database.do(INDEXES)
            if kind == "hnsw":
                self._database.do(GRAPH)
            self._database.do("DROP TABLE {s}.parts")
            self._database.do(
                "UPDATE {s}.made SET recipe = %(recipe)s, whitening = %(whitening)s",
                recipe=replace(recipe, kind=kind).text(),
                whitening=whitening.packed(),
            )
        self._database.do("ANALYZE {s}.passages, {s}.vectors")

    def remove(self) -> None:
        """Leave nothing."""
        self._database.do("DROP SCHEMA {s} CASCADE")

    def _numbers(self) -> list[int]:
        return [n for (n,) in self._database.ask("SELECT number FROM {s}.parts ORDER BY number")]

    def _array(self, kept: bytes) -> HalfVectors:
        return np.frombuffer(kept, np.float16).reshape(-1, self._dim)

    def _choose_kind(self) -> Kind:
        few = self.kept().vectors <= FLAT_ROWS or self._dim > MOST_NUMBERS
        return "flat" if few else "hnsw"


def _check_kind(recipe: Recipe, dim: int, name: str) -> None:
    if recipe.kind == "ivf":
        raise InputError(f"{name}: kind is 'ivf', in PostgreSQL expected auto, flat or hnsw")
    if recipe.kind == "hnsw" and dim > MOST_NUMBERS:
        raise InputError(
            f"{name}: vectors have {dim:,} numbers, pgvector makes no graph of more than "
            f"{MOST_NUMBERS:,}; choose other layers, or kind flat"
        )


def _have_pgvector(database: Database) -> None:
    """Make pgvector known to the database, if it is not."""
    with database.explained():
        connection = database.connection()
        if learn_halfvec(connection, database.name):
            return
        try:
            connection.execute("CREATE EXTENSION vector")
        except (psycopg.NotSupportedError, psycopg.errors.UndefinedFile):
            raise InputError(
                f"{database.name}: PostgreSQL has no pgvector there; install it on the server"
            ) from None
        learn_halfvec(connection, database.name)


def _leave_word(database: Database, begun: str) -> None:
    """Leave word of what is built, or check that it is what was begun."""
    there = "SELECT to_regnamespace(%(s)s), to_regclass(%(made)s)"
    ((schema, made),) = database.ask(there, s=database.schema, made=f"{database.schema}.made")
    if schema is None:
        with database.transaction():
            database.do(_BEGIN)
            database.do("INSERT INTO {s}.made (begun) VALUES (%(begun)s)", begun=begun)
        return
    if made is None:
        raise OutputError(f"{database.name}: schema {database.schema} is there and is no index")
    ((known, finished),) = database.ask("SELECT begun, recipe IS NOT NULL FROM {s}.made")
    if finished:
        raise OutputError(f"{database.name}: an index already; add to it, or name another one")
    if known != begun:
        raise InputError(
            f"{database.name}: its build was begun with other files, options or another model; "
            f'repeat those, or remove it (DROP SCHEMA "{database.schema}" CASCADE)'
        )
