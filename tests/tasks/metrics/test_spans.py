import random
import warnings

import pytest
from seqeval.metrics import classification_report

from elmokit.errors import InputError
from elmokit.tasks.data.schemes import convert
from elmokit.tasks.metrics.score import Score
from elmokit.tasks.metrics.spans import score_spans


def made(letters, seed):
    """Gold and predicted tags that agree here and there, well formed or not."""
    chance = random.Random(seed)
    tags = ["O", *(f"{letter}-{label}" for letter in letters for label in ("PER", "LOC", "XY"))]
    gold = [chance.choices(tags, k=chance.randrange(1, 12)) for _ in range(40)]
    predicted = [
        [tag if chance.random() < 0.7 else chance.choice(tags) for tag in sentence]
        for sentence in gold
    ]
    return gold, predicted


@pytest.mark.parametrize("letters", ["BI", "BIES"])
@pytest.mark.parametrize("seed", range(5))
def test_precision_recall_and_f1_are_those_of_seqeval(letters, seed):
    gold, predicted = made(letters, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that are on one side only
        theirs = classification_report(gold, predicted, output_dict=True)
    ours = score_spans(gold, predicted)
    for label, score in {**ours.labels, "micro avg": ours.all}.items():
        assert score.precision == pytest.approx(theirs[label]["precision"])
        assert score.recall == pytest.approx(theirs[label]["recall"])
        assert score.f1 == pytest.approx(theirs[label]["f1-score"])
        assert score.wanted == theirs[label]["support"]
    assert {*ours.labels} == {*theirs} - {"micro avg", "macro avg", "weighted avg"}


def test_the_scheme_does_not_matter():
    gold, predicted = made("BI", 0)
    bioes = [convert(tags, "bioes") for tags in gold]
    assert score_spans(bioes, predicted) == score_spans(gold, predicted)


def test_a_label_can_be_left_out():
    gold, predicted = [["B-V", "B-A", "I-A"]], [["B-V", "B-A", "O"]]
    assert score_spans(gold, predicted).all == Score(1, 2, 1, 2)
    assert score_spans(gold, predicted, without=("V",)).all == Score(0, 1, 0, 1)


def test_tags_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match="sentence 1 has 1 predicted tags, expected 2"):
        score_spans([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="1 predictions for 2 of gold"):
        score_spans([["O"], ["O"]], [["O"]])
