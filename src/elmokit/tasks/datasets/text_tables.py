"""Labelled texts and pairs of texts from tab-separated files; Stanford Sentiment Treebank."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from elmokit.tasks.datasets.example_records import LabelledText, TextPair, Tokenize, Words
from elmokit.tasks.datasets.lines import Line, check_label, numbered_lines
from elmokit.tokenizers import PENN_TREEBANK_SYMBOLS

_LINE_BREAK = re.compile(r"<br\s*/?>")
_NO_GOLD_LABEL = "-"
_SENTIMENTS = ("0", "1", "2", "3", "4")
_TREE_TOKEN = re.compile(r"[()]|[^() \t]+")  # other white space belongs to its word


def read_labelled(path: str | Path, tokenize: Tokenize) -> list[LabelledText]:
    """The texts of a file with a label, a tab and a text a line; `<br />` becomes a space."""
    examples = []
    for line, (label, raw) in tab_separated_rows(path, ("label", "text")):
        text = without_line_breaks(raw)
        words = words_of_cell(text, tokenize, line)
        examples.append(LabelledText(words, check_label(label, line), text))
    return examples


def read_pairs(path: str | Path, tokenize: Tokenize) -> list[TextPair]:
    """The pairs of a file with a premise, a tab, a hypothesis, a tab and a label a line.

    Pairs on whose label the annotators did not agree, marked `-` in SNLI, are skipped.
    """
    examples = []
    rows = tab_separated_rows(path, ("premise", "hypothesis", "label"))
    for line, (first, second, label) in rows:
        words = words_of_cell(first, tokenize, line), words_of_cell(second, tokenize, line)
        if label.strip() != _NO_GOLD_LABEL:
            examples.append(TextPair(*words, check_label(label, line), (first, second)))
    return examples


def read_trees(path: str | Path) -> list[LabelledText]:
    """The sentences of the Stanford Sentiment Treebank and the labelled phrases in them.

    One tree a line: `(3 (2 It) (4 works))`. Brackets, quotes, slashes and asterisks, which the
    Penn Treebank escapes (`-LRB-`, `\\/`), are unescaped, as in the text that biLMs are trained on.
    """
    return [_parse_tree(line) for line in numbered_lines(path) if not line.blank]


def without_line_breaks(text: str) -> str:
    """A text with a space for each HTML `<br />`."""
    return _LINE_BREAK.sub(" ", text)


def tab_separated_rows(
    path: str | Path, columns: Sequence[str], *, optional: Sequence[str] = ()
) -> Iterator[tuple[Line, list[str]]]:
    """The lines that are not blank, split at tabs; all `optional` columns are there, or none."""
    for line in numbered_lines(path):
        if line.blank:
            continue
        row = line.text.split("\t")
        if len(row) not in (len(columns), len(columns) + len(optional)):
            raise line.error(
                f"{len(row)} columns between tabs, expected {len(columns)} "
                f"({', '.join(columns)}); is a tab missing, or one within a text?"
            )
        yield line, row


def words_of_cell(text: str, tokenize: Tokenize, line: Line) -> Words:
    """The words of a cell of a table; an error if there are none."""
    words = tuple(tokenize(text))
    if not words:
        raise line.error("a text without a word, expected one; remove the line or write a text")
    return words


def _parse_tree(line: Line) -> LabelledText:
    """The words of a tree and the label of its root; each phrase comes before those in it."""
    words: list[str] = []
    phrases: list[tuple[int, int, str]] = []  # first word, last word, label
    open_phrases: list[int] = []
    previous = ""
    for token in _TREE_TOKEN.findall(line.text):
        if phrases and not open_phrases:
            raise line.error(f"{token!r} after the end of the tree, expected one tree a line")
        if token == "(":
            open_phrases.append(len(phrases))
            phrases.append((len(words), -1, ""))
        elif not open_phrases:
            raise line.error(f"{token!r} before a tree, expected (LABEL first")
        elif token == ")":
            first, _, label = phrases[open_phrases[-1]]
            if first == len(words):
                raise line.error(f"a phrase ({label}) without a word, expected (LABEL WORD)")
            phrases[open_phrases.pop()] = first, len(words) - 1, label
        elif previous == "(":
            phrases[-1] = len(words), -1, check_label(token, line, _SENTIMENTS)
        else:
            unescaped = token.replace("\\/", "/").replace("\\*", "*")
            words.append(PENN_TREEBANK_SYMBOLS.get(token, unescaped))
        previous = token
    if open_phrases:
        raise line.error(f"{len(open_phrases)} brackets are not closed; was the line cut short?")
    if not all(label for _, _, label in phrases):
        raise line.error("a phrase without a label, expected (LABEL …)")
    return LabelledText(tuple(words), phrases[0][2], phrases=tuple(phrases[1:]))
