"""A database becomes a store: text and vectors in tables that many processes ask at once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from elmokit.errors import FormatError, InputError
from elmokit.pooling import Vectors
from elmokit.search.passages import Passage, Row
from elmokit.search.postgres.address import Address
from elmokit.search.postgres.database import Database
from elmokit.search.postgres.halfvec import Half
from elmokit.search.postgres.rows import add_rows, form_of, hit_of
from elmokit.search.recipe import Recipe
from elmokit.search.store import Hit
from elmokit.whitening import Whitening

_SEARCH_WIDTH, _MOST_WIDTH = 128, 1000  # of a graph, as with FAISS; pgvector goes no wider

_NEAREST = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, numbers <#> %(query)b AS distance
    FROM {s}.vectors ORDER BY numbers <#> %(query)b LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
# A sum cannot be asked of the graph, which would miss some: all uses are compared.
_NEAREST_USES = """
SELECT v.distance, p.id, p.file, p.line, p.start, p.stop, p.text, v.word, v.place
FROM (
    SELECT passage, word, place, (numbers <#> %(query)b) + 0 AS distance
    FROM {s}.vectors WHERE form = %(form)s ORDER BY distance, passage, place LIMIT %(k)s
) v JOIN {s}.passages p ON p.id = v.passage ORDER BY v.distance, p.id, v.place
"""
_MADE = "SELECT recipe, whitening, tableoid FROM {s}.made"
LOCK = "SELECT pg_try_advisory_xact_lock(hashtextextended(%(schema)s, 0))"


class DatabaseStore:
    """The store of a schema of PostgreSQL, with pgvector."""

    def __init__(
        self, database: Database, recipe: Recipe, whitening: Whitening, *, table: int
    ) -> None:
        self.name, self.recipe, self.whitening = database.name, recipe, whitening
        self.dim = len(whitening.mean)
        self._database, self._table = database, table

    @classmethod
    def open(cls, url: str) -> "DatabaseStore":
        """The store that a build made there."""
        database = Database(Address.of(url))
        try:
            ((table,),) = database.ask(
                "SELECT to_regclass(%(made)s)", made=f"{database.schema}.made"
            )
            begun = table is not None
            kept = database.ask(_MADE) if begun else []
            if not kept or kept[0][0] is None:
                remedy = "its build did not end: start it again" if begun else "make one first"
                raise InputError(f"{database.name}: no index there; {remedy} (elmo index build)")
            recipe = Recipe.of(kept[0][0], f"{database.name}: recipe")
            whitening = Whitening.of(kept[0][1], f"{database.name}: whitening")
        except BaseException:
            database.close()
            raise
        return cls(database, recipe, whitening, table=kept[0][2])

    def count(self) -> tuple[int, int]:
        """How many passages there are, and how many vectors."""
        counted = "SELECT (SELECT count(*) FROM {s}.passages), (SELECT count(*) FROM {s}.vectors)"
        ((passages, vectors),) = self._database.ask(counted)
        return passages, vectors

    def nearest(self, query: Vectors, k: int) -> list[Hit]:
        """The k vectors nearest to a query, (dim,), the nearest first."""
        self._check_same()
        if self.recipe.kind == "hnsw":
            width = str(min(max(_SEARCH_WIDTH, 2 * k), _MOST_WIDTH))
            self._database.ask("SELECT set_config('hnsw.ef_search', %(width)s, false)", width=width)
        return [*map(hit_of, self._database.ask(_NEAREST, query=Half(query), k=k))]

    def nearest_uses(self, word: str, query: Vectors, k: int) -> list[Hit]:
        """The k uses of a word, whatever its case, nearest to a query; all were compared."""
        self._check_same()
        rows = self._database.ask(_NEAREST_USES, query=Half(query), form=form_of(word), k=k)
        return [*map(hit_of, rows)]

    def passages_of(self, file: str) -> list[int]:
        """The ids of a file's passages."""
        of_file = "SELECT id FROM {s}.passages WHERE file = %(file)s ORDER BY id"
        return [id_ for (id_,) in self._database.ask(of_file, file=file.encode())]

    def missing(self, ids: Sequence[int]) -> list[int]:
        """Those of the ids that no passage has."""
        some = "SELECT id FROM {s}.passages WHERE id = ANY(%(ids)s::bigint[])"
        there = {id_ for (id_,) in self._database.ask(some, ids=[*ids])}
        return [id_ for id_ in ids if id_ not in there]

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The right to change it, which one process has at a time."""
        with self._database.transaction():
            ((mine,),) = self._database.ask(LOCK, schema=self._database.schema)
            if not mine:
                raise InputError(
                    f"{self.name}: another process changes this index; wait for its end"
                )
            self._check_same()
            yield

    def add(self, passages: Sequence[Passage], rows: Sequence[Row], vectors: Vectors) -> None:
        """Take passages, and the vectors of what stands in them, (rows, dim)."""
        add_rows(self._database, passages, rows, vectors)

    def delete(self, ids: Sequence[int]) -> None:
        """Forget passages that are there."""
        for order in (
            "DELETE FROM {s}.vectors WHERE passage = ANY(%(ids)s::bigint[])",
            "DELETE FROM {s}.passages WHERE id = ANY(%(ids)s::bigint[])",
        ):
            self._database.do(order, ids=[*ids])

    def close(self) -> None:
        """Let go of the connection."""
        self._database.close()

    def _check_same(self) -> None:
        """Refuse an index that was dropped and built again: its vectors went through another
        whitening than the one known here."""
        if self._database.ask("SELECT tableoid FROM {s}.made") != [(self._table,)]:
            raise FormatError(
                f"{self.name}: the index was built again since it was opened; open it again"
            )
