"""The lexical part of an index folder: an FTS5 table in the database of its passages.

FTS5 and not bm25s, whose index is made anew for every change: a passage and its terms are written
in one transaction, which a kill undoes as a whole.
"""

import json
import sqlite3
from collections.abc import Iterable, Sequence

from elmokit.search.lexical import LexicalPart, TermStatistics, get_stemmer
from elmokit.whitening import Whitening

# Terms have no white space and no punctuation, and the tokenizer "ascii" folds and splits no
# others. FTS5's bm25() ranks candidates; their scores are computed from their text.
_CREATE = """
CREATE VIRTUAL TABLE IF NOT EXISTS passage_terms USING fts5(terms, tokenize = 'ascii');
CREATE TABLE IF NOT EXISTS lexical_part (
    stemmer TEXT NOT NULL,
    word_whitening BLOB,
    passages INTEGER NOT NULL,
    terms INTEGER NOT NULL
);
"""
_VOCABULARY = """
CREATE VIRTUAL TABLE IF NOT EXISTS temp.vocabulary USING fts5vocab(main, passage_terms, row)
"""
_BEST = "SELECT rowid FROM passage_terms WHERE passage_terms MATCH :query"
_OF_FILES = (
    " AND +rowid IN (SELECT id FROM passages WHERE file IN (SELECT value FROM json_each(:files)))"
)
_IN_ORDER = " ORDER BY rank LIMIT :k"


# An earlier version may have added passages, whose ids are larger, or deleted some.
_PART = """
SELECT word_whitening, passages = (SELECT count(*) FROM passages)
    AND (SELECT max(id) FROM passages) IS (SELECT max(id) FROM passage_terms_docsize)
FROM lexical_part
"""


class PassageTerms:
    """The terms of all passages, changed in the transactions of the passages themselves."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def create(self, stemmer: str) -> None:
        """Make the tables, unless they are there."""
        for statement in _CREATE.split(";\n"):
            self._connection.execute(statement)
        if not self._connection.execute("SELECT count(*) FROM lexical_part").fetchone()[0]:
            values = stemmer, None, 0, 0
            self._connection.execute("INSERT INTO lexical_part VALUES (?, ?, ?, ?)", values)

    def drop(self) -> None:
        """Remove the tables."""
        for table in ("temp.vocabulary", "passage_terms", "lexical_part"):
            self._connection.execute(f"DROP TABLE IF EXISTS {table}")

    def stemmer(self) -> str | None:
        """The stemmer's name, None if there are no tables."""
        found = self._connection.execute(
            "SELECT 1 FROM sqlite_master WHERE name = 'lexical_part'"
        ).fetchone()
        if found is None:
            return None
        return str(self._connection.execute("SELECT stemmer FROM lexical_part").fetchone()[0])

    def part(self, name: str) -> LexicalPart | None:
        """The finished lexical part; None if it is missing, or has not all passages."""
        stemmer = self.stemmer()
        if stemmer is None:
            return None
        whitening, is_complete = self._connection.execute(_PART).fetchone()
        if whitening is None or not is_complete:
            return None
        return LexicalPart(stemmer, Whitening.from_bytes(whitening, f"{name}: word_whitening"))

    def finish(self, whitening: Whitening) -> None:
        """Store the whitening of words, which makes the part complete."""
        self._connection.execute("INSERT INTO passage_terms (passage_terms) VALUES ('optimize')")
        self._connection.execute(
            "UPDATE lexical_part SET word_whitening = ?", (whitening.to_bytes(),)
        )

    def add(self, passages: Iterable[tuple[int, Sequence[str]]]) -> None:
        """Add the words of passages, by the passages' ids; nothing without tables."""
        name = self.stemmer()
        if name is None:
            return
        stemmer, added, length = get_stemmer(name), 0, 0
        for id_, words in passages:
            terms = stemmer.terms(words)
            self._connection.execute(
                "INSERT INTO passage_terms (rowid, terms) VALUES (?, ?)", (id_, " ".join(terms))
            )
            added, length = added + 1, length + len(terms)
        self._count(added, length)

    def delete(self, ids: Sequence[int]) -> None:
        """Remove the terms of passages; nothing without tables."""
        if self.stemmer() is None:
            return
        deleted, length = 0, 0
        for id_ in ids:
            row = self._connection.execute(
                "SELECT terms FROM passage_terms WHERE rowid = ?", (id_,)
            ).fetchone()
            if row is not None:
                self._connection.execute("DELETE FROM passage_terms WHERE rowid = ?", (id_,))
                deleted, length = deleted + 1, length + len(row[0].split())
        self._count(-deleted, -length)

    def missing(self) -> list[tuple[int, str]]:
        """The ids and texts of passages without terms."""
        return self._connection.execute(
            "SELECT id, text FROM passages WHERE id NOT IN (SELECT id FROM passage_terms_docsize)"
        ).fetchall()

    def statistics(self, terms: Iterable[str]) -> TermStatistics:
        self._connection.execute(_VOCABULARY)
        passages, length, stemmer = self._connection.execute(
            "SELECT passages, terms, stemmer FROM lexical_part"
        ).fetchone()
        found = (
            (term, self._connection.execute(
                "SELECT doc FROM temp.vocabulary WHERE term = ?", (term,)
            ).fetchone())
            for term in terms
        )  # fmt: skip
        frequencies = {term: int(row[0]) for term, row in found if row is not None}
        return TermStatistics(passages, length / max(passages, 1), frequencies, stemmer)

    def best(self, terms: Iterable[str], k: int, files: Sequence[str] | None) -> list[int]:
        """The ids of the k passages that BM25 ranks highest, best first."""
        query = " OR ".join(f'"{term}"' for term in terms)
        statement = _BEST + ("" if files is None else _OF_FILES) + _IN_ORDER
        values = {"query": query, "k": k, "files": json.dumps(files)}
        return [id_ for (id_,) in self._connection.execute(statement, values)] if query else []

    def _count(self, passages: int, terms: int) -> None:
        self._connection.execute(
            "UPDATE lexical_part SET passages = passages + ?, terms = terms + ?", (passages, terms)
        )
