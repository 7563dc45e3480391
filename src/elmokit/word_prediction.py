"""Next words, previous words, words for gaps, and samples of text."""

import re
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from elmokit.errors import InputError
from elmokit.language_model_results import Prediction
from elmokit.model.bilm import State
from elmokit.model_config import Direction
from elmokit.scoring import END_TOKEN, START_TOKEN, Scorer
from elmokit.threads import using_threads
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN


@using_threads(None)  # a row is too short for torch's own threads
def predict_words(
    scorer: Scorer,
    sentences: Sequence[Sequence[str]],
    direction: Direction,
    *,
    k: int = 10,
    special_tokens: bool = False,
    carry: bool = False,
) -> list[Prediction]:
    """The k most probable words after the last sentence (backward: before the first one).

    `</S>` (backward: `<S>`) is the end of the sentence. With `carry` the sentences before the last
    come first, as running text. `<UNK>` and the boundary that starts a sentence are left out unless
    `special_tokens` is set; the probabilities of the others stay as they are, so that all words,
    with those left out, sum to 1.
    """
    purpose = f"predicting {'next' if direction == 'forward' else 'previous'} words"
    scorer.check_direction(direction, purpose)
    with scorer.session.reporting_truncated_words():
        hidden, _ = _run_context(scorer, sentences, direction, carry=carry)
    log_probabilities = scorer.log_probabilities(hidden)[0]  # (words,)
    if not special_tokens:
        excluded = scorer.known_ids([UNKNOWN, START_TOKEN[direction]])
        log_probabilities[excluded] = -torch.inf
    return _most_probable(scorer, log_probabilities, k)


def _run_context(
    scorer: Scorer, sentences: Sequence[Sequence[str]], direction: Direction, *, carry: bool = False
) -> tuple[Tensor, State]:
    """The top of an LSTM after the words of a text, (1, dim), and its state.

    Forward that is after the last word, backward before the first.
    """
    text, start = [*sentences] or [[]], START_TOKEN[direction]
    if direction == "backward":
        # In training, the state carried into a sentence came from the one before it, and none is
        # known here.
        row = [*text[0], start]
    else:
        row = [word for sentence in (text if carry else text[-1:]) for word in (start, *sentence)]
    return scorer.run_rows([row], None, direction)


def _most_probable(scorer: Scorer, log_probabilities: Tensor, k: int) -> list[Prediction]:
    """The k most probable words in order; of equals, the one first in the vocabulary."""
    if k < 1:
        raise InputError(f"k is {k}, expected 1 or more words")
    values, rows = log_probabilities.sort(descending=True, stable=True)
    return [
        Prediction(scorer.vocabulary[int(row)], float(value.exp()))
        for value, row in zip(values[:k], rows[:k], strict=True)
        if value > -torch.inf
    ]


GAP = "___"
_STAND_IN = "\ue000"

# In a gap, so many words are tried at least, and several gaps are filled so many times in turn.
TRIED = 50
ROUNDS = 3
_TOKENS_PER_BATCH = 4096


@using_threads(None)
def fill_text(
    scorer: Scorer,
    text: str | Sequence[str],
    tokenize: Callable[[str], list[list[str]]],
    *,
    k: int = 10,
) -> list[list[Prediction]]:
    """For each `___` of a text, the k words that fit best into its sentence; see `fill`.

    Three underlines or more are a gap, wherever they stand in a raw text.
    """
    if isinstance(text, str):
        # Most tokenizers split underlines; a private character is one word to all of them.
        sentences = tokenize(re.sub("_{3,}", _STAND_IN, text))
    else:
        sentences = [[_STAND_IN if word == GAP else word for word in text]]
    gapped = [[GAP if word == _STAND_IN else word for word in words] for words in sentences]
    for word in (word for words in gapped for word in words):
        if _STAND_IN in word:
            raise InputError(
                f"the gap in {word.replace(_STAND_IN, GAP)!r} is not a word by itself; put a space "
                "before and after it"
            )
    predictions = [gap for words in gapped if GAP in words for gap in fill(scorer, words, k=k)]
    if not predictions:
        raise InputError(f"{text!r} has no gap; write {GAP} where a word is wanted")
    return predictions


