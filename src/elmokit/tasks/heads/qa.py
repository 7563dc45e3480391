"""Question answering: the words of a context that answer a question."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.tasks.bilstm import BiLSTMEncoder, layer_norm, variational_dropout
from elmokit.tasks.datasets.alignment import align
from elmokit.tasks.datasets.example_records import Question, Tokenize, Words
from elmokit.tasks.datasets.squad import read_squad
from elmokit.tasks.metrics import score_answers
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, TextFormat, parse_two, parse_words, register
from elmokit.tasks.word_features import Features, WordFeatures, normalize_word

_LONGEST_ANSWER = 30  # words
_STEM = 4  # letters by which words are taken for forms of one another


class BiDAF(Head):
    """BiDAF with self-attention (Clark and Gardner 2018): scores of first and last words.

    Each word is marked if the other text has it too (Chen et al. 2017), so that it need not be
    learnt that a question's rare words stand near its answer.
    """

    def __init__(self, features: WordFeatures, labels: Sequence[str] = ()) -> None:
        super().__init__(features, labels)
        settings = features.settings
        size, dim = settings.hidden_size, 2 * settings.hidden_size
        self.encoder = BiLSTMEncoder(
            features.dim + 2, size, num_layers=settings.num_layers,
            dropout_between=settings.dropout,
        )  # fmt: skip
        encoded = self.encoder.dim + features.output_dim
        self.attention = Attention(encoded)
        self.merge = nn.Sequential(nn.Linear(4 * encoded, dim), nn.ReLU())
        self.modeling = BiLSTMEncoder(dim, size)
        self.self_attention = Attention(dim)
        self.self_merge = nn.Sequential(nn.Linear(3 * dim, dim), nn.ReLU())
        self.start_encoder = BiLSTMEncoder(dim, size, dropout=settings.dropout)
        self.end_encoder = BiLSTMEncoder(2 * dim, size, dropout=settings.dropout)
        self.start_output, self.end_output = nn.Linear(dim, 1), nn.Linear(dim, 1)

    def loss(self, examples: Sequence[Question]) -> Tensor:
        """The mean loss of a question: any of its answers counts."""
        starts, ends = self._scores(examples)
        losses = []
        for scores, side in ((starts, "first"), (ends, "last")):
            correct = torch.zeros_like(scores, dtype=torch.bool)
            for row, example in enumerate(examples):
                correct[row, [getattr(answer, side) for answer in example.answers]] = True
            log_probabilities = scores.log_softmax(1).masked_fill(~correct, -torch.inf)
            losses.append(-torch.logsumexp(log_probabilities, 1).mean())
        return losses[0] + losses[1]

    def predict(self, examples: Sequence[Question]) -> list[str]:
        """The text of each answer, as it stands in the context."""
        starts, ends = self._scores(examples)
        spans = starts[:, :, None] + ends[:, None]  # (questions, first words, last words)
        steps = spans.shape[1]
        allowed = torch.ones_like(spans[0], dtype=torch.bool).triu().tril(_LONGEST_ANSWER - 1)
        best = spans.masked_fill(~allowed, -torch.inf).flatten(1).argmax(1).tolist()
        answers = []
        for example, span in zip(examples, best, strict=True):
            first, last = divmod(span, steps)
            answers.append(example.text[example.offsets[first][0] : example.offsets[last][1]])
        return answers

    def _scores(self, examples: Sequence[Question]) -> tuple[Tensor, Tensor]:
        """Each word's scores as the first and as the last of the answer, (questions, steps)."""
        questions, contexts = [e.question for e in examples], [e.context for e in examples]
        of_question, of_context = self.features(questions), self.features(contexts)
        question, _ = self._encode(of_question, mark_shared_words(questions, contexts))
        context, undropped = self._encode(of_context, mark_shared_words(contexts, questions))

        scores = self.attention(context, question)
        scores = scores.masked_fill(~of_question.mask[:, None], -torch.inf)
        attended = scores.softmax(2) @ question
        weights = scores.amax(2).masked_fill(~of_context.mask, -torch.inf).softmax(1)
        summary = (weights[:, :, None] * undropped).sum(1, keepdim=True).expand_as(context)
        parts = [context, attended, context * attended, context * summary]
        merged = self._dropout(self.merge(torch.cat(parts, -1)))

        modeled = layer_norm(self.modeling(merged, of_context.mask))
        same_word = torch.eye(modeled.shape[1], dtype=torch.bool, device=modeled.device)
        excluded = ~of_context.mask[:, None] | same_word
        own = self._dropout(modeled)
        self_weights = self.self_attention(own, modeled).masked_fill(excluded, -1e4).softmax(2)
        # A context of one word attends to nothing.
        others = self_weights.masked_fill(excluded, 0) @ modeled
        self_merged = self.self_merge(torch.cat([own, others, own * others], -1))
        hidden = self._dropout(merged + self_merged)

        start = self.start_encoder(hidden, of_context.mask)
        end = self.end_encoder(torch.cat([hidden, start], -1), of_context.mask)
        outputs = self.start_output(start)[..., 0], self.end_output(end)[..., 0]
        starts, ends = (s.masked_fill(~of_context.mask, -torch.inf) for s in outputs)
        return starts, ends

    def _encode(self, features: Features, marks: Tensor) -> tuple[Tensor, Tensor]:
        """The encoded words with and without dropout."""
        vectors = torch.cat([features.vectors, marks.to(features.vectors)], -1)
        hidden = self.encoder(vectors, features.mask)
        return self.features.normalized_output(hidden, features, self.features.settings.dropout)

    def _dropout(self, vectors: Tensor) -> Tensor:
        return variational_dropout(vectors, self.features.settings.dropout, self.training)


