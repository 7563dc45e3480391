"""Tables of texts become labelled texts, and pairs with a label or a score.

A raw text becomes words by the caller's `split`, such as `get_tokenizer("moses").words`.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from elmokit.tasks.data.example import Labelled, Pair, Scored, Words
from elmokit.tasks.data.source import Line, known, lines_of, some
from elmokit.tokenizers import get_tokenizer

Split = Callable[[str], list[str]]

_BREAK = re.compile(r"<br\s*/?>")
_NO_GOLD = "-"
_STSB = ("genre", "file", "year", "number", "score", "first", "second")
_STSB_SOURCES = ("source of first", "source of second")  # some lines only
_STSB_MOST = 5


def read_labelled(path: str | Path, split: Split) -> list[Labelled]:
    """The texts of a file with a label, a tab and a text a line; `<br />` becomes a space."""
    examples = []
    for line, (label, raw) in _rows(path, ("label", "text")):
        text = without_breaks(raw)
        words = _words(text, split, line)
        examples.append(Labelled(words, known(label, line), text))
    return some(examples, path, "a label, a tab and a text a line")


def without_breaks(text: str) -> str:
    """A text with a space for each `<br />` of a web page."""
    return _BREAK.sub(" ", text)


def sentences_by(split: Split, text: str) -> tuple[Words, ...]:
    """The sentences of a raw text, cut by Moses's rules, each split into words; none is empty."""
    cut = (tuple(split(sentence)) for sentence in get_tokenizer("moses").split_sentences(text))
    return tuple(words for words in cut if words)


def read_pairs(path: str | Path, split: Split) -> list[Pair]:
    """The pairs of a file with a premise, a tab, a hypothesis, a tab and a label a line.

    Those without a label that most people gave, which SNLI writes `-`, are passed over.
    """
    examples = []
    for line, (first, second, label) in _rows(path, ("premise", "hypothesis", "label")):
        words = _words(first, split, line), _words(second, split, line)
        if label.strip() != _NO_GOLD:
            examples.append(Pair(*words, known(label, line), (first, second)))
    return some(examples, path, "a premise, a hypothesis and a label a line, with tabs between")


def read_stsb(path: str | Path, split: Split) -> list[Scored]:
    """The pairs of STS-B with their scores, from 0 to 5.

    Columns stand between tabs, quotes have no meaning: genre, file, year, number, score, two
    texts, and sometimes where the texts come from.
    """
    examples = []
    for line, row in _rows(path, _STSB, more=_STSB_SOURCES):
        score, first, second = row[4:7]
        words = _words(first, split, line), _words(second, split, line)
        examples.append(Scored(*words, _score(score, line), (first, second)))
    return some(examples, path, "the lines of STS-B: seven columns with tabs between")


def _rows(
    path: str | Path, columns: Sequence[str], *, more: Sequence[str] = ()
) -> Iterator[tuple[Line, list[str]]]:
    """The lines that are not blank, cut at tabs; `more` columns are all there or none is."""
    for line in lines_of(path):
        if line.blank:
            continue
        row = line.text.split("\t")
        if len(row) not in (len(columns), len(columns) + len(more)):
            raise line.wrong(
                f"{len(row)} columns between tabs, expected {len(columns)} "
                f"({', '.join(columns)}); is a tab missing, or one within a text?"
            )
        yield line, row


def _words(text: str, split: Split, line: Line) -> Words:
    words = tuple(split(text))
    if not words:
        raise line.wrong("a text without a word, expected one; remove the line or write a text")
    return words


def _score(text: str, line: Line) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= _STSB_MOST:
        raise line.wrong(f"score {text!r}, expected a number from 0 to {_STSB_MOST}")
    return score
