"""PropBank columns become the roles of predicates, one example a predicate.

A line is the word's place, the word, its part of speech, the predicate's lemma and frame (`-` where
the word is none), then a column of bracketed spans for each predicate of the sentence, in order:
`(ARG0*` opens a span, `*)` closes it, `(V*)` does both.
"""

import re
from pathlib import Path

from elmokit.tasks.data.example import Roles, Span
from elmokit.tasks.data.schemes import tags_of
from elmokit.tasks.data.source import Line, blocks_of, lines_of, some

_WORD, _FRAME, _FIRST = 1, 4, 5
_NONE = "-"
_CELL = re.compile(r"(?:\((?P<label>[^()*\s]+))?\*(?P<closes>\))?")


def read_roles(path: str | Path) -> list[Roles]:
    """The predicates of a file; a sentence without one gives none.

    The words of a predicate have the role V. Of a predicate of several words `predicate` is the one
    that its frame stands beside, which may be in the role C-V (`x - rays`).
    """
    examples = []
    for block in blocks_of(lines_of(path)):
        rows = [line.text.split("\t") for line in block]
        places = [
            place for place, row in enumerate(rows) if len(row) >= _FIRST and row[_FRAME] != _NONE
        ]
        for place, (line, row) in enumerate(zip(block, rows, strict=True)):
            _check(line, row, predicates=len(places), index=_number(rows[0][0], place))
        words = tuple(row[_WORD] for row in rows)
        for column, place in enumerate(places, _FIRST):
            spans = _spans(block, [row[column] for row in rows])
            tags = tags_of(spans, len(words), "iob2")
            if not tags[place].endswith("-V"):
                raise block[place].wrong(
                    f"{words[place]!r} is a predicate, but has {tags[place]!r} in column "
                    f"{column + 1}, expected V; are the columns in the order of the predicates?"
                )
            examples.append(Roles(words, place, rows[place][_FRAME], tags))
    return some(examples, path, "predicates with a column of bracketed spans each")


def _number(first: str, place: int) -> int | None:
    """The number that a word at a place should have, where the first has `first`."""
    return int(first) + place if first in ("0", "1") else None


def _check(line: Line, row: list[str], *, predicates: int, index: int | None) -> None:
    if len(row) != _FIRST + predicates:
        raise line.wrong(
            f"{len(row)} columns between tabs, expected {_FIRST} and one for each of the "
            f"{predicates} predicates of the sentence; is a column or a blank line missing?"
        )
    if index is None or row[0] != str(index):
        expected = "0 or 1 for the first word" if index is None else str(index)
        raise line.wrong(
            f"the word has number {row[0]!r}, expected {expected}; is a blank line or a word "
            "missing?"
        )
    if not row[_WORD]:
        raise line.wrong("an empty word, expected one; is the file cut at tabs?")


def _spans(block: list[Line], cells: list[str]) -> list[Span]:
    """The spans of one column."""
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    for place, (line, cell) in enumerate(zip(block, cells, strict=True)):
        if cell == "*":
            continue
        match = _CELL.fullmatch(cell)
        if match is None:
            raise line.wrong(f"{cell!r}, expected *, (ROLE*, *) or (ROLE*)")
        if match["label"]:
            if opened is not None:
                raise line.wrong(
                    f"{cell!r} opens a span within ({opened[1]}, expected *) before it; spans of "
                    "one predicate may not overlap"
                )
            opened = place, match["label"]
        if match["closes"]:
            if opened is None:
                raise line.wrong(f"{cell!r} closes a span that was not opened; is a ( missing?")
            spans.append(Span(opened[0], place, opened[1]))
            opened = None
    if opened is not None:
        raise block[opened[0]].wrong(
            f"({opened[1]}* is not closed in its sentence, expected *) after it"
        )
    return spans
