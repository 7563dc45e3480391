"""Coreference: documents in CoNLL-2012 columns, and the ambiguous pronouns of GAP.

A CoNLL-2012 document stands between `#begin document (NAME); part 0` and `#end document`, with a
blank line after each sentence. The fourth column is the word, the last one the mentions that begin
and end at it: `(3` opens a mention of cluster 3, `3)` closes the one opened last, `(3)` does both,
`|` separates several; `-`, `_` or nothing means none. Columns are separated by tabs or spaces.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from elmokit.tasks.datasets.alignment import Offsets, align, words_overlapping
from elmokit.tasks.datasets.example_records import Document, GapExample, Tokenize, Words
from elmokit.tasks.datasets.lines import (
    Line,
    blocks_of,
    check_not_empty,
    numbered_lines,
    parse_whole_number,
)
from elmokit.tokenizers import get_tokenizer, split_on_whitespace

_WORD, _MIN_COLUMNS = 3, 5
_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>[0-9]{1,9}))?\s*")
_MENTION = re.compile(r"(?P<opens>\()?(?P<cluster>[0-9]+)(?P<closes>\))?")
_GAP_COLUMNS = (
    "ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset",
    "B-coref", "URL",
)  # fmt: skip
_BOOLEANS = {"TRUE": True, "True": True, "FALSE": False, "False": False}


def read_conll2012(path: str | Path, *, lines: Iterable[Line] | None = None) -> list[Document]:
    """The documents of a file with all their clusters, those of a single mention too.

    `lines` are the lines of the file, if they were read already.
    """
    documents = [*_documents(numbered_lines(path) if lines is None else lines)]
    return check_not_empty(documents, path, "documents from #begin document to #end document")


def read_gap(
    path: str | Path, tokenize: Tokenize, *, lines: Iterable[Line] | None = None
) -> list[GapExample]:
    """The examples of a file of GAP, its texts tokenized by `tokenize`.

    A pronoun or a name that does not begin and end at word boundaries is widened to full words.
    `lines` are the lines of the file, if they were read already.
    """
    examples: dict[str, GapExample] = {}
    for line in numbered_lines(path) if lines is None else lines:
        row = line.text.split("\t")
        if line.number == 1 and row != [*_GAP_COLUMNS]:
            raise line.error(f"{line.text[:60]!r}, expected GAP's header: {' '.join(_GAP_COLUMNS)}")
        if line.number > 1 and not line.blank:
            example = _gap_example(line, row, tokenize)
            if example.id in examples:
                raise line.error(f"ID {example.id!r} is there twice, expected once")
            examples[example.id] = example
    return check_not_empty([*examples.values()], path, "the table of GAP")


def is_gap(lines: Iterable[Line]) -> bool:
    """Whether the first line is the header of GAP."""
    return next((line.text.split("\t")[:2] == [*_GAP_COLUMNS[:2]] for line in lines), False)


def tokenize_sentences(text: str, tokenize: Tokenize) -> tuple[Words, ...]:
    """The sentences of a raw text, split by Moses' rules, then tokenized; none is empty."""
    sentences = get_tokenizer("moses").split_sentences(text)
    tokenized = (tuple(tokenize(sentence)) for sentence in sentences)
    return tuple(words for words in tokenized if words)


def _documents(lines: Iterable[Line]) -> Iterator[Document]:
    begin: Line | None = None
    body: list[Line] = []
    for line in lines:
        if line.text.startswith("#begin document"):
            if begin is not None:
                raise line.error("a document begins within one, expected #end document before it")
            if not _BEGIN.fullmatch(line.text):
                raise line.error(f"{line.text!r}, expected #begin document (NAME); part 000")
            begin, body = line, []
        elif line.text.startswith("#end document"):
            if begin is None:
                raise line.error("a document ends, but none has begun; is #begin document missing?")
            yield _document(begin, body)
            begin = None
        elif begin is not None:
            body.append(line)
        elif not line.blank and not line.text.startswith("#"):
            raise line.error(f"{line.text[:40]!r} in no document, expected #begin document first")
    if begin is not None:
        raise begin.error("#end document is missing; was the file cut short?")


