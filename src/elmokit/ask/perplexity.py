"""The scores of sentences become a perplexity, of a model in use or in training."""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from elmokit.ask.oracle import Oracle
from elmokit.ask.score import Score, Start, perplexity_of, score
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.model.language_model import LanguageModel
from elmokit.reading import Reading


def perplexity(
    pretrained: Pretrained,
    sentences: Iterable[Sequence[str]],
    *,
    state: Start = "zero",
    tokens_per_batch: int = 4096,
    lanes: int | None = None,
    progress: bool | None = None,
) -> "Perplexity":
    """How well a model predicts sentences, by the full softmax; see `score` for the settings.

    Nothing is drawn or learned: a model that is in training goes on as if nobody had asked.
    """
    with _at_rest(pretrained.model):
        oracle = Oracle(Reading(pretrained))
        return Perplexity.of(
            score(
                oracle,
                sentences,
                state=state,
                tokens_per_batch=tokens_per_batch,
                lanes=lanes,
                progress=progress,
            )
        )


@dataclass(frozen=True)
class Perplexity:
    """How well words are predicted; a direction that the model does not have is None.

    `words` counts words without marks; those among them that are not in the vocabulary are
    `unknown`, and were predicted as `<UNK>`. `predictions` are those of one reader.
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
        for found in scores:
            words += len(found.words)
            unknown += found.unknown
            predictions += len(found.words) + 1
            if found.forward is not None:
                forward.append(found.forward.sum())
            if found.backward is not None:
                backward.append(found.backward.sum())
        if not predictions:
            raise InputError("no sentences were given, expected one or more to score")

        def mean(sums: list[float]) -> float | None:
            return perplexity_of(-math.fsum(sums) / predictions) if sums else None

        return cls(mean(forward), mean(backward), words, unknown, predictions)

    @property
    def average(self) -> float:
        """The mean of the directions' perplexities, as the paper reports."""
        found = self._found()
        return sum(found) / len(found)

    @property
    def both(self) -> float:
        """That of the mean loss of the directions, their geometric mean, as bilm-tf reports."""
        found = self._found()
        return math.exp(sum(map(math.log, found)) / len(found))

    def _found(self) -> list[float]:
        return [p for p in (self.forward, self.backward) if p is not None]


@contextmanager
def _at_rest(model: LanguageModel) -> Iterator[None]:
    """The model as in use, nothing dropped out; afterwards each part is as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
