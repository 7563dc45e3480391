"""Log-probabilities, perplexities and predicted words, as the model and a client return them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError

LogProbabilities = npt.NDArray[np.float64]


class Prediction(NamedTuple):
    """A word that may stand somewhere, and its probability there.

    Example:
        for prediction in model.next_words("the cat sat on the", k=3):
            print(prediction.word, prediction.probability)
    """

    word: str
    probability: float


@dataclass(frozen=True, eq=False)
class Score:
    """The natural logarithm of each word's probability, in each direction of the model.

    There is one number per word, and a last one for the end of the sentence: `</S>` forward,
    `<S>` backward. `unknown` words have the probability of `<UNK>`.

    Example:
        (score,) = model.score([["the", "cat", "sat"]])
        score.forward.shape  # (4,): of each word and of the end
    """

    words: tuple[str, ...]
    unknown: int
    forward: LogProbabilities | None  # (words + 1,)
    backward: LogProbabilities | None  # (words + 1,)

    @property
    def log_probability(self) -> float:
        """Of the sentence: the mean of both directions."""
        return float(np.mean([f.sum() for f in (self.forward, self.backward) if f is not None]))

    @property
    def perplexity(self) -> float:
        """Of the sentence, over all directions."""
        return perplexity_of(-self.log_probability / (len(self.words) + 1))


@dataclass(frozen=True)
class Perplexity:
    """How well words are predicted; a direction that the model does not have is None.

    `words` counts words without sentence boundaries; those that are not in the vocabulary are
    `unknown`, and were predicted as `<UNK>`. `predictions` are those of one direction.

    Example:
        result = model.perplexity(["The cat sat on the mat."])
        print(result.forward, result.backward, result.unknown)
    """

    forward: float | None
    backward: float | None
    words: int
    unknown: int
    predictions: int

    @classmethod
    def of(cls, scores: Iterable[Score]) -> "Perplexity":
        """The perplexity of sentences that were scored."""
        words = unknown = predictions = 0
        forward: list[float] = []
        backward: list[float] = []
        for score in scores:
            words += len(score.words)
            unknown += score.unknown
            predictions += len(score.words) + 1
            if score.forward is not None:
                forward.append(score.forward.sum())
            if score.backward is not None:
                backward.append(score.backward.sum())
        if not predictions:
            raise InputError("no sentences were given, expected one or more to score")

        def mean(sums: list[float]) -> float | None:
            return perplexity_of(-math.fsum(sums) / predictions) if sums else None

        return cls(mean(forward), mean(backward), words, unknown, predictions)

    @property
    def average(self) -> float:
        """The mean of the directions' perplexities, as the paper reports."""
        return sum(self._directions) / len(self._directions)

    @property
    def geometric_mean(self) -> float:
        """That of the mean loss of the directions, their geometric mean, as bilm-tf reports."""
        return math.exp(sum(map(math.log, self._directions)) / len(self._directions))

    @property
    def _directions(self) -> list[float]:
        return [p for p in (self.forward, self.backward) if p is not None]


def perplexity_of(loss: float) -> float:
    """The perplexity of a mean loss; infinite where no float can say it."""
    return math.exp(loss) if loss < 700 else math.inf
