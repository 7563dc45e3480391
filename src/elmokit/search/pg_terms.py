"""The lexical part of an index in PostgreSQL: the terms of passages as sparse vectors.

A term is a number, its hash. A passage's vector has, for each of its terms, the factor by which
BM25 multiplies the term's weight, so that the inner product with the weights of a query is BM25:
exact, unlike ts_rank, and in any encoding of the database. An inverted index (GIN) finds the
passages that have a term of the query. The average length of passages in the factors is that of
the time when the part was made.
"""

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from pgvector import SparseVector

from elmokit.search.lexical import (
    LENGTH_SHARE,
    SATURATION,
    LexicalPart,
    TermStatistics,
    get_stemmer,
)
from elmokit.search.pg_connection import Database
from elmokit.whitening import Whitening

_DIM = 10**9  # the most that pgvector takes
_MAX_TERMS = 16_000  # the most of a passage, likewise

_CREATE = """
CREATE TABLE {s}.terms (
    passage bigint NOT NULL, length bigint NOT NULL, numbers integer[] NOT NULL,
    factors sparsevec NOT NULL
);
CREATE TABLE {s}.frequencies (term integer PRIMARY KEY, passages bigint NOT NULL);
CREATE TABLE {s}.lexical_part (
    stemmer text NOT NULL,
    word_whitening bytea NOT NULL,
    average_length double precision NOT NULL,
    passages bigint NOT NULL DEFAULT 0,
    terms bigint NOT NULL DEFAULT 0
)
"""
_DROP = "DROP TABLE IF EXISTS {s}.terms, {s}.frequencies, {s}.lexical_part"
# An earlier version may have added passages, whose ids are larger, or deleted some.
_PART = """
SELECT stemmer, word_whitening, passages = (SELECT count(*) FROM {s}.passages)
    AND (SELECT max(id) FROM {s}.passages) IS NOT DISTINCT FROM (SELECT max(passage) FROM {s}.terms)
FROM {s}.lexical_part
"""
_COUNT_TERMS = """
INSERT INTO {s}.frequencies AS f
SELECT * FROM unnest(%(terms)s::integer[], %(counts)s::bigint[])
ON CONFLICT (term) DO UPDATE SET passages = f.passages + excluded.passages
"""
_COUNT = """
UPDATE {s}.lexical_part SET passages = passages + %(passages)s, terms = terms + %(terms)s
"""
_STATISTICS = """
SELECT l.passages, l.terms, l.stemmer, f.term, f.passages FROM {s}.lexical_part l
LEFT JOIN {s}.frequencies f ON f.term = ANY(%(terms)s::integer[])
"""
_CREATE_INDEXES = """
ALTER TABLE {s}.terms ADD PRIMARY KEY (passage);
CREATE INDEX ON {s}.terms USING gin (numbers)
"""
_BEST = """
SELECT passage FROM {s}.terms WHERE numbers && %(numbers)s::integer[]
ORDER BY factors <#> %(weights)s, passage LIMIT %(k)s
"""
_BEST_OF_FILES = """
SELECT passage FROM {s}.terms WHERE numbers && %(numbers)s::integer[] AND passage IN (
    SELECT id FROM {s}.passages WHERE file = ANY(%(files)s)
) ORDER BY factors <#> %(weights)s, passage LIMIT %(k)s
"""


class TermCounts:
    """How many passages and terms were copied, and how many of the passages have each term."""

    def __init__(self) -> None:
        self.passages, self.length = 0, 0
        self.frequencies = Counter[int]()

    def add(self, length: int, terms: Sequence[int]) -> None:
        """Count a passage."""
        self.passages, self.length = self.passages + 1, self.length + length
        self.frequencies.update(terms)


def create_terms(database: Database, part: LexicalPart, sample: Sequence[Sequence[str]]) -> None:
    """Make the tables, within a transaction; the words of a sample say how long passages are."""
    database.execute(_DROP)
    for statement in _CREATE.split(";\n"):
        database.execute(statement)
    lengths = [len(get_stemmer(part.stemmer).terms(words)) for words in sample]
    database.execute(
        "INSERT INTO {s}.lexical_part VALUES (%(stemmer)s, %(whitening)s, %(length)s)",
        stemmer=part.stemmer,
        whitening=part.word_whitening.to_bytes(),
        length=sum(lengths) / max(len(lengths), 1),
    )


