"""A model packed for use: precision, threads, the word cache and the choice of layers."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from threading import RLock
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from elmokit.batching import PlacedWords, place_words
from elmokit.config import BiLMConfig, Direction
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.memory import drop_mapped_pages
from elmokit.model.bilm import BiLM, State
from elmokit.model.linear import Precision
from elmokit.threads import using_threads
from elmokit.vocab import TokenIndexer


class WordCache:
    """The vectors of the words met lately, in about so many bytes.

    There are two shelves. New words, and words found on the old shelf, go to the young one; when
    that is full it becomes the old one, and what nobody asked for since is forgotten.
    """

    def __init__(self, bilm: BiLM, alphabet: TokenIndexer, most_bytes: int) -> None:
        self._bilm = bilm
        self._alphabet = alphabet
        self._most_bytes = most_bytes // 2  # a shelf
        self.cut = 0  # words that were too long, each counted when it was met
        self.forget()

    def forget(self) -> None:
        """Forget all vectors, as when the weights have changed."""
        self._young = self._old = _Shelf(self._bilm)

    def __len__(self) -> int:
        return len(self._young.rows) + len(self._old.rows)

    def vectors(self, words: list[str]) -> Tensor:  # -> (words + 1, dim)
        """The vectors of distinct words, after a zero one for padding."""
        missing = [word for word in words if word not in self._young.rows]
        if self._young.bytes > self._most_bytes:
            self._old, self._young = self._young, _Shelf(self._bilm)
            missing = words
        if known := [word for word in missing if word in self._old.rows]:
            self._young.put(known, self._old.take(known))
        if new := [word for word in missing if word not in self._old.rows]:
            self._young.put(new, self._encode(new))
        return torch.cat([self._young.table[:1], self._young.take(words)])

    def _encode(self, words: list[str]) -> Tensor:  # -> (words, dim)
        rows, cut = self._alphabet.encode(words)
        self.cut += cut
        padded = np.vstack([np.zeros((1, rows.shape[1]), np.int64), rows])
        return self._bilm.encode(torch.from_numpy(padded).to(self._bilm.device))[1:]


class _Shelf:
    """A table of vectors that grows, and the row of each word; row 0 is zero."""

    def __init__(self, bilm: BiLM) -> None:
        self.rows: dict[str, int] = {}
        self.table = next(bilm.parameters()).new_zeros(1, bilm.config.projection_size)
        self._word_bytes = 0

    @property
    def bytes(self) -> int:
        """What the vectors and the words take, a word's place in the dictionary included."""
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


Layers = Literal["all", "top"] | int | Sequence[int]


Directions = Literal["both", "forward", "backward"]


@dataclass(frozen=True)
class LayerSelection:
    """Which vectors a caller wants."""

    layers: tuple[int, ...]
    directions: tuple[Direction, ...]
    boundaries: bool

    @classmethod
    def of(
        cls, config: BiLMConfig, layers: Layers, directions: Directions, boundaries: bool
    ) -> "LayerSelection":
        """What the names and numbers stand for in a model of this shape."""
        top = config.num_layers
        numbers: Sequence[int]
        if isinstance(layers, str):
            if layers not in ("all", "top"):
                raise InputError(f"layers is {layers!r}, expected 'all', 'top', or numbers")
            numbers = range(top + 1) if layers == "all" else [top]
        else:
            numbers = (int(layers),) if isinstance(layers, Integral | int) else tuple(layers)
        for number in numbers:
            if not -top - 1 <= number <= top:
                raise InputError(f"layer {number} was asked for, but the model has 0 to {top}")
        if directions == "both":
            chosen = config.directions
        elif directions in config.directions:
            chosen = (directions,)
        else:
            raise InputError(
                f"directions is {directions!r}, but the model has {', '.join(config.directions)}"
            )
        return cls(tuple(number % (top + 1) for number in numbers), chosen, boundaries)

    def choose(self, layers: Tensor, config: BiLMConfig) -> Tensor:
        """Of all layers and directions, those asked for."""
        halves = layers[list(self.layers)].split(config.projection_size, 3)
        return torch.cat([halves[config.directions.index(d)] for d in self.directions], 3)


