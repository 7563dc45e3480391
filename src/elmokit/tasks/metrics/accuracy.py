"""Labels become the share of them that is right."""

from collections.abc import Hashable, Sequence, Sized

from elmokit.errors import InputError


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The share of predictions that are as the gold."""
    check_lengths(gold, predicted)
    return sum(a == b for a, b in zip(gold, predicted, strict=True)) / len(gold)


def check_lengths(gold: Sized, predicted: Sized) -> None:
    """Refuse predictions that are not as many as the gold, or none."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} of gold, expected as many")
    if len(gold) == 0:  # an array has no truth
        raise InputError("nothing to measure, expected one prediction or more")
