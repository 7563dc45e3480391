"""Indexers: words to rows of ids, those of their characters or their own."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError, InputError
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Ids, Vocabulary


class TokenIndexer(Protocol):
    """Turns words into rows of ids."""

    @property
    def max_word_length(self) -> str:
        """The length of the longest word that is not truncated, for messages: "48 bytes"."""

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, ids of a word), and how many words were truncated."""

    def truncated(self, word: str) -> str | None:
        """The part of a word that is encoded, or None if that is all of it."""


class CharacterIndexer:
    """Words as UTF-8 bytes, as in every published ELMo: 262 ids, of which 0 stands for no word.

    A row is [begin of word, bytes, end of word, padding characters ...]; `<S>` and `</S>` have
    rows of their own. A word longer than `max_characters - 2` bytes is truncated, even within a
    character.
    """

    NUM_CHARACTERS = 262
    # A byte b has the id b + 1; then sentence and word boundaries, and the padding character.
    BEGIN_SENTENCE, END_SENTENCE, BEGIN_WORD, END_WORD, PAD = 257, 258, 259, 260, 261
    _BOUNDARIES = {SENTENCE_BEGIN: BEGIN_SENTENCE, SENTENCE_END: END_SENTENCE}

    def __init__(self, max_characters: int = 50) -> None:
        self.max_characters = max_characters

    @property
    def max_word_length(self) -> str:
        return f"{self.max_characters - 2} bytes"

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, max_characters), and how many words were truncated."""
        max_bytes = self.max_characters - 2
        # A boundary has an id instead of bytes.
        encoded = [b"" if w in self._BOUNDARIES else w.encode("utf-8", "ignore") for w in words]
        full_lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        lengths = np.minimum(full_lengths, max_bytes)
        num_truncated = int((full_lengths > max_bytes).sum())
        if num_truncated:
            encoded = [word[:max_bytes] for word in encoded]

        ids = np.frombuffer(b"".join(encoded), np.uint8).astype(np.int64) + 1
        marks = self.BEGIN_WORD, self.END_WORD, self.PAD
        rows = _character_rows(ids, lengths, self.max_characters, marks)
        for row, word in enumerate(words):
            if word in self._BOUNDARIES:
                rows[row, 1:3] = self._BOUNDARIES[word], self.END_WORD
        return rows, num_truncated

    def truncated(self, word: str) -> str | None:
        encoded, max_bytes = word.encode("utf-8", "ignore"), self.max_characters - 2
        return encoded[:max_bytes].decode("utf-8", "ignore") if len(encoded) > max_bytes else None

    def decode(self, row: npt.ArrayLike) -> str:
        """The word that a row of ids stands for, as far as it was not truncated."""
        ids = np.asarray(row)
        for boundary, boundary_id in self._BOUNDARIES.items():
            if boundary_id in ids:
                return boundary
        characters = ids[(ids > 0) & (ids <= 256)] - 1
        return characters.astype(np.uint8).tobytes().decode("utf-8", "replace")


class WordIndexer:
    """Whole words, for word-level models: the id is the word's line in the vocabulary, plus one."""

    max_characters = 1
    max_word_length = "any number of characters"

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

    def truncated(self, word: str) -> str | None:
        return None


# ELMoForManyLangs' names of what is no character of a word.
LEXICON_UNKNOWN = "<oov>"
_LEXICON_BOUNDARIES = {SENTENCE_BEGIN: "<bos>", SENTENCE_END: "<eos>"}
# It looked up the begin of a word as "<eow>" and the end as "<bow>".
_LEXICON_BEGIN_WORD, _LEXICON_END_WORD, _LEXICON_PAD = "<eow>", "<bow>", "<pad>"


@dataclass(frozen=True)
class Lexicons:
    """ELMoForManyLangs' characters and words that have ids of their own; None: a model has none."""

    characters: Vocabulary | None
    words: Vocabulary | None

    def __post_init__(self) -> None:
        special = (
            LEXICON_UNKNOWN, *_LEXICON_BOUNDARIES.values(),
            _LEXICON_BEGIN_WORD, _LEXICON_END_WORD, _LEXICON_PAD,
        )  # fmt: skip
        for name, lexicon, required in (
            ("characters", self.characters, special),
            ("words", self.words, (LEXICON_UNKNOWN,)),
        ):
            missing = [entry for entry in required if lexicon is not None and entry not in lexicon]
            if missing:
                raise FormatError(
                    f"the lexicon of {name} has no {missing[0]}, which every model of "
                    "ELMoForManyLangs has; is it a lexicon of such a model?"
                )


class LexiconIndexer:
    """Words as in ELMoForManyLangs: the id of the word, if words have ids, then of its characters.

    All ids are those of the lexicons plus one; 0 stands for no word. The row of characters is
    [begin of word, characters, end of word, padding ...]. A word longer than `max_characters - 2`
    characters is truncated, and looked up so. `<S>` and `</S>` are written `<bos>` and `<eos>`.
    """

    def __init__(self, lexicons: Lexicons, max_characters: int) -> None:
        self.lexicons = lexicons
        self.max_characters = max_characters

    @property
    def max_word_length(self) -> str:
        return f"{self.max_characters - 2} characters"

    def encode(self, words: Sequence[str]) -> tuple[Ids, int]:
        """Rows of ids, (words, 1 + max_characters or one of these), and how many were truncated."""
        max_length = self.max_characters - 2
        spelled = [_LEXICON_BOUNDARIES.get(word, word[:max_length]) for word in words]
        columns = []
        if self.lexicons.words is not None:
            columns.append(self.lexicons.words.ids(spelled)[:, None] + 1)
        if self.lexicons.characters is not None:
            columns.append(self._spell(spelled, self.lexicons.characters))
        return np.hstack(columns), sum(len(word) > max_length for word in words)

    def truncated(self, word: str) -> str | None:
        max_length = self.max_characters - 2
        return word[:max_length] if len(word) > max_length else None

    def _spell(self, words: Sequence[str], lexicon: Vocabulary) -> Ids:
        marks = lexicon.ids([_LEXICON_BEGIN_WORD, _LEXICON_END_WORD, _LEXICON_PAD]) + 1
        # A boundary of sentences is a single character.
        boundaries = _LEXICON_BOUNDARIES.values()
        characters = [[word] if word in boundaries else list(word) for word in words]
        lengths = np.fromiter(map(len, characters), np.int64, len(words))
        ids = lexicon.ids([*chain.from_iterable(characters)]) + 1
        return _character_rows(ids, lengths, self.max_characters, marks)


def _character_rows(ids: Ids, lengths: Ids, max_characters: int, marks: Iterable[int]) -> Ids:
    """Rows of the ids of all words' characters, one word after the other, (words, max_characters).

    `marks` are the ids of the begin and the end of a word, and of the padding after it.
    """
    begin, end, pad = marks
    rows = np.full((len(lengths), max_characters), pad, np.int64)
    rows[:, 0] = begin
    inner = rows[:, 1:-1]  # (words, max_characters - 2)
    inner[np.arange(inner.shape[1]) < lengths[:, None]] = ids
    rows[np.arange(len(lengths)), lengths + 1] = end
    return rows
