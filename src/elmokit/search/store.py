"""The interfaces of a store and of its builder, and how they are opened."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError, needs_extra
from elmokit.pooling import Vectors
from elmokit.search.lexical import LexicalPart, TermStatistics
from elmokit.search.passage_vectors import IndexConfig
from elmokit.search.passages import Passage, VectorSource
from elmokit.whitening import Whitening

HalfVectors = npt.NDArray[np.float16]
Files = Sequence[str] | None  # the names of those to search; None for all

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
    """A passage, or a word in it, that a search found, and how well it matches the query.

    The score is what the search ranks by. The others are its parts, None where the mode of the
    search has no use for them: the cosine of the whitened vectors, BM25 as a share, and how well
    the words of the best sentence match.
    """

    score: float
    passage: PassageRef
    cosine: float | None = None
    bm25: float | None = None
    word_match: float | None = None

    @classmethod
    def by_cosine(cls, cosine: float, passage: PassageRef) -> "Hit":
        """A hit of a search by vectors alone."""
        return cls(float(cosine), passage, cosine=float(cosine))

    def to_dict(self) -> dict[str, Any]:
        """All fields in one flat dictionary, for JSON."""
        parts = {name: getattr(self, name) for name in ("score", "cosine", "bm25", "word_match")}
        rounded = {name: None if part is None else round(part, 6) for name, part in parts.items()}
        return {**rounded, **asdict(self.passage)}


@dataclass(frozen=True)
class Counts:
    """How much a store holds."""

    passages: int
    vectors: int
    files: int


@dataclass(frozen=True)
class IndexInfo:
    """What an index is: its settings, how much it holds, and what it takes on disk."""

    name: str
    config: IndexConfig
    stemmer: str | None  # of the lexical part; None if it has none
    dim: int
    passages: int
    vectors: int
    files: int
    size_bytes: int


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
    def nearest(
        self, query: Vectors, k: int, files: Files = None
    ) -> list[Hit]: ...  # to (dim,), best first
    def nearest_occurrences(
        self, word: str, query: Vectors, k: int, files: Files = None
    ) -> list[Hit]: ...  # exact
    def cosines(
        self, query: Vectors, passages: Sequence[int]
    ) -> dict[int, float]: ...  # of the best vector of each
    def files(self) -> list[str]: ...
    def passages_of(self, file: str) -> list[int]: ...
    def missing(self, ids: Sequence[int]) -> list[int]: ...  # the ids that no passage has
    def changing(self) -> AbstractContextManager[None]: ...  # InputError if another process does
    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None: ...
    def delete(self, ids: Sequence[int]) -> None: ...
    def close(self) -> None: ...

    # The lexical part, which has the terms of all passages and is changed with them.
    @property
    def lexical_part(self) -> LexicalPart | None: ...  # None: missing, or not of all passages
    def term_statistics(self, terms: Iterable[str]) -> TermStatistics: ...
    def best_by_terms(
        self, weights: Mapping[str, float], k: int, files: Files = None
    ) -> list[PassageRef]: ...  # about as BM25 ranks them, best first
    def sample_texts(self, limit: int) -> list[str]: ...  # evenly from all passages
    def make_lexical_part(self, part: LexicalPart) -> None: ...  # anew, inside `changing`


@dataclass(frozen=True)
class BuildProgress:
    """How much of the text is stored already, and the text of its last passage."""

    passages: int
    vectors: int
    last_text: str


class IndexBuilder(Protocol):
    """Where an index is built, by one process at a time.

    The manifest names the stemmer of the lexical part, or says None if there is to be none. A
    stored part survives a kill; there is no index until `finish` ends.
    """

    @property
    def name(self) -> str: ...  # its location for messages, without a password
    def progress(self) -> BuildProgress: ...
    def add_part(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: HalfVectors
    ) -> None: ...  # the vectors are (sources, dim), before whitening
    def parts(self) -> Iterator[HalfVectors]: ...  # the vectors of each part
    def sample_texts(self, limit: int) -> list[str]: ...  # evenly from all passages
    def finish(
        self, config: IndexConfig, whitening: Whitening, lexical_part: LexicalPart | None
    ) -> None: ...  # make the store
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
        from elmokit.search.pg_builder import PostgresBuilder  # noqa: PLC0415  an extra

        return PostgresBuilder.open(str(location), manifest, dim=dim)
    from elmokit.search.faiss_store import FaissBuilder  # noqa: PLC0415  it imports this module

    return FaissBuilder.open(Path(location), manifest)


def read_index_info(location: str | Path) -> IndexInfo:
    """What the index in a folder or at a PostgreSQL URL is; its model is not needed."""
    store = open_store(location)
    try:
        counts, part = store.counts(), store.lexical_part
        stemmer = None if part is None else part.stemmer
        return IndexInfo(
            store.name, store.config, stemmer, store.dim, counts.passages, counts.vectors,
            counts.files, store.size_bytes(),
        )  # fmt: skip
    finally:
        store.close()


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
