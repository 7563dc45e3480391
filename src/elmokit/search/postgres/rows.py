"""Passages and their vectors become rows of PostgreSQL, and rows what was found.

Text is kept as the bytes of UTF-8: a database may have another encoding, and none has a place for
the character 0.
"""

from collections.abc import Sequence
from typing import Any

from elmokit.pooling import Vectors
from elmokit.search.passages import Passage, Row
from elmokit.search.postgres.database import Database
from elmokit.search.postgres.halfvec import Half
from elmokit.search.store import Found, Hit

# A hash does not mind how long a word or a name is; a tree would.
TABLES = """
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
INDEXES = """
ALTER TABLE {s}.passages ADD PRIMARY KEY (id);
CREATE INDEX ON {s}.passages USING hash (file);
CREATE INDEX ON {s}.vectors (passage);
CREATE INDEX ON {s}.vectors USING hash (form) WHERE form IS NOT NULL
"""
GRAPH = """
CREATE INDEX ON {s}.vectors USING hnsw (numbers halfvec_ip_ops)
WITH (m = 32, ef_construction = 200)
"""


def add_rows(
    database: Database, passages: Sequence[Passage], rows: Sequence[Row], vectors: Vectors
) -> None:
    """Put passages and vectors, (rows, dim), into the tables, within a transaction."""
    taken = "UPDATE {s}.made SET passages = passages + %(more)s RETURNING passages"
    ((after,),) = database.ask(taken, more=len(passages))
    first, connection = after - len(passages) + 1, database.connection()
    into = "COPY {s}.passages FROM STDIN (FORMAT binary)"
    with connection.cursor() as cursor, cursor.copy(database.sql(into)) as copy:
        copy.set_types(["int8", "bytea", "int8", "int8", "int8", "bytea"])
        for id_, one in enumerate(passages, first):
            where = one.file.encode(), one.line, one.start, one.end
            copy.write_row((id_, *where, one.text.encode()))
    half = connection.adapters.types["halfvec"].oid
    into = "COPY {s}.vectors FROM STDIN (FORMAT binary)"
    with connection.cursor() as cursor, cursor.copy(database.sql(into)) as copy:
        copy.set_types(["int8", "bytea", "bytea", "int8", half])
        for row, numbers in zip(rows, vectors, strict=True):
            word, form = row.word and row.word.encode(), row.word and form_of(row.word)
            copy.write_row((first + row.passage, word, form, row.place, Half(numbers)))


def form_of(word: str) -> bytes:
    """What the uses of a word have in common."""
    return word.casefold().encode()


def hit_of(row: Sequence[Any]) -> Hit:
    """A distance, and the columns of a passage and a vector."""
    distance, id_, file, line, start, stop, text, word, place = row
    said = word if word is None else word.decode()
    found = Found(id_, file.decode(), line, start, stop, text.decode(), said, place)
    return Hit(-distance, found)
