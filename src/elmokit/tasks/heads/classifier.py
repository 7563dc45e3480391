"""Text classification: sentiment with labelled phrases, topics, any labels."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.tasks.bilstm import masked_max, masked_mean
from elmokit.tasks.datasets.example_records import LabelledText, Tokenize
from elmokit.tasks.datasets.text_tables import read_labelled, read_trees, without_line_breaks
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.task_registry import Head, Task, TextFormat, parse_words, register, sorted_labels
from elmokit.tasks.word_features import WordFeatures

_PHRASES_PER_TEXT = 8  # phrases of several words, drawn at random, that an update trains on


class Classifier(Head):
    """A BiLSTM whose hidden states are pooled by attention, maximum and mean, then classified."""

    def __init__(self, features: WordFeatures, labels: Sequence[str]) -> None:
        super().__init__(features, labels)
        settings, dim = features.settings, self.make_encoder()
        self.attention = nn.Linear(dim, 1)
        self.classifier = nn.Sequential(
            nn.Linear(3 * dim, settings.hidden_size),
            nn.ReLU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden_size, len(self.labels)),
        )

    def loss(self, examples: Sequence[LabelledText]) -> Tensor:
        """The mean loss of a text, plus that of a phrase if phrases have labels too."""
        hidden, mask = self.encode([example.words for example in examples])
        loss = self.cross_entropy(self._scores(hidden, mask), [e.label for e in examples])
        phrases = [(row, *phrase) for row, e in enumerate(examples) for phrase in _sample(e)]
        if not phrases:
            return loss
        rows, firsts, lasts, labels = zip(*phrases, strict=True)
        position = torch.arange(mask.shape[1], device=mask.device)
        first, last = (torch.tensor(side, device=mask.device)[:, None] for side in (firsts, lasts))
        inside = (first <= position) & (position <= last)
        return loss + self.cross_entropy(self._scores(hidden[list(rows)], inside), labels)

    def predict(self, examples: Sequence[LabelledText]) -> list[str]:
        best = self._scores(*self.encode([example.words for example in examples])).argmax(1)
        return [self.labels[label] for label in best.tolist()]

    def _scores(self, hidden: Tensor, mask: Tensor) -> Tensor:  # (texts, labels)
        weights = self.attention(hidden).masked_fill(~mask[..., None], -torch.inf).softmax(1)
        pooled = [(weights * hidden).sum(1), masked_max(hidden, mask), masked_mean(hidden, mask)]
        scores: Tensor = self.classifier(torch.cat(pooled, 1))
        return scores


def _sample(example: LabelledText) -> list[tuple[int, int, str]]:
    """A sample of the phrases of several words; most single words are neutral."""
    several = [phrase for phrase in example.phrases if phrase[0] < phrase[1]]
    return [several[number] for number in torch.randperm(len(several))[:_PHRASES_PER_TEXT].tolist()]


def _all_labels(examples: Sequence[LabelledText]) -> list[str]:
    """The labels of texts and of their phrases."""
    of_phrases = {label for example in examples for _, _, label in example.phrases}
    return sorted(of_phrases.union(sorted_labels(examples)))


def _parse(value: Any, tokenize: Tokenize) -> LabelledText:
    if not isinstance(value, str):
        words = parse_words(value, tokenize)
        return LabelledText(words, "", " ".join(words))
    text = without_line_breaks(value)
    label, tab, _ = text.strip().partition("\t")
    if tab and " " not in label:
        raise InputError(f"{value[:60]!r}: {label!r} and a tab, expected a text without its label")
    return LabelledText(parse_words(text, tokenize), "", text)


def _format(example: LabelledText, label: str) -> str:
    return f"{label}\t{example.text}\n"


_TEXT = TextFormat("a text", _parse, _format, clean=without_line_breaks)

register(
    Task(
        "sentiment", "sentiment of sentences and phrases", "trees of the SST: (3 (2 It) (4 works))",
        read_file=lambda path, _: read_trees(path), head=Classifier, labels=_all_labels,
        text=_TEXT,
        settings=TaskSettings(learning_rate=0.001, epochs=6), finetune_epochs=2,
    )
)  # fmt: skip
register(
    Task(
        "classification", "labels of texts", "a label, a tab and a text a line",
        read_file=read_labelled, head=Classifier, text=_TEXT, tokenizer="moses",
    )
)  # fmt: skip
