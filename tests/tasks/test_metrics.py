"""Metrics equal those of scikit-learn, seqeval, SQuAD's script and the reference scorers."""

import random
import re
import string
import warnings
from collections import Counter
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from seqeval.metrics import classification_report
from sklearn.metrics import accuracy_score, precision_recall_fscore_support

from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import GapExample
from elmokit.tasks.datasets.schemes import convert_tags
from elmokit.tasks.metrics import (
    PrecisionRecall,
    accuracy,
    answer_f1,
    average_f1,
    exact_match,
    gap_f1,
    normalize_answer,
    precision_recall_f1,
    score_answers,
    score_coreference,
    score_gap,
    score_labels,
    score_spans,
)


def test_accuracy_agrees_with_scikit_learn():
    rng = random.Random(0)
    for length in range(1, 60):
        gold, predicted = (rng.choices("abc", k=length) for _ in range(2))
        assert accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted))


def test_scores_of_labels_agree_with_scikit_learn():
    rng = random.Random(1)
    gold, predicted = rng.choices("abc", k=50), rng.choices("abcd", k=50)
    scores = score_labels(gold, predicted)
    assert [*scores] == [*"abcd"]
    theirs = precision_recall_fscore_support(gold, predicted, labels=[*"abcd"], zero_division=0)
    for own, (precision, recall, f1, support) in zip(
        scores.values(), zip(*theirs, strict=True), strict=True
    ):
        assert (own.precision, own.recall, own.f1) == pytest.approx((precision, recall, f1))
        assert own.gold == support


@pytest.mark.parametrize(
    ("gold", "predicted", "expected"),
    [("ab", "a", "1 predictions for 2 of gold"), ("", "", "nothing to measure")],
)
def test_lists_of_different_lengths_are_refused(gold, predicted, expected):
    with pytest.raises(InputError, match=expected):
        accuracy(gold, predicted)


def test_scores_without_predictions_or_gold_are_zero():
    assert (PrecisionRecall().precision, PrecisionRecall().recall, PrecisionRecall().f1) == (
        0,
        0,
        0,
    )
    assert PrecisionRecall(0, 0, 0, 3).f1 == 0


def test_counts_add_up():
    assert PrecisionRecall(1, 2, 1, 4) + PrecisionRecall(2, 2, 2, 2) == PrecisionRecall(3, 4, 3, 6)
    assert (PrecisionRecall(1, 2, 1, 4) + PrecisionRecall(2, 2, 2, 2)).f1 == pytest.approx(0.6)


def random_tags(letters, seed):
    """Gold and predicted tags that agree here and there, well formed or not."""
    rng = random.Random(seed)
    tags = ["O", *(f"{letter}-{label}" for letter in letters for label in ("PER", "LOC", "XY"))]
    gold = [rng.choices(tags, k=rng.randrange(1, 12)) for _ in range(40)]
    predicted = [
        [tag if rng.random() < 0.7 else rng.choice(tags) for tag in sentence] for sentence in gold
    ]
    return gold, predicted


@pytest.mark.parametrize("letters", ["BI", "BIES"])
@pytest.mark.parametrize("seed", range(5))
def test_span_scores_agree_with_seqeval(letters, seed):
    gold, predicted = random_tags(letters, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that are on one side only
        theirs = classification_report(gold, predicted, output_dict=True)
    ours = score_spans(gold, predicted)
    for label, score in {**ours, "micro avg": sum(ours.values(), PrecisionRecall())}.items():
        assert score.precision == pytest.approx(theirs[label]["precision"])
        assert score.recall == pytest.approx(theirs[label]["recall"])
        assert score.f1 == pytest.approx(theirs[label]["f1-score"])
        assert score.gold == theirs[label]["support"]
    assert {*ours} == {*theirs} - {"micro avg", "macro avg", "weighted avg"}


def test_the_tagging_scheme_does_not_matter():
    gold, predicted = random_tags("BI", 0)
    bioes = [convert_tags(tags, "bioes") for tags in gold]
    assert score_spans(bioes, predicted) == score_spans(gold, predicted)


def test_a_label_can_be_left_out():
    gold, predicted = [["B-V", "B-A", "I-A"]], [["B-V", "B-A", "O"]]
    every = {"V": PrecisionRecall(1, 1, 1, 1), "A": PrecisionRecall(0, 1, 0, 1)}
    assert score_spans(gold, predicted) == every
    assert score_spans(gold, predicted, without=("V",)) == {"A": every["A"]}
    assert precision_recall_f1(every.values()) == {"f1": 0.5, "precision": 0.5, "recall": 0.5}


def test_tags_of_different_lengths_are_refused():
    with pytest.raises(InputError, match="sentence 1 has 1 predicted tags, expected 2"):
        score_spans([["O"], ["O", "O"]], [["O"], ["O"]])
    with pytest.raises(InputError, match="1 predictions for 2 of gold"):
        score_spans([["O"], ["O"]], [["O"]])


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("The  Super-Bowl, of 2016!", "superbowl of 2016"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("U.S.", "us"),
        ("“A” cat", "“ ” cat"),
        ("the", ""),
    ],
)
def test_answers_are_normalized_as_in_squad(answer, expected):
    assert normalize_answer(answer) == expected


