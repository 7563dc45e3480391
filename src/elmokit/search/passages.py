"""Files of text become passages: sentences or paragraphs, each with the place it stands at."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from elmokit.files import TextFile, TextReader, read_lines
from elmokit.tokenizers import get_tokenizer, split_on_whitespace

Unit = Literal["sentences", "paragraphs", "words"]  # what has a vector


@dataclass(frozen=True)
class Passage:
    """A stretch of a line, as text and as sentences of words."""

    file: str
    line: int  # from 1
    start: int  # its first character of the line, from 0
    end: int  # the one after its last
    text: str
    sentences: tuple[tuple[str, ...], ...]

    @property
    def words(self) -> tuple[str, ...]:
        """The words of all its sentences."""
        return tuple(word for sentence in self.sentences for word in sentence)


@dataclass(frozen=True)
class Row:
    """What one vector stands for: the n-th of some passages, or a word of it."""

    passage: int
    word: str | None = None
    place: int | None = None


def read_passages(files: Iterable[TextFile], *, split: str, unit: Unit) -> Iterator[Passage]:
    """The passages of files, plain or packed; a line is a paragraph, and words stand in sentences.

    What has no word is left out.
    """
    for file in files:
        with file.open() as opened:
            for number, line in enumerate(read_lines(_raw_lines(opened), file.name), 1):
                for passage in _passages_of(line, file.name, number, split, unit):
                    if any(passage.sentences):
                        yield passage


def _raw_lines(opened: TextReader) -> Iterator[bytes]:
    return iter(lambda: opened.read_line(-1), b"")


def _passages_of(line: str, file: str, number: int, split: str, unit: Unit) -> Iterator[Passage]:
    way = get_tokenizer(split)
    sentences = way.split_sentences(line)
    words = [tuple(way.tokenize(sentence)) for sentence in sentences]
    ends = [*_places(sentences, line)]
    if unit != "paragraphs":
        for (start, end), own in zip(ends, words, strict=True):
            yield Passage(file, number, start, end, line[start:end], (own,))
    elif ends:
        start, end = ends[0][0], ends[-1][1]
        yield Passage(file, number, start, end, line[start:end], tuple(words))


def _places(sentences: list[str], line: str) -> Iterator[tuple[int, int]]:
    """Where each sentence stands in its line; a splitter changes nothing but the space between."""
    end = 0
    for sentence in sentences:
        chunks = split_on_whitespace(sentence)
        start = end = line.index(chunks[0], end)
        for chunk in chunks:
            end = line.index(chunk, end) + len(chunk)
        yield start, end
