"""A question and a text become the words of the text that answer it."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.tasks.context import Context, drop, even
from elmokit.tasks.data.example import Question
from elmokit.tasks.lexicon import key_of
from elmokit.tasks.task import Head
from elmokit.tasks.words import Read, Sentence, WordVectors

_LONGEST = 30  # words of an answer
_STEM = 4  # letters by which words are taken for forms of one another


class AnswerFinder(Head):
    """BiDAF with self-attention (Clark and Gardner 2018): which words begin and end the answer.

    Each word is marked if the other text has it too (Chen et al. 2017): no example has to teach
    that a question's rare words stand near its answer.
    """

    def __init__(self, words: WordVectors, labels: Sequence[str] = ()) -> None:
        super().__init__()
        settings = words.settings
        hidden = 2 * settings.hidden
        self.words, self.labels = words, list(labels)
        self.context = Context(
            words.dim + 2, settings.hidden, depth=settings.depth, between=settings.dropout
        )
        said = self.context.dim + words.output_dim
        self.meet = Alike(said)
        self.merge = nn.Sequential(nn.Linear(4 * said, hidden), nn.ReLU())
        self.ponder = Context(hidden, settings.hidden)
        self.look = Alike(hidden)
        self.add = nn.Sequential(nn.Linear(3 * hidden, hidden), nn.ReLU())
        self.to_begin = Context(hidden, settings.hidden, dropout=settings.dropout)
        self.to_end = Context(2 * hidden, settings.hidden, dropout=settings.dropout)
        self.begin, self.end = nn.Linear(hidden, 1), nn.Linear(hidden, 1)

    def loss(self, examples: Sequence[Question]) -> Tensor:
        """The mean loss of a question: any of its answers will do."""
        begins, ends = self._scores(examples)
        losses = []
        for scores, side in ((begins, "first"), (ends, "last")):
            right = torch.zeros_like(scores, dtype=torch.bool)
            for place, example in enumerate(examples):
                right[place, [getattr(answer, side) for answer in example.answers]] = True
            logs = scores.log_softmax(1).masked_fill(~right, -torch.inf)
            losses.append(-torch.logsumexp(logs, 1).mean())
        return losses[0] + losses[1]

    def answer(self, examples: Sequence[Question]) -> list[str]:
        """The text of each answer, as it stands in the context."""
        begins, ends = self._scores(examples)
        both = begins[:, :, None] + ends[:, None]  # logarithms of the spans' chances
        steps = both.shape[1]
        near = torch.ones_like(both[0], dtype=torch.bool).triu().tril(_LONGEST - 1)
        best = both.masked_fill(~near, -torch.inf).flatten(1).argmax(1).tolist()
        found = []
        for example, place in zip(examples, best, strict=True):
            first, last = divmod(place, steps)
            found.append(example.text[example.offsets[first][0] : example.offsets[last][1]])
        return found

    def _scores(self, examples: Sequence[Question]) -> tuple[Tensor, Tensor]:
        """How well each word begins and ends the answer, (questions, steps) each."""
        asked = self.words([example.question for example in examples])
        text = self.words([example.context for example in examples])
        marks = mark_shared([(example.question, example.context) for example in examples])
        (question, _), (said, told) = (
            self._read(read, marked.to(read.vectors))
            for read, marked in zip((asked, text), marks, strict=True)
        )

        alike = self.meet(said, question).masked_fill(~asked.mask[:, None], -torch.inf)
        found = alike.softmax(2) @ question
        weights = alike.amax(2).masked_fill(~text.mask, -torch.inf).softmax(1)
        whole = (weights[:, :, None] * told).sum(1, keepdim=True).expand_as(said)
        merged = self._drop(self.merge(torch.cat([said, found, said * found, said * whole], -1)))

        pondered = even(self.ponder(merged, text.mask))
        itself = torch.eye(pondered.shape[1], dtype=torch.bool, device=pondered.device)
        hidden = ~text.mask[:, None] | itself
        own = self._drop(pondered)
        others = self.look(own, pondered).masked_fill(hidden, -1e4).softmax(2)
        seen = others.masked_fill(hidden, 0) @ pondered  # a text of one word sees nothing
        added = self.add(torch.cat([own, seen, own * seen], -1))
        known = self._drop(merged + added)

        beginning = self.to_begin(known, text.mask)
        ending = self.to_end(torch.cat([known, beginning], -1), text.mask)
        begins, ends = self.begin(beginning)[..., 0], self.end(ending)[..., 0]
        begins, ends = (s.masked_fill(~text.mask, -torch.inf) for s in (begins, ends))
        return begins, ends

    def _read(self, read: Read, marks: Tensor) -> tuple[Tensor, Tensor]:
        said = self.context(torch.cat([read.vectors, marks], -1), read.mask)
        return self.words.compared(said, read, self.words.settings.dropout)

    def _drop(self, vectors: Tensor) -> Tensor:
        return drop(vectors, self.words.settings.dropout, self.training)


class Alike(nn.Module):
    """How much two words have to do with one another: a weighted sum of both and their product."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(dim, 1), nn.Linear(dim, 1, bias=False)
        self.both = nn.Parameter(torch.ones(dim) / dim**0.5)

    def forward(self, one: Tensor, other: Tensor) -> Tensor:
        """(…, steps, dim), (…, others, dim) -> (…, steps, others)."""
        product = (one * self.both) @ other.transpose(1, 2)
        sums: Tensor = self.one(one) + self.other(other).transpose(1, 2)
        return product + sums


def mark_shared(pairs: Sequence[tuple[Sentence, Sentence]]) -> tuple[Tensor, Tensor]:
    """For both texts of each pair, whether a word, or one that begins like it, is in the other.

    Each is (pairs, steps, 2), of ones and zeros.
    """
    firsts, seconds = zip(*pairs, strict=True)
    return _marks(firsts, seconds), _marks(seconds, firsts)


def _marks(texts: Sequence[Sentence], others: Sequence[Sentence]) -> Tensor:
    marks = np.zeros((len(texts), max(map(len, texts)), 2), np.float32)
    for row, words, other in zip(marks, texts, others, strict=True):
        own, whole = [key_of(word) for word in words], {key_of(word) for word in other}
        stems = {word[:_STEM] for word in whole}
        row[: len(words), 0] = [word in whole for word in own]
        row[: len(words), 1] = [word[:_STEM] in stems for word in own]
    return torch.from_numpy(marks)
