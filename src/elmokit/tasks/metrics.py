"""Metrics of the tasks, each counted as its field's own script counts it.

Precision, recall and F1 of labels, spans (conlleval), answers (SQuAD), coreference clusters
(CoNLL-2012: MUC, B³, CEAF) and ambiguous pronouns (GAP), and accuracy.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.tasks.datasets.example_records import GapExample
from elmokit.tasks.datasets.schemes import spans_of

Clusters: TypeAlias = Sequence[Collection[Hashable]]  # of the mentions of one document
Mention: TypeAlias = tuple[int, int]  # first and last word
MentionClusters: TypeAlias = Sequence[Collection[Mention]]

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

    def __add__(self, other: "PrecisionRecall") -> "PrecisionRecall":
        return PrecisionRecall(
            self.correct_predicted + other.correct_predicted,
            self.predicted + other.predicted,
            self.correct_gold + other.correct_gold,
            self.gold + other.gold,
        )


def accuracy(gold: Sequence[Hashable], predicted: Sequence[Hashable]) -> float:
    """The share of predictions that equal the gold."""
    check_lengths(gold, predicted)
    return sum(a == b for a, b in zip(gold, predicted, strict=True)) / len(gold)


def score_labels(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, PrecisionRecall]:
    """The score of each label, by name."""
    check_lengths(gold, predicted)
    in_gold, in_predicted = Counter(gold), Counter(predicted)
    correct = Counter(a for a, b in zip(gold, predicted, strict=True) if a == b)
    return _by_label(correct, in_predicted, in_gold)


@dataclass(frozen=True, slots=True)
class SpanScore:
    """The score of all spans together, and of each label by itself, by name."""

    all: PrecisionRecall
    labels: dict[str, PrecisionRecall]


def score_spans(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    without: Collection[str] = (),
) -> SpanScore:
    """How well the tags of sentences agree: a span is correct with the same words and label.

    Both sides may be in any tagging scheme; tags that no scheme would write are read as conlleval
    reads them (`spans_of`). Labels in `without` do not count, such as the V of semantic roles.
    """
    check_lengths(gold, predicted)
    correct: Counter[str] = Counter()
    in_predicted: Counter[str] = Counter()
    in_gold: Counter[str] = Counter()
    for number, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        if len(ours) != len(theirs):
            raise InputError(
                f"sentence {number} has {len(theirs)} predicted tags, expected {len(ours)}"
            )
        gold_spans, predicted_spans = {*spans_of(ours)}, {*spans_of(theirs)}
        in_gold.update(span.label for span in gold_spans)
        in_predicted.update(span.label for span in predicted_spans)
        correct.update(span.label for span in gold_spans & predicted_spans)
    labels = _by_label(correct, in_predicted, in_gold, without=without)
    return SpanScore(sum(labels.values(), PrecisionRecall()), labels)


@dataclass(frozen=True, slots=True)
class AnswerScore:
    """Means over questions, from 0 to 1."""

    exact: float
    f1: float


def score_answers(gold: Sequence[Sequence[str]], predicted: Sequence[str]) -> AnswerScore:
    """How well answers agree with the best of each question's gold answers."""
    check_lengths(gold, predicted)
    if not all(gold):
        raise InputError(f"question {[*map(bool, gold)].index(False)} has no gold answer")
    return AnswerScore(
        _mean_of_best(gold, predicted, exact_match), _mean_of_best(gold, predicted, answer_f1)
    )


def exact_match(gold: str, predicted: str) -> float:
    """1 if two answers are the same apart from case, punctuation, articles and spaces."""
    return float(normalize_answer(gold) == normalize_answer(predicted))


def answer_f1(gold: str, predicted: str) -> float:
    """The F1 of the words of an answer."""
    ours, theirs = normalize_answer(gold).split(), normalize_answer(predicted).split()
    correct = sum((Counter(ours) & Counter(theirs)).values())
    return PrecisionRecall(correct, len(theirs), correct, len(ours)).f1


def normalize_answer(answer: str) -> str:
    """An answer in lower case, without ASCII punctuation and articles, single spaces between."""
    words = answer.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLE.sub(" ", words).split())


