"""Models that adapters name instead of holding: each is loaded once in a process."""

import math
import os
import random
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from elmokit.batching import check_texts, describe
from elmokit.embedder import Embedder, LoadOptions, Text
from elmokit.errors import InputError
from elmokit.inference_session import Layers, LayerSelection
from elmokit.model.scalar_mix import ScalarMix
from elmokit.pooling import HEADS, POOLINGS, Vectors
from elmokit.text_pooling import TextPooling

_MAX_MODELS = 4  # those used last stay in memory
_open_lock = threading.Lock()

Words = tuple[str, ...]
TextKey = str | Words
PooledLayers = dict[str, Vectors]  # (layers and their mean and sum, dim) by the pooling's name

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def open_once(options: LoadOptions) -> "OpenedModel":
    """The model of these options, loaded unless this process has it already.

    In a worker of joblib, multiprocessing or datasets, it computes in one thread, unless `threads`
    says otherwise. A folder or file that has changed since is loaded anew.
    """
    if not isinstance(options.source, str | os.PathLike | None):
        raise InputError(
            f"the model is {describe(options.source)}, expected its name, folder or archive, which "
            "each process loads for itself"
        )
    if options.threads is None and in_worker_process():
        options = replace(options, threads=1)
    with _open_lock:
        return _open(options, _path_and_time(options.source))


def in_worker_process() -> bool:
    """Whether a pool of multiprocessing, joblib or datasets (multiprocess) started this process."""
    modules = (sys.modules.get(name) for name in ("multiprocessing", "multiprocess"))
    return any(module is not None and module.parent_process() is not None for module in modules)


class OpenedModel:
    """A loaded model, its fingerprint, and the vectors of the texts that it has read."""

    def __init__(self, embedder: Embedder) -> None:
        self.embedder = embedder
        self._pooled_texts = _Cache[tuple[TextKey, str], PooledLayers](
            _size
        )  # and what was computed
        self._sentences = _Cache[tuple[Words, LayerSelection], Vectors](_num_bytes)
        self._head_fingerprints: dict[str, str] = {}  # by pooling

    @cached_property
    def fingerprint(self) -> str:
        """The hash of the weights, which takes a moment."""
        return self.embedder.pretrained.fingerprint()

    def check_fingerprint(self, expected: str, name: str, *, pooling: str | None = None) -> None:
        """InputError if `name` was made with another model, or with another head of it."""
        found = self.fingerprint if pooling is None else self.fingerprint_with(pooling)
        if found != expected:
            raise InputError(
                f"{name} was made with another model (fingerprint {expected[:12]}, this one has "
                f"{found[:12]}); name the model that made it, or make it anew"
            )

    def fingerprint_with(self, pooling: str | None) -> str:
        """The hash of the weights, and of the head's where the pooling is a head."""
        if pooling is None or pooling not in self.embedder.pretrained.heads:
            return self.fingerprint
        if pooling not in self._head_fingerprints:
            found = self.embedder.pretrained.fingerprint(pooling)
            self._head_fingerprints[pooling] = found
        return self._head_fingerprints[pooling]

    def pooling(self, layers: Layers | None = None, pooling: str | None = None) -> TextPooling:
        """What `layers` and `pooling` of `encode` mean for this model."""
        return TextPooling.of(self.embedder.pretrained, layers, pooling)

    def dim(self, layers: Layers | None, pooling: str | None = "mean") -> int:
        """The size of the vectors of `encode`."""
        pool = self.pooling(layers, pooling)
        return pool.num_layers * pool.dim

    def encode(
        self, texts: Iterable[Text], *, layers: Layers | None, pooling: str | None, cache_bytes: int
    ) -> Vectors:  # -> (texts, dim)
        """What `Embedder.encode` gives, several layers side by side.

        A text that comes again, with other layers or another pooling, is not run again: up to
        `cache_bytes`, the vectors of all layers and poolings stay in memory. Only a ScalarMix is
        computed each time, and of the heads only the one that is asked for. With 0, nothing stays,
        and only what is asked for is computed.
        """
        embedder = self.embedder
        if not cache_bytes or isinstance(layers, ScalarMix):
            vectors = embedder.encode(
                texts, layers=layers, pooling=pooling, show_progress_bar=False
            )
            return vectors.reshape(len(vectors), math.prod(vectors.shape[1:]))
        pool = self.pooling(layers, pooling)
        selection = LayerSelection.of(embedder.bilm.config, pool.layers)
        rows = _rows_of(selection, embedder.num_layers)
        # Without an LSTM, the lowest layer alone is much faster.
        computed: Sequence[int] = [0] if {*rows} == {0} else range(embedder.num_layers)
        poolings = self._poolings()
        if pool.name in HEADS:
            rows, computed, poolings = [0], selection.layers, {pool.name: pool}
        kind = pool.name if pool.name in HEADS else f"{len(computed)} layers"
        keys = [text if isinstance(text, str) else tuple(text) for text in check_texts(texts)]
        vector_of: dict[TextKey, Vectors] = {}
        missing = []
        for key in dict.fromkeys(keys):
            pooled = self._pooled_texts.get((key, kind))
            if pooled is None or pool.name not in pooled:
                missing.append(key)
            else:
                vector_of[key] = pooled[pool.name][rows].ravel()
        new = self._pool_layers(missing, computed, poolings)
        for key, pooled in zip(missing, new, strict=True):
            vector_of[key] = pooled[pool.name][rows].ravel()
            self._pooled_texts.add((key, kind), pooled, max_bytes=cache_bytes)
        if not keys:
            return np.zeros((0, pool.num_layers * pool.dim), np.float32)
        return np.stack([vector_of[key] for key in keys])

    def embed(
        self, sentences: Iterable[Words], *, layers: Layers = "all", cache_bytes: int
    ) -> Iterator[Vectors]:  # of (layers, words, dim)
        """What `Embedder.embed_stream` gives; up to `cache_bytes`, the vectors stay in memory.

        Those of a ScalarMix are computed each time.
        """
        stream = partial(self.embedder.embed_stream, layers=layers, show_progress_bar=False)
        if not cache_bytes or isinstance(layers, ScalarMix):
            yield from stream(sentences)
            return
        selection = LayerSelection.of(self.embedder.bilm.config, layers)
        listed = list(sentences)
        vectors_of = {words: self._sentences.get((words, selection)) for words in listed}
        missing = [words for words, vectors in vectors_of.items() if vectors is None]
        for words, computed in zip(missing, stream(missing), strict=True):
            vectors_of[words] = computed
            self._sentences.add((words, selection), computed, max_bytes=cache_bytes)
        for words in listed:
            vectors = vectors_of[words]
            assert vectors is not None  # it was cached, or missing
            yield vectors

    def _poolings(self) -> dict[str, TextPooling]:
        """All poolings that the model has, but its heads."""
        has_vocabulary = self.embedder.pretrained.vocabulary is not None
        return {
            name: self.pooling("all", name)
            for name, registered in POOLINGS.items()
            if name not in HEADS and (has_vocabulary or not registered.needs_vocabulary)
        }

    def _pool_layers(
        self, texts: Sequence[TextKey], layers: Sequence[int], poolings: Mapping[str, TextPooling]
    ) -> Iterator[PooledLayers]:
        """For each text, its vector of each layer, and of their mean and sum, by each pooling.

        A head has one vector instead.
        """
        tokenized = [self.embedder.tokenize(text) for text in texts]
        stream = self.embedder.embed_stream(
            (sentence for text in tokenized for sentence in text),
            layers=layers,
            show_progress_bar=False,
        )
        for text in tokenized:
            words = [word for sentence in text for word in sentence]
            arrays = [*islice(stream, len(text))]
            if {*poolings} <= {*HEADS}:
                yield {name: pool(arrays, words) for name, pool in poolings.items()}
            elif words:
                arrays = [_with_mean_and_sum(array) for array in arrays]
                yield {name: pool(arrays, words) for name, pool in poolings.items()}
            else:
                zeros = np.zeros((len(layers) + 2, self.embedder.dim), np.float32)
                yield dict.fromkeys(poolings, zeros)
        next(stream, None)  # to its end, where truncated words are reported