def fill(scorer: Scorer, sentence: Sequence[str], *, k: int = 10) -> list[list[Prediction]]:
    """For each word `___` of a sentence, the k words that fit best.

    Both LSTMs give each word a probability in the gap, one from the left and one from the right.
    The words with the largest products (50, or k if that is more) are put in, and the whole
    sentence is scored, which also counts how they are spelled and what follows them. The
    probability of a word is its share among the sentences tried, by the geometric mean of both
    directions. A model of one direction uses that one.

    Several gaps are first filled one after the other by one LSTM alone, then each again with the
    others as they are, until nothing changes, three times at most.
    """
    gaps = [index for index, word in enumerate(sentence) if word == GAP]
    if k < 1:
        raise InputError(f"k is {k}, expected 1 or more words")
    filled = list(sentence)
    if len(gaps) > 1:
        _fill_from_one_side(scorer, filled, gaps)
    predictions: dict[int, list[Prediction]] = {}
    with scorer.session.reporting_truncated_words():
        for _ in range(ROUNDS):
            before = list(filled)
            for gap in gaps:
                predictions[gap] = _fill_gap(scorer, filled, gap, max(k, TRIED))
                filled[gap] = predictions[gap][0].word
            if len(gaps) == 1 or filled == before:
                break
    return [predictions[gap][:k] for gap in gaps]


def _fill_from_one_side(scorer: Scorer, filled: list[str], gaps: list[int]) -> None:
    """Fill each gap with the most probable word of one LSTM, after the gaps before it."""
    direction = scorer.directions[0]
    for gap in gaps if direction == "forward" else reversed(gaps):
        log_probabilities, _ = _side(scorer, filled, gap, direction)
        filled[gap] = _most_probable(scorer, log_probabilities, 1)[0].word


def _fill_gap(scorer: Scorer, filled: list[str], gap: int, tried: int) -> list[Prediction]:
    sides = {direction: _side(scorer, filled, gap, direction) for direction in scorer.directions}
    both = torch.stack([log_probabilities for log_probabilities, _ in sides.values()]).sum(0)
    words = [word for word, _ in _most_probable(scorer, both, tried)]
    scores = [
        _scores_in_gap(scorer, filled, gap, words, direction, *side)
        for direction, side in sides.items()
    ]
    shares = torch.stack(scores).mean(0).softmax(0)
    order = shares.sort(descending=True, stable=True).indices.tolist()
    return [Prediction(words[index], float(shares[index])) for index in order]


def _side(
    scorer: Scorer, filled: list[str], gap: int, direction: Direction
) -> tuple[Tensor, State]:
    """The logarithm of each word's probability in a gap, (words,), by the words on one side.

    It is -inf for special tokens. Also the state after these words.
    """
    side = filled[:gap] if direction == "forward" else filled[gap + 1 :]
    hidden, state = _run_context(scorer, [side], direction)
    log_probabilities = scorer.log_probabilities(hidden)[0]
    log_probabilities[scorer.known_ids([UNKNOWN, SENTENCE_BEGIN, SENTENCE_END])] = -torch.inf
    return log_probabilities, state


