"""What is embedded, and how its shards are written: the same on any machine and engine."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from elmokit.bulk.corpus import Corpus, CorpusReader
from elmokit.bulk.shards import ShardFolder
from elmokit.bulk.table_encoder import TableEncoder, VectorSettings
from elmokit.embedder import Embedder, LoadOptions


@dataclass(frozen=True)
class ShardResult:
    """A shard that is in its folder, and how much is in it."""

    shard: int
    rows: int
    words: int = 0


@dataclass(frozen=True)
class Job:
    """What is to be embedded, how, and where the shards go; the same on any machine."""

    corpus: Corpus
    settings: VectorSettings
    folder: ShardFolder
    options: LoadOptions  # of the model


class Engine(Protocol):
    """What runs the shards of a job."""

    @property
    def one_process(self) -> bool:
        """Whether the model computes in this process alone, with as many threads as it likes."""

    def opened(self) -> AbstractContextManager[None]:
        """Around the other calls: what they need is there."""

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """The results of a function, in the order of the items."""

    def run(self, job: Job, embedder: Embedder, shards: Sequence[int]) -> Iterator[ShardResult]:
        """Write shards, in any order; each is yielded once, when it is in its folder."""


class ShardWriter:
    """Writes shards of a job, one after the other, with a model in this process."""

    def __init__(self, job: Job, embedder: Embedder) -> None:
        self._job = job
        self._reader = CorpusReader(job.corpus)
        self._encoder = TableEncoder(embedder, job.settings, job.corpus.column)
        schema = job.corpus.schema_with_ids
        self._schema = pa.schema([*schema, *self._encoder.fields(schema)])

    def write(self, shard: int) -> ShardResult:
        """Write a shard, whether or not it is there."""
        rows = self._job.corpus.rows_of(shard)
        words_before = self._encoder.num_words
        tables = self._encoder.encode(self._reader.read(rows))
        self._job.folder.write_shard(shard, self._schema, tables, num_rows=len(rows))
        return ShardResult(shard, len(rows), self._encoder.num_words - words_before)
