"""Passages and their vectors become a store that ends with its process: every search is exact."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from elmokit.pooling import Vectors
from elmokit.search.passages import Passage, Row
from elmokit.search.recipe import Recipe
from elmokit.search.store import Found, Hit
from elmokit.whitening import Whitening


class MemoryStore:
    """A store for some hundreds of passages."""

    def __init__(self, name: str, recipe: Recipe, whitening: Whitening) -> None:
        self.name, self.recipe, self.whitening = name, recipe, whitening
        self.dim = len(whitening.mean)
        self._found: list[Found] = []  # what each vector stands for
        self._vectors = np.zeros((0, self.dim), np.float32)
        self._passages: dict[int, str] = {}  # the files of passages by id
        self._after = 1  # the next one's id

    def count(self) -> tuple[int, int]:
        """How many passages there are, and how many vectors."""
        return len(self._passages), len(self._found)

    def nearest(self, query: Vectors, k: int) -> list[Hit]:
        """The k vectors nearest to a query, (dim,), the nearest first."""
        return self._nearest_of(range(len(self._found)), query, k)

    def nearest_uses(self, word: str, query: Vectors, k: int) -> list[Hit]:
        """The k uses of a word, whatever its case, nearest to a query; all were compared."""
        form = word.casefold()
        uses = [n for n, own in enumerate(self._found) if (own.word or "").casefold() == form]
        return self._nearest_of(uses, query, k)

    def passages_of(self, file: str) -> list[int]:
        """The ids of a file's passages."""
        return [id_ for id_, own in self._passages.items() if own == file]

    def missing(self, ids: Sequence[int]) -> list[int]:
        """Those of the ids that no passage has."""
        return [id_ for id_ in ids if id_ not in self._passages]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The right to change it; what fails leaves it as it was."""
        before = [*self._found], self._vectors, {**self._passages}
        try:
            yield
        except BaseException:
            self._found, self._vectors, self._passages = before
            raise

    def add(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: Vectors) -> None:
        """Take passages, and the vectors of what stands in them, (rows, dim)."""
        for row in rows:
            own = passages[row.passage]
            where = own.file, own.line, own.start, own.end, own.text
            self._found.append(Found(self._after + row.passage, *where, row.word, row.place))
        self._vectors = np.concatenate([self._vectors, vectors])
        self._passages |= {self._after + n: own.file for n, own in enumerate(passages)}
        self._after += len(passages)

    def delete(self, ids: Sequence[int]) -> None:
        """Forget passages that are there."""
        gone = set(ids)
        stay = [n for n, own in enumerate(self._found) if own.id not in gone]
        self._found, self._vectors = [self._found[n] for n in stay], self._vectors[stay]
        self._passages = {id_: own for id_, own in self._passages.items() if id_ not in gone}

    def close(self) -> None:
        """Nothing is held."""

    def _nearest_of(self, places: Sequence[int], query: Vectors, k: int) -> list[Hit]:
        cosines = self._vectors[places] @ query
        best = np.argsort(-cosines, kind="stable")[:k]
        return [Hit(float(cosines[n]), self._found[places[n]]) for n in best]
