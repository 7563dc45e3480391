"""A corpus embedded into a folder of Parquet shards, by processes here or by a cluster."""

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from elmokit.bulk.corpus import Corpus, find_sources
from elmokit.bulk.job import Engine, Job, ShardWriter
from elmokit.bulk.local_engine import LocalEngine
from elmokit.bulk.shards import Manifest, ShardFolder
from elmokit.bulk.table_encoder import VectorSettings
from elmokit.embedder import Embedder, LoadOptions
from elmokit.errors import InputError
from elmokit.file_embedding import model_attributes, stored_layers
from elmokit.inference_session import Layers
from elmokit.progress import Progress

ROWS_PER_SHARD = 10_000


def embed_corpus(
    inputs: Iterable[str | Path] | str | Path,
    output: str | Path,
    *,
    model: str | Path | LoadOptions | None = None,
    column: str | None = None,
    layers: Layers = "all",
    pooling: str | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    tokenizer: str = "spaces",
    rows_per_shard: int = ROWS_PER_SHARD,
    workers: int | None = None,
    engine: Engine | None = None,
    show_progress_bar: bool | None = None,
) -> int:
    """Embed the rows of files into a folder of Parquet shards; returns the number of rows.

    `inputs` are files, folders, globs or addresses of text (a row on each line), JSON Lines, CSV or
    Parquet; `column` holds texts or lists of words, "text" or "words" by default. The shards have
    the input's columns, `id` (the row's number, unless there is such a column), and those that
    TableEncoder describes. What is in the output is no input. `model` is what `load` takes, or
    LoadOptions.

    `workers` processes compute here, by default one per CPU; or an `engine` does, such as
    `elmokit.ray.RayEngine`. Killed and called again, this goes on: a shard is complete or not
    there, and each row of the input is in one of them.

    Raises InputError where the folder was begun with another model, other settings or inputs.

    Example:
        embed_corpus("corpus/*.jsonl.gz", "vectors", layers="mean", pooling="mean")
    """
    if rows_per_shard < 1:
        raise InputError(f"rows_per_shard is {rows_per_shard}, expected 1 or more")
    options = model if isinstance(model, LoadOptions) else LoadOptions(model)
    engine = engine or LocalEngine(workers, options=options)
    if not engine.one_process:
        options = replace(options, threads=options.threads or 1)
    names = [inputs] if isinstance(inputs, str | Path) else inputs
    settings = VectorSettings(layers, pooling, dtype, tokenizer)
    folder = ShardFolder(os.fspath(output))
    sources = find_sources([os.fspath(name) for name in names], output=folder.location)
    # Where others compute, this process needs the model to tell which it is, and to share it.
    embedder = (options if engine.one_process else replace(options, device="cpu")).load()
    with folder.open(), engine.opened():
        stored = folder.read_manifest()
        corpus = None if stored is None else stored.corpus.unless_changed(sources)
        if corpus is None or column not in (None, corpus.column):
            corpus = Corpus.scan(
                sources, column=column, rows_per_shard=rows_per_shard, map=engine.map
            )
        job = Job(replace(corpus, rows_per_shard=rows_per_shard), settings, folder, options)
        ShardWriter(job, embedder)  # refuses what cannot be written
        manifest = Manifest(_describe(embedder, settings), job.corpus)
        if stored is None:
            folder.write_manifest(manifest)
        else:
            stored.check(manifest, folder.location)
        _write_missing_shards(job, embedder, engine, show_progress_bar)
    return job.corpus.rows


def _write_missing_shards(
    job: Job, embedder: Embedder, engine: Engine, show_progress_bar: bool | None
) -> None:
    corpus, there = job.corpus, job.folder.shards()
    missing = [shard for shard in range(corpus.num_shards) if shard not in there]
    done = corpus.rows - sum(len(corpus.rows_of(shard)) for shard in missing)
    with Progress(corpus.rows, unit="rows", shown=show_progress_bar, done=done) as progress:
        for result in engine.run(job, embedder, missing) if missing else ():
            progress.advance(result.rows, words=result.words)


def _describe(embedder: Embedder, settings: VectorSettings) -> dict[str, Any]:
    """What the manifest says of the vectors."""
    exact = embedder.precision == "float32"  # vectors then do not depend on the batch
    return {
        **model_attributes(embedder.pretrained, settings.pooling),
        "precision": embedder.precision,
        "state": embedder.state_mode,
        "layers": stored_layers(settings.layers),
        "pooling": settings.pooling,
        "dtype": settings.dtype,
        "tokenizer": settings.tokenizer,
        "tokens_per_batch": None if exact else embedder.tokens_per_batch,
    }
