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
from elmokit.tasks.task import Head
from elmokit.tasks.words import Sentence, WordVectors

Mention = tuple[int, int]

_WIDEST = 10  # words of a mention
_SHARE, _FEWEST = 0.3, 20  # mentions kept, as a share of the words, and at least
_WORDS_READ_TOGETHER = 600
_ANTECEDENTS = 50  # earlier mentions that one is compared with
_BUCKETS = (1, 2, 3, 4, 5, 8, 16, 32, 64)  # distances, in mentions


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
        # So is a pair's: of both mentions, their product and their distance.
        self.later = nn.Linear(settings.hidden, settings.hidden)
        self.earlier = nn.Linear(settings.hidden, settings.hidden, bias=False)
        self.alike = nn.Linear(settings.hidden, settings.hidden, bias=False)
        self.distance = nn.Embedding(len(_BUCKETS) + 1, settings.hidden)
        self.near = nn.Embedding(len(_BUCKETS) + 1, 1)
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

        count = min(_ANTECEDENTS, keep)
        place = torch.arange(keep, device=said.device)
        distance = place[:, None] - place
        rough = likely[:, None] + likely + self.rough(vectors) @ whole.t()
        rough = rough + self.near(_bucket(distance))[..., 0]
        best, places = rough.masked_fill(distance <= 0, -torch.inf).topk(count, 1)
        fine = self.later(vectors)[:, None] + F.embedding(places, self.earlier(vectors))
        fine = fine + self.alike(vectors[:, None] * F.embedding(places, whole))
        fine = self._drop((fine + self.distance(_bucket(place[:, None] - places))).relu())
        scores = (best + self.pair(fine)[..., 0]).masked_fill(best == -torch.inf, -torch.inf)
        scores = torch.cat([scores.new_zeros(keep, 1), scores], 1)
        return Ranked(spans, mentioned, [spans[n] for n in kept.tolist()], scores, places)

    def _draw(self) -> None:
        """Begin with tables as quiet as what words say, and with near antecedents first."""
        for table in (self.width, self.distance):
            nn.init.normal_(table.weight, std=0.05)
        with torch.no_grad():
            self.near.weight.copy_(torch.linspace(0, -2, len(_BUCKETS) + 1)[:, None])

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
        weights = (attention - attention.max()).exp()  # (words, 1)
        inside, firsts, lasts, vectors = weights * inside, [], [], []
        total, heads = weights, inside
        for width in range(min(_WIDEST, len(said))):
            if width:
                total, heads = total[:-1] + weights[width:], heads[:-1] + inside[width:]
            start = torch.arange(len(said) - width, device=said.device)
            start = start[sentence[: len(start)] == sentence[width:]]
            head = heads[start] / total[start].clamp(min=1e-12)
            firsts.append(start)
            lasts.append(start + width)
            vectors.append(begin[start] + end[start + width] + head + self.width.weight[width])
        return torch.cat(firsts), torch.cat(lasts), torch.cat(vectors).relu()

    def _drop(self, vectors: Tensor) -> Tensor:
        return drop(vectors, self.words.settings.dropout, self.training)


def group(chances: Sequence[Sequence[float]], places: Sequence[Sequence[int]]) -> list[list[int]]:
    """Mentions, by number, that stand for the same; each group has two or more.

    A row of `chances` is that of no antecedent, and those of the mentions in `places`. As in
    learning any mention of a group will do, so what speaks for each of them is added up.
    """
    first = list(range(len(chances)))  # the first mention of each one's group
    for number, ((none, *each), earlier) in enumerate(zip(chances, places, strict=True)):
        if none > 0.5:  # it is likelier that there was no mention before than any
            continue
        speaks: dict[int, float] = {}
        for place, chance in zip(earlier, each, strict=True):
            speaks[first[place]] = speaks.get(first[place], 0.0) + chance
        first[number] = max(speaks, key=speaks.__getitem__)
    groups: dict[int, list[int]] = {}
    for number, place in enumerate(first):
        groups.setdefault(place, []).append(number)
    return [found for found in groups.values() if len(found) > 1]


def _bucket(distance: Tensor) -> Tensor:
    edges = torch.tensor(_BUCKETS, device=distance.device)
    return torch.bucketize(distance.clamp(min=0), edges)
