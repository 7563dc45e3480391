"""Log-probabilities of texts and their perplexity, by the model's own softmax."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.batching import PlacedWords, check_sentences, in_batches, in_windows, place_words
from elmokit.config import Direction
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.inference import InferenceSession
from elmokit.model.bilm import LanguageModel, State
from elmokit.progress import Progress
from elmokit.results import LogProbabilities, Perplexity, Score
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary

# The mark that a reader starts a sentence with, and the one that it comes to in the end.
START: dict[Direction, str] = {"forward": SENTENCE_BEGIN, "backward": SENTENCE_END}
END: dict[Direction, str] = {"forward": SENTENCE_END, "backward": SENTENCE_BEGIN}


class Scorer:
    """A reading with its softmax and the vocabulary that gives the softmax's rows their names."""

    def __init__(self, reading: InferenceSession) -> None:
        pretrained = reading.pretrained
        if pretrained.model.softmax is None:
            raise InputError(
                "the model has no softmax, so it has vectors but no probabilities; the published "
                "English files leave it out. Take a folder of elmo pretrain, or an HDF5 file with "
                "softmax/W and softmax/b"
            )
        if pretrained.vocabulary is None:
            raise InputError(
                "the model has a softmax, but no vocabulary that names its rows; put the vocab.txt "
                "that it was trained with beside the weights"
            )
        for mark in (SENTENCE_BEGIN, SENTENCE_END):
            if mark not in pretrained.vocabulary:
                raise InputError(
                    f"the vocabulary has no {mark}, which a reader comes to at the end of a "
                    "sentence; is it the vocabulary of this model?"
                )
        self.reading = reading
        self.softmax = pretrained.model.softmax
        self.vocabulary: Vocabulary = pretrained.vocabulary
        self.directions = reading.bilm.config.directions

    def check_direction(self, direction: Direction, what: str) -> None:
        """Refuse what needs a reader that the model does not have."""
        if direction not in self.directions:
            raise InputError(
                f"{what} needs a {direction} reader, but the model has only a "
                f"{self.directions[0]} one"
            )

    def read(
        self, placed: PlacedWords, state: State | None, directions: Sequence[Direction]
    ) -> tuple[dict[Direction, Tensor], State]:
        """What the top layer says after each word, (rows, steps, dim) a direction; and the state.

        A row stands in the order of the text; the backward reader begins at its end.
        """
        config = self.reading.bilm.config
        said, after = self.reading.read(
            placed, state, layers=(config.num_layers,), directions=directions
        )
        return dict(zip(directions, said[0].split(config.projection_size, 2), strict=True)), after

    def read_on(
        self, rows: Sequence[Sequence[str]], state: State | None, direction: Direction
    ) -> tuple[Tensor, State]:
        """What the top of one reader says when it has read rows of equal length, and the state."""
        said, after = self.read(place_words(rows, marked=False), state, [direction])
        return said[direction][:, -1 if direction == "forward" else 0], after  # (rows, dim)

    def log_probabilities(self, said: Tensor) -> Tensor:  # (rows, dim) -> (rows, words)
        """The logarithm of the probability of each word of the vocabulary."""
        with self.reading.computing():
            found: Tensor = self.softmax(said)
        return found

    def log_likelihood(
        self, said: Tensor, targets: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.float64]:
        """The logarithm of the probability of one word each, (tokens, dim) and (tokens,)."""
        with self.reading.computing():
            ids = torch.from_numpy(targets).to(said.device)
            return self.softmax.log_likelihood(said, ids).double().cpu().numpy()

    def ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of words in the softmax, that of `<UNK>` for words that have none."""
        ids = self.vocabulary.ids(words)
        if (ids < 0).any():
            word = words[int((ids < 0).argmax())]
            raise InputError(
                f"{word!r} is not in the vocabulary, which has no {UNKNOWN} to stand for it; "
                "its probability cannot be told"
            )
        return ids

    def rows_of(self, words: Sequence[str]) -> list[int]:
        """The rows of those of the words that have one."""
        return [int(row) for row in self.vocabulary.ids([w for w in words if w in self.vocabulary])]


Start = Literal["zero", "carry"]

# With a carried state, a text becomes a lane for so many predictions, and never more lanes.
_PREDICTIONS_PER_LANE = 10_000
_MOST_LANES = 32


def score(
    oracle: Scorer,
    sentences: Iterable[Sequence[str]],
    *,
    state: Start = "zero",
    tokens_per_batch: int = 4096,
    lanes: int | None = None,
    show_progress_bar: bool | None = None,
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
        return _each_by_itself(oracle, checked, tokens_per_batch, show_progress_bar)
    return iter(_running_text(oracle, [*checked], tokens_per_batch, lanes, show_progress_bar))


def _each_by_itself(
    oracle: Scorer,
    sentences: Iterable[list[str]],
    tokens_per_batch: int,
    show_progress_bar: bool | None,
) -> Iterator[Score]:
    with Progress(None, shown=show_progress_bar) as shown:
        for window in in_windows(sentences, tokens_per_batch, len):
            found: dict[int, Score] = {}
            for places in in_batches(window, tokens_per_batch):
                batch = [window[place] for place in places]
                found.update(zip(places, _score_batch(oracle, batch), strict=True))
                shown.advance(sentences=len(batch), words=sum(map(len, batch)))
            yield from (found.pop(place) for place in range(len(window)))


def _score_batch(oracle: Scorer, sentences: list[list[str]]) -> Iterator[Score]:
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
    oracle: Scorer,
    sentences: list[list[str]],
    tokens_per_batch: int,
    lanes: int | None,
    show_progress_bar: bool | None,
) -> Iterator[Score]:
    stretches = _stretches(sentences, lanes)
    with Progress(len(sentences) * len(oracle.directions), shown=show_progress_bar) as shown:
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
    oracle: Scorer,
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
    oracle: Scorer,
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


def perplexity(
    pretrained: Pretrained,
    sentences: Iterable[Sequence[str]],
    *,
    state: Start = "zero",
    tokens_per_batch: int = 4096,
    lanes: int | None = None,
    show_progress_bar: bool | None = None,
) -> "Perplexity":
    """How well a model predicts sentences, by the full softmax; see `score` for the settings.

    Nothing is drawn or learned: a model that is in training goes on as if nobody had asked.
    """
    with _at_rest(pretrained.model):
        oracle = Scorer(InferenceSession(pretrained))
        return Perplexity.of(
            score(
                oracle,
                sentences,
                state=state,
                tokens_per_batch=tokens_per_batch,
                lanes=lanes,
                show_progress_bar=show_progress_bar,
            )
        )


@contextmanager
def _at_rest(model: LanguageModel) -> Iterator[None]:
    """The model as in use, nothing dropped out; afterwards each part is as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training
