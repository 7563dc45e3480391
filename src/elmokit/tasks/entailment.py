"""Two sentences become how the second stands to the first: follows, contradicts, neither."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.tasks.context import Context, drop, masked_max, masked_mean
from elmokit.tasks.data.example import Pair
from elmokit.tasks.task import Head
from elmokit.tasks.words import Sentence, WordVectors


class Entailment(Head):
    """ESIM (Chen et al. 2017): each word beside the words of the other sentence that it finds."""

    def __init__(self, words: WordVectors, labels: Sequence[str]) -> None:
        super().__init__()
        settings = words.settings
        self.words, self.labels = words, list(labels)
        self.context = Context(words.dim, settings.hidden, depth=settings.depth)
        said = self.context.dim + words.output_dim
        self.compare = nn.Sequential(nn.Linear(4 * said, settings.hidden), nn.ReLU())
        self.compose = Context(settings.hidden, settings.hidden, depth=settings.depth)
        self.judge = nn.Sequential(
            nn.Dropout(settings.dropout),
            nn.Linear(4 * self.compose.dim, settings.hidden),
            nn.Tanh(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, len(self.labels)),
        )
        self._ids = {label: place for place, label in enumerate(self.labels)}

    def loss(self, examples: Sequence[Pair]) -> Tensor:
        """The mean loss of a pair."""
        scores = self._scores(examples)
        labels = torch.tensor([self._ids[e.label] for e in examples], device=scores.device)
        return F.cross_entropy(scores, labels)

    def answer(self, examples: Sequence[Pair]) -> list[str]:
        """The label of each pair; those that the examples have are not looked at."""
        return [self.labels[place] for place in self._scores(examples).argmax(1).tolist()]

    def _scores(self, examples: Sequence[Pair]) -> Tensor:  # (pairs, labels)
        first: list[Sentence] = [example.first for example in examples]
        second: list[Sentence] = [example.second for example in examples]
        reads = self.words(first), self.words(second)
        said = [
            self.words.compared(self.context(read.vectors, read.mask), read, 0.0)[0]
            for read in reads
        ]
        found = _aligned(said[0], reads[0].mask, said[1], reads[1].mask)
        pooled = []
        for own, other, read in zip(said, found, reads, strict=True):
            compared = self.compare(torch.cat([own, other, own - other, own * other], -1))
            compared = drop(compared, self.words.settings.dropout, self.training)
            composed = self.compose(compared, read.mask)
            pooled += [masked_mean(composed, read.mask), masked_max(composed, read.mask)]
        scores: Tensor = self.judge(torch.cat(pooled, -1))
        return scores


def _aligned(
    first: Tensor, first_mask: Tensor, second: Tensor, second_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """For each word of each sentence, the words of the other, weighted by how alike they are."""
    alike = first @ second.transpose(1, 2) / first.shape[2] ** 0.5  # (pairs, first, second steps)
    to_second = alike.masked_fill(~second_mask[:, None], -torch.inf).softmax(2)
    to_first = alike.masked_fill(~first_mask[:, :, None], -torch.inf).softmax(1)
    return to_second @ second, to_first.transpose(1, 2) @ first
