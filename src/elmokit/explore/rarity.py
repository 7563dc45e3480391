"""Words become weights: what is rare says more of a passage than what is everywhere."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from elmokit.text.vocabulary import Vocabulary

# A word of this share of a text counts half as much as one that is never met (Arora et al. 2017).
_COMMON = 3e-4


def rarities(words: Sequence[str], vocabulary: Vocabulary) -> npt.NDArray[np.float64]:
    """How much each word counts, 0 to 1; marks do not, unless there is nothing else.

    A word's share of all text is taken from its place in the vocabulary, by Zipf's law; one that
    the vocabulary has only in lower case has that place, and one that it has not is never met.
    """
    known = [word if word in vocabulary else word.lower() for word in words]
    ranks = 1 + vocabulary.ids(known)
    shares = 1 / (ranks.clip(1) * (np.log(len(vocabulary)) + np.euler_gamma))
    shares[[word not in vocabulary for word in known]] = 0
    weights: npt.NDArray[np.float64] = _COMMON / (_COMMON + shares)
    marks = np.array([not is_word(word) for word in words])
    return weights if marks.all() else np.where(marks, 0, weights)


def is_word(word: str) -> bool:
    """Whether it has a letter or a digit, and is not a mark only."""
    return any(character.isalnum() for character in word)
