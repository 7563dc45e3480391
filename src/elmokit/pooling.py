"""Poolings: one vector for the words of a text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.idf import idf_weights
from elmokit.vocab import Vocabulary

Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TextVectors:
    """What a pooling sees of a text: one vector per word, the words, and the model's vocabulary."""

    vectors: Vectors  # (words, dim), one word or more
    words: Sequence[str]
    vocabulary: Vocabulary | None


@dataclass(frozen=True)
class Pooling:
    """A way to turn the vectors of a text's words into one."""

    description: str  # for help texts
    function: Callable[[TextVectors], Vectors]  # -> (dim,)
    needs_vocabulary: bool


# All poolings by name. The command line and the service offer what is registered here.
POOLINGS: dict[str, Pooling] = {}


def register_pooling(
    name: str, description: str, *, needs_vocabulary: bool = False
) -> Callable[[Callable[[TextVectors], Vectors]], Callable[[TextVectors], Vectors]]:
    """Make a function available as `pooling=name`."""

    def register(function: Callable[[TextVectors], Vectors]) -> Callable[[TextVectors], Vectors]:
        POOLINGS[name] = Pooling(description, function, needs_vocabulary)
        return function

    return register


@register_pooling("mean", "the mean of the words' vectors")
def mean_pooling(text: TextVectors) -> Vectors:
    """The mean, in which every word counts the same."""
    mean: Vectors = text.vectors.mean(0)
    return mean


@register_pooling("idf", "the mean, in which rare words count more", needs_vocabulary=True)
def idf_pooling(text: TextVectors) -> Vectors:
    """The mean weighted by `idf_weights`."""
    assert text.vocabulary is not None  # get_pooling saw to that
    weights = idf_weights(text.words, text.vocabulary)
    return np.average(text.vectors, axis=0, weights=weights).astype(np.float32)


@register_pooling("max", "the largest value of each dimension")
def max_pooling(text: TextVectors) -> Vectors:
    """The largest value of each dimension."""
    largest: Vectors = text.vectors.max(0)
    return largest


@register_pooling("first", "the vector of the first word")
def first_pooling(text: TextVectors) -> Vectors:
    """The vector of the first word."""
    first: Vectors = text.vectors[0]
    return first


@register_pooling("last", "the vector of the last word")
def last_pooling(text: TextVectors) -> Vectors:
    """The vector of the last word, which in the forward half has seen all others."""
    last: Vectors = text.vectors[-1]
    return last


def get_pooling(name: str, vocabulary: Vocabulary | None) -> Pooling:
    """The pooling of that name, for a model with or without a vocabulary."""
    if name not in POOLINGS:
        raise InputError(f"pooling is {name!r}, expected one of {', '.join(POOLINGS)}")
    pooling = POOLINGS[name]
    if pooling.needs_vocabulary and vocabulary is None:
        raise InputError(
            f"pooling {name!r} needs a vocabulary, which says how rare words are, and the model "
            "has none; put vocab.txt beside its weights, or choose another pooling"
        )
    return pooling


def pool_sentences(
    sentences: Sequence[Vectors],  # (layers, words, dim) each
    words: Sequence[str],  # of all sentences
    pooling: Pooling,
    vocabulary: Vocabulary | None,
) -> Vectors:  # -> (layers, dim)
    """The pooled vector of a text in each layer; zero for a text without words."""
    layers = np.concatenate(sentences, 1)
    if not words:
        return np.zeros((layers.shape[0], layers.shape[2]), np.float32)
    return np.stack(
        [pooling.function(TextVectors(vectors, words, vocabulary)) for vectors in layers]
    )
