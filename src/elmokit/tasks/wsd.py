"""Word sense disambiguation by nearest sense vectors, averaged over SemCor, and its evaluation."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.embedder import Embedder
from elmokit.errors import InputError, OutputError
from elmokit.progress import Progress
from elmokit.tasks.datasets.example_records import SenseInstance, SenseTaggedSentence
from elmokit.tasks.datasets.lines import numbered_lines, parse_whole_number

Floats = npt.NDArray[np.float64]
Entry = tuple[str, str]  # a lemma and a part of speech of WordNet

_POS_OF_KEY = {"1": "n", "2": "v", "3": "a", "4": "r", "5": "a"}
_POS_OF_TAG = {"N": "n", "V": "v", "J": "a", "A": "a", "R": "r"}  # by the tag's first letter
_SENTENCES_AT_ONCE = 500

# How much a sense's score rises with the logarithm of its frequency: best on SemCor itself, with
# each instance left out of its average (docs/experiments.md).
FREQUENCY_WEIGHT = 0.07


@dataclass(frozen=True)
class WSDScores:
    """Accuracies of a WSD evaluation."""

    instances: int
    unknown: int  # instances of words that the training text does not have: first sense chosen
    first_sense: float  # WordNet's first sense
    most_frequent: float  # the most frequent sense in the training text
    layers: list[float]  # the nearest sense vector, by layer


def evaluate_wsd(
    sense_vectors: "SenseVectors",
    first_senses: "FirstSenses",
    sentences: Sequence[SenseTaggedSentence],
    *,
    frequency_weight: float = FREQUENCY_WEIGHT,
) -> WSDScores:
    """The accuracy of the nearest sense vector for each layer, and of two baselines."""
    instances = list(chain.from_iterable(sentence.instances for sentence in sentences))
    if not instances:
        raise InputError("no instance is given; a file with tagged words is needed")
    predicted = sense_vectors.predict(sentences, frequency_weight=frequency_weight)
    num_layers = len(predicted[0])

    def accuracy(keys: Iterable[str | None]) -> float:
        correct = (key in i.keys for key, i in zip(keys, instances, strict=True))
        return sum(correct) / len(instances)

    with_fallback = [
        [key or first_senses.lookup(instance) for key in by_layer]
        for by_layer, instance in zip(predicted, instances, strict=True)
    ]
    return WSDScores(
        len(instances),
        sum(by_layer[0] is None for by_layer in predicted),
        accuracy(map(first_senses.lookup, instances)),
        accuracy(sense_vectors.most_frequent(i) or first_senses.lookup(i) for i in instances),
        [accuracy(by_layer[layer] for by_layer in with_fallback) for layer in range(num_layers)],
    )


class SenseVectors:
    """For each sense, the mean vector of its uses in a sense-tagged text, layer by layer."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._rows: dict[Entry, dict[str, int]] = defaultdict(dict)  # of each sense's key
        self._counts: list[int] = []
        self._sums: list[npt.NDArray[np.float32]] = []  # (layers, dim) of each row
        self._directions: dict[Entry, tuple[list[str], Floats, Floats]] = {}

    def fit(
        self,
        sentences: Iterable[SenseTaggedSentence],
        *,
        cache: Path | None = None,
        show_progress_bar: bool | None = False,
    ) -> "SenseVectors":
        """Average the vectors of the senses of tagged sentences, in place of earlier ones.

        With a folder as `cache`, the sums are kept there for the next call with the same model and
        text: one file a layer, about 180 MB in all for SemCor and the model that ships.
        """
        sentences = list(sentences)
        if cache is not None and self._load(cache, sentences):
            return self
        rows: dict[Entry, dict[str, int]] = defaultdict(dict)
        counts: list[int] = []
        sums: list[Floats] = []
        for instance, vectors in self._instance_vectors(sentences, show_progress_bar):
            senses = rows[entry_of(instance)]
            for key in instance.keys:
                if key not in senses:
                    senses[key] = len(sums)
                    counts.append(0)
                    sums.append(np.zeros_like(vectors))
                sums[senses[key]] += vectors
                counts[senses[key]] += 1
        self._rows, self._counts = rows, counts
        self._sums = [own.astype(np.float32) for own in sums]
        self._directions.clear()
        if cache is not None and sums:
            self._save(cache, sentences)
        return self

    def most_frequent(self, instance: SenseInstance) -> str | None:
        """The most frequent sense of a word in the text, or None if the text does not have it."""
        senses = self._rows.get(entry_of(instance), {})
        return max(senses, key=lambda key: self._counts[senses[key]], default=None)

    def predict(
        self,
        sentences: Iterable[SenseTaggedSentence],
        *,
        frequency_weight: float = FREQUENCY_WEIGHT,
    ) -> list[list[str | None]]:
        """For each instance and layer, the sense with the nearest vector; None if none is known.

        By cosine similarity alone, senses of few uses, whose means are noisy, win too often.
        Therefore `frequency_weight` times the logarithm of the number of uses is added.
        """
        check_frequency_weight(frequency_weight)
        predicted: list[list[str | None]] = []
        for instance, vectors in self._instance_vectors(list(sentences), False):
            entry = entry_of(instance)
            if entry not in self._rows:
                predicted.append([None] * self._embedder.num_layers)
                continue
            keys, directions, counts = self._directions_of(entry)
            unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True).clip(1e-12)
            scores = (directions * unit).sum(-1) + frequency_weight * np.log(counts)[:, None]
            predicted.append([keys[best] for best in scores.argmax(0)])
        return predicted

    def _directions_of(self, entry: Entry) -> tuple[list[str], Floats, Floats]:
        """The senses of an entry, their unit vectors, (senses, layers, dim), and their counts."""
        if entry not in self._directions:
            rows = self._rows[entry]
            sums = np.stack([self._sums[row] for row in rows.values()]).astype(np.float64)
            directions = sums / np.linalg.norm(sums, axis=-1, keepdims=True).clip(1e-12)
            counts = np.array([self._counts[row] for row in rows.values()], np.float64)
            self._directions[entry] = [*rows], directions, counts
        return self._directions[entry]

    def _instance_vectors(
        self, sentences: Sequence[SenseTaggedSentence], show_progress_bar: bool | None
    ) -> Iterator[tuple[SenseInstance, Floats]]:
        """Every instance and the mean of its words' vectors, (layers, dim)."""
        with Progress(len(sentences), shown=show_progress_bar) as progress:
            for start in range(0, len(sentences), _SENTENCES_AT_ONCE):
                chunk = sentences[start : start + _SENTENCES_AT_ONCE]
                embedded = self._embedder.embed([sentence.words for sentence in chunk])
                for sentence, vectors in zip(chunk, embedded, strict=True):
                    for instance in sentence.instances:
                        span = vectors[:, instance.first : instance.last + 1]
                        yield instance, span.mean(1, dtype=np.float64)
                words = sum(len(sentence.words) for sentence in chunk)
                progress.advance(len(chunk), words=words)

    def _save(self, cache: Path, sentences: Sequence[SenseTaggedSentence]) -> None:
        name = self._cache_name(sentences)
        senses = [
            [*entry, key, row] for entry, rows in self._rows.items() for key, row in rows.items()
        ]
        try:
            cache.mkdir(parents=True, exist_ok=True)
            for layer in range(self._embedder.num_layers):
                sums = np.stack([own[layer] for own in self._sums])
                write_atomically(cache / f"{name}.layer{layer}.npy", partial(np.save, arr=sums))
            record = json.dumps({"senses": senses, "counts": self._counts})
            write_atomically(cache / f"{name}.json", record)
        except OSError as error:
            raise OutputError(
                f"{cache}: sense vectors cannot be kept there ({error.strerror}); make room or "
                "name another folder"
            ) from None

    def _load(self, cache: Path, sentences: Sequence[SenseTaggedSentence]) -> bool:
        """Load sums that an earlier call left in the cache, if they are complete."""
        name = self._cache_name(sentences)
        try:
            record = json.loads((cache / f"{name}.json").read_text("utf-8"))
            layers = [
                np.load(cache / f"{name}.layer{layer}.npy", allow_pickle=False)
                for layer in range(self._embedder.num_layers)
            ]
            rows: dict[Entry, dict[str, int]] = defaultdict(dict)
            for lemma, pos, key, row in record["senses"]:
                rows[lemma, pos][key] = row
            counts = [int(count) for count in record["counts"]]
        except (OSError, EOFError, ValueError, KeyError, TypeError):
            return False  # missing or damaged
        expected = len(counts), self._embedder.dim
        if any(layer.shape != expected for layer in layers):
            return False
        self._rows, self._counts = rows, counts
        self._sums = [*np.stack(layers, 1)]
        self._directions.clear()
        return True

    def _cache_name(self, sentences: Sequence[SenseTaggedSentence]) -> str:
        """A name for the sums of this model and text."""
        embedder = self._embedder
        model = embedder.pretrained.fingerprint(), embedder.state_mode, embedder.precision
        digest = hashlib.sha256(repr(model).encode())
        for sentence in sentences:
            digest.update(repr(sentence).encode("utf-8", "surrogatepass"))
        return f"sense-vectors-{digest.hexdigest()[:32]}"


