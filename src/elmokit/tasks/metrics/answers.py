"""Answers become exact match and F1, as SQuAD's own script counts them."""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from elmokit.errors import InputError
from elmokit.tasks.metrics.accuracy import check_lengths
from elmokit.tasks.metrics.score import Score

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """The means over questions, from 0 to 1."""

    exact: float
    f1: float


def score_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> AnswerScore:
    """How well answers agree with the best of each question's gold answers."""
    check_lengths(gold, predicted)
    if not all(gold):
        raise InputError(f"question {[*map(bool, gold)].index(False)} has no gold answer")
    return AnswerScore(*(_mean_of_best(gold, predicted, way) for way in (exact_match, answer_f1)))


def exact_match(gold: str, predicted: str) -> float:
    """1 where two answers are the same but for case, punctuation, articles and spaces."""
    return float(normalised(gold) == normalised(predicted))


def answer_f1(gold: str, predicted: str) -> float:
    """The F1 of the words of an answer."""
    wanted, found = normalised(gold).split(), normalised(predicted).split()
    right = sum((Counter(wanted) & Counter(found)).values())
    return Score(right, len(found), right, len(wanted)).f1


def normalised(answer: str) -> str:
    """An answer in small letters, without ASCII punctuation and articles, single spaces between."""
    bare = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", bare).split())


def _mean_of_best(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], way: Callable[[str, str], float]
) -> float:
    best = [
        max(way(answer, said) for answer in answers)
        for answers, said in zip(gold, predicted, strict=True)
    ]
    return sum(best) / len(best)
