"""A model packed for inference: precision, threads, the word cache and the choice of layers."""

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from threading import RLock
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.batching import Batch, index_words
from elmokit.character_ids import TokenIndexer
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.bilm import BiLM, State
from elmokit.model.kernels import Kernel, KernelName, choose_kernel
from elmokit.model.packed_linear import Precision
from elmokit.model.scalar_mix import ScalarMix
from elmokit.model_config import BiLMConfig, Direction
from elmokit.pooling import LAYERS, Vectors
from elmokit.process_memory import drop_mapped_pages
from elmokit.threads import using_threads

Layers = Literal["all", "top", "mean", "sum", "concat"] | int | Sequence[int] | ScalarMix
Directions = Literal["both", "forward", "backward"]

logger = logging.getLogger(__name__)


class InferenceSession:
    """A model made ready to run, without gradients.

    Its weights are packed in a precision, for one of the kernels; `kernel` says for which. The
    vectors of recent words are cached, and so is the state in which a text starts: zero, or the
    state after the sentences of `warm_up`. All of this is computed anew when the weights change.
    `threads` is how many may compute; None for one per CPU that the process may use.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        warm_up: Sequence[Sequence[str]] = (),
        cache_bytes: int = 2**28,
        precision: Precision = "float32",
        kernel: KernelName = "auto",
        threads: int | None = None,
    ) -> None:
        self.pretrained = pretrained
        self.bilm: BiLM = pretrained.model.bilm
        self._warm_up = [list(sentence) for sentence in warm_up]
        self._cache_bytes = cache_bytes
        self._cache = WordCache(self.bilm, pretrained.indexer, cache_bytes)
        self._precision: Precision = precision
        self._kernel_name: KernelName = kernel
        self._threads = threads
        self._lock = RLock()
        self._reports_open = 0
        self._truncations_reported = 0
        self._version: list[tuple[object, ...]] | None = None
        self._pack_weights()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, packs the weights anew; its cache starts empty."""
        rebuild = partial(
            InferenceSession,
            warm_up=self._warm_up,
            cache_bytes=self._cache_bytes,
            precision=self._precision,
            kernel=self._kernel_name,
            threads=self._threads,
        )
        return rebuild, (self.pretrained,)

    def run(
        self,
        sentences: Sequence[Sequence[str]],
        state: State | None = None,
        *,
        boundaries: bool = True,
        layers: Sequence[int] | None = None,
        directions: Sequence[Direction] | None = None,
    ) -> tuple[Tensor, State]:
        """The layers, (layers, sentences, steps, dim of the directions), and the state after.

        Without a state, every sentence starts in that of the session. `<S>` and `</S>` are added,
        or not without `boundaries`. All layers and directions are computed, unless some are chosen.
        """
        with self.computing():
            if state is None:
                state = self._start.rows(torch.zeros(len(sentences), dtype=torch.long))
            types, words = index_words(sentences, boundaries=boundaries)
            vectors = self._cache.vectors(types)
            return self.bilm.run_lstms(
                vectors,
                torch.from_numpy(words).to(vectors.device),
                state.to(vectors),
                layers=layers,
                directions=directions,
                packed_weights=self._packed_weights,
            )

    def run_batch(self, batch: Batch) -> Tensor:  # -> (layers, sentences, steps, dim)
        """All layers of a batch of ids, aligned where they are to be; the cache is not used."""
        with self.computing():
            batch = batch.to(self.bilm.device)
            types = self.bilm.encode(batch.chars)
            state = self._start.rows(torch.zeros(len(batch.words), dtype=torch.long))
            layers, _ = self.bilm.run_lstms(
                types, batch.words, state.to(types), packed_weights=self._packed_weights
            )
            return self.bilm.align(layers, range(self.bilm.config.num_layers + 1))

    def encode(self, words: Sequence[str]) -> Tensor:  # -> (words, dim)
        """The context-free vectors of words."""
        types, rows = index_words([words], boundaries=False)
        with self.computing():
            return self._cache.vectors(types)[torch.from_numpy(rows[0])]

    def fresh_state(self, sentences: int) -> State:
        """A state of zeros."""
        return State.zeros(self.bilm.config, sentences, like=next(self.bilm.parameters()))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute with the weights as they are now, without gradients, one thread at a time."""
        with self._lock, self._inference_mode():
            if self._version != self.bilm.version():
                self._pack_weights()
            yield

    @property
    def truncated_words(self) -> int:
        """How many different words were too long for the model and were cut."""
        return self._cache.num_truncated

    @contextmanager
    def reporting_truncated_words(self) -> Iterator[None]:
        """Warn at the end, once, of words that were cut within the block and never before.

        Blocks may be nested, and overlap; the last to end warns for all.
        """
        with self._lock:
            self._reports_open += 1
        try:
            yield
        finally:
            with self._lock:
                self._reports_open -= 1
                if not self._reports_open:
                    self._report_truncated_words()

    def _report_truncated_words(self) -> None:
        count = self.truncated_words - self._truncations_reported
        if not count:
            return
        self._truncations_reported = self.truncated_words
        logger.warning(
            "%d %s longer than %s and %s cut: '%s…'",
            count,
            "word was" if count == 1 else "words were",
            self.pretrained.indexer.max_word_length,
            "was" if count == 1 else "were",
            self._cache.last_truncated,
        )

    def _pack_weights(self) -> None:
        self._cache.clear()
        try:
            self._version = self.bilm.version()
            with self._inference_mode():
                parameter = next(self.bilm.lstms.parameters())
                self.kernel: Kernel = choose_kernel(self._kernel_name, self._precision, parameter)
                self._packed_weights = self.bilm.pack(self._precision, self.kernel)
                drop_mapped_pages(self.bilm.lstms.parameters())
                self._start = self.fresh_state(1)
            for sentence in self._warm_up:
                _, self._start = self.run([sentence], self._start)
        except BaseException:
            self._version = None  # so that it is done again
            raise

    @contextmanager
    def _inference_mode(self) -> Iterator[None]:
        """Without gradients, and with the session's number of threads."""
        # Cached tensors must be ordinary ones, even where the caller is in inference mode.
        with torch.inference_mode(False), torch.no_grad(), using_threads(self._threads):
            yield


