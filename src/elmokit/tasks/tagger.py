"""Words become tags: names, parts of speech, chunks."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.tasks.context import Context
from elmokit.tasks.crf import CRF, forbidden_moves
from elmokit.tasks.data.example import Tagged
from elmokit.tasks.task import Head
from elmokit.tasks.words import Sentence, WordVectors


class Tagger(Head):
    """A bidirectional LSTM that scores tags, chosen together by a CRF or each for itself.

    Together, tags of spans are chosen so that every span ends as it began.
    """

    def __init__(self, words: WordVectors, labels: Sequence[str]) -> None:
        super().__init__()
        settings = words.settings
        self.words, self.labels = words, list(labels)
        self.context = Context(
            words.dim, settings.hidden, depth=settings.depth, dropout=settings.dropout
        )
        self.score = nn.Linear(self.context.dim + words.output_dim, len(self.labels))
        self.crf = CRF(len(self.labels)) if settings.crf else None
        self._ids = {label: place for place, label in enumerate(self.labels)}
        forbidden = forbidden_moves(self.labels, "bioes") if _are_bioes(self.labels) else None
        self.register_buffer("_forbidden", forbidden, persistent=False)

    def loss(self, examples: Sequence[Tagged]) -> Tensor:
        """The mean loss of a word."""
        scores, mask = self._scores([example.words for example in examples])
        tags = pad_tags([[self._ids[tag] for tag in e.tags] for e in examples]).to(scores.device)
        if self.crf is not None:
            return -self.crf.log_likelihood(scores, tags, mask).sum() / mask.sum()
        return F.cross_entropy(scores[mask], tags[mask])

    def answer(self, examples: Sequence[Tagged]) -> list[Sentence]:
        """The tags of each sentence; those that the examples have are not looked at."""
        scores, mask = self._scores([example.words for example in examples])
        return [tuple(self.labels[tag] for tag in tags) for tags in self._best(scores, mask)]

    def _best(self, scores: Tensor, mask: Tensor) -> list[list[int]]:
        if self.crf is not None:
            assert self._forbidden is None or isinstance(self._forbidden, Tensor)
            return self.crf.best(scores, mask, self._forbidden)
        lengths = mask.sum(1).tolist()
        best = scores.argmax(2).tolist()
        return [row[:length] for row, length in zip(best, lengths, strict=True)]

    def _scores(self, sentences: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """The score of each tag, (sentences, steps, tags), and where words stand."""
        read = self.words(sentences)
        said = self.words.at_output(self.context(read.vectors, read.mask), read)
        return self.score(said), read.mask


def _are_bioes(labels: Sequence[str]) -> bool:
    """Whether labels are spans' first, inner, last and only words, and words outside."""
    kinds = {label[:2] for label in labels if label != "O"}
    return kinds <= {"B-", "I-", "E-", "S-"} and bool(kinds & {"E-", "S-"})


def pad_tags(rows: Sequence[Sequence[int]]) -> Tensor:
    """Ids of several sentences, (sentences, steps), 0 at padding."""
    return nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
