"""Sentences become the log-probabilities of their words.

A sentence is `<S> t1 … tn </S>`. The forward reader, having read `<S> … t(k-1)`, predicts tk, and
after tn `</S>`; the backward reader, having read `</S> … t(k+1)`, predicts tk, and after t1 `<S>`.
So each reader predicts every word once, and a mark: n + 1 predictions.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt

from elmokit.ask.oracle import END, START, Oracle
from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.model.bilm import State
from elmokit.plan import in_batches, in_windows
from elmokit.progress import Progress
from elmokit.text.batch import check_sentences, place_words
from elmokit.text.vocabulary import UNKNOWN

Start = Literal["zero", "carry"]
LogProbabilities = npt.NDArray[np.float64]

# With a carried state, a text becomes a lane for so many predictions, and never more lanes.
_PREDICTIONS_PER_LANE = 10_000
_MOST_LANES = 32


@dataclass(frozen=True, eq=False)
class Score:
    """The natural logarithm of each word's probability, by each reader that the model has.

    There is one number a word, and a last one for the mark that the reader comes to: `</S>`
    forward, `<S>` backward. `unknown` words have the probability of `<UNK>`.
    """

    words: tuple[str, ...]
    unknown: int
    forward: LogProbabilities | None  # (words + 1,)
    backward: LogProbabilities | None  # (words + 1,)

    @property
    def log_probability(self) -> float:
        """Of the sentence: the mean of the readers' sums."""
        return float(np.mean([f.sum() for f in (self.forward, self.backward) if f is not None]))

    @property
    def perplexity(self) -> float:
        """Of the sentence, by all readers together."""
        return perplexity_of(-self.log_probability / (len(self.words) + 1))


def score(
    oracle: Oracle,
    sentences: Iterable[Sequence[str]],
    *,
    state: Start = "zero",
    tokens_per_batch: int = 4096,
    lanes: int | None = None,
    progress: bool | None = None,
) -> Iterator[Score]:
    """The scores of sentences, in their order.

    With `state` zero every sentence is read by itself, lazily. With carry they are running text as
    in training, cut into `lanes` stretches that are read side by side, each from a fresh state (by
    itself, one for every 10,000 predictions, 32 at most). A backward reader then reads each
    sentence from its end, and the sentences in their order.
    """
    if state not in ("zero", "carry"):
        raise InputError(f"state is {state!r}, expected 'zero' or 'carry'")
    if tokens_per_batch < 1:
        raise InputError(f"tokens_per_batch is {tokens_per_batch}, expected 1 or more")
    if lanes is not None and lanes < 1:
        raise InputError(f"lanes is {lanes}, expected 1 or more, or None")
    checked = check_sentences(sentences)
    if state == "zero":
        return _each_by_itself(oracle, checked, tokens_per_batch, progress)
    return iter(_running_text(oracle, [*checked], tokens_per_batch, lanes, progress))


def _each_by_itself(
    oracle: Oracle, sentences: Iterable[list[str]], tokens_per_batch: int, progress: bool | None
) -> Iterator[Score]:
    with Progress(None, shown=progress) as shown:
        for window in in_windows(sentences, tokens_per_batch, len):
            found: dict[int, Score] = {}
            for places in in_batches(window, tokens_per_batch):
                batch = [window[place] for place in places]
                found.update(zip(places, _score_batch(oracle, batch), strict=True))
                shown.advance(sentences=len(batch), words=sum(map(len, batch)))
            yield from (found.pop(place) for place in range(len(window)))


def _score_batch(oracle: Oracle, sentences: list[list[str]]) -> Iterator[Score]:
    placed = place_words(sentences)
    said, _ = oracle.read(placed, None, oracle.directions)
    ids = oracle.ids(placed.types)[placed.words - 1]  # (sentences, steps); padding is not looked at
    inner = placed.words[:, 1:] > 0  # after each of these steps but the first, or before it
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences])[:-1]
    found: dict[Direction, list[LogProbabilities]] = {}
    for direction, vectors in said.items():
        if direction == "forward":
            seen, targets = vectors[:, :-1][inner], ids[:, 1:][inner]
            found[direction] = np.split(oracle.log_likelihood(seen, targets), ends)
        else:
            seen, targets = vectors[:, 1:][inner], ids[:, :-1][inner]
            scores = np.split(oracle.log_likelihood(seen, targets), ends)
            found[direction] = [np.roll(numbers, -1) for numbers in scores]  # that of <S> last
    return _scores(oracle, sentences, found)


