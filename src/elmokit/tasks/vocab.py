"""Vocabulary of a head's own word embeddings, and files of word vectors to start from."""

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
from elmokit.tasks.datasets.text_tables import STRAIGHT_QUOTES

Vector = npt.NDArray[np.float32]

PADDING, UNKNOWN = 0, 1
_SPECIAL_ROWS = 2


class WordVocabulary:
    """The row of each word in a table of embeddings, regardless of case and shape of quotes.

    Row 0 is padding, row 1 any unknown word. The first `num_trained` rows are the words of the
    training text, whose embeddings are trained; without it all are. `counts` are the words'
    frequencies there, infinite if not given.
    """

    def __init__(
        self,
        words: Sequence[str],
        counts: Mapping[str, int] = MappingProxyType({}),
        *,
        num_trained: int | None = None,
    ) -> None:
        self.words = list(words)
        self.num_trained = len(self) if num_trained is None else num_trained
        self._rows = {word: row for row, word in enumerate(words, _SPECIAL_ROWS)}
        own = [counts.get(word, math.inf) for word in words]
        self.counts = torch.tensor([math.inf] * _SPECIAL_ROWS + own)

    @classmethod
    def from_sentences(
        cls, sentences: Iterable[Sequence[str]], *, pretrained: Iterable[str] = ()
    ) -> "WordVocabulary":
        """The words that occur twice, or once if they have pretrained vectors; then all of those.

        The words of the sentences come first, the commonest at the top.
        """
        counts = Counter(normalize_word(word) for words in sentences for word in words)
        others = dict.fromkeys(map(normalize_word, pretrained))
        own = [word for word, count in counts.most_common() if count > 1 or word in others]
        rest = [word for word in others if word not in counts]
        return cls([*own, *rest], counts, num_trained=len(own) + _SPECIAL_ROWS)

    def __len__(self) -> int:
        return len(self.words) + _SPECIAL_ROWS

    def rows(self, sentences: Sequence[Sequence[str]]) -> Tensor:
        """The row of each word, (sentences, steps)."""
        steps = max(map(len, sentences))
        rows = np.full((len(sentences), steps), PADDING)
        for number, words in enumerate(sentences):
            rows[number, : len(words)] = [
                self._rows.get(normalize_word(word), UNKNOWN) for word in words
            ]
        return torch.from_numpy(rows)


def normalize_word(word: str) -> str:
    """A word in lower case with straight quotes: all spellings of one row."""
    return word.lower().translate(STRAIGHT_QUOTES)


def read_word_vectors(path: Path, dim: int) -> tuple[list[str], Tensor]:
    """The words of a file of word vectors, in its order, and their vectors, (words, dim).

    Of words that differ only in case or shape of quotes, the first counts.
    """
    vectors: dict[str, Vector] = {}
    for word, vector in _word_vectors(path, dim):
        vectors.setdefault(normalize_word(word), vector)
    return [*vectors], torch.from_numpy(np.stack([*vectors.values()]))


def check_word_vectors(path: Path, dim: int) -> None:
    """Refuse a file whose first vector does not have `dim` numbers."""
    if not path.is_file():
        raise InputError(f"{path}: no such file, expected word vectors")
    next(_word_vectors(path, dim))


def _word_vectors(path: Path, expected_dim: int) -> Iterator[tuple[str, Vector]]:
    """The words and vectors of a file, of which there is at least one.

    One word and its numbers a line, as GloVe writes them, and word2vec after a line of sizes.
    """
    dim = 0
    with TextFile(str(path)).open() as file:
        for number, raw in enumerate(file, 1):
            line = raw.decode("utf-8", "replace").rstrip("\r\n ")  # some files mix encodings
            if number == 1:
                line = line.removeprefix("\ufeff")
            parts = line.rsplit(" ", dim) if dim else line.split(" ")  # a word may hold spaces
            if number == 1 and len(parts) == 2:
                continue
            dim = dim or len(parts) - 1
            if len(parts) - 1 != dim or dim < 2:
                raise FormatError(
                    f"{path}, line {number}: {len(parts) - 1} numbers, expected {max(dim, 2)}; a "
                    "file of word vectors has a word and its numbers a line"
                )
            try:
                vector = np.array(parts[1:], np.float32)
            except ValueError:
                raise FormatError(f"{path}, line {number}: not all numbers after a word") from None
            if not np.isfinite(vector).all():
                raise FormatError(
                    f"{path}, line {number}: a vector that is not finite; remove the line"
                )
            if dim != expected_dim:
                raise InputError(
                    f"{path}: vectors of {dim} numbers, but word_embedding_size is "
                    f"{expected_dim}; set word_embedding_size to {dim}"
                )
            yield parts[0], vector
    if not dim:
        raise FormatError(f"{path}: empty, expected a word and its numbers a line")
