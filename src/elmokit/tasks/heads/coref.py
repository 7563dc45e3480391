"""Coreference resolution: clusters of mentions of the same person or thing in a document."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.batching import minibatches
from elmokit.errors import InputError
from elmokit.tasks.bilstm import variational_dropout
from elmokit.tasks.datasets.coreference import read_coreference, tokenize_sentences
from elmokit.tasks.datasets.example_records import Document, GapExample, Tokenize, Words
from elmokit.tasks.metrics import average_f1, gap_f1, score_coreference, score_gap
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, TextFormat, parse_words, register
from elmokit.tasks.word_features import WordFeatures, normalize_word

Mention = tuple[int, int]  # first and last word
Cluster = tuple[Mention, ...]

_LONGEST_MENTION = 10  # words
_MENTIONS_PER_WORD, _MIN_MENTIONS = 0.3, 20  # candidates that are not pruned
_WORDS_ENCODED_TOGETHER = 600
_MAX_ANTECEDENTS = 50  # earlier mentions that one is compared with in full
_DISTANCE_BUCKETS = torch.tensor([1, 2, 3, 4, 5, 8, 16, 32, 64])
_NUM_DISTANCES = len(_DISTANCE_BUCKETS) + 1
_NUM_SPELLINGS = 4


class RankedMentions(NamedTuple):
    """Candidate spans, those kept as mentions, and scores of the antecedents of these."""

    spans: list[Mention]
    mention_scores: Tensor  # (spans,)
    mentions: list[Mention]  # the spans that were kept
    scores: Tensor  # (mentions, 1 + antecedents), the first of having no antecedent
    antecedents: Tensor  # (mentions, antecedents), as numbers of mentions


class SpanRanker(Head):
    """Span ranking (Lee et al. 2017): any span may be a mention, with one antecedent or none."""

    def __init__(self, features: WordFeatures, labels: Sequence[str] = ()) -> None:
        super().__init__(features, labels)
        size, dim = features.settings.hidden_size, self.make_encoder()
        # A span's vector is a sum over its first, last and inner words, and its width. These are
        # projected once a word, as there are ten times as many spans as words.
        self.attention = nn.Linear(dim, 1)
        self.first_word = nn.Linear(dim, size)
        self.last_word = nn.Linear(dim, size, bias=False)
        self.inner_words = nn.Linear(features.dim, size, bias=False)
        self.width_embedding = nn.Embedding(_LONGEST_MENTION, size)
        self.mention_score = nn.Linear(size, 1)
        self.coarse = nn.Linear(size, size, bias=False)
        # A pair's vector is a sum over both mentions, their product, distance and spelling.
        self.anaphor = nn.Linear(size, size)
        self.antecedent = nn.Linear(size, size, bias=False)
        self.product = nn.Linear(size, size, bias=False)
        self.distance_embedding = nn.Embedding(_NUM_DISTANCES, size)
        self.spelling_embedding = nn.Embedding(_NUM_SPELLINGS, size)
        self.distance_score = nn.Embedding(_NUM_DISTANCES, 1)
        self.spelling_score = nn.Embedding(_NUM_SPELLINGS, 1)
        self.pair_score = nn.Linear(size, 1)
        # Start with embeddings as small as the words' projections, and prefer near antecedents.
        for table in (self.width_embedding, self.distance_embedding, self.spelling_embedding):
            nn.init.normal_(table.weight, std=0.05)
        nn.init.zeros_(self.spelling_score.weight)
        with torch.no_grad():
            self.distance_score.weight.copy_(torch.linspace(0, -2, _NUM_DISTANCES)[:, None])

    def loss(self, examples: Sequence[Document]) -> Tensor:
        """The mean over documents of the loss of antecedents plus that of mentions.

        For each mention that is kept any correct antecedent counts, or none. Spans are told from
        mentions by all mentions, also those of clusters of one.
        """
        return torch.stack([self._document_loss(document) for document in examples]).mean()

    def predict(self, examples: Sequence[Document]) -> list[tuple[Cluster, ...]]:
        predictions = []
        for document in examples:
            ranked = self._rank(document)
            probabilities = ranked.scores.softmax(1).tolist()
            clusters = cluster_mentions(probabilities, ranked.antecedents.tolist())
            predictions.append(tuple(tuple(ranked.mentions[n] for n in own) for own in clusters))
        return predictions

    def _document_loss(self, document: Document) -> Tensor:
        ranked = self._rank(document)
        scores, device = ranked.scores, ranked.scores.device
        cluster_of = {m: number for number, own in enumerate(document.clusters) for m in own}
        clusters = torch.tensor([cluster_of.get(m, -1) for m in ranked.mentions], device=device)
        same = (clusters[ranked.antecedents] == clusters[:, None]) & (clusters[:, None] >= 0)
        same &= scores[:, 1:] > -torch.inf
        correct = torch.cat([~same.any(1, keepdim=True), same], 1)
        log_probabilities = scores.log_softmax(1).masked_fill(~correct, -torch.inf)
        is_mention = torch.tensor([float(span in cluster_of) for span in ranked.spans])
        mention_loss = F.binary_cross_entropy_with_logits(
            ranked.mention_scores, is_mention.to(device), reduction="sum"
        )
        antecedent_loss = -torch.logsumexp(log_probabilities, 1).mean()
        return mention_loss / len(ranked.mentions) + antecedent_loss

    def _rank(self, document: Document) -> RankedMentions:
        vectors, hidden = self._encode(document.sentences)
        first, last, undropped = self._span_vectors(document, vectors, hidden)
        span_vectors = self._dropout(undropped[None])[0]
        mention_scores = self.mention_score(span_vectors)[:, 0]
        spans = list(zip(first.tolist(), last.tolist(), strict=True))
        count = min(len(first), max(_MIN_MENTIONS, int(_MENTIONS_PER_WORD * len(hidden))))
        kept = mention_scores.topk(count).indices
        order = (first[kept] * len(hidden) + last[kept]).argsort()
        kept = kept[order]
        # In logsigmoid: a high mention score favours no antecedent, a low one rules out all.
        mention_logs = F.logsigmoid(mention_scores[kept])
        # All spans share a dropout mask; of a product, only one factor is dropped, or the rest
        # would be scaled twice.
        span_vectors, undropped = span_vectors[kept], undropped[kept]

        mentions = [spans[number] for number in kept.tolist()]
        distance = distance_buckets(count).to(hidden.device)
        spelling = compare_spellings(document, mentions).to(hidden.device)
        coarse = mention_logs[:, None] + mention_logs + self.coarse(span_vectors) @ undropped.t()
        coarse = coarse + self.distance_score(distance)[..., 0]
        coarse = coarse + self.spelling_score(spelling)[..., 0]
        not_earlier = torch.ones_like(coarse, dtype=torch.bool).triu()
        best, antecedents = coarse.masked_fill(not_earlier, -torch.inf).topk(
            min(_MAX_ANTECEDENTS, count), 1
        )
        pairs = self.anaphor(span_vectors)[:, None]
        pairs = pairs + F.embedding(antecedents, self.antecedent(span_vectors))
        pairs = pairs + self.product(span_vectors[:, None] * F.embedding(antecedents, undropped))
        pairs = pairs + self.distance_embedding(distance.gather(1, antecedents))
        pairs = pairs + self.spelling_embedding(spelling.gather(1, antecedents))
        scores = best + self.pair_score(self._dropout(pairs.relu()))[..., 0]
        scores = scores.masked_fill(best == -torch.inf, -torch.inf)
        scores = torch.cat([scores.new_zeros(count, 1), scores], 1)
        return RankedMentions(spans, mention_scores, mentions, scores, antecedents)

    def _encode(self, sentences: Sequence[Words]) -> tuple[Tensor, Tensor]:
        """The features and the encoder's output of all words of a document, (words, dim) each.

        Sentences of similar length are encoded together: the longest of a novel is ten times as
        long as most.
        """
        vectors, outputs, order = [], [], []
        lengths = [*map(len, sentences)]
        starts = [0, *accumulate(lengths)]
        for numbers in minibatches(lengths, words=_WORDS_ENCODED_TOGETHER):
            features = self.features([sentences[number] for number in numbers])
            vectors.append(features.vectors[features.mask])
            hidden = self.encoder(features.vectors, features.mask)
            hidden = self.features.add_to_output(hidden, features)
            outputs.append(hidden[features.mask])
            order += [word for n in numbers for word in range(starts[n], starts[n + 1])]
        document_order = torch.tensor(order, device=vectors[0].device).argsort()
        return torch.cat(vectors)[document_order], torch.cat(outputs)[document_order]

    def _span_vectors(
        self, document: Document, vectors: Tensor, hidden: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """First words, last words and vectors of all spans that lie within a sentence."""
        lengths = torch.tensor([len(sentence) for sentence in document.sentences])
        sentence = torch.arange(len(lengths)).repeat_interleave(lengths).to(hidden.device)
        first_word, last_word = self.first_word(hidden), self.last_word(hidden)
        inner = self.inner_words(vectors)
        scores = self.attention(hidden)
        weights = (scores - scores.max()).clamp(min=-20).exp()  # (words, 1), above 0
        inner, firsts, lasts, span_vectors = weights * inner, [], [], []
        total_weight, weighted_sum = weights, inner
        for width in range(min(_LONGEST_MENTION, len(hidden))):
            if width:
                total_weight = total_weight[:-1] + weights[width:]
                weighted_sum = weighted_sum[:-1] + inner[width:]
            start = torch.arange(len(hidden) - width, device=hidden.device)
            start = start[sentence[: len(start)] == sentence[width:]]
            attended = weighted_sum[start] / total_weight[start]
            firsts.append(start)
            lasts.append(start + width)
            ends = first_word[start] + last_word[start + width]
            span_vectors.append(ends + attended + self.width_embedding.weight[width])
        return torch.cat(firsts), torch.cat(lasts), torch.cat(span_vectors).relu()

    def _dropout(self, vectors: Tensor) -> Tensor:
        return variational_dropout(vectors, self.features.settings.dropout, self.training)


def distance_buckets(count: int) -> Tensor:  # (count, count), of 0 to _NUM_DISTANCES - 1
    """How many mentions each is after each other one, in buckets."""
    position = torch.arange(count)
    return torch.bucketize((position[:, None] - position).clamp(min=0), _DISTANCE_BUCKETS)


def compare_spellings(document: Document, mentions: Sequence[Mention]) -> Tensor:
    """How similar two mentions are written, (mentions, mentions).

    3 if they are the same words, 2 if they end with the same word, 1 if one has the last word of
    the other, else 0. The names of a new text are not in any training text; that two are the same
    name must be seen by comparing them.
    """
    words = [normalize_word(word) for sentence in document.sentences for word in sentence]
    texts = [tuple(words[first : last + 1]) for first, last in mentions]
    last_words = [text[-1] for text in texts]
    number = {word: i for i, word in enumerate(dict.fromkeys(last_words))}
    contains = torch.zeros(len(mentions), len(number), dtype=torch.bool)
    for row, text in zip(contains, texts, strict=True):
        row[[number[word] for word in text if word in number]] = True
    contains = contains[:, [number[word] for word in last_words]]  # (mentions, mentions)
    return (contains | contains.t()).long() + _equal_pairs(last_words) + _equal_pairs(texts)


def _equal_pairs(keys: Sequence[object]) -> Tensor:  # (keys, keys)
    number = {key: i for i, key in enumerate(keys)}
    numbers = torch.tensor([number[key] for key in keys])
    return numbers[:, None] == numbers


def cluster_mentions(
    probabilities: Sequence[Sequence[float]], antecedents: Sequence[Sequence[int]]
) -> list[list[int]]:
    """Clusters of two or more mentions, by number.

    A row of `probabilities` has that of no antecedent first, then one for each of `antecedents`.
    As in training any mention of a cluster will do, the probabilities of a cluster are added up.
    """
    cluster_of = list(range(len(probabilities)))  # the first mention of each one's cluster
    rows = zip(probabilities, antecedents, strict=True)
    for number, ((none, *each), earlier) in enumerate(rows):
        if none > 0.5:  # more probable than any antecedent
            continue
        by_cluster: dict[int, float] = {}
        for antecedent, probability in zip(earlier, each, strict=True):
            first = cluster_of[antecedent]
            by_cluster[first] = by_cluster.get(first, 0.0) + probability
        cluster_of[number] = max(by_cluster, key=by_cluster.__getitem__)
    clusters: dict[int, list[int]] = {}
    for number, first in enumerate(cluster_of):
        clusters.setdefault(first, []).append(number)
    return [cluster for cluster in clusters.values() if len(cluster) > 1]


def _score(examples: Sequence[Any], predictions: Sequence[Any]) -> dict[str, float]:
    """As in CoNLL-2012, whose annotation has no clusters of one mention; or as in GAP."""
    if isinstance(examples[0], GapExample):
        return gap_f1(score_gap(examples, predictions))
    gold = [[cluster for cluster in e.clusters if len(cluster) > 1] for e in examples]
    scores = score_coreference(gold, predictions)
    return {"f1": average_f1(scores), **{name: score.f1 for name, score in scores.items()}}


def _parse(value: Any, tokenize: Tokenize) -> Document:
    if isinstance(value, str):
        sentences = tokenize_sentences(value, tokenize)
        if not sentences:
            raise InputError(f"{value[:60]!r}: no words in it; leave out empty lines")
        return Document("", 0, sentences, ())
    if not isinstance(value, list | tuple) or not value:
        raise InputError(f"{str(value)[:60]!r}: expected a string or a list of sentences")
    return Document("", 0, tuple(parse_words(sentence, tokenize) for sentence in value), ())


def _format(example: Document, clusters: Sequence[Cluster]) -> str:
    words = [word for sentence in example.sentences for word in sentence]
    lines = [
        " | ".join(" ".join(words[first : last + 1]) for first, last in cluster)
        for cluster in clusters
    ]
    return "".join(f"{line}\n" for line in [*lines, ""])


register(
    Task(
        "coreference", "mentions of the same person or thing",
        "CoNLL-2012 columns; for evaluation also GAP",
        read_file=read_coreference, head=SpanRanker, sentences=lambda example: example.sentences,
        labels=lambda examples: [], score_by_label=None,
        text=TextFormat(
            "a document", _parse, _format,
            result=lambda document, clusters: replace(document, clusters=tuple(clusters)),
        ),
        score=_score, tokenizer="moses", max_words=15_000,
        settings=TaskSettings(
            words_per_batch=1, learning_rate=0.001, dropout=0.3, epochs=25
        ),
    )
)  # fmt: skip
