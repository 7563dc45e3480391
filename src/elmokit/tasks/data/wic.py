"""Words in Context, its data and its gold, become one word in two sentences."""

from itertools import zip_longest
from pathlib import Path

from elmokit.tasks.data.example import InContext
from elmokit.tasks.data.source import Line, lines_of, some, whole_number
from elmokit.tokenizers import split_on_whitespace

_GOLD = {"T": True, "F": False}


def read_wic(data: str | Path, gold: str | Path) -> list[InContext]:
    """The examples of `NAME.data.txt`, a line of `NAME.gold.txt` (T or F) for each.

    A line of data is the word, N or V, its places as `2-6`, and two sentences, tabs between them.
    """
    examples = []
    texts = [line for line in lines_of(data) if not line.blank]
    truths = [line for line in lines_of(gold) if not line.blank]
    for line, truth in zip_longest(texts, truths):
        if line is None or truth is None:
            extra, other = (truth, data) if line is None else (line, gold)
            raise extra.wrong(
                f"no line for it in {other} ({len(texts)} lines of data, {len(truths)} of gold), "
                "expected one each; do the files belong together?"
            )
        if truth.text.strip() not in _GOLD:
            raise truth.wrong(f"{truth.text[:40]!r}, expected T or F")
        examples.append(_example(line, _GOLD[truth.text.strip()]))
    return some(examples, data, "the lines of Words in Context")


def _example(line: Line, same: bool) -> InContext:
    row = line.text.split("\t")
    if len(row) != 5:
        raise line.wrong(
            f"{len(row)} columns between tabs, expected 5: word, part of speech, places, two "
            "sentences"
        )
    word, pos, places, *sentences = row
    if not word or pos not in ("N", "V"):
        raise line.wrong(f"word {word!r} with part of speech {pos!r}, expected a word and N or V")
    first, second = (tuple(split_on_whitespace(sentence)) for sentence in sentences)
    left, right = map(whole_number, places.partition("-")[::2])
    if left is None or right is None:
        raise line.wrong(f"places {places[:40]!r}, expected two numbers as 2-6")
    for place, words in ((left, first), (right, second)):
        if place >= len(words):
            raise line.wrong(
                f"place {place} in a sentence of {len(words)} words, expected at most "
                f"{len(words) - 1}; places count from 0"
            )
    return InContext(word, pos, first, second, (left, right), same)
