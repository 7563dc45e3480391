"""Adds columns with the vectors of texts to Arrow tables."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from elmokit.batching import check_texts
from elmokit.bulk.corpus import WORDS, check_column
from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.inference_session import Layers, LayerSelection
from elmokit.pooling import HEADS, Vectors
from elmokit.text_pooling import TextPooling
from elmokit.tokenizers import check_tokenizer, get_tokenizer

VECTORS, SHAPE = "vectors", "shape"

# A table that comes out has about so many bytes of vectors, or one row.
_BYTES_PER_TABLE = 2**25


@dataclass(frozen=True)
class VectorSettings:
    """Which vectors are computed for each row.

    `layers` and `pooling` are those of `Embedder.embed` and `encode`; without a pooling, every word
    has its vectors. A sentence head reads layers of its own. `tokenizer` splits a text into
    sentences and words, as `encode` does with that of the model; "spaces" takes each line for a
    sentence, its words being between spaces.
    """

    layers: Layers = "all"
    pooling: str | None = None
    dtype: Literal["float32", "float16"] = "float32"
    tokenizer: str = "spaces"

    def __post_init__(self) -> None:
        check_tokenizer(self.tokenizer)
        if self.dtype not in ("float32", "float16"):
            raise InputError(f"dtype is {self.dtype!r}, expected 'float32' or 'float16'")


class TableEncoder:
    """Embeds a column of text, or of lists of words, and adds the vectors to the table.

    With a pooling, the column "vectors" is a FixedSizeList, or a fixed-shape tensor (layers, dim)
    where there are several layers. Without one, it is a list of the numbers of an array
    (layers, words, dim), or (words, dim) of one layer, whose shape is in the column "shape"; texts
    then also have the column "words".
    """

    def __init__(self, embedder: Embedder, settings: VectorSettings, column: str) -> None:
        if embedder.state_mode == "carry":
            raise InputError(
                "state is 'carry', but rows are embedded in any order; expected 'zero' or 'warm'"
            )
        self._embedder, self._settings, self.column = embedder, settings, column
        self._pooling: TextPooling | None = None
        self._layers: Layers = settings.layers
        shape: LayerSelection | TextPooling
        if settings.pooling is None:
            shape = LayerSelection.of(embedder.bilm.config, settings.layers)
            self._dim = shape.dim(embedder.bilm.config)
        else:
            has_own_layers = settings.pooling in HEADS and settings.layers == "all"
            layers = None if has_own_layers else settings.layers
            shape = self._pooling = TextPooling.of(embedder.pretrained, layers, settings.pooling)
            self._layers, self._dim = shape.layers, shape.dim
        self._num_layers = shape.num_layers
        self._tokenizer = get_tokenizer(settings.tokenizer)
        self.num_words = 0  # embedded so far

    def fields(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns that are added to those of a schema."""
        has_words = check_column(schema.field(self.column))
        number = pa.float16() if self._settings.dtype == "float16" else pa.float32()
        if self._pooling is None:
            axes = 2 if self._num_layers == 1 else 3
            added = [(VECTORS, pa.list_(number)), (SHAPE, pa.list_(pa.int32(), axes))]
            if not has_words:
                added.insert(0, (WORDS, pa.list_(pa.string())))
        elif self._num_layers == 1:
            added = [(VECTORS, pa.list_(number, self._dim))]
        else:
            added = [(VECTORS, pa.fixed_shape_tensor(number, (self._num_layers, self._dim)))]
        for name, _ in added:
            if name in schema.names:
                raise InputError(
                    f"the input has a column {name!r}, which is to be added; rename it first"
                )
        return [pa.field(name, kind, nullable=False) for name, kind in added]

    def encode(self, tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
        """The tables with their vectors, cut into ones of about 32 MB."""
        for table in tables:
            fields = self.fields(table.schema)
            rows: list[_Row] = []
            num_bytes = first = 0
            for row in self._rows(table[self.column]):
                rows.append(row)
                num_bytes += row.vectors.nbytes
                if num_bytes >= _BYTES_PER_TABLE:
                    yield _with_columns(table[first : first + len(rows)], fields, rows)
                    first += len(rows)
                    rows, num_bytes = [], 0
            if rows:
                yield _with_columns(table[first:], fields, rows)

    def encode_table(self, table: pa.Table) -> pa.Table:
        """One table with its vectors."""
        tables = [*self.encode([table])]
        if not tables:
            return _with_columns(table, self.fields(table.schema), [])
        return pa.concat_tables(tables)

    def _rows(self, column: pa.ChunkedArray) -> Iterator["_Row"]:
        texts = [self._sentences(text) for text in check_texts(column)]
        sentences = [sentence for text in texts for sentence in text]
        stream = self._embedder.embed_stream(
            sentences, layers=self._layers, show_progress_bar=False
        )
        for text in texts:
            words = [word for sentence in text for word in sentence]
            self.num_words += len(words)
            arrays = [*islice(stream, len(text))]
            if not arrays and self._pooling is None:
                arrays = [np.zeros((self._num_layers, 0, self._dim), np.float32)]
            yield _Row(words, self._combine(arrays, words))
        next(stream, None)  # to its end, where truncated words are reported

    def _combine(self, arrays: Sequence[Vectors], words: Sequence[str]) -> Any:
        if self._pooling is None:
            vectors = np.concatenate(arrays, 1)  # (layers, words, dim)
        else:
            vectors = self._pooling(arrays, words)  # (layers, dim)
        vectors = vectors[0] if self._num_layers == 1 else vectors
        return vectors.astype(self._settings.dtype)

    def _sentences(self, text: str | list[str]) -> list[list[str]]:
        if not isinstance(text, str):
            return [text]
        sentences = self._tokenizer.split_sentences(text)
        return [self._tokenizer.tokenize(sentence) for sentence in sentences]


@dataclass(frozen=True)
class _Row:
    """The words of a text, and its vectors."""

    words: list[str]
    vectors: Any  # (dim,), (layers, dim), (words, dim) or (layers, words, dim)


def _with_columns(table: pa.Table, fields: Sequence[pa.Field], rows: Sequence[_Row]) -> pa.Table:
    for field in fields:
        table = table.append_column(field, _column(field, rows))
    return table


def _column(field: pa.Field, rows: Sequence[_Row]) -> pa.Array:
    if field.name == WORDS:
        return pa.array([row.words for row in rows], field.type)
    if field.name == SHAPE:
        shapes = [number for row in rows for number in row.vectors.shape]
        numbers = pa.array(shapes, pa.int32())
        return pa.FixedSizeListArray.from_arrays(numbers, type=field.type)
    flat = [row.vectors.ravel() for row in rows]
    number = _number_of(field.type)
    numbers = pa.array(np.concatenate([np.empty(0, number), *flat], dtype=number))
    if isinstance(field.type, pa.FixedShapeTensorType):
        storage = pa.FixedSizeListArray.from_arrays(numbers, type=field.type.storage_type)
        return pa.ExtensionArray.from_storage(field.type, storage)
    if pa.types.is_fixed_size_list(field.type):
        return pa.FixedSizeListArray.from_arrays(numbers, type=field.type)
    offsets = np.cumsum([0, *(len(numbers) for numbers in flat)], dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), numbers, type=field.type)


def _number_of(kind: pa.DataType) -> Any:
    return kind.value_type.to_pandas_dtype()


def row_vectors(table: pa.Table) -> list[Any]:
    """The vectors of each row of a table, as arrays of their shape.

    Example:
        table = pyarrow.parquet.read_table("vectors/part-00000000.parquet")
        row_vectors(table)[0].shape  # (layers, words, dim)
    """
    vectors = table[VECTORS].combine_chunks()
    if isinstance(vectors, pa.ChunkedArray):  # of a table without rows
        return []
    if isinstance(vectors.type, pa.FixedShapeTensorType):
        return [*vectors.to_numpy_ndarray()]
    if pa.types.is_fixed_size_list(vectors.type):
        numbers = vectors.flatten().to_numpy(zero_copy_only=False)
        return [*numbers.reshape(len(table), vectors.type.list_size)]
    shapes = table[SHAPE].to_pylist()
    numbers = vectors.flatten().to_numpy(zero_copy_only=False)
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])
    return [
        part.reshape(shape)
        for part, shape in zip(np.split(numbers, ends[:-1]), shapes, strict=True)
    ]
