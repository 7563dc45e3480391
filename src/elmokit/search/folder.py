"""A folder becomes a store: text in SQLite, vectors in FAISS beside it."""

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from elmokit.atomic import DirectoryLock
from elmokit.errors import FormatError, InputError
from elmokit.pooling import Vectors
from elmokit.search.catalog import Catalog
from elmokit.search.nearest import FaissVectors
from elmokit.search.passages import Passage, Row
from elmokit.search.recipe import Recipe
from elmokit.search.store import Hit
from elmokit.whitening import Whitening

RECIPE, CATALOG, VECTORS, WHITENING = (
    "index.json",
    "passages.sqlite",
    "vectors.faiss",
    "whitening.npy",
)
BEGUN, PARTS = "building.json", "parts"  # there until a build has made the others

_VECTORS_AT_ONCE = 2**15  # of one word: there may be millions


class FolderStore:
    """The store of a folder.

    What the catalog of passages does not know is not in the store, whatever FAISS holds: a process
    that is killed between the two leaves it as it was. The vectors are read again when another
    process has changed the catalog.
    """

    def __init__(
        self, folder: Path, *, recipe: Recipe, whitening: Whitening, catalog: Catalog
    ) -> None:
        self.folder, self.name = folder, str(folder)
        self.recipe, self.whitening = recipe, whitening
        self._catalog = catalog
        self._vectors: FaissVectors
        self._version: int | None = None  # the catalog's, when the vectors were read
        self._coming: list[tuple[Sequence[Passage], Sequence[Row], int]] = []
        self._leaving: list[int] = []
        self._catch_up()

    @classmethod
    def open(cls, folder: Path) -> "FolderStore":
        """The store that a build made there."""
        if not (folder / RECIPE).exists():
            begun = (folder / CATALOG).exists()
            remedy = "its build did not end: start it again" if begun else "make one first"
            raise InputError(f"{folder}: no index there; {remedy} (elmo index build)")
        recipe = Recipe.of((folder / RECIPE).read_bytes(), str(folder / RECIPE))
        path = folder / WHITENING
        whitening = Whitening.of(path.read_bytes(), str(path))
        catalog = Catalog.open(folder / CATALOG)
        try:
            return cls(folder, recipe=recipe, whitening=whitening, catalog=catalog)
        except BaseException:
            catalog.close()
            raise

    @property
    def dim(self) -> int:
        """The size of a vector."""
        return self._vectors.dim

    def count(self) -> tuple[int, int]:
        """How many passages there are, and how many vectors."""
        return self._catalog.count()[:2]

    def nearest(self, query: Vectors, k: int) -> list[Hit]:
        """The k vectors nearest to a query, (dim,), the nearest first."""
        self._catch_up()
        scores, ids = self._vectors.search(query[None], k)
        there = ids[0] >= 0
        return self._hits(ids[0][there].tolist(), scores[0][there])

    def nearest_uses(self, word: str, query: Vectors, k: int) -> list[Hit]:
        """The k uses of a word, whatever its case, nearest to a query; all were compared."""
        self._catch_up()
        uses = [use for use in self._catalog.uses_of(word) if use in self._vectors]
        if not uses:
            return []
        starts = range(0, len(uses), _VECTORS_AT_ONCE)
        chunks = (uses[start : start + _VECTORS_AT_ONCE] for start in starts)
        cosines = np.concatenate([self._vectors.vectors(some) @ query for some in chunks])
        nearest = np.argsort(-cosines, kind="stable")[:k]
        return self._hits([uses[place] for place in nearest], cosines[nearest])

    def passages_of(self, file: str) -> list[int]:
        """The ids of a file's passages."""
        return self._catalog.passages_of(file)

    def missing(self, ids: Sequence[int]) -> list[int]:
        """Those of the ids that no passage has."""
        return self._catalog.missing(ids)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The right to change it, which one process has at a time.

        The catalog is written at the end only: meanwhile others search.
        """
        with claim(self.folder):
            clear_build(self.folder)
            self._catch_up()
            try:
                yield
                self._keep()
            except BaseException:
                if self._coming:
                    self._version = None  # the vectors have rows that nobody knows
                self._catalog.undo()
                raise
            finally:
                self._coming, self._leaving = [], []

    def add(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: Vectors) -> None:
        """Take passages, and the vectors of what stands in them, (rows, dim)."""
        self._coming.append((passages, rows, len(self._vectors)))
        self._vectors.add(vectors)

    def delete(self, ids: Sequence[int]) -> None:
        """Forget passages that are there."""
        self._leaving += ids

    def close(self) -> None:
        """Let go of the files."""
        self._catalog.close()

    def _catch_up(self) -> None:
        """Read the vectors where they are not those that the catalog speaks of."""
        version = self._catalog.version()
        if version == self._version:
            return
        assert self.recipe.kind != "auto"
        # The catalog first: who adds writes the vectors before it.
        _, known, after = self._catalog.count()
        vectors = FaissVectors.open(self.folder / VECTORS, kind=self.recipe.kind)
        if after > len(vectors):
            raise FormatError(
                f"{self.folder / CATALOG}: knows {after} vectors, but {VECTORS} has "
                f"{len(vectors)}; build the index again"
            )
        if known < len(vectors):
            vectors.delete([*set(range(len(vectors))).difference(self._catalog.vectors())])
        self._vectors, self._version = vectors, version

    def _keep(self) -> None:
        """Write what came and went, the vectors first."""
        if self._coming:
            self._vectors.save()
        for passages, rows, first in self._coming:
            self._catalog.add(passages, rows, first=first)
        gone = self._catalog.delete(self._leaving)
        self._catalog.commit()
        self._vectors.delete(gone)

    def _hits(self, ids: Sequence[int], scores: Vectors) -> list[Hit]:
        known = self._catalog.found(ids)  # without those that another process has deleted
        pairs = zip(ids, scores, strict=True)
        return [Hit(float(score), known[id_]) for id_, score in pairs if id_ in known]


def claim(folder: Path) -> DirectoryLock:
    """The right to change an index."""
    return DirectoryLock(folder, f"{folder}: another process changes this index; wait for its end")


def clear_build(folder: Path) -> None:
    """Remove what a build, which may have been killed at its very end, needs no more."""
    if not (folder / BEGUN).exists():
        return
    if (folder / PARTS).exists():
        shutil.rmtree(folder / PARTS)
    (folder / BEGUN).unlink()
