"""Passages and their vectors become one store, wherever they are kept: what an index asks of it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from elmokit.pooling import Vectors
from elmokit.search.passages import Passage, Row
from elmokit.search.recipe import Recipe
from elmokit.whitening import Whitening


@dataclass(frozen=True)
class Found:
    """What a vector stands for, with its passage and that passage's id."""

    id: int
    file: str
    line: int  # from 1
    start: int  # its first character of the line, from 0
    end: int  # the one after its last
    text: str
    word: str | None
    place: int | None  # of the word among the sentence's words, from 0


@dataclass(frozen=True)
class Hit:
    """A passage, or a word in it, and its cosine with the query after whitening."""

    score: float
    found: Found

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"score": round(self.score, 6), **asdict(self.found)}


class Store(Protocol):
    """Passages and their vectors, whitened and one long: in a folder, or in a database.

    Changes are made while `changing`: all of them are kept when it ends well, and none otherwise,
    not even by a process that is killed. An id is never given twice.
    """

    @property
    def name(self) -> str:
        """What messages call it; no secret is in it."""

    @property
    def recipe(self) -> Recipe:
        """How its text became vectors."""

    @property
    def whitening(self) -> Whitening:
        """What its vectors went through."""

    @property
    def dim(self) -> int:
        """The size of a vector."""

    def count(self) -> tuple[int, int]:
        """How many passages there are, and how many vectors."""

    def nearest(self, query: Vectors, k: int) -> list[Hit]:
        """The k vectors nearest to a query, (dim,), the nearest first."""

    def nearest_uses(self, word: str, query: Vectors, k: int) -> list[Hit]:
        """The k uses of a word, whatever its case, nearest to a query; all were compared."""

    def passages_of(self, file: str) -> list[int]:
        """The ids of a file's passages."""

    def missing(self, ids: Sequence[int]) -> list[int]:
        """Those of the ids that no passage has."""

    def changing(self) -> AbstractContextManager[None]:
        """The right to change it, which one process has at a time."""

    def add(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: Vectors) -> None:
        """Take passages, and the vectors of what stands in them, (rows, dim)."""

    def delete(self, ids: Sequence[int]) -> None:
        """Forget passages that are there."""

    def close(self) -> None:
        """Let go of what it is kept in."""
