"""A name becomes a task: how its files are read, what learns it, and how it is judged."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from elmokit.errors import InputError
from elmokit.files import TextFile
from elmokit.tasks.data.table import Split
from elmokit.tasks.metrics.score import Score
from elmokit.tasks.plain import Plain, words_by
from elmokit.tasks.settings import TaskSettings
from elmokit.tasks.words import Sentence, WordVectors

Example = Any  # a record of tasks/data/example.py
Answer = Any  # what a head says of an example


class Head(nn.Module):
    """What every supervised model has: vectors of words, labels, a loss and answers."""

    words: WordVectors
    labels: list[str]

    def loss(self, examples: Sequence[Example]) -> Tensor:
        """The mean loss of the examples."""
        raise NotImplementedError

    def answer(self, examples: Sequence[Example]) -> list[Answer]:
        """What the head says of each example, without looking at what the example says."""
        raise NotImplementedError


@dataclass(frozen=True)
class Task:
    """How a kind of examples is read, learnt and judged."""

    name: str
    reader: Callable[[Path, Split], Sequence[Example]]
    labels: Callable[[Sequence[Example]], list[str]]
    make: Callable[[WordVectors, Sequence[str]], Head]
    sentences: Callable[[Example], Sequence[Sentence]]
    plain: Plain
    score: Callable[[Sequence[Example], Sequence[Answer]], Mapping[str, float]]  # main one first
    settings: TaskSettings = field(default_factory=TaskSettings)
    by_label: Callable[[Sequence[Example], Sequence[Answer]], Mapping[str, Score]] | None = None
    adapt: int = 0  # times that a biLM reads the examples' text, as text, before the head learns
    longest: int | None = None  # words of an example whose pairs are looked at, in memory
    bare: Callable[[str], str] = str  # a tag without its word's place in a span; "" outside
    revision: int = 6  # to be raised whenever its head learns in another way

    def read(self, path: Path, *, split: str = "") -> Sequence[Example]:
        """The examples of a file; raw text in it is split as `plain` says, or in another way."""
        examples = self.reader(path, words_by(split or self.plain.split))
        try:
            self.check_lengths(examples)
        except InputError as error:
            raise InputError(f"{TextFile(str(path)).name}: {error}") from None
        return examples

    def kinds(self, labels: Iterable[str]) -> set[str]:
        """What labels tell apart: of spans, wherever in them a word stands."""
        return {*map(self.bare, labels)} - {""}

    def strangers(self, examples: Sequence[Example], labels: Sequence[str]) -> list[str]:
        """The kinds of examples that are not among those of labels: no head of those finds them."""
        return sorted(self.kinds(self.labels(examples)) - self.kinds(labels))

    def check_lengths(self, examples: Iterable[Example]) -> None:
        """Refuse examples for whose pairs of words or mentions no memory would be enough."""
        if self.longest is None:
            return
        for example in examples:
            words = [word for words in self.sentences(example) for word in words]
            if len(words) > self.longest:
                raise InputError(
                    f"{len(words):,} words that begin {' '.join(words[:8])!r}, expected at most "
                    f"{self.longest:,}; cut the text in parts"
                )

    def length(self, example: Example) -> int:
        """How many words an example has, in the longest of its sentences."""
        return max(map(len, self.sentences(example)))