class _Cache(Generic[Key, Value]):
    """Values by their keys, in about so many bytes.

    Where there is no room, values are dropped at random: a grid search, or training, reads the
    same texts again and again, so the oldest would often be dropped just before it is needed.
    """

    def __init__(self, size: Callable[[Value], int]) -> None:
        self._size = size
        self._values: dict[Key, Value] = {}
        self._keys: list[Key] = []
        self._bytes = 0
        self._random = random.Random(0)
        self._lock = threading.Lock()

    def get(self, key: Key) -> Value | None:
        return self._values.get(key)

    def add(self, key: Key, value: Value, *, max_bytes: int) -> None:
        with self._lock:
            if key in self._values:
                self._bytes -= self._size(self._values[key])
            else:
                self._keys.append(key)
            self._bytes += self._size(value)
            self._values[key] = value
            while self._bytes > max_bytes:
                place = self._random.randrange(len(self._keys))
                self._keys[place], self._keys[-1] = self._keys[-1], self._keys[place]
                self._bytes -= self._size(self._values.pop(self._keys.pop()))


@lru_cache(maxsize=_MAX_MODELS)
def _open(options: LoadOptions, path_and_time: tuple[Path, int] | None) -> OpenedModel:
    return OpenedModel(options.load())


def _path_and_time(source: str | Path | None) -> tuple[Path, int] | None:
    """Where a folder or file is, and when it was changed last; None for a model by its name."""
    if source is None or not Path(source).exists():
        return None
    path = Path(source).resolve()
    return path, path.stat().st_mtime_ns


def _rows_of(selection: LayerSelection, num_layers: int) -> list[int]:
    """The rows of pooled layers that make up a vector: layers, then their mean and sum."""
    if selection.combination == "mean":
        return [num_layers]
    if selection.combination == "sum":
        return [num_layers + 1]
    return [*selection.layers]


def _with_mean_and_sum(layers: Vectors) -> Vectors:  # (layers, ...) -> (layers + 2, ...)
    return np.concatenate([layers, layers.mean(0, keepdims=True), layers.sum(0, keepdims=True)])


def _size(pooled: PooledLayers) -> int:
    return sum(map(_num_bytes, pooled.values()))


def _num_bytes(vectors: Vectors) -> int:
    return vectors.nbytes
