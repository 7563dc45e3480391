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
from elmokit.tasks.metrics import PrecisionRecall, accuracy, score_labels
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.text_io import TextFormat, words_by
from elmokit.tasks.word_features import WordFeatures

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

    def encode(self, sentences: Sequence[Words]) -> tuple[Tensor, Tensor]:
        """The encoder's output with ELMo's layers, (sentences, steps, dim), and the mask."""
        features = self.features(sentences)
        hidden = self.encoder(features.vectors, features.mask)
        return self.features.add_to_output(hidden, features), features.mask

    def label_ids(self, labels: Iterable[str]) -> Tensor:
        """The numbers of labels."""
        return torch.tensor([self._label_ids[label] for label in labels])

    def cross_entropy(self, scores: Tensor, labels: Iterable[str]) -> Tensor:
        """The mean loss of scores, (rows, labels)."""
        return F.cross_entropy(scores, self.label_ids(labels).to(scores.device))


@dataclass(frozen=True)
class Task:
    """A kind of supervised task: its files, its head, its metric, its text in and out."""

    name: str
    description: str  # a line for help texts
    files: str  # the formats that it reads, for help texts
    read_file: Callable[[Path, Tokenize], Sequence[Example]]
    head: Callable[[WordFeatures, Sequence[str]], Head]
    sentences: Callable[[Example], Sequence[Words]]
    text: TextFormat
    score: Callable[[Sequence[Example], Sequence[Prediction]], Mapping[str, float]]  # main first
    labels: Callable[[Sequence[Example]], list[str]] = lambda examples: []
    score_by_label: (
        Callable[[Sequence[Example], Sequence[Prediction]], Mapping[str, PrecisionRecall]] | None
    ) = None
    settings: TaskSettings = field(default_factory=TaskSettings)
    unused_settings: frozenset[str] = frozenset({"crf"})
    tokenizer: str = ""  # of the raw text in its files; empty if they hold words
    label_type: Callable[[str], str] = str  # a label without its prefix B-; empty for O
    finetune_epochs: int = 0  # epochs of biLM fine-tuning on the text before the head is trained
    max_words: int | None = None  # of an example, for heads whose memory grows with their square
    revision: int = 6  # to be raised if the head is trained in another way: old runs do not resume

    def read(self, path: Path, *, tokenizer: str = "") -> Sequence[Example]:
        """The examples of a file; raw text is tokenized as usual for the task, or as given."""
        examples = self.read_file(path, words_by(tokenizer or self.tokenizer or "spaces"))
        try:
            self.check_lengths(examples)
        except InputError as error:
            raise InputError(f"{TextFile(str(path)).name}: {error}") from None
        return examples

    def examples(
        self, source: str | Path | Sequence[Example], *, tokenizer: str = ""
    ) -> Sequence[Example]:
        """The examples of a file, or those that are given."""
        if isinstance(source, str | Path):
            return self.read(Path(source), tokenizer=tokenizer)
        return source

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
        """The sentences of all examples."""
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


def sorted_labels(examples: Sequence[Any]) -> list[str]:
    """The labels of examples that have one each."""
    return sorted({example.label for example in examples})


def sorted_tags(examples: Sequence[Any]) -> list[str]:
    """The tags of examples that have one for each word."""
    return sorted({tag for example in examples for tag in example.tags})


def label_accuracy(examples: Sequence[Any], predictions: Sequence[str]) -> dict[str, float]:
    """The accuracy on examples that have one label each."""
    return {"accuracy": accuracy([example.label for example in examples], predictions)}


def scores_of_labels(
    examples: Sequence[Any], predictions: Sequence[str]
) -> dict[str, PrecisionRecall]:
    """The score of each label of examples that have one each."""
    return score_labels([example.label for example in examples], predictions)


def own_words(example: Any) -> tuple[Words, ...]:
    """The sentences of an example that is one sentence or text."""
    return (example.words,)


import_module("elmokit.tasks.heads")  # last: the heads import this module