def index_terms(database: Database) -> None:
    """Index the table, when most of the passages are there."""
    database.execute(_CREATE_INDEXES)


def read_lexical_part(database: Database) -> LexicalPart | None:
    """How the terms were made; None if there are none, or not of all passages."""
    if not _has_terms(database):
        return None
    ((stemmer, whitening, is_complete),) = database.query(_PART)
    if not is_complete:
        return None
    name = f"{database.name}: word_whitening"
    return LexicalPart(stemmer, Whitening.from_bytes(whitening, name))


def add_terms(
    database: Database, passages: Iterable[tuple[int, Sequence[str]]], counts: TermCounts
) -> None:
    """Add the words of passages, by the passages' ids, to the tables and to `counts`.

    Nothing without tables. `count_terms` has to follow.
    """
    if not _has_terms(database):
        return
    query = "SELECT stemmer, average_length FROM {s}.lexical_part"
    ((name, average_length),) = database.query(query)
    stemmer, connection = get_stemmer(name), database.connection()
    into = database.sql("COPY {s}.terms FROM STDIN (FORMAT binary)")
    with connection.cursor() as cursor, cursor.copy(into) as copy:
        copy.set_types(["int8", "int8", "int4[]", "sparsevec"])
        for id_, words in passages:
            terms = stemmer.terms(words)
            factors = _factors(terms, average_length)
            copy.write_row((id_, len(terms), [*factors], SparseVector(factors, _DIM)))
            counts.add(len(terms), [*factors])


def count_terms(database: Database, counts: TermCounts, *, sign: int = 1) -> None:
    """Add what was counted to the statistics, or subtract it."""
    if not counts.passages:
        return
    listed = sorted(counts.frequencies.items())
    database.execute(
        _COUNT_TERMS,
        terms=[number for number, _ in listed],
        counts=[sign * count for _, count in listed],
    )
    database.execute(_COUNT, passages=sign * counts.passages, terms=sign * counts.length)


def delete_terms(database: Database, ids: Sequence[int]) -> None:
    """Remove the terms of passages; nothing without tables."""
    if not _has_terms(database):
        return
    rows = database.query(
        "DELETE FROM {s}.terms WHERE passage = ANY(%(ids)s::bigint[]) RETURNING length, numbers",
        ids=[*ids],
    )
    counts = TermCounts()
    for length, numbers in rows:
        counts.add(length, numbers)
    count_terms(database, counts, sign=-1)


def term_statistics(database: Database, terms: Iterable[str]) -> TermStatistics:
    """What BM25 needs to know."""
    numbers = {term: _number(term) for term in terms}
    rows = database.query(_STATISTICS, terms=[*numbers.values()])
    passages, length, stemmer = rows[0][:3]
    counts = {number: count for *_, number, count in rows}
    frequencies = {term: counts.get(number, 0) for term, number in numbers.items()}
    return TermStatistics(passages, length / max(passages, 1), frequencies, stemmer)


def best_by_terms(
    database: Database, weights: Mapping[str, float], k: int, files: Sequence[str] | None
) -> list[int]:
    """The ids of the k passages that BM25 ranks highest, best first."""
    numbers = {_number(term): weight for term, weight in weights.items()}
    query = SparseVector(numbers, _DIM)
    if files is None:
        rows = database.query(_BEST, numbers=[*numbers], weights=query, k=k)
    else:
        encoded = [file.encode() for file in files]
        rows = database.query(_BEST_OF_FILES, numbers=[*numbers], weights=query, k=k, files=encoded)
    return [id_ for (id_,) in rows]


def _number(term: str) -> int:
    return zlib.crc32(term.encode()) % _DIM


def _factors(terms: Sequence[str], average_length: float) -> dict[int, float]:
    """BM25's factor of each term of a passage, by the term's number."""
    relative_length = len(terms) / max(average_length, 1.0)
    saturation = SATURATION * (1 - LENGTH_SHARE + LENGTH_SHARE * relative_length)
    counts = Counter(map(_number, terms)).most_common(_MAX_TERMS)
    return {number: count / (count + saturation) for number, count in counts}


def _has_terms(database: Database) -> bool:
    """Whether there are tables."""
    table = f"{database.schema}.lexical_part"
    return database.query("SELECT to_regclass(%(table)s)", table=table) != [(None,)]
