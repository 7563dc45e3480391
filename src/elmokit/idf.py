"""IDF weights: how much each word of a text counts by how rare it is."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmokit.vocab import Vocabulary

# A word of this share of all text weighs half as much as one that never occurs (the constant a of
# Arora et al. 2017).
_HALF_WEIGHT_SHARE = 3e-4


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
