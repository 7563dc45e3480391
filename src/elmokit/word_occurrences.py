"""The occurrences of a word in text: found, with labels where there are any; embedded; grouped."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.pooling import Vectors
from elmokit.threads import native_threads


@dataclass(frozen=True)
class Occurrence:
    """A word in a sentence."""

    words: tuple[str, ...]
    index: int  # of the word in the sentence
    label: str | None = None

    @property
    def word(self) -> str:
        """The word as it is written there."""
        return self.words[self.index]

    def excerpt(self, context_words: int) -> str:
        """The word with so many words before and after it."""
        start, end = max(0, self.index - context_words), self.index + context_words + 1
        before, after = "… " * (start > 0), " …" * (end < len(self.words))
        return before + " ".join(self.words[start:end]) + after


@dataclass(frozen=True)
class Groups:
    """The names of groups, and the number of each row's group."""

    names: list[str]
    numbers: list[int]


def find_occurrences(
    word: str,
    lines: Iterable[str],
    *,
    name: str,
    tokenize: Callable[[str], list[list[str]]],
    prefix: bool = False,
) -> list[Occurrence]:
    """The occurrences of a word, in any case, in the lines of a file.

    With `prefix`, those of all words that start with it. Either every line is `label TAB text`, or
    no line has a tab. `name` is what messages call the file.
    """
    occurrences = [
        occurrence
        for label, text in _labelled_lines(lines, name)
        for words in tokenize(text)
        for occurrence in occurrences_in(words, word, label=label, prefix=prefix)
    ]
    if not occurrences:
        remedy = "check its spelling" if prefix else "give --prefix for its inflections"
        raise InputError(f"{name}: {word!r} does not occur; {remedy}")
    return occurrences


def occurrences_in(
    words: Sequence[str], word: str, *, label: str | None = None, prefix: bool = False
) -> list[Occurrence]:
    """The occurrences of a word, in any case, in one sentence."""
    folded, sentence = word.casefold(), tuple(words)
    return [
        Occurrence(sentence, index, label)
        for index, other in enumerate(map(str.casefold, sentence))
        if other == folded or (prefix and other.startswith(folded))
    ]


def embed_occurrences(
    embedder: Embedder, occurrences: Sequence[Occurrence]
) -> Vectors:  # (layers, occurrences, dim)
    """The vectors of occurrences in every layer; each distinct sentence is embedded once."""
    sentences = {occurrence.words: None for occurrence in occurrences}
    arrays = dict(zip(sentences, embedder.embed(map(list, sentences)), strict=True))
    return np.stack([arrays[o.words][:, o.index] for o in occurrences], 1)


def group_occurrences(
    occurrences: Sequence[Occurrence], vectors: Vectors, *, clusters: int, seed: int = 0
) -> Groups:
    """Occurrences by their labels; without labels, by k-means of their vectors, (rows, dim)."""
    if occurrences[0].label is not None:
        names = sorted({occurrence.label or "" for occurrence in occurrences})
        return Groups(names, [names.index(occurrence.label or "") for occurrence in occurrences])
    numbers = cluster(vectors, clusters=min(clusters, len(occurrences)), seed=seed).tolist()
    return Groups([f"cluster {n + 1}" for n in range(max(numbers) + 1)], numbers)


def cluster(
    vectors: Vectors, *, clusters: int, seed: int = 0
) -> npt.NDArray[np.int64]:  # (rows, dim) -> (rows,)
    """The k-means cluster of each vector, numbered in order of appearance."""
    if not 1 <= clusters <= len(vectors):
        raise InputError(
            f"clusters is {clusters}, expected 1 to {len(vectors)}, the number of vectors"
        )
    try:
        from sklearn.cluster import KMeans  # noqa: PLC0415  an extra
        from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    except ImportError:
        raise InputError(
            "clusters need scikit-learn: pip install scikit-learn, or label the texts"
        ) from None
    kmeans = KMeans(clusters, n_init=8, random_state=seed)
    with warnings.catch_warnings(), native_threads(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct vectors than clusters
        labels = kmeans.fit_predict(vectors.astype(np.float64))
    order: dict[int, int] = {}
    return np.array([order.setdefault(int(label), len(order)) for label in labels], np.int64)


def _labelled_lines(lines: Iterable[str], name: str) -> Iterator[tuple[str | None, str]]:
    """The label and the text of each line that is not blank."""
    labelled: bool | None = None
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        label, tab, text = line.partition("\t")
        if labelled is None:
            labelled = bool(tab)
        if labelled != bool(tab) or "\t" in text or (labelled and not label.strip()):
            raise InputError(
                f"{name}, line {number}: expected {'a label, ' * labelled}"
                f"{'one tab and a text' if labelled else 'no tab'}, as in the lines before"
            )
        yield (label.strip(), text) if labelled else (None, line)
