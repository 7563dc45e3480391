"""Sentences become batches, and a caller's wish the layers and directions to compute."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal, TypeVar

import torch
from torch import Tensor

from elmokit.config import BiLMConfig, Direction
from elmokit.errors import InputError

Layers = Literal["all", "top"] | int | Sequence[int]
Directions = Literal["both", "forward", "backward"]

# So many batches are planned together: enough to find sentences of one length.
_BATCHES_PER_WINDOW = 2


Sentence = TypeVar("Sentence")


def in_windows(
    sentences: Iterable[Sentence], tokens_per_batch: int, words: Callable[[Sentence], int]
) -> Iterator[list[Sentence]]:
    """Runs of sentences that are planned together; `words` counts a sentence's words."""
    window: list[Sentence] = []
    tokens = 0
    for sentence in sentences:
        window.append(sentence)
        tokens += words(sentence) + 2
        if tokens >= _BATCHES_PER_WINDOW * tokens_per_batch:
            yield window
            window, tokens = [], 0
    if window:
        yield window


def in_batches(window: list[list[str]], tokens_per_batch: int) -> Iterator[list[int]]:
    """Places of sentences of about one length, as many together as the budget allows."""
    longest_first = sorted(range(len(window)), key=lambda place: -len(window[place]))
    start = 0
    while start < len(window):
        longest = len(window[longest_first[start]]) + 2
        count = max(1, tokens_per_batch // longest)
        yield longest_first[start : start + count]
        start += count


@dataclass(frozen=True)
class Asked:
    """Which vectors a caller wants."""

    layers: tuple[int, ...]
    directions: tuple[Direction, ...]
    boundaries: bool

    @classmethod
    def of(
        cls, config: BiLMConfig, layers: Layers, directions: Directions, boundaries: bool
    ) -> "Asked":
        """What the names and numbers stand for in a model of this shape."""
        top = config.layers
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
        halves = layers[list(self.layers)].split(config.dim, 3)
        return torch.cat([halves[config.directions.index(d)] for d in self.directions], 3)
