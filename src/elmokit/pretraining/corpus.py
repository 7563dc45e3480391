"""A prepared corpus: its shards, vocabulary and held-out sentences."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np
import numpy.typing as npt

from elmokit.errors import FormatError
from elmokit.files import read_array
from elmokit.model_config import read_record
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary, read_vocabulary

FORMAT, VERSION = "elmokit-corpus", 1
SPECIAL_TOKENS = (SENTENCE_BEGIN, SENTENCE_END, UNKNOWN)  # the first words of every lexicon
END_ID, UNKNOWN_ID = 1, 2


@dataclass(frozen=True)
class Corpus:
    """Text that `elmo prepare` made ready for training.

    Shards hold the ids of words in the lexicon, each sentence followed by 1, `</S>`. The
    vocabulary, which is the softmax's, is the first words of the lexicon.

    Example:
        corpus = elmokit.Corpus.open("corpus")
        print(corpus.sentences, corpus.words, len(corpus.vocabulary))
    """

    folder: Path
    tokenizer: str
    sentences: int
    words: int  # without special tokens
    types: int  # words of the lexicon
    vocabulary: Vocabulary
    shards: tuple[Path, ...]
    fingerprint: str

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        """The corpus in a folder; FormatError if it is damaged."""
        folder = Path(folder)
        path = folder / "corpus.json"
        if not path.is_file():
            raise FormatError(
                f"{folder}: no corpus.json there; make one with elmo prepare TEXT --out {folder}"
            )
        record = read_record(path, CorpusRecord, "what elmo prepare wrote")
        if (record.format, record.version) != (FORMAT, VERSION):
            raise FormatError(
                f"{path}: format {record.format!r}, version {record.version}, expected "
                f"{FORMAT!r}, version {VERSION}; prepare the text again"
            )
        vocabulary = read_vocabulary(folder / "vocabulary.txt")
        if len(vocabulary) != record.vocabulary or tuple(vocabulary)[:3] != SPECIAL_TOKENS:
            raise FormatError(
                f"{folder / 'vocabulary.txt'}: {len(vocabulary)} lines, beginning with "
                f"{' '.join([*vocabulary][:3])}; expected {record.vocabulary}, beginning with "
                f"{' '.join(SPECIAL_TOKENS)}; prepare the text again"
            )
        for shard in record.shards:
            _check_shard(folder / shard.name, shard.sentences + shard.words)
        return cls(
            folder=folder,
            tokenizer=record.split,
            sentences=record.sentences,
            words=record.words,
            types=record.types,
            vocabulary=vocabulary,
            shards=tuple(folder / shard.name for shard in record.shards),
            fingerprint=record.fingerprint,
        )

    @property
    def predictions(self) -> int:
        """What each direction predicts: the words, and the end of each sentence."""
        return self.words + self.sentences

    @cached_property
    def lexicon(self) -> list[str]:
        """Every distinct word, in the order of ids."""
        path = self.folder / "lexicon.txt"
        words = _lines_of(path)
        if len(words) != self.types:
            raise FormatError(
                f"{path}: {len(words)} lines, expected {self.types}; prepare the text again"
            )
        return words

    @cached_property
    def valid(self) -> list[list[str]]:
        """The held-out sentences."""
        return [line.split(" ") for line in _lines_of(self.folder / "valid.txt")]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each word of the lexicon occurs."""
        path = self.folder / "counts.npy"
        counts = read_array(path.read_bytes(), str(path), "prepare the text again")
        if counts.dtype != np.int64 or counts.shape != (self.types,):
            raise FormatError(
                f"{path}: {counts.dtype} of shape {counts.shape}, expected int64 of shape "
                f"({self.types},); prepare the text again"
            )
        return counts


@dataclass(frozen=True)
class ShardRecord:
    """What corpus.json says of a shard."""

    name: str
    sentences: int
    words: int


@dataclass(frozen=True)
class SourceRecord:
    """What corpus.json says of a file of text."""

    name: str
    bytes: int | None
    modified: int | None
    held_out: bool


@dataclass(frozen=True)
class CorpusRecord:
    """What corpus.json says."""

    format: str
    version: int
    split: str
    sentences: int
    words: int
    types: int
    vocabulary: int
    shards: list[ShardRecord]
    sources: list[SourceRecord]
    settings: dict[str, Any]
    fingerprint: str
    report: dict[str, int]


def _lines_of(path: Path) -> list[str]:
    """The lines of a file, each ended by a line feed."""
    try:
        return path.read_bytes().decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: not UTF-8 ({error}); prepare the text again") from None


def _check_shard(path: Path, tokens: int) -> None:
    try:
        ids = np.load(path, mmap_mode="r")
    except (OSError, ValueError, TypeError, EOFError, RecursionError, TokenError) as error:
        raise FormatError(f"{path}: cannot be read ({error}); prepare the text again") from None
    if ids.dtype != np.int32 or ids.shape != (tokens,):
        raise FormatError(
            f"{path}: {ids.dtype} of shape {ids.shape}, expected int32 of shape ({tokens},); "
            "prepare the text again"
        )
