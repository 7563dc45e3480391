"""Texts become labels: sentiment, topics."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.tasks.context import Context, masked_max, masked_mean
from elmokit.tasks.data.example import Labelled
from elmokit.tasks.task import Head
from elmokit.tasks.words import WordVectors

_PHRASES = 8  # of several words, of a text, that an update learns from, by chance


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
        """The mean loss of a text, and that of a phrase where phrases have labels too."""
        said, mask = self._read(examples)
        loss = self._loss_of(self._scores(said, mask), [e.label for e in examples])
        phrases = [(row, *phrase) for row, e in enumerate(examples) for phrase in _drawn(e)]
        if not phrases:
            return loss
        rows, firsts, lasts, labels = zip(*phrases, strict=True)
        place = torch.arange(mask.shape[1], device=mask.device)
        first, last = (torch.tensor(side, device=mask.device)[:, None] for side in (firsts, lasts))
        inside = (first <= place) & (place <= last)
        return loss + self._loss_of(self._scores(said[list(rows)], inside), labels)

    def answer(self, examples: Sequence[Labelled]) -> list[str]:
        """The label of each text; those that the examples have are not looked at."""
        best = self._scores(*self._read(examples)).argmax(1)
        return [self.labels[place] for place in best.tolist()]

    def _read(self, examples: Sequence[Labelled]) -> tuple[Tensor, Tensor]:
        """What is said of each word, (texts, steps, dim), and where words stand."""
        read = self.words([example.words for example in examples])
        return self.words.at_output(self.context(read.vectors, read.mask), read), read.mask

    def _scores(self, said: Tensor, mask: Tensor) -> Tensor:  # (texts, labels)
        attention = self.attend(said).masked_fill(~mask[..., None], -torch.inf).softmax(1)
        pooled = [(attention * said).sum(1), masked_max(said, mask), masked_mean(said, mask)]
        scores: Tensor = self.judge(torch.cat(pooled, 1))
        return scores

    def _loss_of(self, scores: Tensor, labels: Sequence[str]) -> Tensor:
        wanted = torch.tensor([self._ids[label] for label in labels], device=scores.device)
        return F.cross_entropy(scores, wanted)


def _drawn(example: Labelled) -> list[tuple[int, int, str]]:
    """Some of the phrases of several words: most single ones are neutral."""
    several = [phrase for phrase in example.phrases if phrase[0] < phrase[1]]
    return [several[place] for place in torch.randperm(len(several))[:_PHRASES].tolist()]
