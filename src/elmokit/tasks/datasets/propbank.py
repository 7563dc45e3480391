"""Semantic roles from PropBank columns: one example for each predicate.

A line holds the word's number, the word, its part of speech, the predicate's lemma and frame (`-`
if the word is no predicate), then a column of bracketed spans for each predicate of the sentence,
in order: `(ARG0*` opens a span, `*)` closes it, `(V*)` does both.
"""

import re
from pathlib import Path

from elmokit.tasks.datasets.example_records import PredicateRoles, Span
from elmokit.tasks.datasets.lines import Line, blocks_of, check_not_empty, numbered_lines
from elmokit.tasks.datasets.schemes import tags_of

_WORD, _FRAME, _FIRST_SPANS = 1, 4, 5
_NO_PREDICATE = "-"
_CELL = re.compile(r"(?:\((?P<label>[^()*\s]+))?\*(?P<closes>\))?")


def read_propbank(path: str | Path) -> list[PredicateRoles]:
    """The predicates of a file; a sentence without a predicate gives no example.

    The words of a predicate have the role V. If a predicate has several words, `predicate` is the
    one on whose line the frame is; its role may be C-V (`x - rays`).
    """
    examples = []
    for block in blocks_of(numbered_lines(path)):
        rows = [line.text.split("\t") for line in block]
        predicates = [
            position
            for position, row in enumerate(rows)
            if len(row) >= _FIRST_SPANS and row[_FRAME] != _NO_PREDICATE
        ]
        start = int(rows[0][0]) if rows[0][0] in ("0", "1") else None
        for position, (line, row) in enumerate(zip(block, rows, strict=True)):
            if len(row) != _FIRST_SPANS + len(predicates):
                raise line.error(
                    f"{len(row)} columns between tabs, expected {_FIRST_SPANS} and one for each of "
                    f"the {len(predicates)} predicates of the sentence; is a column or a blank "
                    "line missing?"
                )
            if start is None or row[0] != str(start + position):
                expected = "0 or 1 for the first word" if start is None else str(start + position)
                raise line.error(
                    f"the word has number {row[0]!r}, expected {expected}; is a blank line or a "
                    "word missing?"
                )
            if not row[_WORD]:
                raise line.error("an empty word, expected one; is the file cut at tabs?")
        words = tuple(row[_WORD] for row in rows)
        for column, position in enumerate(predicates, _FIRST_SPANS):
            spans = _spans_of_column(block, [row[column] for row in rows])
            tags = tags_of(spans, len(words), "iob2")
            if not tags[position].endswith("-V"):
                raise block[position].error(
                    f"{words[position]!r} is a predicate, but has {tags[position]!r} in column "
                    f"{column + 1}, expected V; are the columns in the order of the predicates?"
                )
            examples.append(PredicateRoles(words, position, rows[position][_FRAME], tags))
    return check_not_empty(examples, path, "predicates with a column of bracketed spans each")


def _spans_of_column(block: list[Line], cells: list[str]) -> list[Span]:
    spans: list[Span] = []
    opened: tuple[int, str] | None = None
    for position, (line, cell) in enumerate(zip(block, cells, strict=True)):
        if cell == "*":
            continue
        match = _CELL.fullmatch(cell)
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
        raise block[opened[0]].error(
            f"({opened[1]}* is not closed in its sentence, expected *) after it"
        )
    return spans
