"""Vocabularies: words in the order of their ids, and the files that list them."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError, InputError

SENTENCE_BEGIN, SENTENCE_END, UNKNOWN = "<S>", "</S>", "<UNK>"

# A line of the 1-Billion-Word vocabulary that is not a word and has no id.
_NOT_A_WORD = "!!!MAXTERMID"

Ids = npt.NDArray[np.int64]

logger = logging.getLogger(__name__)


class Vocabulary:
    """Words in the order of their ids; one that is not among them has the id of `unknown`."""

    def __init__(self, words: Iterable[str], *, unknown: str = UNKNOWN) -> None:
        self._words = tuple(words)
        # A word on two lines has the id of the later one, as in bilm-tf.
        self._ids = {word: word_id for word_id, word in enumerate(self._words)}
        self._unknown_id = self._ids.get(unknown, -1)

    def __len__(self) -> int:
        return len(self._words)

    def __iter__(self) -> Iterator[str]:
        return iter(self._words)

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    @cached_property
    def lower_case_ids(self) -> dict[str, int]:
        """The words in lower case, each once, numbered in the order of the first of its forms."""
        return {word: number for number, word in enumerate(dict.fromkeys(map(str.lower, self)))}

    def __getitem__(self, word_id: int) -> str:
        return self._words[word_id]

    def ids(self, words: Sequence[str]) -> Ids:
        """The id of each word, -1 where a word is unknown and there is no id for such words."""
        return np.fromiter(
            (self._ids.get(word, self._unknown_id) for word in words), np.int64, len(words)
        )


def read_vocabulary(path: Path, *, unknown: str = UNKNOWN) -> Vocabulary:
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
    vocabulary = Vocabulary(words, unknown=unknown)
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
