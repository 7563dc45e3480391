"""Textual entailment: whether a premise entails or contradicts a hypothesis, or neither."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.tasks.bilstm import BiLSTMEncoder, masked_max, masked_mean, variational_dropout
from elmokit.tasks.datasets.example_records import TextPair, Tokenize
from elmokit.tasks.datasets.text_tables import read_pairs
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, TextFormat, parse_two, parse_words, register
from elmokit.tasks.word_features import WordFeatures


class ESIM(Head):
    """ESIM (Chen et al. 2017): each word is compared with its attention over the other sentence."""

    def __init__(self, features: WordFeatures, labels: Sequence[str]) -> None:
        super().__init__(features, labels)
        settings = features.settings
        hidden_size, num_layers = settings.hidden_size, settings.num_layers
        self.encoder = BiLSTMEncoder(features.dim, hidden_size, num_layers=num_layers)
        dim = self.encoder.dim + features.output_dim
        self.projection = nn.Sequential(nn.Linear(4 * dim, hidden_size), nn.ReLU())
        self.composition = BiLSTMEncoder(hidden_size, hidden_size, num_layers=num_layers)
        self.classifier = nn.Sequential(
            nn.Dropout(settings.dropout),
            nn.Linear(4 * self.composition.dim, hidden_size),
            nn.Tanh(),
            nn.Dropout(settings.dropout),
            nn.Linear(hidden_size, len(self.labels)),
        )

    def loss(self, examples: Sequence[TextPair]) -> Tensor:
        return self.cross_entropy(self._scores(examples), [e.label for e in examples])

    def predict(self, examples: Sequence[TextPair]) -> list[str]:
        return [self.labels[label] for label in self._scores(examples).argmax(1).tolist()]

    def _scores(self, examples: Sequence[TextPair]) -> Tensor:  # (pairs, labels)
        texts = [e.first for e in examples], [e.second for e in examples]
        both = [self.features(words) for words in texts]
        hidden = [
            self.features.normalized_output(self.encoder(f.vectors, f.mask), f, 0.0)[0]
            for f in both
        ]
        attended = _cross_attention(hidden[0], both[0].mask, hidden[1], both[1].mask)
        pooled = []
        for own, other, features in zip(hidden, attended, both, strict=True):
            compared = self.projection(torch.cat([own, other, own - other, own * other], -1))
            compared = variational_dropout(compared, self.features.settings.dropout, self.training)
            composed = self.composition(compared, features.mask)
            pooled += [masked_mean(composed, features.mask), masked_max(composed, features.mask)]
        scores: Tensor = self.classifier(torch.cat(pooled, -1))
        return scores


def _cross_attention(
    first: Tensor, first_mask: Tensor, second: Tensor, second_mask: Tensor
) -> tuple[Tensor, Tensor]:
    """For each word of each sentence, the attention-weighted mean of the other's words."""
    scores = first @ second.transpose(1, 2) / first.shape[2] ** 0.5  # (pairs, steps, steps)
    to_second = scores.masked_fill(~second_mask[:, None], -torch.inf).softmax(2)
    to_first = scores.masked_fill(~first_mask[:, :, None], -torch.inf).softmax(1)
    return to_second @ second, to_first.transpose(1, 2) @ first


def _parse(value: Any, tokenize: Tokenize) -> TextPair:
    premise, hypothesis = parse_two(value, ("premise", "hypothesis"))
    words = parse_words(premise, tokenize), parse_words(hypothesis, tokenize)
    texts = [text if isinstance(text, str) else " ".join(text) for text in (premise, hypothesis)]
    return TextPair(*words, "", (texts[0], texts[1]))


def _format(example: TextPair, label: str) -> str:
    return f"{label}\t{example.texts[0]}\t{example.texts[1]}\n"


register(
    Task(
        "entailment", "whether a premise entails a hypothesis",
        "a premise, a hypothesis and a label a line, with tabs between",
        read_file=read_pairs, head=ESIM,
        sentences=lambda example: (example.first, example.second),
        text=TextFormat("a premise, a tab and a hypothesis", _parse, _format),
        tokenizer="moses", max_words=10_000,
        settings=TaskSettings(elmo="both", dropout=0.3, epochs=8),
    )
)  # fmt: skip
