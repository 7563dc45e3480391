"""Word sense disambiguation by nearest sense vectors, averaged over SemCor, and its evaluation."""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from zipfile import BadZipFile

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
    first_senses: Mapping[Entry, str],
    sentences: Sequence[SenseTaggedSentence],
    *,
    frequency_weight: float = FREQUENCY_WEIGHT,
) -> WSDScores:
    """The accuracy of the nearest sense vector for each layer, and of two baselines."""
    instances = list(chain.from_iterable(sentence.instances for sentence in sentences))
    if not instances:
        raise InputError("no instance is given; a file with tagged words is needed")
    predicted = sense_vectors.predict(sentences, frequency_weight=frequency_weight)

    def accuracy(keys: Iterable[str | None]) -> float:
        """The accuracy of senses; where a word has none, its first sense is taken."""
        correct = (
            (key or first_senses.get(entry_of(instance))) in instance.keys
            for key, instance in zip(keys, instances, strict=True)
        )
        return sum(correct) / len(instances)

    return WSDScores(
        len(instances),
        sum(by_layer[0] is None for by_layer in predicted),
        accuracy([None] * len(instances)),
        accuracy(map(sense_vectors.most_frequent, instances)),
        [accuracy(keys) for keys in zip(*predicted, strict=True)],
    )


class SenseVectors:
    """For each sense, the mean vector of its uses in a sense-tagged text, layer by layer."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._rows: dict[Entry, dict[str, int]] = {}  # of each sense's key
        self._counts = np.zeros(0, np.int64)
        self._sums = np.zeros((0, embedder.num_layers, embedder.dim), np.float32)

    def fit(
        self,
        sentences: Iterable[SenseTaggedSentence],
        *,
        cache: Path | None = None,
        show_progress_bar: bool | None = False,
    ) -> "SenseVectors":
        """Average the vectors of the senses of tagged sentences, in place of earlier ones.

        With a folder as `cache`, the sums are kept there for the next call with the same model and
        text: about 180 MB for SemCor and the model that ships.
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
        self._rows, self._counts = dict(rows), np.array(counts, np.int64)
        self._sums = np.array(sums, np.float32).reshape(-1, *self._sums.shape[1:])
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
            keys, rows = zip(*self._rows[entry].items(), strict=True)
            scores = (_unit(self._sums[[*rows]]) * _unit(vectors)).sum(-1)  # (senses, layers)
            scores += frequency_weight * np.log(self._counts[[*rows]])[:, None]
            predicted.append([keys[best] for best in scores.argmax(0)])
        return predicted

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
        rows = self._rows
        senses = json.dumps([[*entry, key, n] for entry in rows for key, n in rows[entry].items()])
        write = partial(np.savez, sums=self._sums, counts=self._counts, senses=senses)
        try:
            cache.mkdir(parents=True, exist_ok=True)
            write_atomically(self._cache_file(cache, sentences), write)
        except OSError as error:
            raise OutputError(
                f"{cache}: sense vectors cannot be kept there ({error.strerror}); make room or "
                "name another folder"
            ) from None

    def _load(self, cache: Path, sentences: Sequence[SenseTaggedSentence]) -> bool:
        """Load sums that an earlier call left in the cache, if they are complete."""
        rows: dict[Entry, dict[str, int]] = defaultdict(dict)
        try:
            with (
                open(self._cache_file(cache, sentences), "rb") as file,
                np.load(file, allow_pickle=False) as arrays,
            ):
                for lemma, pos, key, row in json.loads(str(arrays["senses"])):
                    rows[lemma, pos][key] = row
                counts, sums = arrays["counts"], arrays["sums"]
        except (OSError, EOFError, ValueError, KeyError, TypeError, BadZipFile):
            return False  # missing or damaged
        self._rows, self._counts, self._sums = dict(rows), counts, sums
        return True

    def _cache_file(self, cache: Path, sentences: Sequence[SenseTaggedSentence]) -> Path:
        """The file of the sums of this model and text."""
        embedder = self._embedder
        model = embedder.pretrained.fingerprint(), embedder.state_mode, embedder.precision
        digest = hashlib.sha256(repr(model).encode())
        for sentence in sentences:
            digest.update(repr(sentence).encode("utf-8", "surrogatepass"))
        return cache / f"sense-vectors-{digest.hexdigest()[:32]}.npz"


def read_first_senses(path: Path) -> dict[Entry, str]:
    """The key of each entry's first sense, by the order of WordNet's index.sense."""
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
        lemma, _, rest = parts[0].partition("%")
        entry = lemma, _POS_OF_KEY.get(rest[:1], "")
        # Adjectives and adjective satellites are ranked together.
        ranks[entry] = min(ranks.get(entry, (1 << 30, "")), (rank, parts[0]))
    return {entry: key for entry, (_, key) in ranks.items()}


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


def _unit(vectors: npt.NDArray[np.floating]) -> Floats:
    """Vectors (…, dim) of length 1, in float64."""
    doubles = vectors.astype(np.float64)
    unit: Floats = doubles / np.linalg.norm(doubles, axis=-1, keepdims=True).clip(1e-12)
    return unit
