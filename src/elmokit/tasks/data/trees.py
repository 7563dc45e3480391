"""Trees of the Stanford Sentiment Treebank become labelled sentences, or labelled phrases.

A tree a line: `(3 (2 It) (4 works))`. Brackets, quotes, slashes and asterisks, which the Penn
Treebank escapes (`-LRB-`, `\\/`), are themselves again: a model of characters has seen them so.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from elmokit.tasks.data.example import Labelled
from elmokit.tasks.data.source import Line, known, lines_of, some

SST_LABELS = ("0", "1", "2", "3", "4")

_PIECE = re.compile(r"[()]|[^() \t]+")  # other white space belongs to its word
_SIGNS = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"',
}  # fmt: skip


def read_trees(
    path: str | Path, *, phrases: bool = False, labels: Sequence[str] | None = SST_LABELS
) -> list[Labelled]:
    """The sentences with the labels of their roots, or all `phrases`, the whole sentence first."""
    examples: list[Labelled] = []
    for line in lines_of(path):
        if line.blank:
            continue
        nodes = _phrases(line, labels)
        examples += nodes if phrases else [next(nodes)]
    return some(examples, path, "a tree a line, as (3 (2 It) (4 works))")


def _phrases(line: Line, labels: Sequence[str] | None) -> Iterator[Labelled]:
    """All phrases of a tree: a phrase before the phrases in it."""
    words: list[str] = []
    nodes: list[tuple[str, int, int]] = []  # label, first word, the word after the last
    opened: list[int] = []  # nodes that are not closed yet
    before = ""
    for piece in _PIECE.findall(line.text):
        if nodes and not opened:
            raise line.wrong(f"{piece!r} after the end of the tree, expected one tree a line")
        if piece == "(":
            opened.append(len(nodes))
            nodes.append(("", len(words), len(words)))
        elif not opened:
            raise line.wrong(f"{piece!r} before a tree, expected (LABEL first")
        elif piece == ")":
            label, first, _ = nodes[opened[-1]]
            if first == len(words):
                raise line.wrong(f"a phrase ({label}) without a word, expected (LABEL WORD)")
            nodes[opened.pop()] = label, first, len(words)
        elif before == "(":
            nodes[-1] = known(piece, line, labels), len(words), len(words)
        else:
            words.append(_unescaped(piece))
        before = piece
    if opened:
        raise line.wrong(f"{len(opened)} brackets are not closed; was the line cut short?")
    for label, first, end in nodes:
        if not label:
            raise line.wrong("a phrase without a label, expected (LABEL …)")
        yield Labelled(tuple(words[first:end]), label)


def _unescaped(word: str) -> str:
    return _SIGNS.get(word, word.replace("\\/", "/").replace("\\*", "*"))
