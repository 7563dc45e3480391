"""Batches of examples of similar length, shuffled for training or in order for prediction."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from elmokit.batching import token_batches

Example = TypeVar("Example")

_BATCHES_SORTED_TOGETHER = 50


def shuffled_batches(
    examples: Sequence[Example],
    length: Callable[[Example], int],
    *,
    words: int,
    seed: Sequence[int],
) -> list[list[Example]]:
    """Batches of at most `words` words, padding included, or of one longer example each.

    The order depends on the seed alone.
    """
    random = np.random.default_rng(seed)
    order = random.permutation(len(examples)).tolist()
    lengths = [length(example) for example in examples]
    mean = max(1.0, sum(lengths) / max(1, len(lengths)))
    pool_size = max(1, int(_BATCHES_SORTED_TOGETHER * words / mean))
    batches: list[list[Example]] = []
    for start in range(0, len(order), pool_size):
        pool = sorted(order[start : start + pool_size], key=lengths.__getitem__)
        batches += [
            [examples[i] for i in batch] for batch in token_batches(lengths, words, order=pool)
        ]
    return [batches[number] for number in random.permutation(len(batches)).tolist()]


def batches_by_length(
    examples: Sequence[Example], length: Callable[[Example], int], *, words: int
) -> Iterator[tuple[list[int], list[Example]]]:
    """Batches of examples of similar length, each with the positions of its examples."""
    lengths = [length(example) for example in examples]
    order = sorted(range(len(examples)), key=lengths.__getitem__)
    for batch in token_batches(lengths, words, order=order):
        yield batch, [examples[position] for position in batch]