def _document(begin: Line, lines: Iterable[Line]) -> Document:
    match = _BEGIN.fullmatch(begin.text)
    assert match is not None
    sentences: list[Words] = []
    word_lines: list[tuple[Line, str]] = []  # of each word, with its last column
    for block in blocks_of(lines):
        columns, words = 0, []
        for line in block:
            has_tabs = "\t" in line.text
            row = line.text.split("\t") if has_tabs else split_on_whitespace(line.text)
            if len(row) < _MIN_COLUMNS or len(row) != (columns or len(row)):
                raise line.error(
                    f"{len(row)} columns, expected {columns or f'{_MIN_COLUMNS} or more'}; is a "
                    "column or a blank line missing?"
                )
            if not row[_WORD]:
                raise line.error("an empty word in column 4, expected one")
            columns = len(row)
            words.append(row[_WORD])
            word_lines.append((line, row[-1]))
        sentences.append(tuple(words))
    if not sentences:
        raise begin.error("a document without a word, expected some; remove it")
    return Document(match["name"], int(match["part"] or 0), tuple(sentences), _clusters(word_lines))


def _clusters(word_lines: Iterable[tuple[Line, str]]) -> tuple[tuple[tuple[int, int], ...], ...]:
    """The clusters of mentions, sorted, from the last column of each word's line."""
    opened: dict[str, list[tuple[int, Line]]] = defaultdict(list)
    clusters: dict[str, set[tuple[int, int]]] = defaultdict(set)
    cluster_of: dict[tuple[int, int], str] = {}
    for position, (line, cell) in enumerate(word_lines):
        for text in () if cell in ("", "-", "_") else cell.split("|"):
            match = _MENTION.fullmatch(text)
            if match is None or not (match["opens"] or match["closes"]):
                raise line.error(
                    f"mention {text!r}, expected (3, 3) or (3), with | between several"
                )
            open_mentions = opened[match["cluster"]]
            if match["opens"]:
                open_mentions.append((position, line))
            if not match["closes"]:
                continue
            if not open_mentions:
                raise line.error(
                    f"{text!r} closes a mention that was not opened; is a ( missing before it?"
                )
            mention = open_mentions.pop()[0], position
            cluster = cluster_of.setdefault(mention, match["cluster"])
            if cluster != match["cluster"]:
                raise line.error(
                    f"words {mention[0]} to {position} are in cluster {cluster} and in "
                    f"{match['cluster']}, expected one; remove a mention"
                )
            clusters[cluster].add(mention)
    for cluster, open_mentions in opened.items():
        if open_mentions:
            raise open_mentions[-1][1].error(
                f"a mention of cluster {cluster} is not closed in its document, expected "
                f"{cluster}) after it"
            )
    return tuple(sorted(tuple(sorted(mentions)) for mentions in clusters.values()))


def _gap_example(line: Line, row: list[str], tokenize: Tokenize) -> GapExample:
    if len(row) != len(_GAP_COLUMNS):
        raise line.error(f"{len(row)} columns between tabs, expected GAP's {len(_GAP_COLUMNS)}")
    cells = dict(zip(_GAP_COLUMNS, row, strict=True))
    sentences = tokenize_sentences(cells["Text"], tokenize)
    words = [word for sentence in sentences for word in sentence]
    offsets = align(words, cells["Text"])
    if not words or offsets is None:
        raise line.error(
            "the words of the text cannot be found in it again, expected the tokenizer to keep "
            "nearly all characters; use another one"
        )
    is_a, is_b = (_boolean(line, cells, column) for column in ("A-coref", "B-coref"))
    if is_a and is_b:
        raise line.error("A-coref and B-coref are both TRUE, expected one of them or none")
    pronoun, a, b = (_words_of(line, cells, column, offsets) for column in ("Pronoun", "A", "B"))
    return GapExample(cells["ID"], sentences, pronoun, a, b, is_a, is_b, cells["Pronoun"])


def _boolean(line: Line, cells: dict[str, str], column: str) -> bool:
    if cells[column] not in _BOOLEANS:
        raise line.error(f"{column} {cells[column]!r}, expected TRUE or FALSE")
    return _BOOLEANS[cells[column]]


def _words_of(
    line: Line, cells: dict[str, str], column: str, offsets: list[Offsets]
) -> tuple[int, int]:
    """The first and last words that contain the pronoun or a name."""
    text, offset = cells[column], cells[f"{column}-offset"]
    start = parse_whole_number(offset)
    end = (start or 0) + len(text)
    if start is None or not text or cells["Text"][start:end] != text:
        raise line.error(
            f"{column}-offset {offset[:40]!r}, expected where {text!r} begins in the text, in "
            "characters"
        )
    words = words_overlapping(offsets, start, end)
    if not words:
        raise line.error(f"{column} {text!r} holds no word; use another tokenizer")
    return words[0], words[-1]