def _scores_in_gap(
    scorer: Scorer,
    filled: list[str],
    gap: int,
    words: list[str],
    direction: Direction,
    log_probabilities: Tensor,
    state: State,
) -> Tensor:  # (words,), float64
    """For each word put in a gap, the log-probability of the sentence in one direction.

    What comes before the gap is left out, because it is the same for all; `log_probabilities` and
    `state` are those of `_side`.
    """
    if direction == "forward":
        rest, end = filled[gap + 1 :], END_TOKEN[direction]
        rows, targets = [[word, *rest] for word in words], [*rest, end]
    else:
        rest, end = filled[:gap], END_TOKEN[direction]
        rows, targets = [[*rest, word] for word in words], [end, *rest]
    target_ids = scorer.ids(targets)
    scores = log_probabilities[torch.from_numpy(scorer.ids(words))].double().cpu()
    rows_per_batch = max(1, _TOKENS_PER_BATCH // len(targets))
    for start in range(0, len(rows), rows_per_batch):
        batch = slice(start, start + rows_per_batch)
        count = len(rows[batch])
        copies = state.rows(torch.zeros(count, dtype=torch.long))
        hidden, _ = scorer.run(rows[batch], copies, directions=[direction], boundaries=False)
        likelihood = scorer.log_likelihood(
            hidden[direction].flatten(0, 1), np.tile(target_ids, count)
        )
        scores[batch] += torch.from_numpy(likelihood).view(count, -1).sum(1)
    return scores


@using_threads(None)
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

    A word is drawn from the `top_k` most probable (all, if None), their log-probabilities divided
    by the temperature; 0 takes the most probable. `<UNK>` is never drawn. A sentence ends with its
    boundary or after `max_words` new words. The k-th sample of a seed is the same however many are
    drawn.
    """
    if samples < 1:
        raise InputError(f"samples is {samples}, expected 1 or more")
    if not 0 <= temperature < float("inf"):
        raise InputError(f"temperature is {temperature}, expected 0 or a positive number")
    if top_k is not None and top_k < 1:
        raise InputError(f"top_k is {top_k}, expected 1 or more, or None for all words")
    if max_words < 1:
        raise InputError(f"max_words is {max_words}, expected 1 or more")
    scorer.check_direction(direction, f"drawing words {direction}")
    with scorer.session.reporting_truncated_words():
        hidden, state = _run_context(scorer, sentences, direction, carry=carry)
    copies = torch.zeros(samples, dtype=torch.long)
    hidden, state = hidden[copies], state.rows(copies)
    active = torch.arange(samples)  # the samples that have not ended
    first = torch.Generator().manual_seed(seed)
    seeds = torch.randint(2**62, (samples,), generator=first).tolist()
    generators = [torch.Generator().manual_seed(own) for own in seeds]
    drawn: list[list[str]] = [[] for _ in range(samples)]
    excluded = scorer.known_ids([UNKNOWN, START_TOKEN[direction]])
    for step in range(max_words):
        probabilities = _probabilities(
            scorer.log_probabilities(hidden), excluded, temperature, top_k
        )
        ids = [
            int(torch.multinomial(row, 1, generator=generators[index]))
            for row, index in zip(probabilities, active.tolist(), strict=True)
        ]
        words = [scorer.vocabulary[word_id] for word_id in ids]
        going_on = [row for row, word in enumerate(words) if word != END_TOKEN[direction]]
        for row in going_on:
            drawn[int(active[row])].append(words[row])
        if not going_on or step == max_words - 1:
            break
        rows = torch.tensor(going_on)
        hidden, state = scorer.run_rows(
            [[words[row]] for row in going_on], state.rows(rows), direction
        )
        active = active[rows]
    if direction == "forward":
        return [[*(sentences[-1] if sentences else ()), *words] for words in drawn]
    return [[*reversed(words), *(sentences[0] if sentences else ())] for words in drawn]


def _probabilities(
    log_probabilities: Tensor, excluded: list[int], temperature: float, top_k: int | None
) -> Tensor:  # (rows, words) -> (rows, words)
    """The probability of each word to be drawn, on the CPU, where the generators are."""
    logits = log_probabilities.double().cpu()
    logits[:, excluded] = -torch.inf
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(1, logits.argmax(1, keepdim=True), 1.0)
    if top_k is not None and top_k < logits.shape[1]:
        values, ids = logits.topk(top_k)
        logits = torch.full_like(logits, -torch.inf).scatter_(1, ids, values)
    largest = logits.amax(1, keepdim=True)  # subtracted first: no temperature is too small then
    return ((logits - largest) / temperature).softmax(1)
