"""An index in PostgreSQL with pgvector, for many machines and processes.

Text is stored as the bytes of UTF-8: a database may have another encoding, and none can store the
character 0.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pgvector import HalfVector

from elmokit.errors import FormatError, InputError
from elmokit.pooling import Vectors
from elmokit.search import pg_terms
from elmokit.search.lexical import LexicalPart, TermStatistics
from elmokit.search.passage_vectors import IndexConfig
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.pg_connection import Database, PostgresAddress
from elmokit.search.store import (
    Counts,
    Files,
    Hit,
    PassageRef,
    no_index_error,
)
from elmokit.whitening import Whitening

_EF_SEARCH, _MAX_EF_SEARCH = 128, 1000  # as with FAISS; pgvector's limit
PASSAGES_PER_QUERY = 1000

_NEAREST = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, numbers <#> %(query)b AS distance
    FROM {s}.vectors ORDER BY numbers <#> %(query)b LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
# The "+ 0" keeps PostgreSQL from using the graph, which would miss some of the vectors.
_NEAREST_OF_FILES = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, (numbers <#> %(query)b) + 0 AS distance
    FROM {s}.vectors WHERE passage IN (SELECT id FROM {s}.passages WHERE file = ANY(%(files)s))
    ORDER BY distance, passage, place LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
_NEAREST_OCCURRENCES = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, (numbers <#> %(query)b) + 0 AS distance
    FROM {s}.vectors WHERE form = %(form)s AND (
        %(files)s::bytea[] IS NULL
        OR passage IN (SELECT id FROM {s}.passages WHERE file = ANY(%(files)s))
    ) ORDER BY distance, passage, place LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
_PASSAGE_IDS = "SELECT id FROM {s}.passages ORDER BY id"
_PASSAGES = """
SELECT id, file, line, start, stop, text FROM {s}.passages
WHERE id = ANY(%(ids)s::bigint[]) ORDER BY id
"""
_COSINES = """
SELECT passage, max(-(numbers <#> %(query)b)) FROM {s}.vectors
WHERE passage = ANY(%(ids)s::bigint[]) GROUP BY passage
"""
_COUNTS = """
SELECT (SELECT count(*) FROM {s}.passages), (SELECT count(*) FROM {s}.vectors),
    (SELECT count(DISTINCT file) FROM {s}.passages)
"""
_SIZE = """
SELECT sum(pg_total_relation_size(oid)) FROM pg_class
WHERE relnamespace = %(schema)s::regnamespace AND relkind = 'r'
"""
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
        return int(self._database.query(_SIZE, schema=self._database.schema)[0][0])

    def nearest(self, query: Vectors, k: int, files: Files = None) -> list[Hit]:
        self._check_not_rebuilt()
        if files is not None:
            rows = self._database.query(
                _NEAREST_OF_FILES, query=HalfVector(query), k=k, files=_encoded(files)
            )
            return [*map(_hit, rows)]
        if self.config.kind == "hnsw":
            ef_search = str(min(max(_EF_SEARCH, 2 * k), _MAX_EF_SEARCH))
            self._database.query("SELECT set_config('hnsw.ef_search', %(ef)s, false)", ef=ef_search)
        return [*map(_hit, self._database.query(_NEAREST, query=HalfVector(query), k=k))]

    def nearest_occurrences(
        self, word: str, query: Vectors, k: int, files: Files = None
    ) -> list[Hit]:
        self._check_not_rebuilt()
        rows = self._database.query(
            _NEAREST_OCCURRENCES,
            query=HalfVector(query),
            form=_folded(word),
            k=k,
            files=None if files is None else _encoded(files),
        )
        return [*map(_hit, rows)]

    def cosines(self, query: Vectors, passages: Sequence[int]) -> dict[int, float]:
        return dict(self._database.query(_COSINES, query=HalfVector(query), ids=[*passages]))

    def files(self) -> list[str]:
        rows = self._database.query("SELECT DISTINCT file FROM {s}.passages")
        return sorted(file.decode() for (file,) in rows)

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
            lock(self._database, _TRANSACTION_LOCK)
            self._check_not_rebuilt()
            yield

    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None:
        first_id = copy_rows(self._database, passages, sources, vectors)
        counts = pg_terms.TermCounts()
        words = ((id_, passage.words) for id_, passage in enumerate(passages, first_id))
        pg_terms.add_terms(self._database, words, counts)
        pg_terms.count_terms(self._database, counts)

    def delete(self, ids: Sequence[int]) -> None:
        pg_terms.delete_terms(self._database, ids)
        for statement in (
            "DELETE FROM {s}.vectors WHERE passage = ANY(%(ids)s::bigint[])",
            "DELETE FROM {s}.passages WHERE id = ANY(%(ids)s::bigint[])",
        ):
            self._database.execute(statement, ids=[*ids])

    def close(self) -> None:
        self._database.close()

    @property
    def lexical_part(self) -> LexicalPart | None:
        return pg_terms.read_lexical_part(self._database)

    def term_statistics(self, terms: Iterable[str]) -> TermStatistics:
        return pg_terms.term_statistics(self._database, terms)

    def best_by_terms(
        self, weights: Mapping[str, float], k: int, files: Files = None
    ) -> list[PassageRef]:
        self._check_not_rebuilt()
        ids = pg_terms.best_by_terms(self._database, weights, k, files)
        rows = self._database.query(_PASSAGES, ids=ids)
        found = {row[0]: _ref(row, None, None) for row in rows}
        return [found[id_] for id_ in ids if id_ in found]

    def sample_texts(self, limit: int) -> list[str]:
        ids = [id_ for (id_,) in self._database.query(_PASSAGE_IDS)]
        some = ids[:: max(1, len(ids) // limit)][:limit]
        return [text.decode() for *_, text in self._database.query(_PASSAGES, ids=some)]

    def make_lexical_part(self, part: LexicalPart) -> None:
        sample = map(self.config.words, self.sample_texts(PASSAGES_PER_QUERY))
        pg_terms.create_terms(self._database, part, [*sample])
        ids = [id_ for (id_,) in self._database.query(_PASSAGE_IDS)]
        counts = pg_terms.TermCounts()
        for start in range(0, len(ids), PASSAGES_PER_QUERY):
            some = ids[start : start + PASSAGES_PER_QUERY]
            rows = self._database.query(_PASSAGES, ids=some)
            words = [(id_, self.config.words(text.decode())) for id_, *_, text in rows]
            pg_terms.add_terms(self._database, words, counts)
        pg_terms.count_terms(self._database, counts)
        pg_terms.index_terms(self._database)

    def _check_not_rebuilt(self) -> None:
        # A rebuilt index has another whitening than the one that was read when this was opened.
        if self._database.query("SELECT tableoid FROM {s}.made") != [(self._table_id,)]:
            raise FormatError(
                f"{self.name}: the index was built again since it was opened; open it again"
            )


def lock(database: Database, query: Any) -> None:
    """Keep other processes from changing the index, as long as the query's lock lasts."""
    ((locked,),) = database.query(query, schema=database.schema)
    if not locked:
        raise InputError(
            f"{database.name}: another process is changing this index; wait until it ends"
        )


def copy_rows(
    database: Database,
    passages: Sequence[Passage],
    sources: Sequence[VectorSource],
    vectors: Vectors,  # (sources, dim)
) -> int:
    """Copy passages and vectors into the tables, within a transaction; return the first id."""
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
    return int(first_id)


def _folded(word: str) -> bytes:
    return word.casefold().encode()


def _encoded(files: Sequence[str]) -> list[bytes]:
    return [file.encode() for file in files]


def _hit(row: Sequence[Any]) -> Hit:
    distance, *passage, word, word_index = row
    return Hit.by_cosine(-distance, _ref(passage, word, word_index))


def _ref(row: Sequence[Any], word: bytes | None, word_index: int | None) -> PassageRef:
    id_, file, line, start, end, text = row
    decoded = None if word is None else word.decode()
    return PassageRef(id_, file.decode(), line, start, end, text.decode(), decoded, word_index)
