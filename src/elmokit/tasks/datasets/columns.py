"""Sentences in columns: tags in CoNLL columns or CoNLL-U, semantic roles in PropBank columns."""

import re
from collections.abc import Sequence
from pathlib import Path

from elmokit.tasks.datasets.example_records import PredicateRoles, Span, TaggedSentence
from elmokit.tasks.datasets.lines import File, Line, blocks_of, check_label, numbered_lines
from elmokit.tasks.datasets.schemes import TAG_FORM, is_span_tag, tags_of
from elmokit.tokenizers import split_on_whitespace

_FORM, _UPOS, _CONLLU_COLUMNS = 1, 3, 10
_FRAME, _FIRST_ROLES = 4, 5
_ROLE_CELL = re.compile(r"(?:\((?P<label>[^()*\s]+))?\*(?P<closes>\))?")
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


def read_columns(file: File, *, spans: bool = False) -> list[TaggedSentence]:
    """The sentences of a file with one word a line and blank lines between sentences.

    The first column is the word, the last its tag; columns are separated by spaces or tabs. With
    `spans`, tags must belong to a tagging scheme (any of them, see `spans_of`). The `-DOCSTART-`
    lines of CoNLL-2003 are skipped.
    """
    examples: list[TaggedSentence] = []
    columns = 0
    for block in blocks_of(numbered_lines(file), also="-DOCSTART-"):
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
    return examples


def read_conllu(file: File) -> list[TaggedSentence]:
    """The syntactic words of each sentence of a CoNLL-U file and their parts of speech (UPOS).

    Comments, the surface forms of multiword tokens (1-2) and empty nodes (1.1) are skipped.
    """
    examples = []
    for block in blocks_of(numbered_lines(file)):
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
    return examples


def are_conllu(lines: Sequence[Line]) -> bool:
    """Whether lines are CoNLL-U, judged by the name of their file or by their first word."""
    if lines and ".conllu" in Path(lines[0].file).name:
        return True
    words = (line for line in lines if not line.blank and not line.text.startswith("#"))
    row = next((line.text.split("\t") for line in words), [""])
    return len(row) == _CONLLU_COLUMNS and re.fullmatch("1(-[0-9]+)?|0[.]1", row[0]) is not None


def read_propbank(file: File) -> list[PredicateRoles]:
    """The predicates of a file in PropBank columns; a sentence without any gives no example.

    A line holds the word's number, the word, its part of speech, the predicate's lemma and frame
    (`-` if the word is no predicate), then a column of bracketed spans for each predicate of the
    sentence, in order: `(ARG0*` opens a span, `*)` closes it, `(V*)` does both.

    The words of a predicate have the role V. If a predicate has several words, `predicate` is the
    one on whose line the frame is; its role may be C-V (`x - rays`).
    """
    examples = []
    for block in blocks_of(numbered_lines(file)):
        rows = [line.text.split("\t") for line in block]
        predicates = [n for n, row in enumerate(rows) if len(row) > _FRAME and row[_FRAME] != "-"]
        start = int(rows[0][0]) if rows[0][0] in ("0", "1") else None
        for position, (line, row) in enumerate(zip(block, rows, strict=True)):
            if len(row) != _FIRST_ROLES + len(predicates):
                raise line.error(
                    f"{len(row)} columns between tabs, expected {_FIRST_ROLES} and one for each of "
                    f"the {len(predicates)} predicates of the sentence; is a column or a blank "
                    "line missing?"
                )
            if start is None or row[0] != str(start + position):
                expected = "0 or 1 for the first word" if start is None else str(start + position)
                raise line.error(
                    f"the word has number {row[0]!r}, expected {expected}; is a blank line or a "
                    "word missing?"
                )
            if not row[_FORM]:
                raise line.error("an empty word, expected one; is the file cut at tabs?")
        words = tuple(row[_FORM] for row in rows)
        for column, position in enumerate(predicates, _FIRST_ROLES):
            spans = _spans_of_column(block, [row[column] for row in rows])
            tags = tags_of(spans, len(words), "iob2")
            if not tags[position].endswith("-V"):
                raise block[position].error(
                    f"{words[position]!r} is a predicate, but has {tags[position]!r} in column "
                    f"{column + 1}, expected V; are the columns in the order of the predicates?"
                )
            examples.append(PredicateRoles(words, position, rows[position][_FRAME], tags))
    return examples


def _spans_of_column(block: list[Line], cells: list[str]) -> list[Span]:
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    for position, (line, cell) in enumerate(zip(block, cells, strict=True)):
        match = _ROLE_CELL.fullmatch(cell)
        if match is None:
            raise line.error(f"{cell!r}, expected *, (ROLE*, *) or (ROLE*)")
        if match["label"]:
            if opened is not None:
                raise line.error(
                    f"{cell!r} opens a span within ({opened[1]}, expected *) before it; spans of "
                    "one predicate may not overlap"
                )
            opened = position, match["label"]
        if match["closes"]:
            if opened is None:
                raise line.error(f"{cell!r} closes a span that was not opened; is a ( missing?")
            spans.append(Span(opened[0], position, opened[1]))
            opened = None
    if opened is not None:
        raise block[opened[0]].error(f"({opened[1]}* is not closed, expected *) after it")
    return spans