class InferenceSession:
    """A model made ready to read, without gradients.

    Its products are packed in a precision, the vectors of the words it met are kept, and so is the
    state that a text starts from: zero, or what is left after the sentences of `warm_up`. All of
    it is made anew when the weights change. `threads` is how many may compute,
    None for one a CPU that the process may use.
    """

    def __init__(
        self,
        pretrained: Pretrained,
        *,
        warm_up: Sequence[Sequence[str]] = (),
        cache_bytes: int = 2**28,
        precision: Precision = "float32",
        threads: int | None = None,
    ) -> None:
        if precision not in ("float32", "half", "int8"):
            raise InputError(f"precision is {precision!r}, expected 'float32', 'half' or 'int8'")
        if threads is not None and threads < 1:
            raise InputError(f"threads is {threads}, expected 1 or more, or None for the usual")
        self.pretrained = pretrained
        self.bilm: BiLM = pretrained.model.bilm
        self._warm_up = [list(sentence) for sentence in warm_up]
        self._cache_bytes = cache_bytes
        self._cache = WordCache(self.bilm, pretrained.indexer, cache_bytes)
        self._precision: Precision = precision
        self._threads = threads
        self._one_at_a_time = RLock()
        self._version: list[tuple[object, ...]] | None
        self._learn_weights()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, is made ready anew; what was kept is left behind."""
        again = partial(
            InferenceSession,
            warm_up=self._warm_up,
            cache_bytes=self._cache_bytes,
            precision=self._precision,
            threads=self._threads,
        )
        return again, (self.pretrained,)

    @property
    def cut_words(self) -> int:
        """How many words were too long and were cut, each counted when it is first met."""
        return self._cache.cut

    def read(
        self,
        placed: PlacedWords,
        state: State | None = None,
        *,
        layers: Sequence[int] | None = None,
        directions: Sequence[Direction] | None = None,
    ) -> tuple[Tensor, State]:
        """The layers of rows of words read side by side, from a state or from the one fixed state.

        They are (layers, rows, steps, dim of the directions), as those of the biLM.
        """
        with self.computing():
            if state is None:
                state = self._start.rows(torch.zeros(len(placed.words), dtype=torch.long))
            return self._read(placed, state, layers=layers, directions=directions)

    def encode(self, words: Sequence[str]) -> Tensor:  # -> (words, dim)
        """The context-free vectors of words."""
        placed = place_words([words], marked=False)
        with self.computing():
            return self._cache.vectors(placed.types)[torch.from_numpy(placed.words[0])]

    def fresh_state(self, sentences: int) -> State:
        """A state of zeros."""
        return State.zeros(self.bilm.config, sentences, like=next(self.bilm.parameters()))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Compute with the weights as they are now, without gradients, one thread at a time."""
        with self._one_at_a_time, self._calm():
            if self._version != self.bilm.version():
                self._learn_weights()
            yield

    def _learn_weights(self) -> None:
        """Work out what is kept of the weights: packed products, words, and the fixed state."""
        version, self._version = self.bilm.version(), None  # interrupted, it will be done again
        self._cache.forget()
        with self._calm():
            self._products = self.bilm.pack(self._precision)
            drop_mapped_pages(self.bilm.lstms.parameters())
            self._start = self.fresh_state(1)
            for sentence in self._warm_up:
                _, self._start = self._read(place_words([sentence]), self._start)
        self._version = version

    @contextmanager
    def _calm(self) -> Iterator[None]:
        """Without gradients, and with the threads asked for."""
        # Kept tensors must be ordinary ones, even where the caller is in inference mode.
        with torch.inference_mode(False), torch.no_grad(), using_threads(self._threads):
            yield

    def _read(
        self,
        placed: PlacedWords,
        state: State,
        *,
        layers: Sequence[int] | None = None,
        directions: Sequence[Direction] | None = None,
    ) -> tuple[Tensor, State]:
        types = self._cache.vectors(placed.types)
        return self.bilm.run_lstms(
            types,
            torch.from_numpy(placed.words).to(types.device),
            state.to(types),
            layers=layers,
            directions=directions,
            packed_weights=self._products,
        )
