"""CoNLL columns become tagged sentences: NER of 2003, chunks of 2000, Chinese by character."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal

from elmokit.errors import FormatError
from elmokit.tasks.data.example import Tagged
from elmokit.tasks.data.schemes import TAG_FORM, Scheme, fault_of, is_tag, recognise
from elmokit.tasks.data.source import Line, blocks_of, lines_of, some
from elmokit.text.split import split_at_spaces

_log = logging.getLogger(__name__)

_DOCUMENT = "-DOCSTART-"


def read_columns(
    path: str | Path,
    *,
    word: int = 0,
    tag: int = -1,
    scheme: Scheme | Literal["any"] | None = None,
    lines: Iterable[Line] | None = None,
) -> list[Tagged]:
    """The sentences of a file with a word a line and a blank line between sentences.

    `word` and `tag` are columns from 0, or from the end below 0; columns stand between spaces or
    tabs. A file whose tags are not of a named `scheme` is refused; a few that stand where they
    should not are only logged, for `spans_of` reads them as conlleval does. With "any" a tag may be
    of any scheme; without a scheme, any tag will do. The `-DOCSTART-` lines of CoNLL-2003 are no
    sentences. `lines` are those of the file, if they were read already.
    """
    lines = _cut_documents(lines_of(path) if lines is None else lines)
    examples: list[Tagged] = []
    columns, faults = 0, list[FormatError]()
    for block in blocks_of(lines):
        rows = [split_at_spaces(line.text) for line in block]
        columns = columns or _checked_columns(block[0], len(rows[0]), word=word, tag=tag)
        for line, row in zip(block, rows, strict=True):
            if len(row) != columns:
                raise line.wrong(
                    f"{len(row)} columns, expected {columns} as in the first sentence; is a blank "
                    "line or a column missing?"
                )
        tags = tuple(row[tag] for row in rows)
        if scheme == "any":
            _check_tags(block, tags)
        elif scheme is not None and (fault := fault_of(tags, scheme)) is not None:
            faults.append(block[fault.place].wrong(fault.says))
            if fault.foreign:
                raise faults[-1]
        examples.append(Tagged(tuple(row[word] for row in rows), tags))
    if faults:
        _judge(faults, scheme, recognise(example.tags for example in examples))
    return some(examples, path, "lines of a word and its tag, with blank lines between sentences")


def _check_tags(block: list[Line], tags: Sequence[str]) -> None:
    for line, tag in zip(block, tags, strict=True):
        if not is_tag(tag):
            raise line.wrong(f"tag {tag!r}, expected {TAG_FORM}; is it in another column?")


def _judge(faults: list[FormatError], named: str | None, found: Scheme | None) -> None:
    """Refuse a file that is of another scheme, and log the mistakes of one that is not."""
    if found != named:
        raise FormatError(
            f"{faults[0]} (and so in {len(faults):,} sentences); the file is in {found}, name that"
        )
    _log.warning("%s (%d sentences so); read as conlleval reads it", faults[0], len(faults))


def _cut_documents(lines: Iterable[Line]) -> Iterator[Line]:
    """The lines, those that only start a document made blank."""
    for line in lines:
        yield line._replace(text="") if line.text.startswith(_DOCUMENT) else line


def _checked_columns(line: Line, columns: int, *, word: int, tag: int) -> int:
    for name, column in (("word", word), ("tag", tag)):
        if not -columns <= column < columns:
            raise line.wrong(
                f"{columns} columns, expected a {name} in column {column}; columns count from 0"
            )
    if word % columns == tag % columns:
        raise line.wrong(
            f"{columns} columns, expected the word and its tag in two different ones, not both in "
            f"column {word % columns}"
        )
    return columns
