"""Vocabularies, and the character and word indexers that turn words into ids."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError, InputError

SENTENCE_BEGIN, SENTENCE_END, UNKNOWN = "<S>", "</S>", "<UNK>"

# A line of the 1-Billion-Word vocabulary that is not a word and has no id.
_NOT_A_WORD = "!!!MAXTERMID"

Ids = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)


class Vocabulary:
    """Words in the order of their ids; a word that is not among them has the id of `<UNK>`."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)
        # A word on two lines has the id of the later one, as in bilm-tf.
        self._ids = {word: word_id for word_id, word in enumerate(self._words)}
        self._unknown_id = self._ids.get(UNKNOWN, -1)

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __getitem__(self, word_id: int) -> str:
        return self._words[word_id]

    def ids(self, words: Sequence[str]) -> Ids:
        """The id of each word, -1 where a word is unknown and there is no `<UNK>`."""
        return np.fromiter(
            (self._ids.get(word, self._unknown_id) for word in words), np.int64, len(words)
        )


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a file with one word a line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise FormatError(
            f"{path}, line {line}: not UTF-8, expected UTF-8 text with one word a line; convert "
            "the file first"
        ) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    # Only plain blanks are stripped: bilm-tf's strip() made words like U+00A0 vanish.
    words = [word for line in lines if (word := line.strip(" \t\r")) != _NOT_A_WORD]
    vocabulary = Vocabulary(words)
    if (repeated := len(words) - len(set(words))) > 0:
        logger.warning("%s: %d lines repeat a word; the later line gives its id", path, repeated)
    return vocabulary


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """Write one word a line, in the order of ids; InputError for a word that no line can hold."""
    for word_id, word in enumerate(vocabulary):
        if "\n" in word or word != word.strip(" \t\r") or word == _NOT_A_WORD:
            raise InputError(
                f"word {word_id} of the vocabulary, {word!r}, cannot be written as a line: "
                f"expected no line feed, no blank at either end, and not {_NOT_A_WORD}; rename it"
            )
    path.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8", newline="\n")


class TokenIndexer(Protocol):
    """Turns words into rows of ids."""

    @property
    def max_characters(self) -> int:
        """How many ids a row has."""

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, max_characters), and how many words were truncated."""


class CharacterIndexer:
    """Words as UTF-8 bytes, as in every published ELMo: 262 ids, of which 0 stands for no word.

    A row is [begin of word, bytes, end of word, padding characters ...]; `<S>` and `</S>` have
    rows of their own. A word longer than `max_characters - 2` bytes is truncated, even within a
    character.
    """

    NUM_CHARACTERS = 262
    # A byte b has the id b + 1; then sentence and word boundaries, and the padding character.
    BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261

    def __init__(self, max_characters: int = 50) -> None:
        self.max_characters = max_characters

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, max_characters), and how many words were truncated."""
        max_bytes = self.max_characters - 2
        encoded = [word.encode("utf-8", "ignore") for word in words]
        full_lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        lengths = np.minimum(full_lengths, max_bytes)
        num_truncated = int((full_lengths > max_bytes).sum())
        if num_truncated:
            encoded = [word[:max_bytes] for word in encoded]

        rows = np.full((len(words), self.max_characters), self.PAD, np.int64)
        rows[:, 0] = self.BEGIN_WORD
        inner = rows[:, 1:-1]  # (words, max_bytes)
        inner[np.arange(max_bytes) < lengths[:, None]] = (
            np.frombuffer(b"".join(encoded), np.uint8).astype(np.int64) + 1
        )
        rows[np.arange(len(words)), lengths + 1] = self.END_WORD
        for row, word in enumerate(words):
            if word in (SENTENCE_BEGIN, SENTENCE_END):
                rows[row] = self._boundary(word)
        return rows, num_truncated

    def decode(self, row: npt.ArrayLike) -> str:
        """The word that a row of ids stands for, as far as it was not truncated."""
        ids = np.asarray(row)
        if self.BEGIN_SENTENCE in ids:
            return SENTENCE_BEGIN
        if self.END_SENTENCE in ids:
            return SENTENCE_END
        characters = ids[(ids > 0) & (ids <= 256)] - 1
        return characters.astype(np.uint8).tobytes().decode("utf-8", "replace")

    def _boundary(self, word: str) -> Ids:
        row = np.full(self.max_characters, self.PAD, np.int64)
        boundary = self.BEGIN_SENTENCE if word == SENTENCE_BEGIN else self.END_SENTENCE
        row[:3] = self.BEGIN_WORD, boundary, self.END_WORD
        return row


class WordIndexer:
    """Whole words, for word-level models: the id is the word's line in the vocabulary, plus one."""

    max_characters = 1

    def __init__(self, vocabulary: Vocabulary) -> None:
        for boundary in (SENTENCE_BEGIN, SENTENCE_END):
            if boundary not in vocabulary:
                raise InputError(
                    f"the vocabulary has no {boundary}, which a word-level model needs; "
                    "is it the vocabulary of this model?"
                )
        self._vocabulary = vocabulary

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, 1); no word is ever truncated."""
        if UNKNOWN not in self._vocabulary:
            # bilm-tf gave such a word the id of padding, in the middle of a sentence.
            for word in words:
                if word not in self._vocabulary:
                    raise InputError(
                        f"{word!r} is not in the vocabulary, which has no {UNKNOWN} to stand for "
                        f"it; replace the word, or use a model whose vocabulary has {UNKNOWN}"
                    )
        return self._vocabulary.ids(words)[:, None] + 1, 0
