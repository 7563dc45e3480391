"""Labels become the share of them that is right, and how well each of them is found."""

from collections import Counter
from collections.abc import Hashable, Sequence, Sized

from elmokit.errors import InputError
from elmokit.tasks.metrics.score import Score


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The share of predictions that are as the gold."""
    check_lengths(gold, predicted)
    return sum(a == b for a, b in zip(gold, predicted, strict=True)) / len(gold)


def score_labels(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, Score]:
    """How well each label is found, by name."""
    check_lengths(gold, predicted)
    wanted, found = Counter(gold), Counter(predicted)
    right = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    return {
        label: Score(right[label], found[label], right[label], wanted[label])
        for label in sorted({*wanted, *found})
    }


def check_lengths(gold: Sized, predicted: Sized) -> None:
    """Refuse predictions that are not as many as the gold, or none."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} of gold, expected as many")
    if len(gold) == 0:  # an array has no truth
        raise InputError("nothing to measure, expected one prediction or more")
