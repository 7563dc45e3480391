"""Words and one predicate among them become the roles that others play in what it says."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from elmokit.tasks.context import Context
from elmokit.tasks.crf import CRF, forbidden_moves
from elmokit.tasks.data.example import Roles
from elmokit.tasks.tagger import pad_tags
from elmokit.tasks.task import Head
from elmokit.tasks.words import Sentence, WordVectors

_MARK_DIM = 50  # size of the vector that says whether a word is the predicate


class RoleTagger(Head):
    """A tagger that is told which word is the predicate, and may not choose impossible spans."""

    def __init__(self, words: WordVectors, labels: Sequence[str]) -> None:
        super().__init__()
        settings = words.settings
        self.words, self.labels = words, list(labels)
        self.mark = nn.Embedding(2, _MARK_DIM)
        self.context = Context(
            words.dim + _MARK_DIM, settings.hidden, depth=settings.depth, dropout=settings.dropout
        )
        said = self.context.dim + words.output_dim
        self.own = nn.Linear(said, settings.hidden)
        self.chief = nn.Linear(said, settings.hidden, bias=False)
        self.score = nn.Linear(settings.hidden, len(self.labels))
        self.crf = CRF(len(self.labels))
        self._ids = {label: place for place, label in enumerate(self.labels)}
        forbidden = forbidden_moves(self.labels, "iob2")
        self.register_buffer("_forbidden", forbidden, persistent=False)

    def loss(self, examples: Sequence[Roles]) -> Tensor:
        """The mean loss of a word."""
        scores, mask = self._scores(examples)
        tags = pad_tags([[self._ids[tag] for tag in e.tags] for e in examples]).to(scores.device)
        return -self.crf.log_likelihood(scores, tags, mask).sum() / mask.sum()

    def answer(self, examples: Sequence[Roles]) -> list[Sentence]:
        """The tags of each predicate's sentence, in IOB2; those of the examples are not seen."""
        scores, mask = self._scores(examples)
        assert isinstance(self._forbidden, Tensor)
        best = self.crf.best(scores, mask, forbidden=self._forbidden)
        return [tuple(self.labels[tag] for tag in tags) for tags in best]

    def _scores(self, examples: Sequence[Roles]) -> tuple[Tensor, Tensor]:
        read = self.words([example.words for example in examples])
        predicates = range(len(examples)), [example.predicate for example in examples]
        marks = torch.zeros(read.mask.shape, dtype=torch.long, device=read.mask.device)
        marks[predicates] = 1
        told = torch.cat([read.vectors, self.mark(marks)], -1)
        said = self.words.at_output(self.context(told, read.mask), read)
        joined = self.own(said) + self.chief(said[predicates])[:, None]
        return self.score(joined.relu()), read.mask
