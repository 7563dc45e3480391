"""Groups of mentions become GAP's F1: which of two names each pronoun stands for.

A pronoun stands for a name if its group has a mention that ends with the name: "the singer Ann Lee"
and "Ann Lee's" are Ann Lee, but "the man with Ann Lee", "Bo and Ann Lee", "Bo 's Ann Lee" are not.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from elmokit.errors import InputError
from elmokit.tasks.data.example import Pronoun
from elmokit.tasks.metrics.accuracy import check_lengths
from elmokit.tasks.metrics.score import Score

Place: TypeAlias = tuple[int, int]  # the first word and the last
Groups: TypeAlias = Sequence[Collection[Place]]  # of the mentions of one text

_FEMININE = frozenset(["she", "her", "hers", "herself"])
_POSSESSIVE = frozenset(["'s", "’s", "'", "’"])
# Before a name in a mention of someone else.
_OTHERS = _POSSESSIVE | {
    "about", "after", "against", "alongside", "and", "as", "at", "before", "behind", "beside",
    "besides", "but", "by", "except", "for", "from", "in", "including", "into", "like", "near",
    "not", "of", "on", "or", "over", "plus", "than", "that", "through", "to", "under", "versus",
    "when", "where", "which", "while", "who", "whom", "whose", "with", "without", ",",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PronounScore:
    """How well pronouns are understood, those of women and of men apart."""

    feminine: Score
    masculine: Score

    @property
    def by_name(self) -> Mapping[str, float]:
        """Each score by its name.

        `bias`, women's F1 by men's, is below 1 where women are understood less well; where either
        is not asked for, or no man is understood, it is left out.
        """
        every = self.feminine + self.masculine
        found = {"f1": every.f1, "precision": every.precision, "recall": every.recall}
        found |= {"feminine": self.feminine.f1, "masculine": self.masculine.f1}
        if self.feminine.wanted and self.masculine.f1:
            found["bias"] = self.feminine.f1 / self.masculine.f1
        return found


def score_pronouns(pronouns: Sequence[Pronoun], predicted: Sequence[Groups]) -> PronounScore:
    """How well the groups found in each pronoun's text say what it stands for."""
    check_lengths(pronouns, predicted)
    women, men = Score(), Score()
    for example, groups in zip(pronouns, predicted, strict=True):
        words = [word.lower() for sentence in example.sentences for word in sentence]
        mentions = _group_of(example.pronoun, groups)
        for name, wanted in ((example.a, example.is_a), (example.b, example.is_b)):
            found = any(
                _is_named(mention, name, words)
                for mention in mentions
                if mention != example.pronoun  # they may share a word: Ann--she
            )
            right = found and wanted
            score = Score(right, found, right, wanted)
            if example.said.lower() in _FEMININE:
                women += score
            else:
                men += score
    return PronounScore(women, men)


def _group_of(pronoun: Place, groups: Groups) -> Collection[Place]:
    own = [group for group in groups if pronoun in group]
    if len(own) > 1:
        raise InputError(f"mention {pronoun} is in two groups, expected one")
    return own[0] if own else ()


def _is_named(mention: Place, name: Place, words: Sequence[str]) -> bool:
    """Whether a mention is of the person whose name it ends with."""
    first, last = mention
    if words[last] in _POSSESSIVE:
        last -= 1
    return first <= name[0] and last == name[1] and _OTHERS.isdisjoint(words[first : name[0]])