def squad_scores(gold, predicted):
    """SQuAD 1.1's evaluation, written independently."""

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
def test_exact_match_and_f1_agree_with_squad(gold, predicted):
    exact, f1 = squad_scores(gold, predicted)
    assert exact_match(gold, predicted) == exact
    assert answer_f1(gold, predicted) == pytest.approx(f1)


def test_the_best_of_several_gold_answers_counts():
    score = score_answers([["Santa Clara", "Clara, California"], ["1990"]], ["santa clara", "x"])
    assert score == {"f1": 0.5, "exact": 0.5}
    assert score_answers([["the big cat"]], ["a cat"])["f1"] == pytest.approx(2 / 3)


def test_a_question_without_gold_is_refused():
    with pytest.raises(InputError, match="question 1 has no gold answer"):
        score_answers([["a"], []], ["a", "b"])


def near(score, precision, recall):
    return (score.precision, score.recall) == (pytest.approx(precision), pytest.approx(recall))


def test_the_worked_example_of_the_reference_scorer():
    # Pradhan et al. (2014), Scoring Coreference Partitions of Predicted Mentions, section 4.
    score = score_coreference([["abc", "defg"]], [["ab", "cd", "fghi"]])
    assert near(score["muc"], 2 / 5, 2 / 5)
    assert near(score["b_cubed"], 4 / 8, (35 / 12) / 7)
    assert near(score["ceaf"], 1.3 / 3, 1.3 / 2)
    assert near(score["mentions"], 6 / 8, 6 / 7)
    assert average_f1(score) == pytest.approx((0.4 + 0.454545 + 0.52) / 3, abs=1e-6)


@pytest.mark.parametrize(
    ("predicted", "muc", "b_cubed", "ceaf"),
    [
        # Bagga and Baldwin (1998): to MUC both are one wrong link, to B³ joining the two large
        # clusters is worse than joining a large one and the small one.
        (["12345", "6789ABC"], (9 / 10, 1), (16 / 21, 1), (11 / 12, 11 / 18)),
        (["1234589ABC", "67"], (9 / 10, 1), (7 / 12, 1), (5 / 6, 5 / 9)),
        # Luo (2005): one cluster of all, and every mention alone.
        (["123456789ABC"], (9 / 11, 1), (0.375, 1), (10 / 17, 10 / 51)),
        ([*"123456789ABC"], (0, 0), (1, 0.25), (1 / 9, 4 / 9)),
    ],
)
def test_worked_examples_of_the_literature(predicted, muc, b_cubed, ceaf):
    score = score_coreference([["12345", "67", "89ABC"]], [predicted])
    assert near(score["muc"], *muc)
    assert near(score["b_cubed"], *b_cubed)
    assert near(score["ceaf"], *ceaf)


def random_clusters(rng):
    """Some of twelve mentions in some clusters."""
    drawn = [[] for _ in range(rng.randrange(1, 6))]
    for mention in rng.sample(range(12), rng.randrange(1, 12)):
        rng.choice(drawn).append(mention)
    return [cluster for cluster in drawn if cluster]


def random_pairs(seed, count=100):
    rng = random.Random(seed)
    return [(random_clusters(rng), random_clusters(rng)) for _ in range(count)]


def test_swapping_gold_and_predicted_swaps_precision_and_recall():
    for gold, predicted in random_pairs(0):
        scores = score_coreference([gold], [predicted])
        swapped = score_coreference([predicted], [gold])
        for name in scores:
            assert near(scores[name], swapped[name].recall, swapped[name].precision)


def test_equal_clusters_score_one_and_disjoint_ones_zero():
    for gold, _ in random_pairs(1):
        same = score_coreference([gold], [gold[::-1]])
        assert near(same["b_cubed"], 1, 1)
        assert near(same["ceaf"], 1, 1)
        assert near(same["muc"], 1, 1) or all(len(cluster) == 1 for cluster in gold)
        none = score_coreference([gold], [[[-1 - m for m in cluster] for cluster in gold]])
        assert all(score.f1 == 0 for score in none.values())
        assert average_f1(none) == 0


def test_ceaf_assigns_clusters_optimally():
    for gold, predicted in random_pairs(2, count=30):
        short, long = sorted((gold, predicted), key=len)
        best = max(
            sum(2 * len({*a} & {*b}) / (len(a) + len(b)) for a, b in zip(short, order, strict=True))
            for order in permutations(long, len(short))
        )
        assert score_coreference([gold], [predicted])["ceaf"].correct_predicted == pytest.approx(
            best
        )


