"""Tokenizing chunks of text into parts, and merging the parts into id shards and a vocabulary.

Parts are written by worker processes, which share only the directory and do not import torch.
"""

import hashlib
import json
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.errors import InputError
from elmokit.pretraining.bad_lines import BadLine, split_paragraphs
from elmokit.pretraining.corpus import (
    END_ID,
    FORMAT,
    SPECIAL_TOKENS,
    UNKNOWN_ID,
    VERSION,
    CorpusRecord,
    ShardRecord,
    SourceRecord,
)
from elmokit.pretraining.line_ranges import Chunk
from elmokit.tokenizers import Tokenizer, expects_spaces, get_tokenizer
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary

SHARD_TOKENS = 2**22

# The first forms of every part: the end of a sentence, `<UNK>`, and words of the text that would
# have a special meaning in a vocabulary.
END_OF_SENTENCE = "\n"
RESERVED_WORDS = (SENTENCE_BEGIN, SENTENCE_END, "!!!MAXTERMID")
FIRST_FORMS = (END_OF_SENTENCE, UNKNOWN, *RESERVED_WORDS)

# A text this many times as long as a vocabulary shows whether the common words come first in it.
_TOKENS_PER_WORD_TO_JUDGE = 20


def write_corpus(
    directory: Path,
    parts: Sequence[Path],
    counts: "CorpusCounts",
    lexicon: "Lexicon",
    *,
    tokenizer: str,
    bad_lines: dict[str, int],
    sources: list[SourceRecord],
    settings: dict[str, object],
) -> None:
    """Write the files of a corpus, corpus.json last."""
    if not lexicon.counts[END_ID]:
        raise InputError("the text holds no sentence; nothing can be learned from it")
    digest = hashlib.sha256(f"{FORMAT} {VERSION} {tokenizer}".encode())

    def write(name: str, content: bytes) -> None:
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
        write_atomically(directory / name, content)

    write("lexicon.txt", _lines(lexicon.words))
    write("vocabulary.txt", _lines(lexicon.words[: lexicon.vocabulary_size]))
    write("valid.txt", _lines(counts.held_out))
    write("counts.npy", _npy(lexicon.counts))
    shards = []
    for index, ids in enumerate(_merge_ids(parts, lexicon.words)):
        name, sentences = f"{index:05d}.npy", int((ids == END_ID).sum())
        write(name, _npy(ids))
        shards.append(ShardRecord(name, sentences, len(ids) - sentences))
    # A killed call with other settings may have left more shards.
    while (stale := directory / f"{len(shards):05d}.npy").exists():
        stale.unlink()
    record = CorpusRecord(
        format=FORMAT,
        version=VERSION,
        split=tokenizer,
        sentences=sum(shard.sentences for shard in shards),
        words=sum(shard.words for shard in shards),
        types=len(lexicon.words),
        vocabulary=lexicon.vocabulary_size,
        shards=shards,
        sources=sources,
        settings=settings,
        fingerprint=digest.hexdigest(),
        report={**bad_lines, "replaced": counts.replaced},
    )
    write_atomically(directory / "corpus.json", json.dumps(asdict(record), indent=2) + "\n")


@dataclass(frozen=True)
class Part:
    """The sentences and word counts of a chunk."""

    ids: npt.NDArray[np.int32]  # indices of `forms`; 0 ends each sentence
    forms: list[str]  # FIRST_FORMS and the words, in the order of their first use
    counts: npt.NDArray[np.int64]  # of `forms`
    held_out: list[str]  # a sentence each, with spaces between words
    replaced: int  # RESERVED_WORDS that are <UNK> now in held-out sentences
    bad_lines: list[BadLine]

    @classmethod
    def of_chunk(cls, chunk: Chunk, *, tokenizer: str, wrapped: bool) -> "Part":
        """Tokenize a chunk."""
        tokenizer_, spaced = get_tokenizer(tokenizer), expects_spaces(tokenizer)
        id_of_form: defaultdict[str, int] = defaultdict(count().__next__)
        for form in FIRST_FORMS:
            id_of_form[form]
        id_array, held_out, replaced = array("i"), list[str](), 0
        bad_lines: list[BadLine] = []
        for lines in chunk.ranges:
            for text in split_paragraphs(lines, bad_lines.append, spaced=spaced, wrapped=wrapped):
                for words in _tokenize(tokenizer_, text):
                    if lines.held_out:
                        replaced += sum(word in RESERVED_WORDS for word in words)
                        held_out.append(
                            " ".join(UNKNOWN if w in RESERVED_WORDS else w for w in words)
                        )
                    else:
                        id_array.extend(map(id_of_form.__getitem__, words))
                        id_array.append(0)
        bad_lines += [BadLine(file, 0, "empty") for file in chunk.empty_files]
        ids = np.frombuffer(id_array, np.int32) if id_array else np.zeros(0, np.int32)
        counts = np.bincount(ids, minlength=len(id_of_form))
        return cls(ids, list(id_of_form), counts, held_out, replaced, bad_lines)

    @classmethod
    def read(cls, path: Path) -> "Part":
        """The part in a file."""
        with np.load(path) as stored:
            about = json.loads(stored["about"].tobytes())
            return cls(
                ids=stored["ids"],
                forms=stored["forms"].tobytes().decode().split("\0"),
                counts=stored["counts"],
                held_out=about["held_out"],
                replaced=about["replaced"],
                bad_lines=[BadLine(**line) for line in about["bad_lines"]],
            )

    @staticmethod
    def read_bad_lines(path: Path) -> list[BadLine]:
        """The bad lines of the part in a file."""
        with np.load(path) as stored:
            about = json.loads(stored["about"].tobytes())
            return [BadLine(**line) for line in about["bad_lines"]]

    def write(self, path: Path) -> None:
        """Write the part to a file."""
        about = {
            "held_out": self.held_out,
            "replaced": self.replaced,
            "bad_lines": [asdict(line) for line in self.bad_lines],
        }

        def save(file: BinaryIO) -> None:
            arrays: dict[str, Any] = {
                "ids": self.ids,
                "forms": np.frombuffer("\0".join(self.forms).encode(), np.uint8),
                "counts": self.counts,
                "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
            }
            np.savez(file, **arrays)

        write_atomically(path, save)


