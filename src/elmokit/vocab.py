"""Vocabularies, and the character and word indexers that turn words into ids."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError, InputError

SENTENCE_BEGIN, SENTENCE_END, UNKNOWN = "<S>", "</S>", "<UNK>"

logger = logging.getLogger(__name__)


class Vocabulary:
    """Words in the order of their ids; a word not among them has the id of `<UNK>`, if any."""

    def __init__(self, words: Iterable[str]) -> None:
        self._words = tuple(words)
        # A word on two lines has the id of the later one, as in bilm-tf.
        self._ids = {word: place for place, word in enumerate(self._words)}
        self._unknown = self._ids.get(UNKNOWN, -1)

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __getitem__(self, place: int) -> str:
        return self._words[place]

    def ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The id of each word, -1 where a word is unknown and there is no `<UNK>`."""
        return np.fromiter(
            (self._ids.get(word, self._unknown) for word in words), np.int64, len(words)
        )


def read_vocabulary(path: Path) -> Vocabulary:
    """The vocabulary of a file with one word a line."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise FormatError(
            f"{path}, line {line}: not UTF-8; a vocabulary is UTF-8 text with one word a line"
        ) from None
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    # Only plain blanks are stripped: bilm-tf's strip() made words like U+00A0 vanish.
    # !!!MAXTERMID is a line of the 1-Billion-Word vocabulary that has no id.
    words = [word for line in lines if (word := line.strip(" \t\r")) != "!!!MAXTERMID"]
    vocabulary = Vocabulary(words)
    if (twice := len(words) - len(set(words))) > 0:
        logger.warning("%s: %d lines repeat a word; the later line gives its id", path, twice)
    return vocabulary


def write_vocabulary(vocabulary: Vocabulary, path: Path) -> None:
    """One word a line, in the order of ids; a word that would not be read again is refused."""
    for place, word in enumerate(vocabulary):
        if "\n" in word or word != word.strip(" \t\r") or word == "!!!MAXTERMID":
            raise InputError(f"word {place} of the vocabulary, {word!r}, cannot stand on a line")
    path.write_text("".join(f"{word}\n" for word in vocabulary), encoding="utf-8", newline="\n")


Ids = npt.NDArray[np.int64]


class TokenIndexer(Protocol):
    """What turns words into rows of ids."""

    @property
    def max_characters(self) -> int:
        """How many ids a word has."""

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, width), and how many words were too long and cut."""


class CharacterIndexer:
    """UTF-8 bytes, as every published ELMo spells a word: 262 ids, 0 for padding words.

    A row is [begin of word, bytes, end of word, padding characters ...]; `<S>` and `</S>` have
    rows of their own. A word longer than `width - 2` bytes is cut, even within a character.
    """

    NUM_CHARACTERS = 262
    # A byte b is b + 1; then the sentence marks, the word marks and the padding character.
    BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261

    def __init__(self, width: int = 50) -> None:
        self.max_characters = width

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, width), and how many words were too long and cut."""
        room = self.max_characters - 2
        spelled = [word.encode("utf-8", "ignore") for word in words]
        full = np.fromiter(map(len, spelled), np.int64, len(spelled))
        lengths = np.minimum(full, room)
        cut = int((full > room).sum())
        if cut:
            spelled = [spelling[:room] for spelling in spelled]

        rows = np.full((len(words), self.max_characters), self.PAD, np.int64)
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

    def decode(self, row: npt.ArrayLike) -> str:
        """The word that a row of ids stands for, as far as it was kept."""
        ids = np.asarray(row)
        if self.BEGIN_SENTENCE in ids:
            return SENTENCE_BEGIN
        if self.END_SENTENCE in ids:
            return SENTENCE_END
        characters = ids[(ids > 0) & (ids <= 256)] - 1
        return characters.astype(np.uint8).tobytes().decode("utf-8", "replace")

    def _boundary(self, word: str) -> Ids:
        row = np.full(self.max_characters, self.PAD, np.int64)
        mark = self.BEGIN_SENTENCE if word == SENTENCE_BEGIN else self.END_SENTENCE
        row[:3] = self.BEGIN_WORD, mark, self.END_WORD
        return row


class WordIndexer:
    """Whole words, for word-level models: a row is the word's line in the vocabulary, plus one."""

    max_characters = 1

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
