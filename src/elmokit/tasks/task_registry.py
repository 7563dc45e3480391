"""The registry of tasks: how each reads its files, its head, its metric, and its text in and out.

Each module of `elmokit.tasks.heads` registers its tasks here. Python, the command line and the
service read `TASKS`, so that adding a head takes one file.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.files import TextFile
from elmokit.tasks.bilstm import BiLSTMEncoder
from elmokit.tasks.datasets.example_records import Tokenize, Words
from elmokit.tasks.datasets.lines import check_not_empty
from elmokit.tasks.metrics import Scores, accuracy, score_labels
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.word_features import WordFeatures
from elmokit.tokenizers import get_tokenizer

Example = Any  # a record of tasks/datasets/example_records.py
Prediction = Any  # what a head predicts for an example

TASKS: dict[str, "Task"] = {}


class Head(nn.Module):
    """A task's model on top of word features: a loss for training, and predictions."""

    encoder: BiLSTMEncoder

    def __init__(self, features: WordFeatures, labels: Sequence[str] = ()) -> None:
        super().__init__()
        self.features, self.labels = features, list(labels)
        self._label_ids = {label: number for number, label in enumerate(labels)}

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """The mean loss of the examples."""
        raise NotImplementedError

    def predict(self, examples: Sequence[Example]) -> list[Prediction]:
        """The prediction for each example; labels that the examples have are ignored."""
        raise NotImplementedError

    def make_encoder(self, *, extra: int = 0) -> int:
        """The usual encoder, of features and `extra` numbers a word; the size of its output.

        The size includes ELMo's layers, which `encode` adds.
        """
        settings = self.features.settings
        self.encoder = BiLSTMEncoder(
            self.features.dim + extra,
            settings.hidden_size,
            num_layers=settings.num_layers,
            dropout=settings.dropout,
        )
        return self.encoder.dim + self.features.output_dim

    def encode(self, sentences: Sequence[Words]) -> tuple[Tensor, Tensor]:
        """The encoder's output with ELMo's layers, (sentences, steps, dim), and the mask."""
        features = self.features(sentences)
        hidden = self.encoder(features.vectors, features.mask)
        return self.features.add_to_output(hidden, features), features.mask

    def label_ids(self, labels: Iterable[str]) -> Tensor:
        return torch.tensor([self._label_ids[label] for label in labels])

    def cross_entropy(self, scores: Tensor, labels: Iterable[str]) -> Tensor:
        """The mean loss of scores, (rows, labels)."""
        return F.cross_entropy(scores, self.label_ids(labels).to(scores.device))


def sorted_labels(examples: Sequence[Any]) -> list[str]:
    """The labels of examples that have one each."""
    return sorted({example.label for example in examples})


def _accuracy(examples: Sequence[Any], predictions: Sequence[str]) -> dict[str, float]:
    return {"accuracy": accuracy([example.label for example in examples], predictions)}


def _score_labels(examples: Sequence[Any], predictions: Sequence[str]) -> Scores:
    return score_labels([example.label for example in examples], predictions)


@dataclass(frozen=True)
class TextFormat:
    """How a task's input is written as text or as values, and its predictions as text."""

    input_help: str  # what a line of input is, for help texts
    parse: Callable[[Any, Tokenize], Any]  # a line, a list of words, a pair … -> an example
    format: Callable[[Any, Any], str]  # an example and its prediction -> lines of text
    result: Callable[[Any, Any], Any] = lambda _, prediction: prediction  # what `predict` returns
    clean: Callable[[str], str] = str  # a line without mark-up that is no text


