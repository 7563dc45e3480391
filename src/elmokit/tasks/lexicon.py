"""Words of the training text become rows of a table: all that occur twice, and one for the rest."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.errors import FormatError, InputError
from elmokit.files import TextFile
from elmokit.tasks.feed import PLAIN_QUOTES

Vector = npt.NDArray[np.float32]

PADDING, UNKNOWN = 0, 1
_FIRST = 2


class Lexicon:
    """The rows of words, whose case does not matter, nor how quotes are drawn.

    Row 0 is padding, 1 any other word. The training text has the words of the first `learnt` rows,
    all if None; `counts` says how often, without limit where that is not known.
    """

    def __init__(
        self,
        words: Sequence[str],
        counts: Mapping[str, int] = MappingProxyType({}),
        *,
        learnt: int | None = None,
    ) -> None:
        self.words = list(words)
        self.learnt = len(self) if learnt is None else learnt
        self._rows = {word: row for row, word in enumerate(words, _FIRST)}
        own = [counts.get(word, math.inf) for word in words]
        self.counts = torch.tensor([math.inf] * _FIRST + own)

    @classmethod
    def of(cls, sentences: Iterable[Sequence[str]], *, others: Iterable[str] = ()) -> "Lexicon":
        """The words that occur at least twice, or once and among others; then those others."""
        counts = Counter(key_of(word) for words in sentences for word in words)
        known = dict.fromkeys(map(key_of, others))
        own = [word for word, count in counts.most_common() if count > 1 or word in known]
        rest = [word for word in known if word not in counts]
        return cls([*own, *rest], counts, learnt=len(own) + _FIRST)

    def __len__(self) -> int:
        return len(self.words) + _FIRST

    def rows(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The row of each word, (sentences, steps)."""
        steps = max(map(len, sentences))
        rows = np.full((len(sentences), steps), PADDING)
        for place, words in enumerate(sentences):
            rows[place, : len(words)] = [self._rows.get(key_of(w), UNKNOWN) for w in words]
        return torch.from_numpy(rows)


def key_of(word: str) -> str:
    """What is the same for all ways to write a word that have one row."""
    return word.lower().translate(PLAIN_QUOTES)


def read_vectors(path: Path, dim: int) -> tuple[list[str], Tensor]:
    """The words of a file of vectors, in its order, and their vectors, (words, dim).

    Of words that differ in case or quotes only the first counts.
    """
    rows: dict[str, Vector] = {}
    for word, vector in _vectors(path, dim):
        rows.setdefault(key_of(word), vector)
    return [*rows], torch.from_numpy(np.stack([*rows.values()]))


def check_vectors(path: Path, dim: int) -> None:
    """Refuse a file whose first vector has not `dim` numbers."""
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected vectors of words")
    next(_vectors(path, dim))


def _vectors(path: Path, word_dim: int) -> Iterator[tuple[str, Vector]]:
    """The words of a file and their vectors, of which there is at least one.

    A word and its numbers a line, as word2vec (with a line of sizes first) and GloVe write them.
    """
    dim = 0
    with TextFile(str(path)).open() as file:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n ")  # some have words in other codes
            if number == 1:
                line = line.removeprefix("\ufeff")
            parts = line.rsplit(" ", dim) if dim else line.split(" ")  # a word may hold spaces
            if number == 1 and len(parts) == 2:
                continue
            dim = dim or len(parts) - 1
            if len(parts) - 1 != dim or dim < 2:
                raise FormatError(
                    f"{path}, line {number}: {len(parts) - 1} numbers, expected {max(dim, 2)}; a "
                    "file of vectors has a word and its numbers a line"
                )
            try:
                vector = np.array(parts[1:], np.float32)
            except ValueError:
                raise FormatError(f"{path}, line {number}: not all numbers after a word") from None
            if not np.isfinite(vector).all():
                raise FormatError(
                    f"{path}, line {number}: a vector that is not finite; remove the line"
                )
            if dim != word_dim:
                raise InputError(
                    f"{path}: vectors of {dim} numbers, but word_dim is {word_dim}; say word_dim "
                    f"{dim}"
                )
            yield parts[0], vector
    if not dim:
        raise FormatError(f"{path}: empty, expected a word and its numbers a line")
