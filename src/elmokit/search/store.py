"""The interfaces of a store and of its builder, how they are opened, and a store in memory."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError, needs_extra
from elmokit.pooling import Vectors
from elmokit.search.passage_vectors import IndexConfig
from elmokit.search.passages import Passage, VectorSource
from elmokit.whitening import Whitening

HalfVectors = npt.NDArray[np.float16]

_DATABASE_SCHEMES = ("postgresql://", "postgres://")


@dataclass(frozen=True)
class PassageRef:
    """The passage a vector belongs to, and the word, if it is the vector of one."""

    id: int
    file: str
    line: int  # from 1
    start: int  # offset of its first character in the line, from 0
    end: int  # offset after its last character
    text: str
    word: str | None
    word_index: int | None  # among the sentence's words, from 0


@dataclass(frozen=True)
class Hit:
    """A passage, or a word in it, and the cosine of its whitened vector with the query's."""

    score: float
    passage: PassageRef

    def to_dict(self) -> dict[str, Any]:
        """All fields in one flat dictionary, for JSON."""
        return {"score": round(self.score, 6), **asdict(self.passage)}


@dataclass(frozen=True)
class Counts:
    """How much a store holds."""

    passages: int
    vectors: int
    files: int


class Store(Protocol):
    """Passages and their whitened unit vectors, in a folder or in a database.

    Changes are made inside `changing`: all are kept when the block ends well, and none otherwise,
    even if the process is killed. An id is never used twice.
    """

    @property
    def name(self) -> str: ...  # its location for messages, without a password
    @property
    def config(self) -> IndexConfig: ...
    @property
    def whitening(self) -> Whitening: ...
    @property
    def dim(self) -> int: ...
    def counts(self) -> Counts: ...
    def size_bytes(self) -> int: ...  # on disk
    def nearest(self, query: Vectors, k: int) -> list[Hit]: ...  # to (dim,), best first
    def nearest_occurrences(self, word: str, query: Vectors, k: int) -> list[Hit]: ...  # exact
    def passages_of(self, file: str) -> list[int]: ...
    def missing(self, ids: Sequence[int]) -> list[int]: ...  # the ids that no passage has
    def changing(self) -> AbstractContextManager[None]: ...  # InputError if another process does
    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None: ...
    def delete(self, ids: Sequence[int]) -> None: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class BuildProgress:
    """How much of the text is stored already, and the text of its last passage."""

    passages: int
    vectors: int
    last_text: str


class IndexBuilder(Protocol):
    """Where an index is built, by one process at a time.

    A stored part survives a kill; there is no index until `finish` ends.
    """

    @property
    def name(self) -> str: ...  # its location for messages, without a password
    def progress(self) -> BuildProgress: ...
    def add_part(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: HalfVectors
    ) -> None: ...  # the vectors are (sources, dim), before whitening
    def parts(self) -> Iterator[HalfVectors]: ...  # the vectors of each part
    def finish(self, config: IndexConfig, whitening: Whitening) -> None: ...  # make the store
    def remove(self) -> None: ...


def open_store(location: str | Path) -> Store:
    """The store of a finished index in a folder or at a database URL."""
    if is_database_url(location):
        check_psycopg()
        from elmokit.search.pg_store import PostgresStore  # noqa: PLC0415  an extra

        return PostgresStore.open(str(location))
    from elmokit.search.faiss_store import FaissStore  # noqa: PLC0415  it imports this module

    return FaissStore.open(Path(location))


def open_builder(
    location: str | Path, manifest: Mapping[str, Any], *, dim: int
) -> AbstractContextManager[IndexBuilder]:
    """Start or resume a build in a folder or at a database URL; its vectors have `dim` numbers.

    The manifest says what a build was started with; it is resumed only with the same.
    """
    if is_database_url(location):
        check_psycopg()
        from elmokit.search.pg_store import PostgresBuilder  # noqa: PLC0415  an extra

        return PostgresBuilder.open(str(location), manifest, dim=dim)
    from elmokit.search.faiss_store import FaissBuilder  # noqa: PLC0415  it imports this module

    return FaissBuilder.open(Path(location), manifest)


def no_index_error(name: str, *, started: bool) -> InputError:
    """The error for a location without a finished index."""
    remedy = "its build was interrupted: repeat it" if started else "build one first"
    return InputError(f"{name}: no index there; {remedy} (elmo index build)")


def is_database_url(location: str | Path) -> bool:
    """Whether an index is in PostgreSQL, not in a folder."""
    return isinstance(location, str) and location.startswith(_DATABASE_SCHEMES)


def check_psycopg() -> None:
    """Say how to install the packages for PostgreSQL if they are missing."""
    with needs_extra("an index in PostgreSQL needs psycopg and pgvector", "postgres"):
        import pgvector  # noqa: F401, PLC0415  an extra
        import psycopg  # noqa: F401, PLC0415


class MemoryStore:
    """A store for some hundreds of passages that is gone when the process ends."""

    def __init__(self, name: str, config: IndexConfig, whitening: Whitening) -> None:
        self.name, self.config, self.whitening = name, config, whitening
        self.dim = len(whitening.mean)
        self._rows: list[tuple[PassageRef, Vectors]] = []
        self._files: dict[int, str] = {}  # by passage id
        self._next_id = 1

    def counts(self) -> Counts:
        return Counts(len(self._files), len(self._rows), len(set(self._files.values())))

    def size_bytes(self) -> int:
        return sum(vector.nbytes for _, vector in self._rows)

    def nearest(self, query: Vectors, k: int) -> list[Hit]:
        return _best(self._rows, query, k)

    def nearest_occurrences(self, word: str, query: Vectors, k: int) -> list[Hit]:
        folded = word.casefold()
        rows = [row for row in self._rows if (row[0].word or "").casefold() == folded]
        return _best(rows, query, k)

    def passages_of(self, file: str) -> list[int]:
        return [id_ for id_, own_file in self._files.items() if own_file == file]

    def missing(self, ids: Sequence[int]) -> list[int]:
        return [id_ for id_ in ids if id_ not in self._files]

    @contextmanager
    def changing(self) -> Iterator[None]:
        before = [*self._rows], {**self._files}
        try:
            yield
        except BaseException:
            self._rows, self._files = before
            raise

    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None:
        for source, vector in zip(sources, vectors, strict=True):
            p, id_ = passages[source.passage], self._next_id + source.passage
            location = id_, p.file, p.line, p.start, p.end, p.text
            self._rows.append((PassageRef(*location, source.word, source.word_index), vector))
        self._files |= {self._next_id + n: passage.file for n, passage in enumerate(passages)}
        self._next_id += len(passages)

    def delete(self, ids: Sequence[int]) -> None:
        deleted = set(ids)
        self._rows = [row for row in self._rows if row[0].id not in deleted]
        self._files = {id_: file for id_, file in self._files.items() if id_ not in deleted}

    def close(self) -> None:
        pass


def _best(rows: Sequence[tuple[PassageRef, Vectors]], query: Vectors, k: int) -> list[Hit]:
    """The k rows nearest to a query, (dim,), best first."""
    if not rows:
        return []
    cosines = np.stack([vector for _, vector in rows]) @ query
    best = np.argsort(-cosines, kind="stable")[:k]
    return [Hit(float(cosines[n]), rows[n][0]) for n in best]
