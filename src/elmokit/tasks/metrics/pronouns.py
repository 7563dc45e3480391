"""Groups of mentions become GAP's F1: which of two names each pronoun stands for.

A pronoun stands for a name if a group has the pronoun and a mention that ends where the name does:
titles and given names before it do not matter (Webster et al. 2018 judge by pronouns' gender too).
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from elmokit.tasks.data.example import Pronoun
from elmokit.tasks.metrics.accuracy import check_lengths
from elmokit.tasks.metrics.score import Score

Groups: TypeAlias = Sequence[Collection[tuple[int, int]]]  # of the mentions of one text

_FEMININE = frozenset(["she", "her", "hers", "herself"])


@dataclass(frozen=True, slots=True)
class PronounScore:
    """How well pronouns are understood, those of women and of men apart."""

    feminine: Score
    masculine: Score

    @property
    def by_name(self) -> Mapping[str, float]:
        """Each score by its name: `bias` is below 1 where women are understood less well."""
        every, men = self.feminine + self.masculine, self.masculine.f1
        return {
            "f1": every.f1,
            "precision": every.precision,
            "recall": every.recall,
            "feminine": self.feminine.f1,
            "masculine": men,
            "bias": self.feminine.f1 / men if men else 0.0,
        }


def score_pronouns(pronouns: Sequence[Pronoun], predicted: Sequence[Groups]) -> PronounScore:
    """How well the groups found in each pronoun's text say what it stands for."""
    check_lengths(pronouns, predicted)
    scores = {True: Score(), False: Score()}
    for example, groups in zip(pronouns, predicted, strict=True):
        (own,) = [group for group in groups if example.pronoun in group] or [()]
        ends = {last for _, last in own}
        words = [word for sentence in example.sentences for word in sentence]
        for name, wanted in ((example.a, example.is_a), (example.b, example.is_b)):
            found = name[1] in ends
            right = found and wanted
            scores[words[example.pronoun[0]].lower() in _FEMININE] += Score(
                right, found, right, wanted
            )
    return PronounScore(scores[True], scores[False])
