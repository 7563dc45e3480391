"""Minibatches of items of similar length, shuffled for training or in order for prediction."""

from collections.abc import Sequence

import numpy as np

from elmokit.batching import token_batches

_BATCHES_SORTED_TOGETHER = 50


def minibatches(
    lengths: Sequence[int], *, words: int, seed: Sequence[int] | None = None
) -> list[list[int]]:
    """Indices of items: at most `words` words a batch, padding included, or one longer item.

    With a seed, which alone decides the order, batches and items are shuffled.
    """
    if seed is None:
        order = sorted(range(len(lengths)), key=lengths.__getitem__)
        return [*token_batches(lengths, words, order=order)]
    random = np.random.default_rng(seed)
    order = random.permutation(len(lengths)).tolist()
    mean = max(1.0, sum(lengths) / max(1, len(lengths)))
    pool_size = max(1, int(_BATCHES_SORTED_TOGETHER * words / mean))
    batches: list[list[int]] = []
    for start in range(0, len(order), pool_size):
        pool = sorted(order[start : start + pool_size], key=lengths.__getitem__)
        batches += token_batches(lengths, words, order=pool)
    return [batches[number] for number in random.permutation(len(batches)).tolist()]