def test_documents_are_scored_separately_and_added_up():
    gold, predicted = zip(*random_pairs(3, count=5), strict=True)
    total = score_coreference(gold, predicted)
    parts = [score_coreference([a], [b]) for a, b in zip(gold, predicted, strict=True)]
    for name in ("muc", "ceaf"):
        assert total[name] == sum((part[name] for part in parts), PrecisionRecall())


def test_a_document_without_clusters_is_scored():
    score = score_coreference([[], [["a", "b"]]], [[["a"]], []])
    assert average_f1(score) == 0
    assert (score["ceaf"].predicted, score["ceaf"].gold) == (1, 1)


def test_a_mention_in_two_clusters_is_refused():
    with pytest.raises(InputError, match="mention b is in two clusters"):
        score_coreference([["ab", "bc"]], [["ab"]])


SENTENCES = (("Dr", "Ann", "Lee", "met", "Bo", "."), ("She", "left", "."))
SHE, ANN_LEE, BO = (6, 6), (1, 2), (4, 4)
ANN = GapExample("1", SENTENCES, SHE, ANN_LEE, BO, True, False, "She")
HE = GapExample(
    "2", (SENTENCES[0], ("truth--he", "left", ".")), SHE, ANN_LEE, BO, False, True, "he"
)


@pytest.mark.parametrize(
    ("clusters", "precision_and_recall"),
    [
        ([[SHE, ANN_LEE], [BO]], (1, 1)),
        ([[SHE, (0, 2)]], (1, 1)),  # with her title
        ([[SHE, (1, 1)]], (0, 0)),  # half of her name
        ([[SHE, (1, 4)]], (0, 0)),  # ends with another's
        ([[SHE, ANN_LEE, BO]], (0.5, 1)),
        ([[SHE, BO]], (0, 0)),
        ([[(5, 6), ANN_LEE]], (0, 0)),  # not the pronoun
        ([], (0, 0)),
    ],
)
def test_a_pronoun_refers_to_names_that_mentions_of_its_cluster_end_with(
    clusters, precision_and_recall
):
    score = score_gap([ANN], [clusters])["feminine"]
    assert (score.precision, score.recall) == precision_and_recall


def test_genders_are_counted_separately():
    scores = gap_f1(score_gap([ANN, HE, HE], [[[SHE, ANN_LEE]], [[SHE, BO]], []]))
    two_thirds = pytest.approx(2 / 3)
    assert scores["feminine"] == 1
    assert scores["masculine"] == two_thirds
    assert scores["bias"] == pytest.approx(1.5)
    assert (scores["precision"], scores["recall"], scores["f1"]) == (
        1,
        two_thirds,
        pytest.approx(0.8),
    )
    assert "bias" not in gap_f1(score_gap([ANN], [[[SHE, ANN_LEE]]]))  # there are no men
    assert "bias" not in gap_f1(score_gap([ANN, HE], [[[SHE, ANN_LEE]], []]))


@pytest.mark.parametrize(
    ("text", "mention", "is_ann"),
    [
        ("Ann Lee 's cat slept .", (0, 2), True),
        ("The mother of Ann Lee slept .", (0, 4), False),
        ("Bo and Ann Lee slept .", (0, 3), False),
        ("Bo 's Ann Lee slept .", (0, 3), False),
        ("Professor Doctor Ann Lee slept .", (0, 3), True),
        ("His wife , the singer Ann Lee , slept .", (3, 6), True),
        ("Everyone but Ann Lee slept .", (0, 3), False),
        ("The man with Ann Lee slept .", (0, 4), False),
        ("The man who met Ann Lee slept .", (0, 5), False),
        ("Ann Lee 's cat slept .", (0, 3), False),
    ],
)
def test_only_titles_may_precede_a_name(text, mention, is_ann):
    words = text.split()
    at = words.index("Ann")
    she = len(words), len(words)
    example = GapExample("3", (tuple(words), ("She",)), she, (at, at + 1), she, True, False, "She")
    assert score_gap([example], [[[mention, she]]])["feminine"].correct_gold == is_ann


def test_a_pronoun_within_its_names_word_does_not_count():
    shared_word = (2, 2)
    example = GapExample(
        "4", (("Bo", "left", "Ann--she"),), shared_word, shared_word, (0, 0), True, False, "she"
    )
    score = score_gap([example], [[[shared_word, (0, 0)]]])["feminine"]
    assert (score.predicted, score.correct_gold) == (1, 0)


def test_every_text_needs_a_prediction():
    with pytest.raises(InputError):
        score_gap([ANN, HE], [[]])


def test_a_pronoun_in_two_clusters_is_refused():
    with pytest.raises(InputError, match=r"mention \(6, 6\) is in two clusters, expected one"):
        score_gap([ANN], [[[SHE, BO], [SHE, ANN_LEE]]])
