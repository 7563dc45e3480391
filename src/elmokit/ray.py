"""Bulk embedding on Ray: of files by a cluster, and of any `ray.data.Dataset`.

    dataset = elmokit.ray.embed(ray.data.read_parquet("s3://bucket/texts"), pooling="mean")
    elmokit.ray.embed(dataset, "s3://bucket/vectors", layers="mean", pooling="mean")

Ray Data schedules: it starts actors that each hold a model and compute in one thread, restarts
those that die, moves their work elsewhere when a node is lost, and holds back what is read while
all of them are busy. Which rows make a shard is decided before (elmokit.bulk), so that a shard that
is written twice is the same twice.
"""

import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from elmokit.errors import (
    ConfigError,
    ElmokitError,
    FormatError,
    InputError,
    NumericError,
    OutputError,
    needs_extra,
)

with needs_extra("elmokit.ray needs Ray, which is not installed", "ray"):
    import pyarrow as pa
    import pyarrow.fs as pafs
    import ray
    import ray.data
    from ray.data import ActorPoolStrategy, Dataset

import torch

from elmokit.bulk.corpus import TEXT, WORDS, absolute, extended, open_filesystem
from elmokit.bulk.embed_corpus import ROWS_PER_SHARD, embed_corpus
from elmokit.bulk.job import Job, ShardResult, ShardWriter
from elmokit.bulk.table_encoder import TableEncoder, VectorSettings
from elmokit.embedder import Embedder, LoadOptions
from elmokit.formats.pretrained import Pretrained
from elmokit.inference_session import Layers
from elmokit.model.bilm import BiLM, LanguageModel

__all__ = ["RayEngine", "embed"]

# Blocks of shards that Ray schedules; fewer shards have a block each.
_MAX_BLOCKS = 10_000
_ROWS_PER_BATCH = 1024
_STARTS_TRIED = 3
_MARK = ".elmokit.json"  # in the folder of a dataset's rows
_KINDS = ConfigError, FormatError, InputError, NumericError, OutputError
_ERRORS: dict[str, type[ElmokitError]] = {kind.__name__: kind for kind in _KINDS}


def embed(
    dataset: Dataset,
    output: str | Path | None = None,
    *,
    model: str | Path | LoadOptions | None = None,
    column: str | None = None,
    layers: Layers = "all",
    pooling: str | None = None,
    dtype: Literal["float32", "float16"] = "float32",
    tokenizer: str = "spaces",
    rows_per_shard: int = ROWS_PER_SHARD,
    workers: int | None = None,
    show_progress_bar: bool | None = None,
) -> Dataset:
    """The dataset with the vectors of its texts, or lists of words, in `column`.

    Without `output`, nothing is computed yet: the result is a lazy Dataset, whose blocks stream
    through the actors. With it, the vectors are written as `elmokit.bulk.embed_corpus` writes them,
    and the result reads them. The rows of the dataset are first written to the folder
    `output`.input, so that they stay the same, in one order, whatever is killed: called again with
    a dataset of these columns and as many rows, this goes on with them, and each of them is in one
    shard. Both folders must be seen by all nodes.

    Example:
        texts = ray.data.from_items([{"text": "A cat ."}, {"text": "A dog ."}])
        elmokit.ray.embed(texts, layers="mean", pooling="mean").to_pandas()
    """
    options = model if isinstance(model, LoadOptions) else LoadOptions(model)
    settings = VectorSettings(layers, pooling, dtype, tokenizer)
    engine = RayEngine(workers=workers)
    schema = _arrow_schema(dataset)
    chosen = column or next((name for name in (TEXT, WORDS) if name in schema.names), TEXT)
    if chosen not in schema.names:
        raise InputError(
            f"the dataset has no column {chosen!r}, expected {', '.join(schema.names)}; name the "
            "column of the text (column=)"
        )
    options = replace(options, threads=options.threads or 1)
    embedder = replace(options, device="cpu").load()
    TableEncoder(embedder, settings, chosen).fields(schema)  # refuses what there is not
    if output is None:
        encoded: Dataset = dataset.map_batches(
            _EncodingActor,
            fn_constructor_args=(_SharedModel.of(embedder), options, settings, chosen),
            batch_size=_ROWS_PER_BATCH,
            batch_format="pyarrow",
            **engine.actors(options),
        )
        return encoded
    target = absolute(os.fspath(output))
    rows = extended(target, ".input")
    _write_rows(dataset, schema, rows)
    embed_corpus(
        rows,
        target,
        model=options,
        column=chosen,
        layers=layers,
        pooling=pooling,
        dtype=dtype,
        tokenizer=tokenizer,
        rows_per_shard=rows_per_shard,
        engine=engine,
        show_progress_bar=show_progress_bar,
    )
    return ray.data.read_parquet(target)


