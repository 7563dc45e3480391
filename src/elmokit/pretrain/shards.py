"""Merging parts into shards of ids and a vocabulary."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt

from elmokit.atomic import write_atomically
from elmokit.errors import InputError
from elmokit.pretrain.corpus import (
    END_ID,
    FORMAT,
    MARKS,
    UNKNOWN_ID,
    VERSION,
    CorpusRecord,
    ShardRecord,
    SourceRecord,
)
from elmokit.pretrain.shard_parts import END_OF_SENTENCE, FIRST_FORMS, NOT_WORDS, Part
from elmokit.vocab import Vocabulary

SHARD_TOKENS = 2**22

_TELLING = 20  # words of text for each of a vocabulary, before its order is judged by them


@dataclass(frozen=True)
class Tally:
    """All parts, added up."""

    words: Counter[str]
    marks: npt.NDArray[np.int64]  # counts of FIRST_FORMS
    held_out: list[str]
    replaced: int

    @classmethod
    def of(cls, parts: Iterable[Part]) -> "Tally":
        """The sum of parts."""
        words: Counter[str] = Counter()
        marks = np.zeros(len(FIRST_FORMS), np.int64)
        held_out, replaced = list[str](), 0
        for part in parts:
            first = len(FIRST_FORMS)
            for form, count in zip(part.forms[first:], part.counts[first:].tolist(), strict=True):
                words[form] += count
            marks += part.counts[:first]
            held_out += part.held_out
            replaced += part.replaced
        replaced += int(marks[-len(NOT_WORDS) :].sum())
        return cls(words, marks, held_out, replaced)


@dataclass(frozen=True)
class Lexicon:
    """Every distinct word; the first `size` are the vocabulary."""

    words: list[str]
    counts: npt.NDArray[np.int64]
    size: int

    @classmethod
    def of(
        cls, tally: Tally, given: Vocabulary | None, *, min_count: int, max_words: int | None
    ) -> "Lexicon":
        """The words of a tally, the most frequent first, those of a given vocabulary before them.

        Without a given one, the vocabulary is the words that occur `min_count` times, at most
        `max_words` with the marks.
        """
        first = [*(given or MARKS)]
        known = set(first)
        others = [(-n, word) for word, n in tally.words.items() if word not in known]
        others.sort()  # strings sort as their UTF-8 bytes do
        words = first + [word for _, word in others]
        counts = np.zeros(len(words), np.int64)
        for word, place in ids_of(words).items():
            counts[place] = tally.words[word]
        counts[END_ID] = tally.marks[0]
        counts[UNKNOWN_ID] = tally.marks[1:].sum()
        size = len(first)
        if given is None:
            size += sum(-n >= min_count for n, _ in others)
            size = min(size, max_words or size)
        return cls(words, counts, size)

    @property
    def falls(self) -> bool:
        """Whether the vocabulary stands roughly in the order of frequency, as far as one can tell.

        The first half of such a list has nearly all of the words of a text.
        """
        counts = self.counts[len(MARKS) : self.size]
        total = counts.sum()
        return bool(
            total < _TELLING * len(counts) or counts[: len(counts) // 2].sum() > 0.8 * total
        )


def write_corpus(
    folder: Path,
    parts: Sequence[Path],
    tally: Tally,
    lexicon: Lexicon,
    *,
    split: str,
    faults: dict[str, int],
    sources: list[SourceRecord],
    settings: dict[str, object],
) -> None:
    """Write the files of a corpus, corpus.json last."""
    if not lexicon.counts[END_ID]:
        raise InputError("the text holds no sentence; nothing can be learned from it")
    digest = hashlib.sha256(f"{FORMAT} {VERSION} {split}".encode())

    def write(name: str, content: bytes) -> None:
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
        write_atomically(folder / name, lambda file: file.write(content))

    write("lexicon.txt", _lines(lexicon.words))
    write("vocabulary.txt", _lines(lexicon.words[: lexicon.size]))
    write("valid.txt", _lines(tally.held_out))
    write("counts.npy", _npy(lexicon.counts))
    shards = []
    for place, ids in enumerate(_shards(parts, lexicon.words)):
        name, sentences = f"{place:05d}.npy", int((ids == END_ID).sum())
        write(name, _npy(ids))
        shards.append(ShardRecord(name, sentences, len(ids) - sentences))
    while (left := folder / f"{len(shards):05d}.npy").exists():  # by a run that was killed
        left.unlink()
    record = CorpusRecord(
        format=FORMAT,
        version=VERSION,
        split=split,
        sentences=sum(shard.sentences for shard in shards),
        words=sum(shard.words for shard in shards),
        types=len(lexicon.words),
        vocabulary=lexicon.size,
        shards=shards,
        sources=sources,
        settings=settings,
        fingerprint=digest.hexdigest(),
        report={**faults, "replaced": tally.replaced},
    )
    text = json.dumps(asdict(record), indent=2) + "\n"
    write_atomically(folder / "corpus.json", lambda file: file.write(text.encode()))


def _shards(parts: Sequence[Path], words: list[str]) -> Iterator[npt.NDArray[np.int32]]:
    """The ids of all parts, in pieces of about SHARD_TOKENS that end where a sentence does."""
    known = ids_of(words)
    known.update(dict.fromkeys(FIRST_FORMS, UNKNOWN_ID))
    known[END_OF_SENTENCE] = END_ID
    waiting = np.zeros(0, np.int32)
    for path in parts:
        part = Part.read(path)
        ids = np.fromiter(map(known.__getitem__, part.forms), np.int32, len(part.forms))
        waiting = np.concatenate([waiting, ids[part.ids]])
        while len(waiting) > SHARD_TOKENS:
            ends = np.flatnonzero(waiting[SHARD_TOKENS - 1 :] == END_ID)
            cut = SHARD_TOKENS + int(ends[0])
            yield waiting[:cut]
            waiting = waiting[cut:]
    if len(waiting):
        yield waiting


def ids_of(words: Sequence[str]) -> dict[str, int]:
    """The id of each word; of one that a given vocabulary has twice, the later."""
    return {word: place for place, word in enumerate(words)}


def _npy(values: npt.NDArray[np.generic]) -> bytes:
    file = BytesIO()
    np.save(file, values)
    return file.getvalue()


def _lines(words: Iterable[str]) -> bytes:
    return "".join(f"{word}\n" for word in words).encode()
