"""Texts become labels: sentiment, topics."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.tasks.context import Context, masked_max, masked_mean
from elmokit.tasks.data.example import Labelled
from elmokit.tasks.task import Head
from elmokit.tasks.words import WordVectors


class Classifier(Head):
    """A bidirectional LSTM, attention, and what stands out of all words, pooled and judged."""

    def __init__(self, words: WordVectors, labels: Sequence[str]) -> None:
        super().__init__()
        settings = words.settings
        self.words, self.labels = words, list(labels)
        self.context = Context(
            words.dim, settings.hidden, depth=settings.depth, dropout=settings.dropout
        )
        said = self.context.dim + words.output_dim
        self.attend = nn.Linear(said, 1)
        self.judge = nn.Sequential(
            nn.Linear(3 * said, settings.hidden),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, len(self.labels)),
        )
        self._ids = {label: place for place, label in enumerate(self.labels)}

    def loss(self, examples: Sequence[Labelled]) -> Tensor:
        """The mean loss of a text."""
        scores = self._scores(examples)
        labels = torch.tensor([self._ids[e.label] for e in examples], device=scores.device)
        return F.cross_entropy(scores, labels)

    def answer(self, examples: Sequence[Labelled]) -> list[str]:
        """The label of each text; those that the examples have are not looked at."""
        return [self.labels[place] for place in self._scores(examples).argmax(1).tolist()]

    def _scores(self, examples: Sequence[Labelled]) -> Tensor:  # (texts, labels)
        read = self.words([example.words for example in examples])
        said = self.words.at_output(self.context(read.vectors, read.mask), read)
        attention = self.attend(said).masked_fill(~read.mask[..., None], -torch.inf).softmax(1)
        pooled = [
            (attention * said).sum(1),
            masked_max(said, read.mask),
            masked_mean(said, read.mask),
        ]
        scores: Tensor = self.judge(torch.cat(pooled, 1))
        return scores
