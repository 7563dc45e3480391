"""Sentences of a document become groups of mentions of the same person or thing."""

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.tasks.batches import batches_in_order
from elmokit.tasks.context import Context, drop
from elmokit.tasks.data.example import Document
from elmokit.tasks.mentions import DISTANCES, SPELLINGS, Mention, distances, group, spelled_alike
from elmokit.tasks.task import Head
from elmokit.tasks.words import Sentence, WordVectors

_WIDEST = 10  # words of a mention
_SHARE, _FEWEST = 0.3, 20  # mentions kept, as a share of the words, and at least
_WORDS_READ_TOGETHER = 600
_ANTECEDENTS = 50  # earlier mentions that one is compared with


class Ranked(NamedTuple):
    """Spans that may be mentions, and how well earlier ones fit those that were kept."""

    spans: list[Mention]
    mentioned: Tensor  # (spans,), how much each looks like a mention
    kept: list[Mention]
    scores: Tensor  # (kept, 1 + antecedents), of none and of some before it
    places: Tensor  # (kept, antecedents), which of the kept these are


class Coreference(Head):
    """Span ranking (Lee et al. 2017): every span may be a mention, and each one has an antecedent
    among the earlier ones, or none."""

    def __init__(self, words: WordVectors, labels: Sequence[str] = ()) -> None:
        super().__init__()
        settings = words.settings
        self.words, self.labels = words, list(labels)
        self.context = Context(
            words.dim, settings.hidden, depth=settings.depth, dropout=settings.dropout
        )
        said = self.context.dim + words.output_dim
        # A span's vector is the sum of what its first, last and inner words say of it, and its
        # width: worked out once a word, for there are ten times as many spans as words.
        self.attend = nn.Linear(said, 1)
        self.first = nn.Linear(said, settings.hidden)
        self.last = nn.Linear(said, settings.hidden, bias=False)
        self.inner = nn.Linear(words.dim, settings.hidden, bias=False)
        self.width = nn.Embedding(_WIDEST, settings.hidden)
        self.mention = nn.Linear(settings.hidden, 1)
        self.rough = nn.Linear(settings.hidden, settings.hidden, bias=False)
        # A pair's is that of both mentions, their product, their distance and their spelling.
        self.later = nn.Linear(settings.hidden, settings.hidden)
        self.earlier = nn.Linear(settings.hidden, settings.hidden, bias=False)
        self.alike = nn.Linear(settings.hidden, settings.hidden, bias=False)
        self.distance = nn.Embedding(DISTANCES, settings.hidden)
        self.spelling = nn.Embedding(SPELLINGS, settings.hidden)
        self.near, self.same = nn.Embedding(DISTANCES, 1), nn.Embedding(SPELLINGS, 1)
        self.pair = nn.Linear(settings.hidden, 1)
        self._draw()

    def loss(self, examples: Sequence[Document]) -> Tensor:
        """The mean loss of a mention that was kept: any right antecedent will do, or none; and
        that of telling mentions from other spans, those of things mentioned once too."""
        return torch.stack([self._loss(document) for document in examples]).mean()

    def answer(self, examples: Sequence[Document]) -> list[tuple[tuple[Mention, ...], ...]]:
        """The groups of mentions of each document; those that it has are not looked at."""
        return [self._clusters(document) for document in examples]

    def _loss(self, document: Document) -> Tensor:
        spans, mentioned, kept, scores, places = self._rank(document)
        group = {m: number for number, found in enumerate(document.clusters) for m in found}
        groups = torch.tensor([group.get(span, -1) for span in kept], device=scores.device)
        same = (groups[places] == groups[:, None]) & (groups[:, None] >= 0)
        same &= scores[:, 1:] > -torch.inf
        right = torch.cat([~same.any(1, keepdim=True), same], 1)
        logs = scores.log_softmax(1).masked_fill(~right, -torch.inf)
        real = torch.tensor([float(span in group) for span in spans], device=scores.device)
        telling = F.binary_cross_entropy_with_logits(mentioned, real, reduction="sum")
        return telling / len(kept) - torch.logsumexp(logs, 1).mean()

    def _clusters(self, document: Document) -> tuple[tuple[Mention, ...], ...]:
        ranked = self._rank(document)
        groups = group(ranked.scores.softmax(1).tolist(), ranked.places.tolist())
        return tuple(tuple(ranked.kept[number] for number in found) for found in groups)

    def _rank(self, document: Document) -> Ranked:
        own, said = self._read(document.sentences)
        first, last, whole = self._spans(document, own, said)
        vectors = self._drop(whole[None])[0]
        mentioned = self.mention(vectors)[:, 0]
        spans = list(zip(first.tolist(), last.tolist(), strict=True))
        keep = min(len(first), max(_FEWEST, int(_SHARE * len(said))))
        kept = mentioned.topk(keep).indices
        order = (first[kept] * len(said) + last[kept]).argsort()
        kept = kept[order]
        # Being a mention speaks for no antecedent, being none against all.
        likely = F.logsigmoid(mentioned[kept])
        # All spans miss the same numbers; of a product, only one factor does, or it is too loud.
        vectors, whole = vectors[kept], whole[kept]

        mentions = [spans[n] for n in kept.tolist()]
        far = distances(keep).to(said.device)
        same = spelled_alike(document, mentions).to(said.device)
        rough = likely[:, None] + likely + self.rough(vectors) @ whole.t()
        rough = rough + self.near(far)[..., 0] + self.same(same)[..., 0]
        later = torch.ones_like(rough, dtype=torch.bool).triu()
        best, places = rough.masked_fill(later, -torch.inf).topk(min(_ANTECEDENTS, keep), 1)
        fine = self.later(vectors)[:, None] + F.embedding(places, self.earlier(vectors))
        fine = fine + self.alike(vectors[:, None] * F.embedding(places, whole))
        fine = fine + self.distance(far.gather(1, places)) + self.spelling(same.gather(1, places))
        scores = best + self.pair(self._drop(fine.relu()))[..., 0]
        scores = scores.masked_fill(best == -torch.inf, -torch.inf)
        scores = torch.cat([scores.new_zeros(keep, 1), scores], 1)
        return Ranked(spans, mentioned, mentions, scores, places)

    def _draw(self) -> None:
        """Begin with tables as quiet as what words say, and with near antecedents first."""
        for table in (self.width, self.distance, self.spelling):
            nn.init.normal_(table.weight, std=0.05)
        nn.init.zeros_(self.same.weight)
        with torch.no_grad():
            self.near.weight.copy_(torch.linspace(0, -2, DISTANCES)[:, None])

    def _read(self, sentences: Sequence[Sentence]) -> tuple[Tensor, Tensor]:
        """What words are by themselves, and what is said of them, (words, dim) each, in order.

        Sentences of about one length are read together: in a novel the longest is ten times as
        long as most.
        """
        own, said, order = [], [], []
        starts = [0, *accumulate(map(len, sentences))]
        for places, some in batches_in_order(sentences, len, words=_WORDS_READ_TOGETHER):
            read = self.words(some)
            own.append(read.vectors[read.mask])
            heard = self.words.at_output(self.context(read.vectors, read.mask), read)
            said.append(heard[read.mask])
            order += [word for place in places for word in range(starts[place], starts[place + 1])]
        back = torch.tensor(order, device=own[0].device).argsort()
        return torch.cat(own)[back], torch.cat(said)[back]

    def _spans(
        self, document: Document, own: Tensor, said: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The first and last words of all spans that do not leave their sentence; their vectors."""
        lengths = torch.tensor([len(sentence) for sentence in document.sentences])
        sentence = torch.arange(len(lengths)).repeat_interleave(lengths).to(said.device)
        begin, end, inside = self.first(said), self.last(said), self.inner(own)
        attention = self.attend(said)
        weights = (attention - attention.max()).clamp(min=-20).exp()  # (words, 1), above 0
        inside, firsts, lasts, vectors = weights * inside, [], [], []
        total, heads = weights, inside
        for width in range(min(_WIDEST, len(said))):
            if width:
                total, heads = total[:-1] + weights[width:], heads[:-1] + inside[width:]
            start = torch.arange(len(said) - width, device=said.device)
            start = start[sentence[: len(start)] == sentence[width:]]
            head = heads[start] / total[start]
            firsts.append(start)
            lasts.append(start + width)
            vectors.append(begin[start] + end[start + width] + head + self.width.weight[width])
        return torch.cat(firsts), torch.cat(lasts), torch.cat(vectors).relu()

    def _drop(self, vectors: Tensor) -> Tensor:
        return drop(vectors, self.words.settings.dropout, self.training)
