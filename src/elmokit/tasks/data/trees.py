"""Trees of the Stanford Sentiment Treebank become labelled sentences and phrases.

A tree a line: `(3 (2 It) (4 works))`. Brackets, quotes, slashes and asterisks, which the Penn
Treebank escapes (`-LRB-`, `\\/`), are themselves again: a model of characters has seen them so.
"""

import re
from pathlib import Path

from elmokit.tasks.data.example import Labelled
from elmokit.tasks.data.source import Line, known, lines_of, some

_LABELS = ("0", "1", "2", "3", "4")

_PIECE = re.compile(r"[()]|[^() \t]+")  # other white space belongs to its word
SIGNS = {  # what the Penn Treebank writes, and what it stands for
    "-LRB-": "(", "-RRB-": ")", "-LSB-": "[", "-RSB-": "]", "-LCB-": "{", "-RCB-": "}",
    "``": '"', "''": '"',
}  # fmt: skip


def read_trees(path: str | Path) -> list[Labelled]:
    """The sentences with the labels of their roots, and the phrases in them with theirs."""
    examples = [_sentence(line) for line in lines_of(path) if not line.blank]
    return some(examples, path, "a tree a line, as (3 (2 It) (4 works))")


def _sentence(line: Line) -> Labelled:
    """The words of a tree, its root's label, and a phrase before the phrases in it."""
    words: list[str] = []
    nodes: list[tuple[int, int, str]] = []  # first word, last word, label
    opened: list[int] = []  # nodes that are not closed yet
    before = ""
    for piece in _PIECE.findall(line.text):
        if nodes and not opened:
            raise line.wrong(f"{piece!r} after the end of the tree, expected one tree a line")
        if piece == "(":
            opened.append(len(nodes))
            nodes.append((len(words), -1, ""))
        elif not opened:
            raise line.wrong(f"{piece!r} before a tree, expected (LABEL first")
        elif piece == ")":
            first, _, label = nodes[opened[-1]]
            if first == len(words):
                raise line.wrong(f"a phrase ({label}) without a word, expected (LABEL WORD)")
            nodes[opened.pop()] = first, len(words) - 1, label
        elif before == "(":
            nodes[-1] = len(words), -1, known(piece, line, _LABELS)
        else:
            words.append(_unescaped(piece))
        before = piece
    if opened:
        raise line.wrong(f"{len(opened)} brackets are not closed; was the line cut short?")
    if not all(label for _, _, label in nodes):
        raise line.wrong("a phrase without a label, expected (LABEL …)")
    return Labelled(tuple(words), nodes[0][2], phrases=tuple(nodes[1:]))


def _unescaped(word: str) -> str:
    return SIGNS.get(word, word.replace("\\/", "/").replace("\\*", "*"))
