"""Words become ids of the softmax, and back: one word a line, the commonest first."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

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