def _running_text(
    oracle: Oracle,
    sentences: list[list[str]],
    tokens_per_batch: int,
    lanes: int | None,
    progress: bool | None,
) -> Iterator[Score]:
    stretches = _stretches(sentences, lanes)
    with Progress(len(sentences) * len(oracle.directions), shown=progress) as shown:
        found = {
            direction: [
                _in_text_order(numbers, direction)
                for stretch in _read_lanes(oracle, stretches, direction, tokens_per_batch, shown)
                for numbers in stretch
            ]
            for direction in oracle.directions
        }
    return _scores(oracle, sentences, found)


def _stretches(sentences: list[list[str]], lanes: int | None) -> list[list[list[str]]]:
    """Runs of sentences of about as many predictions each."""
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    count = lanes or min(_MOST_LANES, max(1, total // _PREDICTIONS_PER_LANE))
    cuts = np.searchsorted(ends, [total * lane / count for lane in range(1, count)], "right")
    places = [0, *(int(cut) for cut in cuts), len(sentences)]
    return [sentences[start:end] for start, end in pairwise(places) if start < end]


def _read_lanes(
    oracle: Oracle,
    stretches: list[list[list[str]]],
    direction: Direction,
    tokens_per_batch: int,
    progress: Progress,
) -> list[list[LogProbabilities]]:
    """For each stretch its sentences' numbers, in the order in which the reader predicts."""
    step = 1 if direction == "forward" else -1
    ordered = [[sentence[::step] for sentence in stretch] for stretch in stretches]
    inputs = [[w for s in stretch for w in (START[direction], *s)] for stretch in ordered]
    targets = [
        oracle.ids([w for s in stretch for w in (*s, END[direction])]) for stretch in ordered
    ]
    found: list[list[LogProbabilities]] = [[] for _ in stretches]
    state: State | None = oracle.reading.fresh_state(len(stretches))
    steps = max(1, tokens_per_batch // max(1, len(stretches)))
    for start in range(0, max(map(len, inputs), default=0), steps):
        rows = [words[start : start + steps][::step] for words in inputs]
        placed = place_words(rows, marked=False)
        said, state = oracle.read(placed, state, [direction])
        wanted = np.concatenate([ids[start : start + steps][::step] for ids in targets])
        numbers = oracle.log_likelihood(said[direction][placed.words > 0], wanted)
        for lane, some in zip(
            found, np.split(numbers, np.cumsum([len(row) for row in rows])[:-1]), strict=True
        ):
            lane.append(some[::step])
        marks = sum(row.count(START[direction]) for row in rows)
        progress.advance(sentences=marks, words=len(wanted) - marks)
    return [
        np.split(np.concatenate(lane), np.cumsum([len(s) + 1 for s in stretch])[:-1])
        for lane, stretch in zip(found, stretches, strict=True)
    ]


def _in_text_order(numbers: LogProbabilities, direction: Direction) -> LogProbabilities:
    return numbers if direction == "forward" else np.append(numbers[-2::-1], numbers[-1])


def _scores(
    oracle: Oracle,
    sentences: list[list[str]],
    found: dict[Direction, list[LogProbabilities]],
) -> Iterator[Score]:
    unknown = {*oracle.rows_of([UNKNOWN])}
    for place, sentence in enumerate(sentences):
        yield Score(
            tuple(sentence),
            sum(int(row) in unknown for row in oracle.ids(sentence)),
            *(found[d][place] if d in found else None for d in ("forward", "backward")),
        )


def perplexity_of(loss: float) -> float:
    """The perplexity of a mean loss; infinite where no float can say it."""
    return math.exp(loss) if loss < 700 else math.inf
