"""Names of layers; the registry of poolings; IDF weights; unit vectors."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.model_config import HEAD_NAMES
from elmokit.vocab import Vocabulary

Vectors = npt.NDArray[np.float32]

# What `layers` may be, beside numbers, for help texts.
LAYERS = {
    "all": "every layer",
    "top": "the top layer",
    "mean": "the mean of all layers",
    "sum": "the sum of all layers",
    "concat": "all layers end to end",
}

# A word of this share of all text weighs half as much as one that never occurs (the constant a of
# Arora et al. 2017).
_HALF_WEIGHT_SHARE = 3e-4


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
    function: Callable[[TextVectors], Vectors] | None  # -> (dim,); None: a head of the model
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


register_pooling("mean", "the mean of the words' vectors")(lambda text: text.vectors.mean(0))


@register_pooling("idf", "the mean, in which rare words count more", needs_vocabulary=True)
def idf_pooling(text: TextVectors) -> Vectors:
    """The mean weighted by `idf_weights`."""
    assert text.vocabulary is not None  # get_pooling saw to that
    weights = idf_weights(text.words, text.vocabulary)
    return np.average(text.vectors, axis=0, weights=weights).astype(np.float32)


register_pooling("max", "the largest value of each dimension")(lambda text: text.vectors.max(0))
register_pooling("first", "the vector of the first word")(lambda text: text.vectors[0])
register_pooling("last", "the vector of the last word")(lambda text: text.vectors[-1])

# Sentence heads, which come with some models, the best first: `encode` uses it by default.
_HEAD_DESCRIPTIONS = (
    "what the model's head was trained to give for sentences of similar meaning; it reads the "
    "layers that it needs",
    "the IDF mean of layer 0, whitened with the statistics that come with the model",
)
HEADS = dict(zip(HEAD_NAMES, _HEAD_DESCRIPTIONS, strict=True))
for _name, _description in HEADS.items():
    POOLINGS[_name] = Pooling(_description, None, needs_vocabulary=True)


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


def idf_weights(words: Sequence[str], vocabulary: Vocabulary) -> npt.NDArray[np.float64]:
    """A weight from 0 to 1 for each word, a / (a + share) of Arora et al. (SIF).

    A word's share of all text follows from its rank in the vocabulary by Zipf's law. A word that
    the vocabulary has in lower case only takes that rank; one that it lacks has a share of 0.
    Punctuation weighs 0, unless there is nothing else.
    """
    known = [word if word in vocabulary else word.lower() for word in words]
    ranks = 1 + vocabulary.ids(known)
    shares = 1 / (ranks.clip(1) * (np.log(len(vocabulary)) + np.euler_gamma))
    shares[[word not in vocabulary for word in known]] = 0
    weights: npt.NDArray[np.float64] = _HALF_WEIGHT_SHARE / (_HALF_WEIGHT_SHARE + shares)
    punctuation = np.array([not is_word(word) for word in words])
    return weights if punctuation.all() else np.where(punctuation, 0, weights)


def is_word(word: str) -> bool:
    """Whether it has a letter or a digit, so that it is not punctuation."""
    return any(character.isalnum() for character in word)


def unit_vectors(vectors: npt.NDArray[np.floating]) -> Vectors:  # (..., dim)
    """The vectors with length 1; a zero vector stays zero."""
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    unit: Vectors = vectors / np.maximum(lengths, np.float32(1e-12))
    return unit
