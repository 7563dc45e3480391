"""Gaps in a sentence become the words that fit from both sides."""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from elmokit.ask.oracle import START, Oracle
from elmokit.ask.predict import Guess, best
from elmokit.ask.score import score
from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.text.vocabulary import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN

GAP = "___"
_STAND_IN = "\ue000"

Split = Callable[[str], list[list[str]]]

# So many words are tried in a gap at least, and several gaps are gone through so many times.
TRIED = 50
ROUNDS = 3


def fill_text(
    oracle: Oracle, text: str | Sequence[str], split: Split, *, k: int = 10
) -> list[list[Guess]]:
    """For each `___` of a text, the k words that fit best into its sentence; see `fill`.

    Three underlines or more are a gap, wherever they stand in a raw text.
    """
    if isinstance(text, str):
        # Most splitters cut underlines apart; what nobody writes is a word to all of them.
        sentences = split(re.sub("_{3,}", _STAND_IN, text))
    else:
        sentences = [[_STAND_IN if word == GAP else word for word in text]]
    gapped = [[GAP if word == _STAND_IN else word for word in words] for words in sentences]
    for word in (word for words in gapped for word in words):
        if _STAND_IN in word:
            raise InputError(
                f"the gap in {word.replace(_STAND_IN, GAP)!r} is not a word by itself; put a space "
                "before and after it"
            )
    found = [guesses for words in gapped if GAP in words for guesses in fill(oracle, words, k=k)]
    if not found:
        raise InputError(f"{text!r} has no gap; write {GAP} where a word is wanted")
    return found


def fill(
    oracle: Oracle, sentence: Sequence[str], *, k: int = 10, tried: int = TRIED
) -> list[list[Guess]]:
    """For each word `___` of a sentence, the k words that fit best.

    Each reader says how likely every word is in the gap, one from the left and one from the right;
    the best by the product of the two (`tried`, or k if that is more) are then put in, and the
    sentence is scored whole: that sees how they are spelled and what follows from them. A guess's
    probability is its share of the sentences tried, by the geometric mean of the readers'
    probabilities. A model of one direction does the same with one reader.

    Several gaps are first filled one after the other by one reader alone, then each anew with the
    others as they stand, until nothing changes, three times at most.
    """
    gaps = [place for place, word in enumerate(sentence) if word == GAP]
    if k < 1:
        raise InputError(f"k is {k}, expected 1 or more words")
    filled = list(sentence)
    if len(gaps) > 1:
        _fill_from_one_side(oracle, filled, gaps)
    found: dict[int, list[Guess]] = {}
    for _ in range(ROUNDS):
        before = list(filled)
        for gap in gaps:
            found[gap] = _fill_gap(oracle, filled, gap, max(k, tried))
            filled[gap] = found[gap][0].word
        if len(gaps) == 1 or filled == before:
            break
    return [found[gap][:k] for gap in gaps]


def _fill_from_one_side(oracle: Oracle, filled: list[str], gaps: list[int]) -> None:
    """The likeliest word in each gap, by the first reader, which sees the gaps before filled."""
    direction = oracle.directions[0]
    for gap in gaps if direction == "forward" else reversed(gaps):
        filled[gap] = best(oracle, _from_one_side(oracle, filled, gap, direction), 1)[0].word


def _fill_gap(oracle: Oracle, filled: list[str], gap: int, tried: int) -> list[Guess]:
    sides = [_from_one_side(oracle, filled, gap, direction) for direction in oracle.directions]
    words = [guess.word for guess in best(oracle, torch.stack(sides).sum(0), tried)]
    candidates = [[*filled[:gap], word, *filled[gap + 1 :]] for word in words]
    scores = [found.log_probability for found in score(oracle, candidates)]
    shares = torch.tensor(scores, dtype=torch.float64).softmax(0)
    order = shares.sort(descending=True, stable=True).indices.tolist()
    return [Guess(words[place], float(shares[place])) for place in order]


def _from_one_side(
    oracle: Oracle, filled: list[str], gap: int, direction: Direction
) -> Tensor:  # -> (words,)
    """The logarithm of each word's probability in a gap; none of a mark or of `<UNK>`."""
    if direction == "forward":
        row = [START[direction], *filled[:gap]]
    else:
        row = [*filled[gap + 1 :], START[direction]]
    said, _ = oracle.read_on([row], None, direction)
    found = oracle.log_probabilities(said)[0]
    found[oracle.rows_of([UNKNOWN, SENTENCE_BEGIN, SENTENCE_END])] = -torch.inf
    return found
