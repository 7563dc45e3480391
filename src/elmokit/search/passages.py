"""Passages: sentences or paragraphs of text files, and where each stands in its file."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from elmokit.batching import token_windows
from elmokit.files import TextFile, read_lines
from elmokit.tokenizers import get_tokenizer, split_on_whitespace

Unit = Literal["sentences", "paragraphs", "words"]  # what has a vector

_WINDOWS_PER_GROUP = 4


@dataclass(frozen=True)
class Passage:
    """A stretch of one line, as text and as tokenized sentences."""

    file: str
    line: int  # from 1
    start: int  # offset of its first character in the line, from 0
    end: int  # offset after its last character
    text: str
    sentences: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all sentences."""
        return tuple(word for sentence in self.sentences for word in sentence)


@dataclass(frozen=True)
class VectorSource:
    """What one vector was computed from: a passage, by its number in a list, or a word of it."""

    passage: int
    word: str | None = None
    word_index: int | None = None


def read_passages(files: Iterable[TextFile], *, tokenizer: str, unit: Unit) -> Iterator[Passage]:
    """The passages of files, compressed or not; those without a word are left out.

    A line is a paragraph. For the unit "words" the passages are sentences.
    """
    for file in files:
        with file.open() as reader:
            for number, line in enumerate(read_lines(reader, file.name), 1):
                for passage in _line_passages(line, file.name, number, tokenizer, unit):
                    if any(passage.sentences):
                        yield passage


def group_passages(passages: Iterable[Passage], tokens_per_batch: int) -> Iterator[list[Passage]]:
    """Lists of passages that are embedded and stored together.

    The boundaries depend on the passages alone, so that a resumed build has the same groups.
    """
    tokens = _WINDOWS_PER_GROUP * tokens_per_batch
    return token_windows(passages, tokens, lambda passage: len(passage.words))


def _line_passages(
    line: str, file: str, number: int, tokenizer_name: str, unit: Unit
) -> Iterator[Passage]:
    tokenizer = get_tokenizer(tokenizer_name)
    sentences = tokenizer.split_sentences(line)
    words = [tuple(tokenizer.tokenize(sentence)) for sentence in sentences]
    offsets = [*_sentence_offsets(sentences, line)]
    if unit != "paragraphs":
        for (start, end), sentence_words in zip(offsets, words, strict=True):
            yield Passage(file, number, start, end, line[start:end], (sentence_words,))
    elif offsets:
        start, end = offsets[0][0], offsets[-1][1]
        yield Passage(file, number, start, end, line[start:end], tuple(words))


def _sentence_offsets(sentences: list[str], line: str) -> Iterator[tuple[int, int]]:
    """Start and end of each sentence in its line; a splitter may change only whitespace."""
    end = 0
    for sentence in sentences:
        chunks = split_on_whitespace(sentence)
        start = end = line.index(chunks[0], end)
        for chunk in chunks:
            end = line.index(chunk, end) + len(chunk)
        yield start, end
