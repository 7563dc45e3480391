"""Words become what the readers say, with what is worth keeping of a model between calls."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import RLock
from typing import Any

import torch
from torch import Tensor

from elmokit.cache import WordCache
from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.memory import set_aside
from elmokit.model.bilm import BiLM, State
from elmokit.model.linear import Precision
from elmokit.text.batch import PlacedWords, place_words
from elmokit.threads import using_threads


class Reading:
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
        self._cache = WordCache(self.bilm, pretrained.alphabet, cache_bytes)
        self._precision: Precision = precision
        self._threads = threads
        self._one_at_a_time = RLock()
        self._version: list[tuple[object, ...]] | None
        self._learn_weights()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, here or in another process, is made ready anew; what was kept is left behind."""
        again = partial(
            Reading,
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
            set_aside(self.bilm.readers.parameters())
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
        return self.bilm.read(
            types,
            torch.from_numpy(placed.words).to(types.device),
            state.to(types),
            layers=layers,
            directions=directions,
            products=self._products,
        )