class CarriedState:
    """The state in which each row of the calls so far ended; a row never seen starts from zero."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session
        self.value = session.fresh_state(0)

    def rows(self, indices: Sequence[int]) -> State:
        missing = max(indices) + 1 - self.value.num_sentences
        if missing > 0:
            self.value = self.value.followed_by(self._session.fresh_state(missing))
        return self.value.rows(self._tensor(indices))

    def update(self, indices: Sequence[int], after: State) -> None:
        self.value = self.value.with_rows(self._tensor(indices), after.to(self.value.hidden))

    def reset(self) -> None:
        """Start all rows from zero."""
        self.value = self._session.fresh_state(0)

    def _tensor(self, indices: Sequence[int]) -> Tensor:
        return torch.tensor(indices, device=self.value.hidden.device)


@dataclass(frozen=True)
class LayerSelection:
    """Which layers and directions to compute, and how several layers are combined into one."""

    layers: tuple[int, ...]
    directions: tuple[Direction, ...]
    boundaries: bool = False
    combination: Literal["mean", "sum", "concat"] | ScalarMix | None = None

    @classmethod
    def of(
        cls,
        config: BiLMConfig,
        layers: Layers,
        directions: Directions = "both",
        *,
        boundaries: bool = False,
    ) -> "LayerSelection":
        """What the names and numbers stand for in a model of this shape."""
        top = config.num_layers
        numbers: Sequence[int] = range(top + 1)
        combination: Literal["mean", "sum", "concat"] | ScalarMix | None = None
        if isinstance(layers, ScalarMix):
            combination = layers
            if len(layers.weights) != top + 1:
                raise InputError(
                    f"a ScalarMix of {len(layers.weights)} layers, but the model has {top + 1}"
                )
        elif isinstance(layers, str):
            if layers not in LAYERS:
                raise InputError(
                    f"layers is {layers!r}, expected {', '.join(map(repr, LAYERS))}, a number, a "
                    "list of numbers or a ScalarMix"
                )
            if layers == "top":
                numbers = [top]
            elif layers != "all":
                combination = layers
        else:
            numbers = tuple(layers) if isinstance(layers, Iterable) else (layers,)
        for number in numbers:
            if not isinstance(number, Integral | int) or not -top - 1 <= number <= top:
                raise InputError(f"layer {number!r} was asked for, but the model has 0 to {top}")
        if config.aligned_layers and directions != "both":
            raise InputError(
                f"directions is {directions!r}, but the model is aligned, and a matrix aligns both "
                "at once; ask for 'both', or load the model without align"
            )
        if directions not in ("both", *config.directions):
            raise InputError(
                f"directions is {directions!r}, but the model has {', '.join(config.directions)}"
            )
        chosen = config.directions if directions == "both" else (directions,)
        numbers = tuple(int(number) % (top + 1) for number in numbers)
        return cls(numbers, chosen, boundaries, combination)

    @property
    def num_layers(self) -> int:
        """How many layers come out."""
        return len(self.layers) if self.combination is None else 1

    def dim(self, config: BiLMConfig) -> int:
        """The size of a vector that comes out."""
        parts = len(self.layers) if self.combination == "concat" else 1
        return parts * len(self.directions) * config.projection_size

    def choose(self, layers: Tensor, config: BiLMConfig) -> Tensor:
        """The selected ones of all layers and directions, (layers, sentences, steps, dim)."""
        halves = layers[list(self.layers)].split(config.projection_size, 3)
        return torch.cat([halves[config.directions.index(d)] for d in self.directions], 3)

    def combine(self, vectors: Vectors) -> Vectors:
        """The selected layers of a sentence, (layers, words, dim), as they come out."""
        combined: Vectors = vectors
        if self.combination == "mean":
            combined = vectors.mean(0, keepdims=True)
        elif self.combination == "sum":
            combined = vectors.sum(0, keepdims=True)
        elif self.combination == "concat":
            combined = np.concatenate([*vectors], 1)[None]
        elif self.combination is not None:
            layers = torch.from_numpy(vectors).to(self.combination.weights.device)
            mask = torch.ones(layers.shape[1], dtype=torch.bool, device=layers.device)
            with torch.no_grad():
                combined = self.combination(layers, mask).cpu().numpy()[None]
        return combined


_MAX_HASHES = 100_000


class WordCache:
    """The vectors of recent words, in about so many bytes.

    There are two generations. New words, and words taken from the old generation, go to the young
    one; when that is full it becomes the old one, and words not used since are dropped.
    """

    def __init__(self, bilm: BiLM, indexer: TokenIndexer, max_bytes: int) -> None:
        self._bilm = bilm
        self._indexer = indexer
        self._max_bytes = max_bytes // 2  # of a generation
        self.num_truncated = 0  # different words that were cut
        self.last_truncated = ""  # the part of it that the model sees
        self._truncated: set[int] = set()  # the hashes of these words, which may be long
        self.clear()

    def clear(self) -> None:
        """Drop all vectors, as when the weights have changed."""
        self._young = self._old = _WordVectors(self._bilm)

    def __len__(self) -> int:
        return len(self._young.rows) + len(self._old.rows)

    def vectors(self, words: list[str]) -> Tensor:  # -> (words + 1, dim)
        """The vectors of distinct words, after a zero one for padding."""
        missing = [word for word in words if word not in self._young.rows]
        if self._young.bytes > self._max_bytes:
            self._old, self._young = self._young, _WordVectors(self._bilm)
            missing = words
        if known := [word for word in missing if word in self._old.rows]:
            self._young.put(known, self._old.take(known))
        if new := [word for word in missing if word not in self._old.rows]:
            self._young.put(new, self._encode(new))
        return torch.cat([self._young.table[:1], self._young.take(words)])

    def _encode(self, words: list[str]) -> Tensor:  # -> (words, dim)
        ids, truncated = self._indexer.encode(words)
        if truncated:
            self._note_truncated(words)
        padded = np.vstack([np.zeros((1, ids.shape[1]), np.int64), ids])
        return self._bilm.encode(torch.from_numpy(padded).to(self._bilm.device))[1:]

    def _note_truncated(self, words: list[str]) -> None:
        for word in words:
            part = self._indexer.truncated(word)
            if part is not None and hash(word) not in self._truncated:
                if len(self._truncated) == _MAX_HASHES:
                    self._truncated.clear()  # words may then count twice
                self._truncated.add(hash(word))
                self.num_truncated += 1
                self.last_truncated = part


class _WordVectors:
    """A table of vectors that grows, and the row of each word; row 0 is zero."""

    def __init__(self, bilm: BiLM) -> None:
        self.rows: dict[str, int] = {}
        self.table = next(bilm.parameters()).new_zeros(1, bilm.config.projection_size)
        self._word_bytes = 0

    @property
    def bytes(self) -> int:
        """The size of the vectors and the words, with a word's entry in the dictionary."""
        return self.table.nbytes + self._word_bytes

    def take(self, words: list[str]) -> Tensor:  # -> (words, dim)
        rows = torch.tensor([self.rows[word] for word in words], dtype=torch.long)
        return self.table[rows.to(self.table.device)]

    def put(self, words: list[str], vectors: Tensor) -> None:
        start = len(self.rows) + 1
        end = start + len(words)
        if end > len(self.table):
            grown = self.table.new_zeros(max(end, len(self.table) * 5 // 4), self.table.shape[1])
            grown[:start] = self.table[:start]
            self.table = grown
        self.table[start:end] = vectors
        self.rows.update(zip(words, range(start, end), strict=True))
        self._word_bytes += sum(map(sys.getsizeof, words)) + 100 * len(words)
