"""Word and sentence similarity: WiC and STS-B, read and scored layer by layer.

Raw cosines of a language model are all close to 1, as its vectors share a large mean and a few
dominant directions. Both are removed first (`elmokit.whitening`), estimated from vectors whose
labels are not used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.stats import spearmanr

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.pooling import Vectors
from elmokit.tasks.datasets.example_records import Tokenize, Words
from elmokit.tasks.datasets.lines import (
    Line,
    check_not_empty,
    numbered_lines,
    parse_whole_number,
)
from elmokit.tasks.datasets.text_tables import tab_separated_rows, words_of_cell
from elmokit.tokenizers import split_on_whitespace
from elmokit.whitening import Whitening, WhiteningMethod

Floats = npt.NDArray[np.float64]

_WIC_GOLD = {"T": True, "F": False}
_STSB_COLUMNS = ("genre", "file", "year", "number", "score", "first", "second")
_STSB_SOURCES = ("source of first", "source of second")  # on some lines only
_MAX_STSB_SCORE = 5


@dataclass(frozen=True, slots=True)
class WordInContext:
    """One word in two sentences, and whether it has the same meaning in both."""

    word: str
    pos: str
    first: Words
    second: Words
    positions: tuple[int, int]
    same: bool


@dataclass(frozen=True, slots=True)
class ScoredPair:
    """Two texts and how similar their meanings are."""

    first: Words
    second: Words
    score: float
    texts: tuple[str, str]  # the raw texts


def read_wic(data: str | Path, gold: str | Path) -> list[WordInContext]:
    """The examples of `NAME.data.txt`, with a line of `NAME.gold.txt` (T or F) for each.

    A line of data is the word, N or V, its positions as `2-6`, and two sentences, tabs between.
    """
    examples = []
    data_lines = [line for line in numbered_lines(data) if not line.blank]
    gold_lines = [line for line in numbered_lines(gold) if not line.blank]
    for line, truth in zip_longest(data_lines, gold_lines):
        if line is None or truth is None:
            extra, other = (truth, data) if line is None else (line, gold)
            raise extra.error(
                f"no line for it in {other} ({len(data_lines)} lines of data, {len(gold_lines)} of "
                "gold), expected one each; do the files belong together?"
            )
        if truth.text.strip() not in _WIC_GOLD:
            raise truth.error(f"{truth.text[:40]!r}, expected T or F")
        examples.append(_parse_wic(line, _WIC_GOLD[truth.text.strip()]))
    return check_not_empty(examples, data, "the lines of Words in Context")


def read_stsb(path: str | Path, tokenize: Tokenize) -> list[ScoredPair]:
    """The pairs of STS-B with their scores, from 0 to 5.

    Columns are separated by tabs, quotes have no meaning: genre, file, year, number, score, two
    texts, and sometimes the sources of the texts.
    """
    examples = []
    for line, row in tab_separated_rows(path, _STSB_COLUMNS, optional=_STSB_SOURCES):
        score, first, second = row[4:7]
        words = words_of_cell(first, tokenize, line), words_of_cell(second, tokenize, line)
        examples.append(ScoredPair(*words, _stsb_score(score, line), (first, second)))
    return check_not_empty(examples, path, "the lines of STS-B: seven columns with tabs between")


def score_words(
    embedder: Embedder,
    train: Sequence[WordInContext],
    dev: Sequence[WordInContext],
    *,
    whitening: WhiteningMethod = "top",
) -> list[float]:
    """For each layer, the accuracy on `dev` of a threshold on the cosine, fitted to `train`."""
    if not train or not dev:
        raise InputError("a threshold needs examples to be fitted to and others to evaluate on")
    train_vectors = embed_words(embedder, train)
    train_same, dev_same = (np.array([pair.same for pair in pairs]) for pairs in (train, dev))
    train_cosines = cosines(train_vectors, fit_to=train_vectors, whitening=whitening)
    dev_cosines = cosines(embed_words(embedder, dev), fit_to=train_vectors, whitening=whitening)
    return [
        float(((of_dev >= best_threshold(of_train, train_same)) == dev_same).mean())
        for of_train, of_dev in zip(train_cosines, dev_cosines, strict=True)
    ]


def score_texts(
    embedder: Embedder,
    train: Sequence[ScoredPair],
    dev: Sequence[ScoredPair],
    *,
    whitening: WhiteningMethod = "zca",
) -> list[float]:
    """For each layer, Spearman's correlation on `dev` of cosines and human scores.

    The whitening is estimated from the texts of `train`, whose scores are not used.
    """
    if not train or not dev:
        raise InputError("a whitening needs texts to be fitted to and others to evaluate on")
    train_vectors = embed_texts(embedder, train)
    scores = [pair.score for pair in dev]
    by_layer = cosines(embed_texts(embedder, dev), fit_to=train_vectors, whitening=whitening)
    return [spearman(scores, own) for own in by_layer]


def embed_words(embedder: Embedder, pairs: Sequence[WordInContext]) -> Vectors:
    """The vectors of each word in its two sentences, (layers, 2, pairs, dim)."""
    first = embedder.embed([pair.first for pair in pairs])
    second = embedder.embed([pair.second for pair in pairs])
    both = [
        np.stack([one[:, pair.positions[0]], other[:, pair.positions[1]]], 1)
        for pair, one, other in zip(pairs, first, second, strict=True)
    ]
    return np.stack(both, 2)


def embed_texts(embedder: Embedder, pairs: Sequence[ScoredPair]) -> Vectors:
    """The mean vectors of two texts' words, (layers, 2, pairs, dim)."""
    first = embedder.embed([pair.first for pair in pairs])
    second = embedder.embed([pair.second for pair in pairs])
    both = [
        np.stack([one.mean(1), other.mean(1)], 1) for one, other in zip(first, second, strict=True)
    ]
    return np.stack(both, 2)


