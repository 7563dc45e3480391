"""Words in sentences become senses of WordNet: the one whose known uses are nearest."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.tasks.data.example import Instance, Sensed
from elmokit.tasks.data.source import lines_of, whole_number

Floats = npt.NDArray[np.float64]
Entry = tuple[str, str]  # a lemma and a kind of word

# The kinds of words of sense keys, and of the tags of SemCor and Raganato's files.
_KINDS = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
_TAGS = {"N": "n", "V": "v", "J": "a", "A": "a", "R": "r"}
_SENTENCES_AT_ONCE = 2000

# How much nearer a sense is for the logarithm of its uses: best on SemCor's own uses, each left
# out of its average (docs/log.md).
OFTEN = 0.07


def entry_of(instance: Instance) -> Entry:
    """What an instance is looked up by."""
    kind = "r" if instance.pos.startswith(("ADV", "RB")) else _TAGS.get(instance.pos[:1], "")
    return instance.lemma.lower(), kind


@dataclass(frozen=True)
class FirstSenses:
    """The commonest sense of each entry."""

    keys: dict[Entry, str]

    @classmethod
    def of_wordnet(cls, path: Path) -> "FirstSenses":
        """By the order of WordNet's index.sense."""
        if not path.is_file():
            raise InputError(
                f"{path}: no such file; on Debian it comes with the package wordnet-sense-index"
            )
        ranks: dict[Entry, tuple[int, str]] = {}
        for line in lines_of(path):
            parts = line.text.split(" ")
            rank = whole_number(parts[2]) if len(parts) == 4 else None
            if rank is None:
                raise line.wrong("not a line of WordNet's index.sense")
            entry = _entry_of_key(parts[0])
            # Adjectives and their satellites are counted together.
            ranks[entry] = min(ranks.get(entry, (1 << 30, "")), (rank, parts[0]))
        return cls({entry: key for entry, (_, key) in ranks.items()})

    def choose(self, instance: Instance) -> str | None:
        """The first sense, if the entry is known."""
        return self.keys.get(entry_of(instance))


def check_often(often: float) -> None:
    """Refuse a weight of frequencies that cannot be."""
    if not 0 <= often < float("inf"):
        raise InputError(f"often is {often}, expected a number of 0 or more")


class SenseAverages:
    """For each sense the mean of the vectors of its uses, layer by layer."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._counts: dict[Entry, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._sums: dict[Entry, dict[str, Floats]] = defaultdict(dict)  # of (layers, dim)
        self._means: dict[Entry, tuple[list[str], Floats, Floats]] = {}

    def learn(self, sentences: Iterable[Sensed]) -> None:
        """Add the uses of tagged sentences."""
        for instance, vectors in self._uses(sentences):
            senses = self._sums[entry_of(instance)]
            for key in instance.keys:
                senses[key] = senses.get(key, 0) + vectors
                self._counts[entry_of(instance)][key] += 1
        self._means.clear()

    def commonest(self, instance: Instance) -> str | None:
        """The sense that was used most, whatever the words beside it; None if none is known."""
        uses = self._counts.get(entry_of(instance), {})
        return max(uses, key=uses.__getitem__, default=None)

    def choose(
        self, sentences: Iterable[Sensed], *, often: float = OFTEN
    ) -> list[list[str | None]]:
        """For each instance, and each layer, the nearest sense; None if none is known.

        By cosines alone the mean of a sense's few uses, which is noisy, is too often the nearest;
        so `often` times the logarithm of its uses is added. 0 is the nearest mean alone.
        """
        check_often(often)
        chosen: list[list[str | None]] = []
        for instance, vectors in self._uses(sentences):
            entry = entry_of(instance)
            if entry not in self._sums:
                chosen.append([None] * self._embedder.num_layers)
                continue
            keys, means, uses = self._mean(entry)
            own = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(1e-12)
            nearness = (means * own).sum(-1) + often * np.log(uses)[:, None]
            nearest = nearness.argmax(0)
            chosen.append([keys[place] for place in nearest])
        return chosen

    def _mean(self, entry: Entry) -> tuple[list[str], Floats, Floats]:
        """The senses of an entry, their directions, (senses, layers, dim), and their uses."""
        if entry not in self._means:
            sums = np.stack([*self._sums[entry].values()])
            directions = sums / np.linalg.norm(sums, axis=-1, keepdims=True).clip(1e-12)
            uses = np.array([self._counts[entry][key] for key in self._sums[entry]], np.float64)
            self._means[entry] = [*self._sums[entry]], directions, uses
        return self._means[entry]

    def _uses(self, sentences: Iterable[Sensed]) -> Iterable[tuple[Instance, Floats]]:
        """Every instance and the mean of its words' vectors, (layers, dim)."""
        left = iter(sentences)
        while some := list(islice(left, _SENTENCES_AT_ONCE)):
            embedded = self._embedder.embed([sentence.words for sentence in some])
            for sentence, vectors in zip(some, embedded, strict=True):
                for instance in sentence.instances:
                    span = vectors[:, instance.first : instance.last + 1]
                    yield instance, span.mean(1, dtype=np.float64)


@dataclass(frozen=True)
class SenseScores:
    """The shares of instances whose sense is right."""

    instances: int
    unknown: int  # entries that the tagged text never used: there the first sense is chosen
    first_sense: float
    commonest: float  # the sense most used in the tagged text: what needs no vectors
    layers: list[float]


def disambiguate(
    averages: SenseAverages,
    first: FirstSenses,
    sentences: Sequence[Sensed],
    *,
    often: float = OFTEN,
) -> SenseScores:
    """How often the nearest sense is right, layer by layer, beside the first sense."""
    instances = list(_instances(sentences))
    if not instances:
        raise InputError("no instance is given; a file with tagged words is needed")
    chosen = averages.choose(sentences, often=often)
    layers = len(chosen[0])

    def share(answers: Iterable[str | None]) -> float:
        right = (a in i.keys for a, i in zip(answers, instances, strict=True))
        return sum(right) / len(instances)

    backed = [[a or first.choose(i) for a in c] for c, i in zip(chosen, instances, strict=True)]
    return SenseScores(
        len(instances),
        sum(c[0] is None for c in chosen),
        share(map(first.choose, instances)),
        share(averages.commonest(i) or first.choose(i) for i in instances),
        [share(answers[layer] for answers in backed) for layer in range(layers)],
    )


def _instances(sentences: Iterable[Sensed]) -> Iterable[Instance]:
    return chain.from_iterable(sentence.instances for sentence in sentences)


def _entry_of_key(key: str) -> Entry:
    lemma, _, rest = key.partition("%")
    return lemma, _KINDS.get(rest[:1], "")