def _arrow_schema(dataset: Dataset) -> pa.Schema:
    schema = dataset.schema()
    if schema is None:
        raise InputError("the dataset has no rows, so that its columns are not known")
    return pa.schema([*zip(schema.names, map(_arrow_type, schema.types), strict=True)])


def _arrow_type(kind: Any) -> pa.DataType:
    """A type of Arrow; a dataset of pandas has others, of which strings are objects."""
    return kind if isinstance(kind, pa.DataType) else pa.string()


def _write_rows(dataset: Dataset, schema: pa.Schema, folder: str) -> None:
    """Write the rows as Parquet, in the dataset's order, unless they are there.

    A mark in the folder says that it is ours, and when it is complete how many rows it has. What a
    killed process left without that is written again.
    """
    filesystem, path = open_filesystem(folder)
    mark = f"{path}/{_MARK}"
    columns = {name: str(kind) for name, kind in zip(schema.names, schema.types, strict=True)}
    if filesystem.get_file_info([mark])[0].type == pafs.FileType.File:
        with filesystem.open_input_file(mark) as file:
            stored = json.loads(file.read())
        if stored["rows"] is not None:
            rows = dataset.count()
            if (stored["columns"], stored["rows"]) != (columns, rows):
                raise InputError(
                    f"{folder}: has {stored['rows']:,} rows with the columns "
                    f"{', '.join(stored['columns'])} of another dataset; this one has {rows:,} "
                    f"with {', '.join(columns)}: name another output"
                )
            return
        filesystem.delete_dir(path)
    elif others := filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True)):
        raise OutputError(
            f"{folder}: holds {others[0].base_name}, but is to get the rows of the dataset; remove "
            "the folder, or name another output"
        )
    filesystem.create_dir(path, recursive=True)
    _write_mark(filesystem, mark, {"columns": columns, "rows": None})
    dataset.write_parquet(folder)
    rows = ray.data.read_parquet(folder).count()
    _write_mark(filesystem, mark, {"columns": columns, "rows": rows})


def _write_mark(filesystem: pafs.FileSystem, mark: str, values: dict[str, Any]) -> None:
    with filesystem.open_output_stream(f"{mark}.new") as file:
        file.write(json.dumps(values).encode())
    filesystem.move(f"{mark}.new", mark)


@dataclass(frozen=True)
class RayEngine:
    """Runs shards in actors of a Ray cluster, for `elmokit.bulk.embed_corpus`.

    Without an `address`, it is the cluster that this process has joined, or one that is started on
    this machine and ends with the call. `workers` actors compute, by default one for each CPU (or
    GPU) of the cluster.

    Example:
        embed_corpus("s3://bucket/texts", "s3://bucket/vectors", engine=RayEngine("auto"))
    """

    address: str | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        if self.workers is not None and self.workers < 1:
            raise InputError(f"workers is {self.workers}, expected 1 or more")

    @property
    def one_process(self) -> bool:
        return False

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterable[Any]:
        """The results of a function, in the order of the items, computed by Ray's tasks."""
        task = ray.remote(_catch_errors)
        references = [task.remote(function, item) for item in items]
        return [_raise_error(ray.get(reference)) for reference in references]

    def run(self, job: Job, embedder: Embedder, shards: Sequence[int]) -> Iterator[ShardResult]:
        """Write shards, in any order; each is yielded once, when it is in its folder."""
        dataset = ray.data.from_items(
            [{"shard": shard} for shard in shards],
            override_num_blocks=min(len(shards), _MAX_BLOCKS),
        )
        results = dataset.map_batches(
            _WritingActor,
            fn_constructor_args=(_SharedModel.of(embedder), job),
            batch_size=1,
            **self.actors(job.options),
        )
        for row in results.iter_rows():
            _raise_error(row)
            yield ShardResult(int(row["shard"]), int(row["rows"]), int(row["words"]))

    def actors(self, options: LoadOptions) -> dict[str, Any]:
        """Arguments of `map_batches`: how many actors there are, and what each of them takes."""
        on_gpu = torch.device(options.device).type == "cuda"
        of_cluster = int(ray.cluster_resources().get("GPU" if on_gpu else "CPU", 1))
        return {
            "compute": ActorPoolStrategy(
                min_size=self.workers or 1, max_size=self.workers or max(1, of_cluster)
            ),
            **({"num_gpus": 1, "num_cpus": 0} if on_gpu else {"num_cpus": 1}),
        }

    @contextmanager
    def opened(self) -> Iterator[None]:
        """In the cluster; one that is joined or started here is left at the end."""
        log = logging.getLogger("ray.data")
        level = log.level
        log.setLevel(logging.WARNING)
        is_member = ray.is_initialized()
        try:
            if is_member:
                self._check_address()
            else:
                self._join()
            yield
        finally:
            log.setLevel(level)
            if not is_member:
                ray.shutdown()

    def _check_address(self) -> None:
        joined = ray.get_runtime_context().gcs_address
        if self.address not in (None, "auto", joined):
            raise InputError(
                f"cluster {self.address!r}: this process has joined {joined!r}; leave it first "
                "(ray.shutdown()), or leave the address out"
            )

    def _join(self) -> None:
        quiet: dict[str, Any] = {"logging_level": logging.ERROR, "log_to_driver": False}
        if self.address is None:
            arguments = {"address": "local", "include_dashboard": False, **quiet}
            arguments["_node_ip_address"] = "127.0.0.1"
            arguments |= {"num_cpus": self.workers} if self.workers else {}
            doubt = "is the machine overloaded? Try again, or without Ray (--engine local)"
        else:
            arguments = {"address": self.address, **quiet}
            doubt = "start one with ray start --head, or leave the address out"
        # Ray gives a node 30 seconds to start, which on a busy machine may be too little.
        for tries_left in reversed(range(1 if self.address else _STARTS_TRIED)):
            try:
                ray.init(**arguments)
                return
            except Exception as error:  # Ray has no class of its own for these
                ray.shutdown()
                if not tries_left:
                    name = f"cluster {self.address!r}" if self.address else "Ray on this machine"
                    reason = " ".join(str(error).split())
                    raise InputError(f"{name}: cannot be joined ({reason}); {doubt}") from None


