import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elmokit.errors import InputError
from elmokit.tasks.metrics.answers import answer_f1, exact_match, normalised, score_answers


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ("The  Super-Bowl, of 2016!", "superbowl of 2016"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.", "us"),
        ("“A” cat", "“ ” cat"),
        ("the", ""),
    ],
)
def test_answers_are_made_alike_as_squad_does_it(answer, says):
    assert normalised(answer) == says


def reference(gold, predicted):
    """SQuAD 1.1's evaluation, told again step by step."""

    def words(text):
        text = "".join(c for c in text.lower() if c not in set(string.punctuation))
        return re.sub(r"\b(a|an|the)\b", " ", text).split()

    common = sum((Counter(words(predicted)) & Counter(words(gold))).values())
    exact = words(gold) == words(predicted)
    if common == 0:
        return exact, 0.0
    precision, recall = common / len(words(predicted)), common / len(words(gold))
    return exact, 2 * precision * recall / (precision + recall)


texts = st.lists(st.sampled_from(["the", "A", "cat", "Cat,", "-", "sat", "Sat!"])).map(" ".join)


@given(texts, texts)
def test_exact_match_and_f1_are_squads(gold, predicted):
    exact, f1 = reference(gold, predicted)
    assert exact_match(gold, predicted) == exact
    assert answer_f1(gold, predicted) == pytest.approx(f1)


def test_the_best_of_several_gold_answers_counts():
    score = score_answers([["Santa Clara", "Clara, California"], ["1990"]], ["santa clara", "x"])
    assert (score.exact, score.f1) == (0.5, 0.5)
    assert score_answers([["the big cat"]], ["a cat"]).f1 == pytest.approx(2 / 3)


def test_a_question_without_gold_is_refused():
    with pytest.raises(InputError, match="question 1 has no gold answer"):
        score_answers([["a"], []], ["a", "b"])
