"""Examples become batches of about the same size, in an order that follows from a seed."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from elmokit.batching import token_batches

Example = TypeVar("Example")

_POOL = 50  # batches' worth of examples that are sorted by length together


def shuffled_batches(
    examples: Sequence[Example],
    length: Callable[[Example], int],
    *,
    words: int,
    seed: Sequence[int],
) -> list[list[Example]]:
    """Batches of at most so many words, padding counted, or of one longer example each."""
    random = np.random.default_rng(seed)
    order = random.permutation(len(examples)).tolist()
    lengths = [length(example) for example in examples]
    mean = max(1.0, sum(lengths) / max(1, len(lengths)))
    pool = max(1, int(_POOL * words / mean))
    batches: list[list[Example]] = []
    for start in range(0, len(order), pool):
        some = sorted(order[start : start + pool], key=lengths.__getitem__)
        batches += [
            [examples[i] for i in batch] for batch in token_batches(lengths, words, order=some)
        ]
    return [batches[place] for place in random.permutation(len(batches)).tolist()]


def batches_in_order(
    examples: Sequence[Example], length: Callable[[Example], int], *, words: int
) -> Iterator[tuple[list[int], list[Example]]]:
    """Batches of examples of similar length, each example with its place."""
    lengths = [length(example) for example in examples]
    order = sorted(range(len(examples)), key=lengths.__getitem__)
    for batch in token_batches(lengths, words, order=order):
        yield batch, [examples[place] for place in batch]
