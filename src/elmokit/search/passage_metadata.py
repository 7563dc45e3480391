"""The SQLite database of an index folder: passages, their terms, and the source of each vector."""

import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.search.lexical import LexicalPart, TermStatistics
from elmokit.search.passage_terms import PassageTerms
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.store import Counts, PassageRef
from elmokit.whitening import Whitening

_CREATE_TABLES = """
BEGIN;
CREATE TABLE IF NOT EXISTS passages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL,
    line INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS vectors (
    id INTEGER PRIMARY KEY,
    passage INTEGER NOT NULL,
    word TEXT,
    form TEXT,
    place INTEGER
);
CREATE INDEX IF NOT EXISTS by_file ON passages(file);
CREATE INDEX IF NOT EXISTS by_passage ON vectors(passage);
CREATE INDEX IF NOT EXISTS by_form ON vectors(form) WHERE form IS NOT NULL;
COMMIT;
"""
_LOCK_TIMEOUT_SECONDS = 5.0  # while another process writes
_IDS_PER_QUERY = 500  # SQLite takes no more than some thousands


class PassageMetadata:
    """Passages and the sources of vectors; changes last after `commit`, or are rolled back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One thread at a time: a service opens an index in one and searches it in another.
        self._connection = sqlite3.connect(
            path, timeout=_LOCK_TIMEOUT_SECONDS, check_same_thread=False
        )
        self._terms = PassageTerms(self._connection)

    @classmethod
    def create(cls, path: Path, *, stemmer: str | None) -> "PassageMetadata":
        """A new database, or the one that is there; it has terms if a stemmer is named."""
        metadata = cls(path)
        with metadata._explaining_errors():
            metadata._connection.executescript(_CREATE_TABLES)
            if stemmer is not None:
                metadata._terms.create(stemmer)
                metadata._connection.commit()
        return metadata

    @classmethod
    def open(cls, path: Path) -> "PassageMetadata":
        path.stat()  # SQLite would make a new one
        return cls(path)

    def close(self) -> None:
        """Close the database; what was not committed is lost."""
        self._connection.close()

    def version(self) -> int:
        """A number that changes when another connection commits."""
        return int(self._fetch_one("PRAGMA data_version")[0])

    def commit(self) -> None:
        with self._explaining_errors():
            self._connection.commit()

    def rollback(self) -> None:
        with self._explaining_errors():
            self._connection.rollback()

    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], *, first: int
    ) -> None:
        """Add passages, and the sources of the vectors with ids from `first` on."""
        with self._explaining_errors():
            ids = [
                self._connection.execute(
                    "INSERT INTO passages (file, line, start, stop, text) VALUES (?, ?, ?, ?, ?)",
                    (p.file, p.line, p.start, p.end, p.text),
                ).lastrowid
                for p in passages
            ]
            self._terms.add(
                (id_ or 0, passage.words) for id_, passage in zip(ids, passages, strict=True)
            )
            rows = (
                (id_, ids[s.passage], s.word, s.word and s.word.casefold(), s.word_index)
                for id_, s in enumerate(sources, first)
            )
            self._connection.executemany("INSERT INTO vectors VALUES (?, ?, ?, ?, ?)", rows)

    def delete(self, passages: Sequence[int]) -> list[int]:
        """Delete passages; return the ids of their vectors."""
        vectors = [id_ for (id_,) in self._select("SELECT id FROM vectors WHERE passage", passages)]
        with self._explaining_errors():
            self._terms.delete(passages)
            for table, ids in (("vectors", vectors), ("passages", passages)):
                self._connection.executemany(
                    f"DELETE FROM {table} WHERE id = ?", ((id_,) for id_ in ids)
                )
        return vectors

    def missing(self, passages: Sequence[int]) -> list[int]:
        present = {id_ for (id_,) in self._select("SELECT id FROM passages WHERE id", passages)}
        return [id_ for id_ in passages if id_ not in present]

    def passages_of(self, file: str) -> list[int]:
        return self._fetch_ids("SELECT id FROM passages WHERE file = ?", file)

    def passages(self, ids: Sequence[int]) -> dict[int, PassageRef]:
        """Passages by their ids."""
        columns = "id, file, line, start, stop, text, NULL, NULL"  # of no word
        rows = self._select(f"SELECT {columns} FROM passages WHERE id", ids)
        return {row[0]: PassageRef(*row) for row in rows}

    def vectors_of(self, passages: Sequence[int]) -> list[tuple[int, int]]:
        """The ids of the vectors of passages, each with its passage's id."""
        rows = self._select("SELECT id, passage FROM vectors WHERE passage", passages)
        return [(id_, passage) for id_, passage in rows]

    def vectors_of_files(self, files: Sequence[str]) -> list[int]:
        """The ids of the vectors of all passages of files."""
        passages = "SELECT id FROM passages WHERE file IN (SELECT value FROM json_each(?))"
        query = f"SELECT id FROM vectors WHERE passage IN ({passages}) ORDER BY id"
        return self._fetch_ids(query, json.dumps(files))

    def files(self) -> list[str]:
        """The names of the files that the passages are from."""
        with self._explaining_errors():
            rows = self._connection.execute("SELECT DISTINCT file FROM passages ORDER BY file")
            return [name for (name,) in rows]

    def sample_texts(self, limit: int) -> list[str]:
        """The texts of so many passages at most, evenly from all."""
        ids = self._fetch_ids("SELECT id FROM passages ORDER BY id")
        some = ids[:: max(1, len(ids) // limit)][:limit]
        return [text for (text,) in self._select("SELECT text FROM passages WHERE id", some)]

    def lexical_part(self) -> LexicalPart | None:
        """How the terms were made; None if there are none, or not of all passages."""
        with self._explaining_errors():
            return self._terms.part(str(self._path))

    def finish_terms(self, whitening: Whitening, tokenize: Callable[[str], Sequence[str]]) -> None:
        """Add the terms of passages that lack them, and the whitening of words."""
        with self._explaining_errors():
            self._terms.add((id_, tokenize(text)) for id_, text in self._terms.missing())
            self._terms.finish(whitening)

    def make_terms(self, part: LexicalPart, tokenize: Callable[[str], Sequence[str]]) -> None:
        """Make the terms of all passages anew."""
        with self._explaining_errors():
            if not self._connection.in_transaction:
                self._connection.execute("BEGIN IMMEDIATE")  # sqlite3 begins none for CREATE
            self._terms.drop()
            self._terms.create(part.stemmer)
        self.finish_terms(part.word_whitening, tokenize)

    def term_statistics(self, terms: Iterable[str]) -> TermStatistics:
        with self._explaining_errors():
            return self._terms.statistics(terms)

    def best_by_terms(
        self, terms: Iterable[str], k: int, files: Sequence[str] | None
    ) -> list[PassageRef]:
        """The k passages that BM25 ranks highest for the terms, best first."""
        with self._explaining_errors():
            ids = self._terms.best(terms, k, files)
        found = self.passages(ids)  # without those that another process has deleted
        return [found[id_] for id_ in ids if id_ in found]

    def passage_refs(self, vectors: Sequence[int]) -> dict[int, PassageRef]:
        """The passages and words of vectors, by the vectors' ids."""
        columns = "v.id, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place"
        tables = "vectors v JOIN passages p ON p.id = v.passage"
        rows = self._select(f"SELECT {columns} FROM {tables} WHERE v.id", vectors)
        return {row[0]: PassageRef(*row[1:]) for row in rows}

    def occurrences_of(self, word: str) -> list[int]:
        """The ids of a word's vectors, in any case."""
        return self._fetch_ids("SELECT id FROM vectors WHERE form = ?", word.casefold())

    def vector_ids(self) -> list[int]:
        return self._fetch_ids("SELECT id FROM vectors")

    def next_vector_id(self) -> int:
        """The id after the largest one."""
        return int(self._fetch_one("SELECT coalesce(max(id) + 1, 0) FROM vectors")[0])

    def last_text(self) -> str:
        """The text of the passage that was added last; empty if there is none."""
        row = self._fetch_one("SELECT text FROM passages ORDER BY id DESC LIMIT 1")
        return str(row[0]) if row else ""

    def counts(self) -> Counts:
        passages, files = self._fetch_one("SELECT count(*), count(DISTINCT file) FROM passages")
        (vectors,) = self._fetch_one("SELECT count(*) FROM vectors")
        return Counts(passages, vectors, files)

    def _fetch_one(self, query: str) -> Any:
        with self._explaining_errors():
            return self._connection.execute(query).fetchone()

    def _fetch_ids(self, query: str, *values: str) -> list[int]:
        with self._explaining_errors():
            return [id_ for (id_,) in self._connection.execute(query, values)]

    def _select(self, query: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The rows of a query that ends before "IN (ids)", some hundreds of ids at a time."""
        with self._explaining_errors():
            for start in range(0, len(ids), _IDS_PER_QUERY):
                some = ids[start : start + _IDS_PER_QUERY]
                marks = ",".join("?" * len(some))
                yield from self._connection.execute(f"{query} IN ({marks})", some)

    @contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # a text that is not UTF-8
            if "locked" in str(error):  # Python 3.10 does not give SQLite's error code
                raise ServiceError(
                    f"{self._path}: another process is writing to it; try again when it has ended",
                    status=503,
                    retry_after=1,
                ) from None
            if "fts5" in str(error):
                raise InputError(
                    f"{self._path}: this Python's SQLite has no FTS5, which the lexical part of "
                    "an index needs; use another Python, or an index in PostgreSQL"
                ) from None
            raise FormatError(
                f"{self._path}: SQLite cannot read it ({error}); build the index again"
            ) from None
