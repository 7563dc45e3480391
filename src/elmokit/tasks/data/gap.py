"""GAP becomes pronouns, each with two names that it may stand for."""

from collections.abc import Iterable
from pathlib import Path

from elmokit.tasks.data.align import Place, align
from elmokit.tasks.data.example import Pronoun
from elmokit.tasks.data.source import Line, lines_of, some, whole_number
from elmokit.tasks.data.table import Split, sentences_by

_COLUMNS = (
    "ID", "Text", "Pronoun", "Pronoun-offset", "A", "A-offset", "A-coref", "B", "B-offset",
    "B-coref", "URL",
)  # fmt: skip
_TRUE = {"TRUE": True, "True": True, "FALSE": False, "False": False}


def is_gap(lines: Iterable[Line]) -> bool:
    """Whether lines are GAP's, by the first of them."""
    return next((line.text.split("\t")[:2] == [*_COLUMNS[:2]] for line in lines), False)


def read_gap(
    path: str | Path, split: Split, *, lines: Iterable[Line] | None = None
) -> list[Pronoun]:
    """The pronouns of a file, their texts cut into words by `split`; the first line is GAP's own.

    `lines` are those of the file, if they were read already.
    A pronoun or a name that does not begin and end where words do is widened to whole words.
    """
    examples: dict[str, Pronoun] = {}
    for line in lines_of(path) if lines is None else lines:
        row = line.text.split("\t")
        if line.number == 1 and row != [*_COLUMNS]:
            raise line.wrong(f"{line.text[:60]!r}, expected GAP's header: {' '.join(_COLUMNS)}")
        if line.number > 1 and not line.blank:
            example = _pronoun(line, row, split)
            if example.id in examples:
                raise line.wrong(f"ID {example.id!r} is there twice, expected once")
            examples[example.id] = example
    return some([*examples.values()], path, "the table of GAP")


def _pronoun(line: Line, row: list[str], split: Split) -> Pronoun:
    if len(row) != len(_COLUMNS):
        raise line.wrong(f"{len(row)} columns between tabs, expected GAP's {len(_COLUMNS)}")
    cell = dict(zip(_COLUMNS, row, strict=True))
    sentences = sentences_by(split, cell["Text"])
    words = [word for sentence in sentences for word in sentence]
    offsets = align(words, cell["Text"])
    if not words or offsets is None:
        raise line.wrong(
            "the words of the text cannot be found in it again, expected the splitter to keep "
            "nearly all characters; use another one"
        )
    is_a, is_b = (_truth(line, cell, name) for name in ("A-coref", "B-coref"))
    if is_a and is_b:
        raise line.wrong("A-coref and B-coref are both TRUE, expected one of them or none")
    pronoun, a, b = (_span(line, cell, name, offsets) for name in ("Pronoun", "A", "B"))
    return Pronoun(cell["ID"], sentences, pronoun, a, b, is_a, is_b, cell["Pronoun"])


def _truth(line: Line, cell: dict[str, str], name: str) -> bool:
    if cell[name] not in _TRUE:
        raise line.wrong(f"{name} {cell[name]!r}, expected TRUE or FALSE")
    return _TRUE[cell[name]]


def _span(line: Line, cell: dict[str, str], name: str, offsets: list[Place]) -> tuple[int, int]:
    """The words that hold the pronoun or a name."""
    text, offset = cell[name], cell[f"{name}-offset"]
    start = whole_number(offset)
    end = (start or 0) + len(text)
    if start is None or not text or cell["Text"][start:end] != text:
        raise line.wrong(
            f"{name}-offset {offset[:40]!r}, expected where {text!r} begins in the text, in "
            "characters"
        )
    held = [place for place, own in enumerate(offsets) if own[0] < end and own[1] > start]
    if not held:
        raise line.wrong(f"{name} {text!r} holds no word; use another splitter")
    return held[0], held[-1]
