"""Tokenizing chunks of text into parts, and merging the parts into id shards and a vocabulary.

Parts are written by worker processes, which share only the directory and do not import torch.
"""

import hashlib
import json
import logging
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.errors import InputError
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
from elmokit.pretraining.text_chunks import KINDS, BadLine, Chunk, split_paragraphs
from elmokit.tokenizers import expects_spaces, get_tokenizer
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary

SHARD_TOKENS = 2**22

# The first forms of every part: the end of a sentence, `<UNK>`, and words of the text that would
# have a special meaning in a vocabulary.
END_OF_SENTENCE = "\n"
RESERVED_WORDS = (SENTENCE_BEGIN, SENTENCE_END, "!!!MAXTERMID")
FIRST_FORMS = (END_OF_SENTENCE, UNKNOWN, *RESERVED_WORDS)

# So many bad lines are shown; all are listed in the file.
_BAD_LINES_SHOWN = 20
# A text this many times as long as a vocabulary shows whether the common words come first in it.
_TOKENS_PER_WORD_TO_JUDGE = 20

logger = logging.getLogger(__name__)


def write_corpus(
    directory: Path,
    parts: Sequence[Path],
    counts: "CorpusCounts",
    lexicon: "Lexicon",
    *,
    sources: list[SourceRecord],
    settings: dict[str, object],
) -> None:
    """Write the files of a corpus, corpus.json last."""
    if not counts.sentences:
        raise InputError("the text holds no sentence; nothing can be learned from it")
    tokenizer = str(settings["split"])
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
        report={**counts.bad_lines, "replaced": counts.replaced},
    )
    write_atomically(directory / "corpus.json", json.dumps(asdict(record), indent=2) + "\n")


def write_part(chunk: Chunk, path: Path, *, tokenizer: str, wrapped: bool) -> int:
    """Tokenize a chunk and write its part; returns the number of words."""
    tokenizer_, spaced = get_tokenizer(tokenizer), expects_spaces(tokenizer)
    id_of_form: defaultdict[str, int] = defaultdict(count().__next__)
    for form in FIRST_FORMS:
        id_of_form[form]
    ids, held_out, replaced = array("i"), list[str](), 0
    bad_lines: list[BadLine] = []
    for lines in chunk.ranges:
        for text in split_paragraphs(lines, bad_lines.append, spaced=spaced, wrapped=wrapped):
            for words in map(tokenizer_.tokenize, tokenizer_.split_sentences(text)):
                if words and lines.held_out:
                    replaced += sum(word in RESERVED_WORDS for word in words)
                    held_out.append(" ".join(UNKNOWN if w in RESERVED_WORDS else w for w in words))
                elif words:
                    ids.extend(map(id_of_form.__getitem__, words))
                    ids.append(0)
    bad_lines += [BadLine(file, 0, "empty") for file in chunk.empty_files]
    bad = [asdict(line) for line in bad_lines]
    about = {"held_out": held_out, "replaced": replaced, "bad_lines": bad}
    arrays: dict[str, Any] = {
        "ids": np.array(ids, np.int32),
        "forms": np.frombuffer("\0".join(id_of_form).encode(), np.uint8),
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
    }
    write_atomically(path, lambda file: np.savez(file, **arrays))
    return len(ids) - ids.count(0)


@dataclass(frozen=True)
class Part:
    """The sentences of a chunk."""

    ids: npt.NDArray[np.int32]  # indices of `forms`; 0 ends each sentence
    forms: list[str]  # FIRST_FORMS and the words, in the order of their first use
    held_out: list[str]  # a sentence each, with spaces between words
    replaced: int  # RESERVED_WORDS that are <UNK> now in held-out sentences
    bad_lines: list[BadLine]

    @classmethod
    def read(cls, path: Path) -> "Part":
        """The part in a file."""
        with np.load(path) as stored:
            about = json.loads(stored["about"].tobytes())
            about["bad_lines"] = [BadLine(**line) for line in about["bad_lines"]]
            return cls(stored["ids"], stored["forms"].tobytes().decode().split("\0"), **about)


@dataclass
class CorpusCounts:
    """Words, held-out sentences and bad lines of all parts."""

    words: Counter[str] = field(default_factory=Counter)
    sentences: int = 0
    unknown: int = 0  # words that are <UNK> in the text, or became it
    replaced: int = 0  # RESERVED_WORDS
    held_out: list[str] = field(default_factory=list)
    bad_lines: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @classmethod
    def of(cls, parts: Iterable[Path], bad_lines: Path) -> "CorpusCounts":
        """The sum of parts; their bad lines are written to a file, the first are shown."""
        counts = cls()

        def add(file: BinaryIO) -> None:
            file.write(b"file\tline\tproblem\tdetail\n")
            for path in parts:
                part = Part.read(path)
                counts._add(part)
                for bad in part.bad_lines:
                    if sum(counts.bad_lines.values()) < _BAD_LINES_SHOWN:
                        logger.warning("%s", bad)
                    counts.bad_lines[bad.kind] += 1
                    file.write(f"{bad.file}\t{bad.line}\t{bad.kind}\t{bad.detail}\n".encode())

        write_atomically(bad_lines, add)
        return counts

    def _add(self, part: Part) -> None:
        first = len(FIRST_FORMS)
        numbers = np.bincount(part.ids, minlength=len(part.forms)).tolist()
        for form, number in zip(part.forms[first:], numbers[first:], strict=True):
            self.words[form] += number
        self.sentences += numbers[0]
        self.unknown += sum(numbers[1:first])
        self.replaced += part.replaced + sum(numbers[2:first])
        self.held_out += part.held_out


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
        for word, word_id in _ids_of(words).items():
            counts[word_id] = corpus.words[word]
        counts[END_ID], counts[UNKNOWN_ID] = corpus.sentences, corpus.unknown
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


def _ids_of(words: Sequence[str]) -> dict[str, int]:
    """The id of each word; of one that a given vocabulary has twice, the later."""
    return {word: index for index, word in enumerate(words)}


def _merge_ids(parts: Sequence[Path], words: list[str]) -> Iterator[npt.NDArray[np.int32]]:
    """The ids of all parts, in shards of about SHARD_TOKENS that end where a sentence does."""
    id_of_form = _ids_of(words) | dict.fromkeys(FIRST_FORMS, UNKNOWN_ID)
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