def cosines(
    vectors: Vectors, *, fit_to: Vectors, whitening: WhiteningMethod
) -> Floats:  # -> (layers, pairs)
    """The cosine of each pair, (layers, 2, pairs, dim), after a whitening fitted to `fit_to`."""
    by_layer = []
    for own, known in zip(vectors, fit_to, strict=True):
        white = Whitening.fit_batches(known, dim=known.shape[-1], method=whitening)
        by_layer.append(
            (white.transform(own[0]) * white.transform(own[1])).sum(-1, dtype=np.float64)
        )
    return np.stack(by_layer)


def best_threshold(values: Floats, same: npt.NDArray[np.bool_]) -> float:
    """The value from which on "same" is most often right, halfway between two values."""
    order = np.argsort(values)
    values, same = values[order], same[order]
    # With the threshold below value k, the k values before it are predicted to differ.
    below, above = np.concatenate([[0], np.cumsum(~same)]), np.append([0], np.cumsum(same))
    correct = below + (same.sum() - above)
    correct[1:-1][values[1:] == values[:-1]] = -1  # no threshold separates equal values
    edges = np.concatenate([values[:1] - 1, (values[1:] + values[:-1]) / 2, values[-1:] + 1])
    return float(edges[correct.argmax()])


def spearman(gold, predicted) -> float:
    """Spearman's rank correlation; nan if either side has only one distinct value."""
    if len(gold) != len(predicted):
        raise InputError(f"{len(predicted)} predictions for {len(gold)} of gold, expected as many")
    if np.ptp(gold) == 0 or np.ptp(predicted) == 0:
        return float("nan")
    return float(spearmanr(gold, predicted).statistic)


def _parse_wic(line: Line, same: bool) -> WordInContext:
    row = line.text.split("\t")
    if len(row) != 5:
        raise line.error(
            f"{len(row)} columns between tabs, expected 5: word, part of speech, positions, two "
            "sentences"
        )
    word, pos, positions, *sentences = row
    if not word or pos not in ("N", "V"):
        raise line.error(f"word {word!r} with part of speech {pos!r}, expected a word and N or V")
    first, second = (tuple(split_on_whitespace(sentence)) for sentence in sentences)
    left, right = map(parse_whole_number, positions.partition("-")[::2])
    if left is None or right is None:
        raise line.error(f"positions {positions[:40]!r}, expected two numbers as 2-6")
    for position, words in ((left, first), (right, second)):
        if position >= len(words):
            raise line.error(
                f"position {position} in a sentence of {len(words)} words, expected at most "
                f"{len(words) - 1}; positions count from 0"
            )
    return WordInContext(word, pos, first, second, (left, right), same)


def _stsb_score(text: str, line: Line) -> float:
    try:
        score = float(text)
    except ValueError:
        score = -1.0
    if not 0 <= score <= _MAX_STSB_SCORE:
        raise line.error(f"score {text!r}, expected a number from 0 to {_MAX_STSB_SCORE}")
    return score