@dataclass(frozen=True, slots=True)
class CoreferenceScore:
    """The three scores of CoNLL-2012, and that of the mentions by themselves."""

    muc: PrecisionRecall
    b_cubed: PrecisionRecall
    ceaf: PrecisionRecall
    mentions: PrecisionRecall

    @property
    def average_f1(self) -> float:
        """The mean of the three F1, by which CoNLL-2012 ranks."""
        return (self.muc.f1 + self.b_cubed.f1 + self.ceaf.f1) / 3


def score_coreference(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> CoreferenceScore:
    """How well the clusters of documents agree.

    As in the reference scorer (Pradhan et al., 2014), mentions that only one side has are counted,
    not added to the other; so are clusters of one mention. The counts of documents add up.
    """
    check_lengths(gold, predicted)
    pairs = [*zip(map(_cluster_sets, gold), map(_cluster_sets, predicted), strict=True)]
    return CoreferenceScore(
        *(
            sum((metric(ours, theirs) for ours, theirs in pairs), PrecisionRecall())
            for metric in (_muc, _b_cubed, _ceaf, _mentions)
        )
    )


@dataclass(frozen=True, slots=True)
class GapScore:
    """Scores on GAP, for feminine and masculine pronouns apart."""

    feminine: PrecisionRecall
    masculine: PrecisionRecall

    @property
    def by_name(self) -> Mapping[str, float]:
        """Each score by its name.

        `bias` is the feminine F1 divided by the masculine; it is missing without feminine pronouns
        or if the masculine F1 is 0.
        """
        every = self.feminine + self.masculine
        scores = {"f1": every.f1, "precision": every.precision, "recall": every.recall}
        scores |= {"feminine": self.feminine.f1, "masculine": self.masculine.f1}
        if self.feminine.gold and self.masculine.f1:
            scores["bias"] = self.feminine.f1 / self.masculine.f1
        return scores


def score_gap(examples: Sequence[GapExample], predicted: Sequence[MentionClusters]) -> GapScore:
    """How well the clusters of each text tell which of two names its pronoun refers to.

    It refers to a name if its cluster has a mention that ends with the name: "the singer Ann Lee"
    and "Ann Lee's" are Ann Lee, but "the man with Ann Lee", "Bo and Ann Lee" and "Bo 's Ann Lee"
    are not.
    """
    check_lengths(examples, predicted)
    feminine, masculine = PrecisionRecall(), PrecisionRecall()
    for example, clusters in zip(examples, predicted, strict=True):
        words = [word.lower() for sentence in example.sentences for word in sentence]
        mentions = _cluster_of(example.pronoun, clusters)
        for name, is_gold in ((example.a, example.is_a), (example.b, example.is_b)):
            is_predicted = any(
                _refers_to_name(mention, name, words)
                for mention in mentions
                if mention != example.pronoun  # they may share a word: Ann--she
            )
            correct = is_predicted and is_gold
            score = PrecisionRecall(correct, is_predicted, correct, is_gold)
            if example.pronoun_text.lower() in _FEMININE:
                feminine += score
            else:
                masculine += score
    return GapScore(feminine, masculine)


def check_lengths(gold: Sized, predicted: Sized) -> None:
    """Refuse predictions whose number differs from that of the gold, or is 0."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} of gold, expected as many")
    if len(gold) == 0:  # an array has no truth value
        raise InputError("nothing to measure, expected one prediction or more")


def _by_label(
    correct: Mapping[str, int],
    predicted: Mapping[str, int],
    gold: Mapping[str, int],
    *,
    without: Collection[str] = (),
) -> dict[str, PrecisionRecall]:
    return {
        label: PrecisionRecall(
            correct.get(label, 0), predicted.get(label, 0), correct.get(label, 0),
            gold.get(label, 0),
        )
        for label in sorted({*gold, *predicted} - {*without})
    }  # fmt: skip


def _mean_of_best(
    gold: Sequence[Sequence[str]], predicted: Sequence[str], metric: Callable[[str, str], float]
) -> float:
    best = [
        max(metric(answer, prediction) for answer in answers)
        for answers, prediction in zip(gold, predicted, strict=True)
    ]
    return sum(best) / len(best)


def _muc(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> PrecisionRecall:
    """Links: a cluster of n mentions has n - 1, and loses one for each part it is broken into."""
    return PrecisionRecall(*_links(predicted, gold), *_links(gold, predicted))


def _links(clusters: list[set[Hashable]], others: list[set[Hashable]]) -> tuple[int, int]:
    cluster_of = _cluster_by_mention(others)
    correct = total = 0
    for cluster in clusters:
        parts = {cluster_of[mention] for mention in cluster if mention in cluster_of}
        missing = sum(mention not in cluster_of for mention in cluster)
        correct += len(cluster) - len(parts) - missing
        total += len(cluster) - 1
    return correct, total


def _b_cubed(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> PrecisionRecall:
    """For each mention, the share of its cluster that its cluster on the other side has too."""
    return PrecisionRecall(*_shared(predicted, gold), *_shared(gold, predicted))


def _shared(clusters: list[set[Hashable]], others: list[set[Hashable]]) -> tuple[float, int]:
    cluster_of = _cluster_by_mention(others)
    shared, mentions = 0.0, 0
    for cluster in clusters:
        mentions += len(cluster)
        for other in {cluster_of[mention] for mention in cluster if mention in cluster_of}:
            shared += len(cluster & others[other]) ** 2 / len(cluster)
    return shared, mentions


def _ceaf(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> PrecisionRecall:
    """The similarity φ4 of clusters under the best one-to-one assignment of both sides."""
    similarity = np.zeros((len(gold), len(predicted)))
    cluster_of = _cluster_by_mention(predicted)
    for row, cluster in enumerate(gold):
        for column in {cluster_of[mention] for mention in cluster if mention in cluster_of}:
            other = predicted[column]
            similarity[row, column] = 2 * len(cluster & other) / (len(cluster) + len(other))
    best = _best_assignment(similarity)
    return PrecisionRecall(best, len(predicted), best, len(gold))


def _best_assignment(similarity: npt.NDArray[np.float64]) -> float:
    """The largest sum of similarities, with at most one of each row and column."""
    try:
        from scipy.optimize import linear_sum_assignment  # noqa: PLC0415  (only coreference)
    except ImportError:
        raise InputError("scoring coreference needs SciPy: pip install 'elmokit[tasks]'") from None
    rows, columns = linear_sum_assignment(similarity, maximize=True)
    return float(similarity[rows, columns].sum())


def _mentions(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> PrecisionRecall:
    ours, theirs = set().union(*gold), set().union(*predicted)
    correct = len(ours & theirs)
    return PrecisionRecall(correct, len(theirs), correct, len(ours))


def _cluster_sets(clusters: Iterable[Collection[Hashable]]) -> list[set[Hashable]]:
    """The clusters as sets; an error if a mention is in two of them."""
    sets = [{*cluster} for cluster in clusters if cluster]
    seen: set[Hashable] = set()
    for cluster in sets:
        if twice := seen & cluster:
            raise InputError(f"mention {next(iter(twice))} is in two clusters, expected one")
        seen |= cluster
    return sets


def _cluster_by_mention(clusters: list[set[Hashable]]) -> dict[Hashable, int]:
    return {mention: number for number, cluster in enumerate(clusters) for mention in cluster}


def _cluster_of(pronoun: Mention, clusters: MentionClusters) -> Collection[Mention]:
    own = [cluster for cluster in clusters if pronoun in cluster]
    if len(own) > 1:
        raise InputError(f"mention {pronoun} is in two clusters, expected one")
    return own[0] if own else ()


def _refers_to_name(mention: Mention, name: Mention, words: Sequence[str]) -> bool:
    """Whether a mention ends with a name and refers to its bearer."""
    first, last = mention
    if words[last] in _POSSESSIVE:
        last -= 1
    before_name = words[first : name[0]]
    return first <= name[0] and last == name[1] and _OTHER_PERSON.isdisjoint(before_name)
