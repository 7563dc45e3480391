"""Building an index from text files, in parts that survive a kill, and resuming a build."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.files import TextFile
from elmokit.model.packed_linear import Precision
from elmokit.progress import Progress
from elmokit.search.passage_vectors import IndexConfig, embed_passages
from elmokit.search.passages import Passage, VectorSource, group_passages, read_passages
from elmokit.search.store import check_psycopg, is_database_url
from elmokit.whitening import Whitening

HalfVectors = npt.NDArray[np.float16]


def build_store(
    embedder: Embedder,
    files: Sequence[TextFile],
    location: str | Path,
    config: IndexConfig,
    *,
    show_progress_bar: bool | None = None,
) -> None:
    """Embed all passages part by part, then whiten them and make the store of an index.

    Each part is stored when it is embedded: the same call after a kill embeds only what is
    missing, and ends with the same numbers.
    """
    manifest = BuildManifest(config, [*map(_describe, files)], embedder.precision)
    dim = config.dim(embedder)
    with open_builder(location, manifest, dim=dim) as builder:
        _embed_files(builder, files, config, embedder, show_progress_bar)
        if not builder.progress().vectors:
            builder.remove()
            names = ", ".join(file.name for file in files)
            raise InputError(f"{names}: no words found, expected text to index")
        whitening = Whitening.fit_batches(builder.parts(), dim=dim, method=config.whitening)
        builder.finish(config, whitening)


@dataclass(frozen=True)
class BuildManifest:
    """What a build was started with; a build is resumed only with the same."""

    config: IndexConfig
    files: list[str]
    precision: Precision = "float32"

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self.config), "files": self.files, "precision": self.precision}


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
    def name(self) -> str:
        """Its location for messages, without a password."""

    def progress(self) -> BuildProgress: ...

    def add_part(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: HalfVectors
    ) -> None:
        """Store passages and their vectors before whitening, (sources, dim)."""

    def parts(self) -> Iterator[HalfVectors]:
        """The vectors of each part, (sources, dim)."""

    def finish(self, config: IndexConfig, whitening: Whitening) -> None:
        """Make the store from all parts."""

    def remove(self) -> None:
        """Delete everything the build made."""


def open_builder(
    location: str | Path, manifest: BuildManifest, *, dim: int
) -> AbstractContextManager[IndexBuilder]:
    """Start or resume a build in a folder or at a database URL; its vectors have `dim` numbers."""
    if is_database_url(location):
        check_psycopg()
        from elmokit.search.pg_store import PostgresBuilder  # noqa: PLC0415  an extra

        return PostgresBuilder.open(str(location), manifest, dim=dim)
    from elmokit.search.faiss_store import FaissBuilder  # noqa: PLC0415  it imports this module

    return FaissBuilder.open(Path(location), manifest)


def _embed_files(
    builder: IndexBuilder,
    files: Sequence[TextFile],
    config: IndexConfig,
    embedder: Embedder,
    show_progress_bar: bool | None,
) -> None:
    """Embed and store the passages that are not stored yet."""
    done = builder.progress()
    passages = read_passages(files, tokenizer=config.tokenizer, unit=config.unit)
    _skip(passages, done, builder.name)
    with Progress(None, unit="passages", shown=show_progress_bar, done=done.passages) as progress:
        for group in group_passages(passages, embedder.tokens_per_batch):
            sources, vectors = embed_passages(config, embedder, group)
            builder.add_part(group, sources, vectors.astype(np.float16))
            words = sum(len(passage.words) for passage in group)
            progress.advance(len(group), words=words)


def _skip(passages: Iterator[Passage], done: BuildProgress, name: str) -> None:
    """Skip the passages that are stored; refuse another text, which stdin may have."""
    last = deque(islice(passages, done.passages), maxlen=1)
    if done.passages and [passage.text for passage in last] != [done.last_text]:
        raise InputError(
            f"{name}: passage {done.passages} of the text differs from what the interrupted build "
            "stored; give the same text, or remove what was built so far"
        )


def _describe(file: TextFile) -> str:
    # A build that 0.1 started is resumed only while this stays as it is.
    return f"{file.name}, {file.size} bytes, changed at {file.modified}"
