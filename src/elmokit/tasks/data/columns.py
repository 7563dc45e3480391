"""CoNLL columns become tagged sentences: NER of 2003, chunks of 2000, Chinese by character."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from elmokit.tasks.data.example import Tagged
from elmokit.tasks.data.schemes import TAG_FORM, is_tag
from elmokit.tasks.data.source import Line, blocks_of, lines_of, some
from elmokit.tokenizers import split_on_whitespace

_DOCUMENT = "-DOCSTART-"


def read_columns(
    path: str | Path, *, spans: bool = False, lines: Iterable[Line] | None = None
) -> list[Tagged]:
    """The sentences of a file with a word a line and a blank line between sentences.

    The word is the first column and its tag the last; columns stand between spaces or tabs. Tags
    that say `spans` must be of some scheme (`spans_of` reads all of them); else any will do. The
    `-DOCSTART-` lines of CoNLL-2003 are no sentences. `lines` are those of the file, if they were
    read already.
    """
    lines = _cut_documents(lines_of(path) if lines is None else lines)
    examples: list[Tagged] = []
    columns = 0
    for block in blocks_of(lines):
        rows = [split_on_whitespace(line.text) for line in block]
        columns = columns or len(rows[0])
        for line, row in zip(block, rows, strict=True):
            if len(row) != columns:
                raise line.wrong(
                    f"{len(row)} columns, expected {columns} as in the first sentence; is a blank "
                    "line or a column missing?"
                )
            if columns < 2:
                raise line.wrong("1 column, expected a word first and its tag last")
            if spans and not is_tag(row[-1]):
                raise line.wrong(f"tag {row[-1]!r}, expected {TAG_FORM}; is it in another column?")
        examples.append(Tagged(tuple(row[0] for row in rows), tuple(row[-1] for row in rows)))
    return some(examples, path, "lines of a word and its tag, with blank lines between sentences")


def _cut_documents(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, those that only start a document made blank."""
    for line in lines:
        yield line._replace(text="") if line.text.startswith(_DOCUMENT) else line
