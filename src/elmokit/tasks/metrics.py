"""Metrics of the tasks, each counted as its field's own script counts it.

Precision, recall and F1 of labels, spans (conlleval), answers (SQuAD), coreference clusters
(CoNLL-2012: MUC, B³, CEAF) and ambiguous pronouns (GAP), and accuracy.
"""

import re
import string
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence, Sized
from dataclasses import astuple, dataclass
from typing import TypeAlias, TypeVar

import numpy as np

from elmokit.errors import InputError, needs_extra
from elmokit.tasks.datasets.example_records import GapExample
from elmokit.tasks.datasets.schemes import spans_of

Clusters: TypeAlias = Sequence[Collection[Hashable]]  # of the mentions of one document
Scores: TypeAlias = "dict[str, PrecisionRecall]"  # by name
Mention: TypeAlias = tuple[int, int]  # first and last word
MentionClusters: TypeAlias = Sequence[Collection[Mention]]
Member = TypeVar("Member", bound=Hashable)

_ARTICLE = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_FEMININE = frozenset(["she", "her", "hers", "herself"])
_POSSESSIVE = frozenset(["'s", "’s", "'", "’"])
# Words that, before a name, show that the mention is of someone else.
_OTHER_PERSON = _POSSESSIVE | {
    "about", "after", "against", "alongside", "and", "as", "at", "before", "behind", "beside",
    "besides", "but", "by", "except", "for", "from", "in", "including", "into", "like", "near",
    "not", "of", "on", "or", "over", "plus", "than", "that", "through", "to", "under", "versus",
    "when", "where", "which", "while", "who", "whom", "whose", "with", "without", ",",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrecisionRecall:
    """Counts behind precision, recall and F1; those of parts of a data set add up.

    Precision and recall have numerators of their own, as coreference metrics count them apart.
    """

    correct_predicted: float = 0
    predicted: float = 0
    correct_gold: float = 0
    gold: float = 0

    @property
    def precision(self) -> float:
        """The share of the predicted that is correct; 0 if nothing was predicted."""
        return self.correct_predicted / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """The share of the gold that was found; 0 if there is none."""
        return self.correct_gold / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if both are."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0

    @classmethod
    def of(cls, correct: float, predicted: float, gold: float) -> "PrecisionRecall":
        """The counts where precision and recall have the same numerator."""
        return cls(correct, predicted, correct, gold)

    def __add__(self, other: "PrecisionRecall") -> "PrecisionRecall":
        pairs = zip(astuple(self), astuple(other), strict=True)
        return PrecisionRecall(*(ours + theirs for ours, theirs in pairs))


def precision_recall_f1(scores: Iterable[PrecisionRecall]) -> dict[str, float]:
    """F1, precision and recall of all counts together (micro-averaged)."""
    every = sum(scores, PrecisionRecall())
    return {"f1": every.f1, "precision": every.precision, "recall": every.recall}


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The share of predictions that equal the gold."""
    check_lengths(gold, predicted)
    return sum(a == b for a, b in zip(gold, predicted, strict=True)) / len(gold)


def score_labels(gold: Sequence[str], predicted: Sequence[str]) -> Scores:
    """The score of each label."""
    check_lengths(gold, predicted)
    correct = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    return _by_label(correct, Counter(predicted), Counter(gold))


def score_spans(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    without: Collection[str] = (),
) -> Scores:
    """For each label, how well the spans of tags agree: the same words, the same label.

    Both sides may be in any tagging scheme; tags that no scheme would write are read as conlleval
    reads them (`spans_of`). Labels in `without` do not count, such as the V of semantic roles.
    """
    check_lengths(gold, predicted)
    correct, in_predicted, in_gold = Counter[str](), Counter[str](), Counter[str]()
    for number, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        if len(ours) != len(theirs):
            raise InputError(
                f"sentence {number} has {len(theirs)} predicted tags, expected {len(ours)}"
            )
        gold_spans, predicted_spans = {*spans_of(ours)}, {*spans_of(theirs)}
        in_gold.update(span.label for span in gold_spans)
        in_predicted.update(span.label for span in predicted_spans)
        correct.update(span.label for span in gold_spans & predicted_spans)
    scores = _by_label(correct, in_predicted, in_gold)
    return {label: score for label, score in scores.items() if label not in without}


def score_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> dict[str, float]:
    """Means over questions of F1 and exact match with the best of each question's gold answers."""
    check_lengths(gold, predicted)
    if not all(gold):
        raise InputError(f"question {[*map(bool, gold)].index(False)} has no gold answer")
    scores = {}
    for name, metric in (("f1", answer_f1), ("exact", exact_match)):
        pairs = zip(gold, predicted, strict=True)
        best = [max(metric(answer, prediction) for answer in own) for own, prediction in pairs]
        scores[name] = sum(best) / len(best)
    return scores


def exact_match(gold: str, predicted: str) -> float:
    """1 if two answers are the same apart from case, punctuation, articles and spaces."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def answer_f1(gold: str, predicted: str) -> float:
    """The F1 of the words of an answer."""
    ours, theirs = normalize_answer(gold).split(), normalize_answer(predicted).split()
    correct = sum((Counter(ours) & Counter(theirs)).values())
    return PrecisionRecall.of(correct, len(theirs), len(ours)).f1


def normalize_answer(answer: str) -> str:
    """An answer in lower case, without ASCII punctuation and articles, single spaces between."""
    words = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", words).split())


def score_coreference(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> Scores:
    """How well the clusters of documents agree: muc, b_cubed, ceaf, and the mentions alone.

    As in the reference scorer (Pradhan et al., 2014), mentions that only one side has are counted,
    not added to the other; so are clusters of one mention. The counts of documents add up.
    """
    check_lengths(gold, predicted)
    totals = dict.fromkeys(("muc", "b_cubed", "ceaf", "mentions"), PrecisionRecall())
    for ours, theirs in zip(map(_cluster_sets, gold), map(_cluster_sets, predicted), strict=True):
        for name, score in _score_document(ours, theirs).items():
            totals[name] += score
    return totals


def average_f1(scores: Scores) -> float:
    """The mean of the F1 of MUC, B³ and CEAF, by which CoNLL-2012 ranks."""
    return (scores["muc"].f1 + scores["b_cubed"].f1 + scores["ceaf"].f1) / 3


def score_gap(examples: Sequence[GapExample], predicted: Sequence[MentionClusters]) -> Scores:
    """How well the clusters of each text tell which of two names its pronoun refers to.

    Feminine and masculine pronouns are counted apart. A pronoun refers to a name if its cluster has
    a mention that ends with the name: "the singer Ann Lee" and "Ann Lee's" are Ann Lee, but "the
    man with Ann Lee", "Bo and Ann Lee" and "Bo 's Ann Lee" are not.
    """
    check_lengths(examples, predicted)
    scores = dict.fromkeys(("feminine", "masculine"), PrecisionRecall())
    for example, clusters in zip(examples, predicted, strict=True):
        words = [word.lower() for sentence in example.sentences for word in sentence]
        own = [c for c in _cluster_sets(clusters) if example.pronoun in c]
        mentions = own[0] if own else set[Mention]()
        gender = "feminine" if example.pronoun_text.lower() in _FEMININE else "masculine"
        for name, is_gold in ((example.a, example.is_a), (example.b, example.is_b)):
            is_predicted = any(
                _refers_to_name(mention, name, words)
                for mention in mentions
                if mention != example.pronoun  # they may share a word: Ann--she
            )
            scores[gender] += PrecisionRecall.of(is_predicted and is_gold, is_predicted, is_gold)
    return scores


def gap_f1(scores: Scores) -> dict[str, float]:
    """F1, precision and recall of all pronouns, the F1 of each gender, and the bias.

    `bias` is the feminine F1 divided by the masculine; it is missing without feminine pronouns or
    if the masculine F1 is 0.
    """
    values = precision_recall_f1(scores.values())
    values |= {gender: score.f1 for gender, score in scores.items()}
    if scores["feminine"].gold and values["masculine"]:
        values["bias"] = values["feminine"] / values["masculine"]
    return values


def check_lengths(gold: Sized, predicted: Sized) -> None:
    """Refuse predictions whose number differs from that of the gold, or is 0."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} of gold, expected as many")
    if len(gold) == 0:  # an array has no truth value
        raise InputError("nothing to measure, expected one prediction or more")