@dataclass(frozen=True)
class Task:
    """A kind of supervised task: its files, its head, its metric, its text in and out.

    By default, an example is one text and has one label.
    """

    name: str
    description: str  # a line for help texts
    files: str  # the formats that it reads, for help texts
    read_file: Callable[[Path, Tokenize], Sequence[Example]]
    head: Callable[[WordFeatures, Sequence[str]], Head]
    text: TextFormat
    sentences: Callable[[Example], Sequence[Words]] = lambda example: (example.words,)
    labels: Callable[[Sequence[Example]], list[str]] = sorted_labels
    score: Callable[..., Mapping[str, float]] = _accuracy  # of examples, predictions; main first
    score_by_label: Callable[..., Scores] | None = _score_labels
    settings: TaskSettings = field(default_factory=TaskSettings)
    unused_settings: frozenset[str] = frozenset({"crf"})
    tokenizer: str = ""  # of the raw text in its files; empty if they hold words
    label_type: Callable[[str], str] = str  # a label without its prefix B-; empty for O
    finetune_epochs: int = 0  # epochs of biLM fine-tuning on the text before the head is trained
    max_words: int | None = None  # of an example, for heads whose memory grows with their square
    revision: int = 6  # to be raised if the head is trained in another way: old runs do not resume

    def read(
        self, source: str | Path | Sequence[Example], *, tokenizer: str = ""
    ) -> Sequence[Example]:
        """The examples of a file, or those that are given.

        Raw text is tokenized as usual for the task, or as given.
        """
        if not isinstance(source, str | Path):
            return source
        examples = self.read_file(Path(source), words_by(tokenizer or self.tokenizer or "spaces"))
        try:
            self.check_lengths(check_not_empty(examples, source, self.files))
        except InputError as error:
            raise InputError(f"{TextFile(str(source)).name}: {error}") from None
        return examples

    def label_types(self, labels: Iterable[str]) -> set[str]:
        """The distinct labels, those of spans without their prefixes."""
        return {*map(self.label_type, labels)} - {""}

    def unseen_labels(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        """The label types of examples that are not among `labels`: they are never predicted."""
        return sorted(self.label_types(self.labels(examples)) - self.label_types(labels))

    def check_lengths(self, examples: Iterable[Example]) -> None:
        """Refuse examples too long for a head that compares all pairs of words or mentions."""
        if self.max_words is None:
            return
        for example in examples:
            words = [word for words in self.sentences(example) for word in words]
            if len(words) > self.max_words:
                raise InputError(
                    f"{len(words):,} words that begin {' '.join(words[:8])!r}, expected at most "
                    f"{self.max_words:,}; cut the text in parts"
                )

    def length(self, example: Example) -> int:
        """The number of words of an example's longest sentence."""
        return max(map(len, self.sentences(example)))

    def all_sentences(self, examples: Iterable[Example]) -> list[Words]:
        return [words for example in examples for words in self.sentences(example)]


def register(task: Task) -> Task:
    """Add a task to the registry."""
    TASKS[task.name] = task
    return task


def get_task(name: str) -> Task:
    """The task of that name."""
    if name not in TASKS:
        raise InputError(f"no task is called {name!r}, expected one of {', '.join(TASKS)}")
    return TASKS[name]


def words_by(tokenizer: str) -> Tokenize:
    """A function from a raw text to its words, those of all its sentences."""

    def tokenize(text: str) -> list[str]:
        chosen = get_tokenizer(tokenizer)
        sentences = chosen.split_sentences(text)
        return [word for sentence in sentences for word in chosen.tokenize(sentence)]

    return tokenize


def parse_words(value: Any, tokenize: Tokenize) -> Words:
    """The words of a string, which is tokenized, or of a list of words."""
    if isinstance(value, str):
        words = tuple(tokenize(value))
        if not words:
            raise InputError(f"{value[:60]!r}: no words in it; leave out empty lines")
        return words
    words = tuple(value) if isinstance(value, list | tuple) else ()
    if not words or not all(isinstance(word, str) and word for word in words):
        raise InputError(f"{str(value)[:60]!r}: expected a string or a list of words")
    return words


def parse_two(value: Any, names: tuple[str, str]) -> tuple[Any, Any]:
    """The two parts of a line with a tab, of a pair, or of a mapping with those names."""
    if isinstance(value, str):
        parts = value.split("\t")
        if len(parts) == 2:
            return parts[0], parts[1]
        expected = f"a {names[0]}, a tab and a {names[1]}"
        raise InputError(f"{value[:60]!r}: {len(parts) - 1} tabs, expected {expected}")
    if isinstance(value, Mapping) and {*value} == {*names}:
        return value[names[0]], value[names[1]]
    if isinstance(value, list | tuple) and len(value) == 2:
        return value[0], value[1]
    raise InputError(f"{str(value)[:60]!r}: expected a pair ({names[0]}, {names[1]})")


def sorted_tags(examples: Sequence[Any]) -> list[str]:
    """The tags of examples that have one for each word."""
    return sorted({tag for example in examples for tag in example.tags})


import_module("elmokit.tasks.heads")  # last: the heads import this module
