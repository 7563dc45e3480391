"""Next words, previous words, words for gaps, and samples of text."""

import re
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.model.bilm import State
from elmokit.results import Prediction
from elmokit.scoring import END_TOKEN, START_TOKEN, Scorer, score
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN


def next_words(
    scorer: Scorer,
    sentences: Sequence[Sequence[str]],
    *,
    k: int = 10,
    special_tokens: bool = False,
    carry: bool = False,
) -> list[Prediction]:
    """The likeliest words after those of the last sentence; `</S>` is its end.

    With `carry` the sentences before it are read first, as running text. `<UNK>` and `<S>` are left
    out unless `special_tokens` are asked for; the others' probabilities stay as they are, so that
    all words, with those left out, sum to 1.
    """
    return _guess(scorer, sentences, "forward", k=k, special_tokens=special_tokens, carry=carry)


def previous_words(
    scorer: Scorer, sentences: Sequence[Sequence[str]], *, k: int = 10, special_tokens: bool = False
) -> list[Prediction]:
    """The likeliest words before those of the first sentence; `<S>` is its beginning.

    `<UNK>` and `</S>` are left out unless `special_tokens` are asked for, as in `next_words`.
    """
    return _guess(scorer, sentences, "backward", k=k, special_tokens=special_tokens, carry=False)


def run_context(
    scorer: Scorer, sentences: Sequence[Sequence[str]], direction: Direction, *, carry: bool
) -> tuple[Tensor, State]:
    """What a reader says of the word at the open end of sentences, (1, dim); and its state.

    The open end is the last word forward, the first backward.
    """
    before = [*sentences] or [[]]
    if direction == "backward":
        # In training, what was carried into a sentence came from the one before it: none is known.
        row = [*before[0], START_TOKEN[direction]]
    else:
        row = [w for s in (before if carry else before[-1:]) for w in (START_TOKEN[direction], *s)]
    return scorer.run_rows([row], None, direction)


def excluded_ids(scorer: Scorer, direction: Direction) -> list[int]:
    """The rows of words that nobody wants guessed: `<UNK>`, and the mark a reader starts with."""
    return scorer.known_ids([UNKNOWN, START_TOKEN[direction]])


def best(scorer: Scorer, log_probabilities: Tensor, k: int) -> list[Prediction]:
    """The k likeliest words, the likeliest first; of equals, the one that comes first."""
    if k < 1:
        raise InputError(f"k is {k}, expected 1 or more words")
    values, rows = log_probabilities.sort(descending=True, stable=True)
    return [
        Prediction(scorer.vocabulary[int(row)], float(value.exp()))
        for value, row in zip(values[:k], rows[:k], strict=True)
        if value > -torch.inf
    ]


def _guess(
    scorer: Scorer,
    sentences: Sequence[Sequence[str]],
    direction: Direction,
    *,
    k: int,
    special_tokens: bool,
    carry: bool,
) -> list[Prediction]:
    what = "guessing the next word" if direction == "forward" else "guessing the previous word"
    scorer.check_direction(direction, what)
    hidden, _ = run_context(scorer, sentences, direction, carry=carry)
    found = scorer.log_probabilities(hidden)[0]  # (words,)
    if not special_tokens:
        found[excluded_ids(scorer, direction)] = -torch.inf
    return best(scorer, found, k)


GAP = "___"
_STAND_IN = "\ue000"

Split = Callable[[str], list[list[str]]]

# So many words are tried in a gap at least, and several gaps are gone through so many times.
TRIED = 50
ROUNDS = 3


def fill_text(
    scorer: Scorer, text: str | Sequence[str], split: Split, *, k: int = 10
) -> list[list[Prediction]]:
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
    found = [guesses for words in gapped if GAP in words for guesses in fill(scorer, words, k=k)]
    if not found:
        raise InputError(f"{text!r} has no gap; write {GAP} where a word is wanted")
    return found


def fill(
    scorer: Scorer, sentence: Sequence[str], *, k: int = 10, tried: int = TRIED
) -> list[list[Prediction]]:
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
        _fill_from_one_side(scorer, filled, gaps)
    found: dict[int, list[Prediction]] = {}
    for _ in range(ROUNDS):
        before = list(filled)
        for gap in gaps:
            found[gap] = _fill_gap(scorer, filled, gap, max(k, tried))
            filled[gap] = found[gap][0].word
        if len(gaps) == 1 or filled == before:
            break
    return [found[gap][:k] for gap in gaps]


def _fill_from_one_side(scorer: Scorer, filled: list[str], gaps: list[int]) -> None:
    """The likeliest word in each gap, by the first reader, which sees the gaps before filled."""
    direction = scorer.directions[0]
    for gap in gaps if direction == "forward" else reversed(gaps):
        filled[gap] = best(scorer, _from_one_side(scorer, filled, gap, direction), 1)[0].word


