"""Clusters of mentions become MUC, B³, CEAF-φ4 and the mean of their F1, as CoNLL-2012 scores.

As the reference scorer has it (Pradhan et al., 2014), mentions that only one side has are counted,
not made up on the other; so are clusters of one mention, where a side has them. Documents add up.
"""

from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from elmokit.errors import InputError
from elmokit.tasks.metrics.accuracy import check_lengths
from elmokit.tasks.metrics.assignment import assign
from elmokit.tasks.metrics.score import Score

Clusters: TypeAlias = Sequence[Collection[Hashable]]  # of the mentions of one document


@dataclass(frozen=True, slots=True)
class CoreferenceScore:
    """The three scores of CoNLL-2012, and that of the mentions by themselves."""

    muc: Score
    b_cubed: Score
    ceaf: Score
    mentions: Score

    @property
    def average_f1(self) -> float:
        """The mean of the three F1: what CoNLL-2012 ranks by."""
        return (self.muc.f1 + self.b_cubed.f1 + self.ceaf.f1) / 3


def score_coreference(gold: Sequence[Clusters], predicted: Sequence[Clusters]) -> CoreferenceScore:
    """How well the clusters of documents agree."""
    check_lengths(gold, predicted)
    pairs = [*zip(map(_sets, gold), map(_sets, predicted), strict=True)]
    return CoreferenceScore(
        *(
            sum((score(ours, theirs) for ours, theirs in pairs), Score())
            for score in (_muc, _b_cubed, _ceaf, _mentions)
        )
    )


def _muc(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> Score:
    """Links: a cluster of n mentions has n - 1, and loses one for each part it is broken into."""
    return Score(*_links(predicted, gold), *_links(gold, predicted))


def _links(clusters: list[set[Hashable]], others: list[set[Hashable]]) -> tuple[int, int]:
    home = _homes(others)
    right = wanted = 0
    for cluster in clusters:
        parts = {home[mention] for mention in cluster if mention in home}
        alone = sum(mention not in home for mention in cluster)
        right += len(cluster) - len(parts) - alone
        wanted += len(cluster) - 1
    return right, wanted


def _b_cubed(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> Score:
    """For each mention, the share of its cluster that its cluster on the other side has too."""
    return Score(*_shares(predicted, gold), *_shares(gold, predicted))


def _shares(clusters: list[set[Hashable]], others: list[set[Hashable]]) -> tuple[float, int]:
    home = _homes(others)
    right, mentions = 0.0, 0
    for cluster in clusters:
        mentions += len(cluster)
        for place in {home[mention] for mention in cluster if mention in home}:
            right += len(cluster & others[place]) ** 2 / len(cluster)
    return right, mentions


def _ceaf(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> Score:
    """The likeness φ4 of clusters, each paired with one of the other side, as well as can be."""
    likeness = np.zeros((len(gold), len(predicted)))
    home = _homes(predicted)
    for row, cluster in enumerate(gold):
        for column in {home[mention] for mention in cluster if mention in home}:
            other = predicted[column]
            likeness[row, column] = 2 * len(cluster & other) / (len(cluster) + len(other))
    rows, columns = assign(-likeness)
    best = float(likeness[rows, columns].sum())
    return Score(best, len(predicted), best, len(gold))


def _mentions(gold: list[set[Hashable]], predicted: list[set[Hashable]]) -> Score:
    wanted, found = set().union(*gold), set().union(*predicted)
    right = len(wanted & found)
    return Score(right, len(found), right, len(wanted))


def _sets(clusters: Iterable[Collection[Hashable]]) -> list[set[Hashable]]:
    """The clusters as sets, refused where a mention is in two of them."""
    sets = [{*cluster} for cluster in clusters if cluster]
    seen: set[Hashable] = set()
    for cluster in sets:
        if twice := seen & cluster:
            raise InputError(f"mention {next(iter(twice))} is in two clusters, expected one")
        seen |= cluster
    return sets


def _homes(clusters: list[set[Hashable]]) -> dict[Hashable, int]:
    """The place of each mention's cluster."""
    return {mention: place for place, cluster in enumerate(clusters) for mention in cluster}