@dataclass(frozen=True)
class FirstSenses:
    """WordNet's first sense of each entry."""

    keys: dict[Entry, str]

    @classmethod
    def from_wordnet(cls, path: Path) -> "FirstSenses":
        """The first senses by the order of WordNet's index.sense."""
        if not path.is_file():
            raise InputError(
                f"{path}: no such file; on Debian it comes with the package wordnet-sense-index"
            )
        ranks: dict[Entry, tuple[int, str]] = {}
        for line in numbered_lines(path):
            parts = line.text.split(" ")
            rank = parse_whole_number(parts[2]) if len(parts) == 4 else None
            if rank is None:
                raise line.error("not a line of WordNet's index.sense")
            entry = _entry_of_key(parts[0])
            # Adjectives and adjective satellites are ranked together.
            ranks[entry] = min(ranks.get(entry, (1 << 30, "")), (rank, parts[0]))
        return cls({entry: key for entry, (_, key) in ranks.items()})

    def lookup(self, instance: SenseInstance) -> str | None:
        """The first sense of a word, if WordNet has it."""
        return self.keys.get(entry_of(instance))


def default_cache_folder() -> Path:
    """The folder for sense vectors under the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elmokit"


def entry_of(instance: SenseInstance) -> Entry:
    """The lemma and part of speech by which an instance is looked up."""
    is_adverb = instance.pos.startswith(("ADV", "RB"))
    return instance.lemma.lower(), "r" if is_adverb else _POS_OF_TAG.get(instance.pos[:1], "")


def check_frequency_weight(weight: float) -> None:
    """Refuse a weight that is negative or not finite."""
    if not 0 <= weight < float("inf"):
        raise InputError(f"frequency_weight is {weight}, expected a number of 0 or more")


def _entry_of_key(key: str) -> Entry:
    lemma, _, rest = key.partition("%")
    return lemma, _POS_OF_KEY.get(rest[:1], "")
