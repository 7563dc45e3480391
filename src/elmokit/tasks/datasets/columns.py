"""Tagged sentences: CoNLL columns (2000, 2003, others alike) and CoNLL-U."""

import re
from collections.abc import Iterable
from pathlib import Path

from elmokit.tasks.datasets.example_records import TaggedSentence
from elmokit.tasks.datasets.lines import (
    Line,
    blocks_of,
    check_label,
    check_not_empty,
    numbered_lines,
)
from elmokit.tasks.datasets.schemes import TAG_FORM, is_span_tag
from elmokit.tokenizers import split_on_whitespace

_DOCUMENT_START = "-DOCSTART-"
_CONLLU_COLUMNS = 10
_FORM, _UPOS = 1, 3
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


def read_columns(
    path: str | Path, *, spans: bool = False, lines: Iterable[Line] | None = None
) -> list[TaggedSentence]:
    """The sentences of a file with one word a line and blank lines between sentences.

    The first column is the word, the last its tag; columns are separated by spaces or tabs. With
    `spans`, tags must belong to a tagging scheme (any of them, see `spans_of`). The `-DOCSTART-`
    lines of CoNLL-2003 are skipped. `lines` are the lines of the file, if they were read already.
    """
    examples: list[TaggedSentence] = []
    columns = 0
    for block in blocks_of(numbered_lines(path) if lines is None else lines, also=_DOCUMENT_START):
        rows = [split_on_whitespace(line.text) for line in block]
        columns = columns or len(rows[0])
        for line, row in zip(block, rows, strict=True):
            if len(row) != columns:
                raise line.error(
                    f"{len(row)} columns, expected {columns} as in the first sentence; is a blank "
                    "line or a column missing?"
                )
            if columns < 2:
                raise line.error("1 column, expected a word first and its tag last")
            if spans and not is_span_tag(row[-1]):
                raise line.error(f"tag {row[-1]!r}, expected {TAG_FORM}; is it in another column?")
        words, tags = tuple(row[0] for row in rows), tuple(row[-1] for row in rows)
        examples.append(TaggedSentence(words, tags))
    return check_not_empty(
        examples, path, "lines of a word and its tag, with blank lines between sentences"
    )


def read_conllu(path: str | Path, *, lines: Iterable[Line] | None = None) -> list[TaggedSentence]:
    """The syntactic words of each sentence of a CoNLL-U file and their parts of speech (UPOS).

    Comments, the surface forms of multiword tokens (1-2) and empty nodes (1.1) are skipped.
    `lines` are the lines of the file, if they were read already.
    """
    examples = []
    for block in blocks_of(numbered_lines(path) if lines is None else lines):
        words: list[str] = []
        tags: list[str] = []
        for line in block:
            if line.text.startswith("#") and not words:
                continue
            row = line.text.split("\t")
            if len(row) != _CONLLU_COLUMNS:
                raise line.error(
                    f"{len(row)} columns between tabs, expected the {_CONLLU_COLUMNS} of CoNLL-U; "
                    "is a tab missing?"
                )
            if not row[_FORM]:
                raise line.error("an empty word, expected its form; write _ for an unknown one")
            if re.fullmatch("[0-9]+[-.][0-9]+", row[0]):
                continue
            if row[0] != str(len(words) + 1):
                raise line.error(
                    f"ID {row[0]!r}, expected {len(words) + 1}; is a blank line or a word missing?"
                )
            if row[_UPOS] == "_":
                raise line.error(f"upos is not given (_), expected a tag in column {_UPOS + 1}")
            words.append(row[_FORM])
            tags.append(check_label(row[_UPOS], line, UPOS))
        if words:
            examples.append(TaggedSentence(tuple(words), tuple(tags)))
    return check_not_empty(examples, path, "the sentences of CoNLL-U")


def is_conllu(path: str | Path, lines: Iterable[Line]) -> bool:
    """Whether a file is CoNLL-U, judged by its name or by the line of its first word."""
    if ".conllu" in Path(path).name:
        return True
    words = (line for line in lines if not line.blank and not line.text.startswith("#"))
    row = next((line.text.split("\t") for line in words), [""])
    return len(row) == _CONLLU_COLUMNS and re.fullmatch("1(-[0-9]+)?|0[.]1", row[0]) is not None
