"""Passages become rows of SQLite: what a vector of an index stands for."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from elmokit.errors import FormatError, ServiceError
from elmokit.search.passages import Passage, Row
from elmokit.search.store import Found

_TABLES = """
CREATE TABLE passages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    file TEXT NOT NULL,
    line INTEGER NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    text TEXT NOT NULL
);
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY,
    passage INTEGER NOT NULL,
    word TEXT,
    form TEXT,
    place INTEGER
);
CREATE INDEX by_file ON passages(file);
CREATE INDEX by_passage ON vectors(passage);
CREATE INDEX by_form ON vectors(form) WHERE form IS NOT NULL;
"""
_SECONDS_WAITED = 5.0  # for another process to have written
_AT_ONCE = 500  # ids in one question: SQLite takes no more than some thousands


class Catalog:
    """The passages of an index and its vectors' ids; changes are kept by `commit`, or undone."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # One thread at a time: a service opens an index in one and searches it in another.
        self._rows = sqlite3.connect(path, timeout=_SECONDS_WAITED, check_same_thread=False)

    @classmethod
    def create(cls, path: Path) -> "Catalog":
        """A new one, or the one that is there."""
        catalog = cls(path)
        with catalog._explained():
            (tables,) = catalog._rows.execute("SELECT count(*) FROM sqlite_master").fetchone()
            if not tables:
                catalog._rows.executescript(f"BEGIN; {_TABLES} COMMIT;")
        return catalog

    @classmethod
    def open(cls, path: Path) -> "Catalog":
        """The one that is there."""
        path.stat()  # SQLite would make a new one
        return cls(path)

    def close(self) -> None:
        """Let go of the file; what was not committed is undone."""
        self._rows.close()

    def version(self) -> int:
        """A number that is another one after another process, or another catalog, committed."""
        with self._explained():
            (version,) = self._rows.execute("PRAGMA data_version").fetchone()
        return int(version)

    def commit(self) -> None:
        """Keep what was changed."""
        with self._explained():
            self._rows.commit()

    def undo(self) -> None:
        """Forget what was changed since the last `commit`."""
        with self._explained():
            self._rows.rollback()

    def add(self, passages: Sequence[Passage], rows: Sequence[Row], *, first: int) -> None:
        """Keep passages and what the vectors from id `first` on stand for."""
        with self._explained():
            ids = [self._add_passage(passage) for passage in passages]
            self._rows.executemany(
                "INSERT INTO vectors VALUES (?, ?, ?, ?, ?)",
                (
                    (id_, ids[row.passage], row.word, row.word and row.word.casefold(), row.place)
                    for id_, row in enumerate(rows, first)
                ),
            )

    def delete(self, passages: Sequence[int]) -> list[int]:
        """Forget passages; the ids of their vectors."""
        vectors = [id_ for (id_,) in self._ask("SELECT id FROM vectors WHERE passage", passages)]
        with self._explained():
            for table, ids in (("vectors", vectors), ("passages", passages)):
                self._rows.executemany(f"DELETE FROM {table} WHERE id = ?", ((i,) for i in ids))
        return vectors

    def missing(self, passages: Sequence[int]) -> list[int]:
        """Those of the ids that no passage has."""
        there = {id_ for (id_,) in self._ask("SELECT id FROM passages WHERE id", passages)}
        return [id_ for id_ in passages if id_ not in there]

    def passages_of(self, file: str) -> list[int]:
        """The ids of a file's passages."""
        with self._explained():
            rows = self._rows.execute("SELECT id FROM passages WHERE file = ?", (file,))
            return [id_ for (id_,) in rows]

    def found(self, vectors: Sequence[int]) -> dict[int, Found]:
        """What vectors stand for, by their ids."""
        columns = "v.id, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place"
        joined = "vectors v JOIN passages p ON p.id = v.passage"
        rows = self._ask(f"SELECT {columns} FROM {joined} WHERE v.id", vectors)
        return {row[0]: Found(*row[1:]) for row in rows}

    def uses_of(self, word: str) -> list[int]:
        """The ids of a word's vectors, whatever its case."""
        with self._explained():
            rows = self._rows.execute("SELECT id FROM vectors WHERE form = ?", (word.casefold(),))
            return [id_ for (id_,) in rows]

    def vectors(self) -> list[int]:
        """The ids of all vectors."""
        with self._explained():
            return [id_ for (id_,) in self._rows.execute("SELECT id FROM vectors")]

    def last_text(self) -> list[str]:
        """The text of the passage that was added last, if there is one."""
        with self._explained():
            rows = self._rows.execute("SELECT text FROM passages ORDER BY id DESC LIMIT 1")
            return [text for (text,) in rows]

    def count(self) -> tuple[int, int, int]:
        """How many passages there are, how many vectors, and the id after the vectors' last."""
        with self._explained():
            (passages,) = self._rows.execute("SELECT count(*) FROM passages").fetchone()
            counted = "SELECT count(*), coalesce(max(id) + 1, 0) FROM vectors"
            vectors, after = self._rows.execute(counted).fetchone()
        return passages, vectors, after

    def _add_passage(self, passage: Passage) -> int:
        row = passage.file, passage.line, passage.start, passage.end, passage.text
        done = self._rows.execute(
            "INSERT INTO passages (file, line, start, stop, text) VALUES (?, ?, ?, ?, ?)", row
        )
        assert done.lastrowid is not None
        return done.lastrowid

    def _ask(self, question: str, ids: Sequence[int]) -> Iterator[tuple[Any, ...]]:
        """The rows for ids, some hundreds at a time."""
        with self._explained():
            for start in range(0, len(ids), _AT_ONCE):
                some = ids[start : start + _AT_ONCE]
                places = ",".join("?" * len(some))
                yield from self._rows.execute(f"{question} IN ({places})", some)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if "locked" in str(error):  # Python 3.10 does not tell SQLite's number of it
                raise ServiceError(
                    f"{self._path}: another process is writing to it; ask again when it has",
                    status=503,
                    retry_after=1,
                ) from None
            raise FormatError(
                f"{self._path}: SQLite cannot use it ({error}); build the index again"
            ) from None
