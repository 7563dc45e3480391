"""CoNLL-U of Universal Dependencies becomes sentences with parts of speech."""

import re
from collections.abc import Iterable
from pathlib import Path

from elmokit.tasks.data.example import Tagged
from elmokit.tasks.data.source import Line, blocks_of, known, lines_of, some

_COLUMNS = 10
_WORD, _TAG = 1, 3
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip


def is_conllu(path: str | Path, lines: Iterable[Line]) -> bool:
    """Whether a file is CoNLL-U, by its name or by the line of its first word."""
    if ".conllu" in Path(path).name:
        return True
    words = (line for line in lines if not line.blank and not line.text.startswith("#"))
    row = next((line.text.split("\t") for line in words), [""])
    return len(row) == _COLUMNS and re.fullmatch("1(-[0-9]+)?|0[.]1", row[0]) is not None


def read_conllu(path: str | Path, *, lines: Iterable[Line] | None = None) -> list[Tagged]:
    """The syntactic words of each sentence and their parts of speech (UPOS).

    `lines` are those of the file, if they were read already.

    Comments, the surface forms of multiword tokens (1-2) and empty nodes (1.1) are left out.
    """
    examples = []
    for block in blocks_of(lines_of(path) if lines is None else lines):
        words: list[str] = []
        tags: list[str] = []
        for line in block:
            if line.text.startswith("#") and not words:
                continue
            row = _row(line)
            if re.fullmatch("[0-9]+[-.][0-9]+", row[0]):
                continue
            if row[0] != str(len(words) + 1):
                raise line.wrong(
                    f"ID {row[0]!r}, expected {len(words) + 1}; is a blank line or a word missing?"
                )
            words.append(row[_WORD])
            tags.append(_tag(row[_TAG], line))
        if words:
            examples.append(Tagged(tuple(words), tuple(tags)))
    return some(examples, path, "the sentences of CoNLL-U")


def _row(line: Line) -> list[str]:
    row = line.text.split("\t")
    if len(row) != _COLUMNS:
        raise line.wrong(
            f"{len(row)} columns between tabs, expected the {_COLUMNS} of CoNLL-U; "
            "is a tab missing?"
        )
    if not row[_WORD]:
        raise line.wrong("an empty word, expected its form; write _ for an unknown one")
    return row


def _tag(tag: str, line: Line) -> str:
    if tag == "_":
        raise line.wrong(f"upos is not given (_), expected a tag in column {_TAG + 1}")
    return known(tag, line, UPOS)