@dataclass(frozen=True)
class _SharedModel:
    """A model whose weights are in Ray's object store: a node has them once, mapped by its actors.

    The LSTMs' weights are packed by each actor for itself.
    """

    weights: Any  # a reference to arrays by the names of parameters
    rest: Any  # a reference to the model without weights

    @classmethod
    def of(cls, embedder: Embedder) -> "_SharedModel":
        pretrained, bilm = embedder.pretrained, embedder.bilm
        weights = {name: tensor.cpu().numpy() for name, tensor in bilm.state_dict().items()}
        with torch.device("meta"):
            empty = LanguageModel(BiLM(bilm.config))
        return cls(ray.put(weights), ray.put(replace(pretrained, model=empty)))

    def load(self, options: LoadOptions) -> Embedder:
        """The model, in an actor."""
        weights: dict[str, Any] = ray.get(self.weights)
        pretrained: Pretrained = ray.get(self.rest)
        tensors = {name: _tensor_of(array) for name, array in weights.items()}
        pretrained.model.bilm.load_state_dict(tensors, assign=True)
        return Embedder(pretrained, options)


def _tensor_of(array: Any) -> torch.Tensor:
    """A tensor in the memory of an array, which nobody may write to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # which says just that
        return torch.from_numpy(array)


class _EncodingActor:
    """Adds vectors to batches of a dataset."""

    def __init__(
        self, model: _SharedModel, options: LoadOptions, settings: VectorSettings, column: str
    ) -> None:
        torch.set_num_threads(1)
        self._encoder = TableEncoder(model.load(options), settings, column)

    def __call__(self, batch: pa.Table) -> pa.Table:
        return self._encoder.encode_table(batch)


class _WritingActor:
    """Writes shards, and says what is in them, or what is wrong."""

    def __init__(self, model: _SharedModel, job: Job) -> None:
        torch.set_num_threads(1)
        self._writer = ShardWriter(job, model.load(job.options))

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        result = _catch_errors(self._write, int(batch["shard"][0]))
        return {name: [value] for name, value in result.items()}

    def _write(self, shard: int) -> dict[str, Any]:
        return asdict(self._writer.write(shard))


def _catch_errors(function: Callable[[Any], Any], item: Any) -> Any:
    """A result, or what Ray would hide in errors of its own: the kind and message of ours."""
    try:
        return function(item)
    except ElmokitError as error:
        return {"error": type(error).__name__, "message": str(error)}


def _raise_error(result: Any) -> Any:
    if isinstance(result, dict) and result.get("error") is not None:
        raise _ERRORS.get(result["error"], InputError)(result["message"])
    return result