def _by_label(correct: Counter[str], predicted: Counter[str], gold: Counter[str]) -> Scores:
    return {
        label: PrecisionRecall.of(correct[label], predicted[label], gold[label])
        for label in sorted({*gold, *predicted})
    }


def _score_document(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> Scores:
    with needs_extra("scoring coreference needs SciPy", "tasks"):
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (only coreference)
    column_of = {mention: n for n, cluster in enumerate(predicted) for mention in cluster}
    shared = np.zeros((len(gold), len(predicted)))  # mentions that two clusters have in common
    for row, cluster in enumerate(gold):
        for column in (column_of[mention] for mention in cluster if mention in column_of):
            shared[row, column] += 1
    gold_sizes = np.array([*map(len, gold)], np.float64)
    predicted_sizes = np.array([*map(len, predicted)], np.float64)
    # MUC: a cluster of n mentions has n - 1 links, and loses one for each part it is broken into.
    sums = shared.sum(), gold_sizes.sum(), predicted_sizes.sum()
    links, in_gold, in_predicted = map(float, sums)
    # CEAF: the similarity φ4 of clusters under the best one-to-one assignment of both sides.
    similarity = 2 * shared / (gold_sizes[:, None] + predicted_sizes)
    assigned = float(similarity[linear_sum_assignment(similarity, maximize=True)].sum())
    parts = np.count_nonzero(shared)
    return {
        "muc": PrecisionRecall.of(
            links - parts, in_predicted - len(predicted), in_gold - len(gold)
        ),
        # For each mention, the share of its cluster that its cluster on the other side has too.
        "b_cubed": PrecisionRecall(
            float((shared**2 / predicted_sizes).sum()), in_predicted,
            float((shared**2 / gold_sizes[:, None]).sum()), in_gold,
        ),
        "ceaf": PrecisionRecall.of(assigned, len(predicted), len(gold)),
        "mentions": PrecisionRecall.of(links, in_predicted, in_gold),
    }  # fmt: skip


def _cluster_sets(clusters: Iterable[Collection[Member]]) -> list[set[Member]]:
    """The clusters as sets; an error if a mention is in two of them."""
    sets = [{*cluster} for cluster in clusters if cluster]
    seen: set[Member] = set()
    for cluster in sets:
        if twice := seen & cluster:
            raise InputError(f"mention {next(iter(twice))} is in two clusters, expected one")
        seen |= cluster
    return sets


def _refers_to_name(mention: Mention, name: Mention, words: Sequence[str]) -> bool:
    """Whether a mention ends with a name and refers to its bearer."""
    first, last = mention
    if words[last] in _POSSESSIVE:
        last -= 1
    before_name = words[first : name[0]]
    return first <= name[0] and last == name[1] and _OTHER_PERSON.isdisjoint(before_name)
