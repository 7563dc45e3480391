"""Coreference columns of CoNLL-2012 become documents with clusters of mentions.

A document stands between `#begin document (NAME); part 0` and `#end document`, a blank line after
each sentence. The fourth column is the word, the last one the mentions that begin and end at it:
`(3` opens a mention of cluster 3, `3)` closes the one opened last, `(3)` does both, `|` stands
between them; `-`, `_` or nothing where there are none. Columns stand between tabs or spaces.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from elmokit.tasks.data.example import Document, Words
from elmokit.tasks.data.source import Line, lines_of, some
from elmokit.tokenizers import split_on_whitespace

_WORD, _FEWEST = 3, 5
_BEGIN = re.compile(r"#begin document \((?P<name>.*)\);(?: part (?P<part>[0-9]{1,9}))?\s*")
_MENTION = re.compile(r"(?P<opens>\()?(?P<cluster>[0-9]+)(?P<closes>\))?")


def read_conll2012(path: str | Path, *, lines: Iterable[Line] | None = None) -> list[Document]:
    """The documents of a file, with all clusters that stand in it, those of one mention too.

    `lines` are those of the file, if they were read already.
    """
    documents = [*_documents(lines_of(path) if lines is None else lines)]
    return some(documents, path, "documents from #begin document to #end document")


def _documents(lines: Iterable[Line]) -> Iterator[Document]:
    document: _Unfinished | None = None
    for line in lines:
        if line.text.startswith("#begin document"):
            if document is not None:
                raise line.wrong("a document begins within one, expected #end document before it")
            document = _Unfinished(line)
        elif line.text.startswith("#end document"):
            if document is None:
                raise line.wrong("a document ends, but none has begun; is #begin document missing?")
            yield document.finished()
            document = None
        elif document is not None:
            document.read(line)
        elif not line.blank and not line.text.startswith("#"):
            raise line.wrong(f"{line.text[:40]!r} in no document, expected #begin document first")
    if document is not None:
        raise document.begin.wrong("#end document is missing; was the file cut short?")


class _Unfinished:
    """A document that is being read."""

    def __init__(self, begin: Line) -> None:
        if (match := _BEGIN.fullmatch(begin.text)) is None:
            raise begin.wrong(f"{begin.text!r}, expected #begin document (NAME); part 000")
        self.begin, self.name, self.part = begin, match["name"], int(match["part"] or 0)
        self._sentences: list[Words] = []
        self._words: list[str] = []
        self._columns = self._done = 0
        self._opened: dict[str, list[tuple[int, Line]]] = defaultdict(list)
        self._clusters: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._cluster_of: dict[tuple[int, int], str] = {}

    def read(self, line: Line) -> None:
        if line.blank:
            self._end_sentence()
            return
        tabs = "\t" in line.text
        row = line.text.split("\t") if tabs else split_on_whitespace(line.text)
        if len(row) < _FEWEST or (self._words and len(row) != self._columns):
            expected = f"{self._columns}" if self._words else f"{_FEWEST} or more"
            raise line.wrong(
                f"{len(row)} columns, expected {expected}; is a column or a blank line missing?"
            )
        self._columns = len(row)
        if not row[_WORD]:
            raise line.wrong("an empty word in column 4, expected one")
        if row[-1] not in ("", "-", "_"):
            for mention in row[-1].split("|"):
                self._read_mention(mention, line)
        self._words.append(row[_WORD])

    def finished(self) -> Document:
        self._end_sentence()
        for cluster, opened in self._opened.items():
            if opened:
                raise opened[-1][1].wrong(
                    f"a mention of cluster {cluster} is not closed in its document, expected "
                    f"{cluster}) after it"
                )
        if not self._sentences:
            raise self.begin.wrong("a document without a word, expected some; remove it")
        clusters = sorted(tuple(sorted(mentions)) for mentions in self._clusters.values())
        return Document(self.name, self.part, tuple(self._sentences), tuple(clusters))

    def _end_sentence(self) -> None:
        if self._words:
            self._sentences.append(tuple(self._words))
            self._done += len(self._words)
            self._words = []

    def _read_mention(self, text: str, line: Line) -> None:
        place = self._done + len(self._words)
        match = _MENTION.fullmatch(text)
        if match is None or not (match["opens"] or match["closes"]):
            raise line.wrong(f"mention {text!r}, expected (3, 3) or (3), with | between several")
        opened = self._opened[match["cluster"]]
        if match["opens"]:
            opened.append((place, line))
        if match["closes"]:
            if not opened:
                raise line.wrong(
                    f"{text!r} closes a mention that was not opened; is a ( missing before it?"
                )
            mention = opened.pop()[0], place
            other = self._cluster_of.setdefault(mention, match["cluster"])
            if other != match["cluster"]:
                raise line.wrong(
                    f"words {mention[0]} to {place} are in cluster {other} and in "
                    f"{match['cluster']}, expected one; remove a mention"
                )
            self._clusters[other].add(mention)
