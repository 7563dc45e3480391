"""Words become context-free vectors, each worked out once and kept as long as there is room."""

import sys

import numpy as np
import torch
from torch import Tensor

from elmokit.model.bilm import BiLM
from elmokit.text.alphabet import Alphabet


class WordCache:
    """The vectors of the words met lately, in about so many bytes.

    There are two shelves. New words, and words found on the old shelf, go to the young one; when
    that is full it becomes the old one, and what nobody asked for since is forgotten.
    """

    def __init__(self, bilm: BiLM, alphabet: Alphabet, most_bytes: int) -> None:
        self._bilm = bilm
        self._alphabet = alphabet
        self._most_bytes = most_bytes // 2  # a shelf
        self.cut = 0  # words that were too long, each counted when it was met
        self.forget()

    def forget(self) -> None:
        """Forget all vectors, as when the weights have changed."""
        self._young = self._old = _Shelf(self._bilm)

    def __len__(self) -> int:
        return len(self._young.rows) + len(self._old.rows)

    def vectors(self, words: list[str]) -> Tensor:  # -> (words + 1, dim)
        """The vectors of distinct words, after a zero one for padding."""
        missing = [word for word in words if word not in self._young.rows]
        if self._young.bytes > self._most_bytes:
            self._old, self._young = self._young, _Shelf(self._bilm)
            missing = words
        if known := [word for word in missing if word in self._old.rows]:
            self._young.put(known, self._old.take(known))
        if new := [word for word in missing if word not in self._old.rows]:
            self._young.put(new, self._encode(new))
        return torch.cat([self._young.table[:1], self._young.take(words)])

    def _encode(self, words: list[str]) -> Tensor:  # -> (words, dim)
        rows, cut = self._alphabet.encode(words)
        self.cut += cut
        padded = np.vstack([np.zeros((1, rows.shape[1]), np.int64), rows])
        return self._bilm.encode(torch.from_numpy(padded).to(self._bilm.device))[1:]


class _Shelf:
    """A table of vectors that grows, and the row of each word; row 0 is zero."""

    def __init__(self, bilm: BiLM) -> None:
        self.rows: dict[str, int] = {}
        self.table = next(bilm.parameters()).new_zeros(1, bilm.config.dim)
        self._word_bytes = 0

    @property
    def bytes(self) -> int:
        """What the vectors and the words take, a word's place in the dictionary included."""
        return self.table.nbytes + self._word_bytes

    def take(self, words: list[str]) -> Tensor:  # -> (words, dim)
        rows = torch.tensor([self.rows[word] for word in words], dtype=torch.long)
        return self.table[rows.to(self.table.device)]

    def put(self, words: list[str], vectors: Tensor) -> None:
        start = len(self.rows) + 1
        end = start + len(words)
        if end > len(self.table):
            grown = self.table.new_zeros(max(end, len(self.table) * 5 // 4), self.table.shape[1])
            grown[:start] = self.table[:start]
            self.table = grown
        self.table[start:end] = vectors
        self.rows.update(zip(words, range(start, end), strict=True))
        self._word_bytes += sum(map(sys.getsizeof, words)) + 100 * len(words)
