"""A word becomes a row of character ids."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError
from elmokit.text.vocabulary import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary

Ids = npt.NDArray[np.int64]


class Alphabet(Protocol):
    """What turns words into rows of ids."""

    @property
    def width(self) -> int:
        """How many ids a word has."""

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, width), and how many words were too long and cut."""


class ByteAlphabet:
    """UTF-8 bytes, as every published ELMo spells a word: 262 ids, 0 for padding words.

    A row is [begin of word, bytes, end of word, padding characters ...]; `<S>` and `</S>` have
    rows of their own. A word longer than `width - 2` bytes is cut, even within a character.
    """

    SIZE = 262
    # A byte b is b + 1; then the sentence marks, the word marks and the padding character.
    BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261

    def __init__(self, width: int = 50) -> None:
        self.width = width

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, width), and how many words were too long and cut."""
        room = self.width - 2
        spelled = [word.encode("utf-8", "ignore") for word in words]
        full = np.fromiter(map(len, spelled), np.int64, len(spelled))
        lengths = np.minimum(full, room)
        cut = int((full > room).sum())
        if cut:
            spelled = [spelling[:room] for spelling in spelled]

        rows = np.full((len(words), self.width), self.PAD, np.int64)
        rows[:, 0] = self.BEGIN_WORD
        inner = rows[:, 1:-1]  # (words, room)
        inner[np.arange(room) < lengths[:, None]] = (
            np.frombuffer(b"".join(spelled), np.uint8).astype(np.int64) + 1
        )
        rows[np.arange(len(words)), lengths + 1] = self.END_WORD
        for place, word in enumerate(words):
            if word in (SENTENCE_BEGIN, SENTENCE_END):
                rows[place] = self._boundary(word)
        return rows, cut

    def spell(self, row: npt.ArrayLike) -> str:
        """The word that a row of ids stands for, as far as it was kept."""
        ids = np.asarray(row)
        if self.BEGIN_SENTENCE in ids:
            return SENTENCE_BEGIN
        if self.END_SENTENCE in ids:
            return SENTENCE_END
        characters = ids[(ids > 0) & (ids <= 256)] - 1
        return characters.astype(np.uint8).tobytes().decode("utf-8", "replace")

    def _boundary(self, word: str) -> Ids:
        row = np.full(self.width, self.PAD, np.int64)
        mark = self.BEGIN_SENTENCE if word == SENTENCE_BEGIN else self.END_SENTENCE
        row[:3] = self.BEGIN_WORD, mark, self.END_WORD
        return row


class WordAlphabet:
    """Whole words, for word-level models: a row is the word's line in the vocabulary, plus one."""

    width = 1

    def __init__(self, vocabulary: Vocabulary) -> None:
        for mark in (SENTENCE_BEGIN, SENTENCE_END):
            if mark not in vocabulary:
                raise InputError(
                    f"the vocabulary has no {mark}, which a word-level model needs; "
                    "is it the vocabulary of this model?"
                )
        self._vocabulary = vocabulary

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, 1); no word is ever cut."""
        if UNKNOWN not in self._vocabulary:
            # bilm-tf gave such a word the id of padding, in the middle of a sentence.
            for word in words:
                if word not in self._vocabulary:
                    raise InputError(
                        f"{word!r} is not in the vocabulary, which has no {UNKNOWN} to stand for it"
                    )
        return self._vocabulary.ids(words)[:, None] + 1, 0
