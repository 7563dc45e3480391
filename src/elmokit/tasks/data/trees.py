"""Trees of the Stanford Sentiment Treebank become labelled sentences.

A tree a line: `(3 (2 It) (4 works))`. Brackets, quotes, slashes and asterisks, which the Penn
Treebank escapes (`-LRB-`, `\\/`), are themselves again: a model of characters has seen them so.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from elmokit.tasks.data.example import Labelled
from elmokit.tasks.data.source import Line, known, lines_of, some

SST_LABELS = ("0", "1", "2", "3", "4")

_PIECE = re.compile(r"[()]|[^() \t]+")  # other white space belongs to its word
_SIGNS = {
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"',
}  # fmt: skip


def read_trees(path: str | Path, *, labels: Sequence[str] | None = SST_LABELS) -> list[Labelled]:
    """The sentences with the labels of their roots."""
    examples = [_sentence(line, labels) for line in lines_of(path) if not line.blank]
    return some(examples, path, "a tree a line, as (3 (2 It) (4 works))")


def _sentence(line: Line, labels: Sequence[str] | None) -> Labelled:
    """The words of a tree and its root's label; every other label is checked."""
    words: list[str] = []
    nodes: list[tuple[str, int]] = []  # label, first word
    opened: list[int] = []  # nodes that are not closed yet
    before = ""
    for piece in _PIECE.findall(line.text):
        if nodes and not opened:
            raise line.wrong(f"{piece!r} after the end of the tree, expected one tree a line")
        if piece == "(":
            opened.append(len(nodes))
            nodes.append(("", len(words)))
        elif not opened:
            raise line.wrong(f"{piece!r} before a tree, expected (LABEL first")
        elif piece == ")":
            label, first = nodes[opened.pop()]
            if first == len(words):
                raise line.wrong(f"a phrase ({label}) without a word, expected (LABEL WORD)")
        elif before == "(":
            nodes[-1] = known(piece, line, labels), len(words)
        else:
            words.append(_unescaped(piece))
        before = piece
    if opened:
        raise line.wrong(f"{len(opened)} brackets are not closed; was the line cut short?")
    if not all(label for label, _ in nodes):
        raise line.wrong("a phrase without a label, expected (LABEL …)")
    return Labelled(tuple(words), nodes[0][0])


def _unescaped(word: str) -> str:
    return _SIGNS.get(word, word.replace("\\/", "/").replace("\\*", "*"))