def write_part(chunk: Chunk, path: Path, *, tokenizer: str, wrapped: bool) -> int:
    """Tokenize a chunk and write its part; returns the number of words."""
    part = Part.of_chunk(chunk, tokenizer=tokenizer, wrapped=wrapped)
    part.write(path)
    return int(part.counts[1:].sum())


def _tokenize(tokenizer: Tokenizer, text: str) -> Iterator[list[str]]:
    for sentence in tokenizer.split_sentences(text):
        if words := tokenizer.tokenize(sentence):
            yield words


@dataclass(frozen=True)
class CorpusCounts:
    """Word counts and held-out sentences of all parts."""

    words: Counter[str]
    first_forms: npt.NDArray[np.int64]  # counts of FIRST_FORMS
    held_out: list[str]
    replaced: int

    @classmethod
    def of(cls, parts: Iterable[Part]) -> "CorpusCounts":
        """The sum of parts."""
        words: Counter[str] = Counter()
        first_forms = np.zeros(len(FIRST_FORMS), np.int64)
        held_out, replaced = list[str](), 0
        for part in parts:
            first = len(FIRST_FORMS)
            for form, number in zip(part.forms[first:], part.counts[first:].tolist(), strict=True):
                words[form] += number
            first_forms += part.counts[:first]
            held_out += part.held_out
            replaced += part.replaced
        replaced += int(first_forms[-len(RESERVED_WORDS) :].sum())
        return cls(words, first_forms, held_out, replaced)


@dataclass(frozen=True)
class Lexicon:
    """Every distinct word; the first `vocabulary_size` are the vocabulary."""

    words: list[str]
    counts: npt.NDArray[np.int64]
    vocabulary_size: int

    @classmethod
    def of(
        cls,
        corpus: CorpusCounts,
        vocabulary: Vocabulary | None,
        *,
        min_count: int,
        max_words: int | None,
    ) -> "Lexicon":
        """The words of a corpus, most frequent first, after those of a given vocabulary.

        Without a given one, the vocabulary is the words that occur `min_count` times, at most
        `max_words` including the special tokens.
        """
        first = [*(vocabulary or SPECIAL_TOKENS)]
        in_first = set(first)
        others = [(-n, word) for word, n in corpus.words.items() if word not in in_first]
        others.sort()  # strings sort as their UTF-8 bytes do
        words = first + [word for _, word in others]
        counts = np.zeros(len(words), np.int64)
        for word, word_id in ids_of(words).items():
            counts[word_id] = corpus.words[word]
        counts[END_ID] = corpus.first_forms[0]
        counts[UNKNOWN_ID] = corpus.first_forms[1:].sum()
        size = len(first)
        if vocabulary is None:
            size += sum(-n >= min_count for n, _ in others)
            size = min(size, max_words or size)
        return cls(words, counts, size)

    @property
    def has_frequent_words_first(self) -> bool:
        """Whether the vocabulary is roughly sorted by frequency, as far as the text can tell.

        The first half of a sorted vocabulary has nearly all words of a text.
        """
        counts = self.counts[len(SPECIAL_TOKENS) : self.vocabulary_size]
        total = counts.sum()
        is_short = total < _TOKENS_PER_WORD_TO_JUDGE * len(counts)
        return bool(is_short or counts[: len(counts) // 2].sum() > 0.8 * total)


def ids_of(words: Sequence[str]) -> dict[str, int]:
    """The id of each word; of one that a given vocabulary has twice, the later."""
    return {word: index for index, word in enumerate(words)}


def _merge_ids(parts: Sequence[Path], words: list[str]) -> Iterator[npt.NDArray[np.int32]]:
    """The ids of all parts, in shards of about SHARD_TOKENS that end where a sentence does."""
    id_of_form = ids_of(words)
    id_of_form.update(dict.fromkeys(FIRST_FORMS, UNKNOWN_ID))
    id_of_form[END_OF_SENTENCE] = END_ID
    pending = np.zeros(0, np.int32)
    for path in parts:
        part = Part.read(path)
        ids = np.fromiter(map(id_of_form.__getitem__, part.forms), np.int32, len(part.forms))
        pending = np.concatenate([pending, ids[part.ids]])
        while len(pending) > SHARD_TOKENS:
            ends = np.flatnonzero(pending[SHARD_TOKENS - 1 :] == END_ID)
            end = SHARD_TOKENS + int(ends[0])
            yield pending[:end]
            pending = pending[end:]
    if len(pending):
        yield pending


def _npy(values: npt.NDArray[np.generic]) -> bytes:
    file = BytesIO()
    np.save(file, values)
    return file.getvalue()


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()