def _fill_gap(scorer: Scorer, filled: list[str], gap: int, tried: int) -> list[Prediction]:
    sides = [_from_one_side(scorer, filled, gap, direction) for direction in scorer.directions]
    words = [guess.word for guess in best(scorer, torch.stack(sides).sum(0), tried)]
    candidates = [[*filled[:gap], word, *filled[gap + 1 :]] for word in words]
    scores = [found.log_probability for found in score(scorer, candidates)]
    shares = torch.tensor(scores, dtype=torch.float64).softmax(0)
    order = shares.sort(descending=True, stable=True).indices.tolist()
    return [Prediction(words[place], float(shares[place])) for place in order]


def _from_one_side(
    scorer: Scorer, filled: list[str], gap: int, direction: Direction
) -> Tensor:  # -> (words,)
    """The logarithm of each word's probability in a gap; none of a mark or of `<UNK>`."""
    if direction == "forward":
        row = [START_TOKEN[direction], *filled[:gap]]
    else:
        row = [*filled[gap + 1 :], START_TOKEN[direction]]
    hidden, _ = scorer.run_rows([row], None, direction)
    found = scorer.log_probabilities(hidden)[0]
    found[scorer.known_ids([UNKNOWN, SENTENCE_BEGIN, SENTENCE_END])] = -torch.inf
    return found


def sample(
    scorer: Scorer,
    sentences: Sequence[Sequence[str]] = (),
    *,
    samples: int = 1,
    direction: Direction = "forward",
    temperature: float = 1.0,
    top_k: int | None = None,
    max_words: int = 50,
    seed: int = 0,
    carry: bool = False,
) -> list[list[str]]:
    """Sentences that begin as the last one given does (backward: that end as the first one does).

    A word is drawn from the `top_k` likeliest (all, if None), their log-probabilities divided by
    the temperature; 0 takes the likeliest. `<UNK>` is never drawn. A sentence ends with its mark or
    after `max_words` new words. The k-th sample of a seed is the same however many are drawn.
    """
    _check(samples=samples, temperature=temperature, top_k=top_k, max_words=max_words)
    scorer.check_direction(direction, f"drawing words {direction}")
    hidden, state = run_context(scorer, sentences, direction, carry=carry)
    reading = torch.zeros(samples, dtype=torch.long)  # which samples have not ended
    hidden, state = hidden[reading], state.rows(reading)
    reading = torch.arange(samples)
    first = torch.Generator().manual_seed(seed)
    seeds = torch.randint(2**62, (samples,), generator=first).tolist()
    dice = [torch.Generator().manual_seed(own) for own in seeds]
    drawn: list[list[str]] = [[] for _ in range(samples)]
    forbidden = excluded_ids(scorer, direction)
    for step in range(max_words):
        chances = _chances(scorer.log_probabilities(hidden), forbidden, temperature, top_k)
        rows = [
            int(torch.multinomial(chance, 1, generator=dice[place]))
            for chance, place in zip(chances, reading.tolist(), strict=True)
        ]
        words = [scorer.vocabulary[row] for row in rows]
        going_on = [place for place, word in enumerate(words) if word != END_TOKEN[direction]]
        for place in going_on:
            drawn[int(reading[place])].append(words[place])
        if not going_on or step == max_words - 1:
            break
        kept = torch.tensor(going_on)
        hidden, state = scorer.run_rows(
            [[words[place]] for place in going_on], state.rows(kept), direction
        )
        reading = reading[kept]
    if direction == "forward":
        begun = list(sentences[-1]) if sentences else []
        return [[*begun, *words] for words in drawn]
    begun = list(sentences[0]) if sentences else []
    return [[*reversed(words), *begun] for words in drawn]


def _chances(
    log_probabilities: Tensor, forbidden: list[int], temperature: float, top_k: int | None
) -> Tensor:  # (rows, words) -> (rows, words)
    """What each word's chance is to be drawn, on the CPU, where the dice are."""
    found = log_probabilities.double().cpu()
    found[:, forbidden] = -torch.inf
    if temperature == 0:
        return torch.zeros_like(found).scatter_(1, found.argmax(1, keepdim=True), 1.0)
    if top_k is not None and top_k < found.shape[1]:
        values, places = found.topk(top_k)
        found = torch.full_like(found, -torch.inf).scatter_(1, places, values)
    best = found.amax(1, keepdim=True)  # subtracted first: no temperature is too small then
    return ((found - best) / temperature).softmax(1)


def _check(*, samples: int, temperature: float, top_k: int | None, max_words: int) -> None:
    if samples < 1:
        raise InputError(f"samples is {samples}, expected 1 or more")
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature is {temperature}, expected 0 or a positive number")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k is {top_k}, expected 1 or more, or None for all words")
    if max_words < 1:
        raise InputError(f"max_words is {max_words}, expected 1 or more")