class Attention(nn.Module):
    """Attention scores of pairs of words: a weighted sum of both and of their product."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(dim, 1), nn.Linear(dim, 1, bias=False)
        self.product = nn.Parameter(torch.ones(dim) / dim**0.5)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        """(…, steps, dim), (…, others, dim) -> (…, steps, others)."""
        product = (first * self.product) @ second.transpose(1, 2)
        sums: Tensor = self.first(first) + self.second(second).transpose(1, 2)
        return product + sums


def mark_shared_words(texts: Sequence[Words], others: Sequence[Words]) -> Tensor:
    """Which words of each text the other text of its pair has too, (texts, steps, 2).

    1 if it has the word, and 1 if it has one with the same stem.
    """
    marks = np.zeros((len(texts), max(map(len, texts)), 2), np.float32)
    for row, words, other in zip(marks, texts, others, strict=True):
        own = [normalize_word(word) for word in words]
        other_words = {normalize_word(word) for word in other}
        other_stems = {word[:_STEM] for word in other_words}
        row[: len(words), 0] = [word in other_words for word in own]
        row[: len(words), 1] = [word[:_STEM] in other_stems for word in own]
    return torch.from_numpy(marks)


def _score(examples: Sequence[Question], predictions: Sequence[str]) -> dict[str, float]:
    return score_answers([[answer.text for answer in e.answers] for e in examples], predictions)


def _parse(value: Any, tokenize: Tokenize) -> Question:
    question, context = parse_two(value, ("question", "context"))
    words = parse_words(context, tokenize)
    text = context if isinstance(context, str) else " ".join(words)
    offsets = align(words, text)
    if offsets is None:
        raise InputError(f"{text[:60]!r}: its words are not in it; use the tokenizer 'spaces'")
    return Question("", parse_words(question, tokenize), words, tuple(offsets), text, ())


register(
    Task(
        "qa", "answers to questions about a context", "the JSON of SQuAD 1.1",
        read_file=read_squad, head=BiDAF,
        sentences=lambda example: (example.question, example.context),
        labels=lambda examples: [], score_by_label=None,
        text=TextFormat("a question, a tab and a context", _parse, lambda _, answer: answer + "\n"),
        score=_score, tokenizer="moses", max_words=5000,
        settings=TaskSettings(
            elmo="both", hidden_size=80, dropout=0.3, words_per_batch=4000, epochs=8
        ),
    )
)  # fmt: skip
