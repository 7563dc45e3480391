"""The beginning of a text becomes the words that may come next, its end those that came before."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from elmokit.ask.oracle import START, Oracle
from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.model.bilm import State
from elmokit.text.vocabulary import UNKNOWN


class Guess(NamedTuple):
    """A word that may stand somewhere, and its probability there."""

    word: str
    probability: float


def next_words(
    oracle: Oracle,
    sentences: Sequence[Sequence[str]],
    *,
    k: int = 10,
    marks: bool = False,
    carry: bool = False,
) -> list[Guess]:
    """The likeliest words after those of the last sentence; `</S>` is its end.

    With `carry` the sentences before it are read first, as running text. `<UNK>` and `<S>` are left
    out unless `marks` are asked for; the others' probabilities stay as they are, so all words
    together with those left out make 1.
    """
    return _guess(oracle, sentences, "forward", k=k, marks=marks, carry=carry)


def previous_words(
    oracle: Oracle, sentences: Sequence[Sequence[str]], *, k: int = 10, marks: bool = False
) -> list[Guess]:
    """The likeliest words before those of the first sentence; `<S>` is its beginning.

    `<UNK>` and `</S>` are left out unless `marks` are asked for, as in `next_words`.
    """
    return _guess(oracle, sentences, "backward", k=k, marks=marks, carry=False)


def read_context(
    oracle: Oracle, sentences: Sequence[Sequence[str]], direction: Direction, *, carry: bool
) -> tuple[Tensor, State]:
    """What a reader says of the word at the open end of sentences, (1, dim); and its state.

    The open end is the last word forward, the first backward.
    """
    before = [*sentences] or [[]]
    if direction == "backward":
        # In training, what was carried into a sentence came from the one before it: none is known.
        row = [*before[0], START[direction]]
    else:
        row = [w for s in (before if carry else before[-1:]) for w in (START[direction], *s)]
    return oracle.read_on([row], None, direction)


def left_out(oracle: Oracle, direction: Direction) -> list[int]:
    """The rows of words that nobody wants guessed: `<UNK>`, and the mark a reader starts with."""
    return oracle.rows_of([UNKNOWN, START[direction]])


def best(oracle: Oracle, log_probabilities: Tensor, k: int) -> list[Guess]:
    """The k likeliest words, the likeliest first; of equals, the one that comes first."""
    if k < 1:
        raise InputError(f"k is {k}, expected 1 or more words")
    values, rows = log_probabilities.sort(descending=True, stable=True)
    return [
        Guess(oracle.vocabulary[int(row)], float(value.exp()))
        for value, row in zip(values[:k], rows[:k], strict=True)
        if value > -torch.inf
    ]


def _guess(
    oracle: Oracle,
    sentences: Sequence[Sequence[str]],
    direction: Direction,
    *,
    k: int,
    marks: bool,
    carry: bool,
) -> list[Guess]:
    what = "guessing the next word" if direction == "forward" else "guessing the previous word"
    oracle.check_direction(direction, what)
    said, _ = read_context(oracle, sentences, direction, carry=carry)
    found = oracle.log_probabilities(said)[0]  # (words,)
    if not marks:
        found[left_out(oracle, direction)] = -torch.inf
    return best(oracle, found, k)
