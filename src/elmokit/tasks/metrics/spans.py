"""Tags become the precision, recall and F1 of their spans, as conlleval counts them."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from elmokit.errors import InputError
from elmokit.tasks.data.schemes import spans_of
from elmokit.tasks.metrics.accuracy import check_lengths
from elmokit.tasks.metrics.score import Score


@dataclass(frozen=True, slots=True)
class SpanScore:
    """The score of all spans together, and of each label by itself, by name."""

    all: Score
    labels: dict[str, Score]


def score_spans(
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    *,
    without: Collection[str] = (),
) -> SpanScore:
    """How well the tags of sentences agree: a span is right that has its words and its label.

    The scheme of either does not matter, and what no scheme would write is read as conlleval reads
    it (`spans_of`). Labels in `without` do not count, such as the V of semantic roles.
    """
    check_lengths(gold, predicted)
    right: Counter[str] = Counter()
    found: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for place, (ours, theirs) in enumerate(zip(gold, predicted, strict=True)):
        if len(ours) != len(theirs):
            raise InputError(
                f"sentence {place} has {len(theirs)} predicted tags, expected {len(ours)}"
            )
        there, said = {*spans_of(ours)}, {*spans_of(theirs)}
        wanted.update(span.label for span in there)
        found.update(span.label for span in said)
        right.update(span.label for span in there & said)
    labels = {
        label: Score(right[label], found[label], right[label], wanted[label])
        for label in sorted({*wanted, *found} - {*without})
    }
    return SpanScore(sum(labels.values(), Score()), labels)
