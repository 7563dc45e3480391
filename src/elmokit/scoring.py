"""Log-probabilities of texts and their perplexity, by the model's own softmax."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.batching import check_sentences, token_batches, token_windows
from elmokit.errors import InputError
from elmokit.formats.pretrained import Pretrained
from elmokit.inference_session import InferenceSession
from elmokit.language_model_results import LogProbabilities, Perplexity, Score
from elmokit.model.bilm import LanguageModel, State
from elmokit.model_config import Direction
from elmokit.progress import Progress
from elmokit.threads import using_threads
from elmokit.vocab import SENTENCE_BEGIN, SENTENCE_END, UNKNOWN, Vocabulary

# The boundary in which an LSTM starts a sentence, and the one that it predicts at the end.
START_TOKEN: dict[Direction, str] = {"forward": SENTENCE_BEGIN, "backward": SENTENCE_END}
END_TOKEN: dict[Direction, str] = {"forward": SENTENCE_END, "backward": SENTENCE_BEGIN}

# With a carried state, a text becomes one stream for so many predictions, up to a maximum.
_PREDICTIONS_PER_STREAM = 10_000
_MAX_STREAMS = 32


def score(
    scorer: "Scorer",
    sentences: Iterable[Sequence[str]],
    *,
    state: Literal["zero", "carry"] = "zero",
    tokens_per_batch: int = 4096,
    streams: int | None = None,
    show_progress_bar: bool | None = None,
) -> Iterator[Score]:
    """The scores of sentences, in their order.

    With `state` zero every sentence is scored by itself, and sentences are taken as they are
    needed. With carry they are running text as in training, cut into `streams` that are run side by
    side, each from a zero state (None: one for every 10,000 predictions, 32 at most). A backward
    LSTM then runs through each sentence from its end, and takes the sentences in their order.
    """
    if state not in ("zero", "carry"):
        raise InputError(f"state is {state!r}, expected 'zero' or 'carry'")
    if tokens_per_batch < 1:
        raise InputError(f"tokens_per_batch is {tokens_per_batch}, expected 1 or more")
    if streams is not None and streams < 1:
        raise InputError(f"streams is {streams}, expected 1 or more, or None")
    checked = check_sentences(sentences)
    if state == "zero":
        return _score_independent(scorer, checked, tokens_per_batch, show_progress_bar)
    return _score_running_text(scorer, [*checked], tokens_per_batch, streams, show_progress_bar)


def perplexity(
    pretrained: Pretrained,
    sentences: Iterable[Sequence[str]],
    *,
    state: Literal["zero", "carry"] = "zero",
    tokens_per_batch: int = 4096,
    streams: int | None = None,
    show_progress_bar: bool | None = None,
) -> Perplexity:
    """How well a model predicts sentences, by the full softmax; see `score` for the settings.

    No random numbers are drawn, and the training mode of the model's parts is restored: a model
    may be measured in the middle of its training.

    Example:
        elmokit.perplexity(model.pretrained, [["the", "cat", "sat"]], state="carry").forward
    """
    with _eval_mode(pretrained.model):
        return Perplexity.of(
            score(
                Scorer(InferenceSession(pretrained)),
                sentences,
                state=state,
                tokens_per_batch=tokens_per_batch,
                streams=streams,
                show_progress_bar=show_progress_bar,
            )
        )


class Scorer:
    """A session with its softmax, and the vocabulary that names the softmax's rows."""

    def __init__(self, session: InferenceSession) -> None:
        pretrained = session.pretrained
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
        for token in (SENTENCE_BEGIN, SENTENCE_END):
            if token not in pretrained.vocabulary:
                raise InputError(
                    f"the vocabulary has no {token}, which is predicted at the end of a sentence; "
                    "is it the vocabulary of this model?"
                )
        self.session = session
        self.softmax = pretrained.model.softmax
        self.vocabulary: Vocabulary = pretrained.vocabulary
        self.directions = session.bilm.config.directions

    def check_direction(self, direction: Direction, purpose: str) -> None:
        """Refuse what needs an LSTM that the model does not have."""
        if direction not in self.directions:
            raise InputError(
                f"{purpose} needs a {direction} LSTM, but the model has only a "
                f"{self.directions[0]} one"
            )

    def run(
        self,
        sentences: Sequence[Sequence[str]],
        state: State | None,
        *,
        directions: Sequence[Direction],
        boundaries: bool = True,
    ) -> tuple[dict[Direction, Tensor], State]:
        """The top layer of each direction, (sentences, steps, dim), and the state after.

        The steps are in the order of the text, in which the backward LSTM begins at the end.
        """
        config = self.session.bilm.config
        layers, after = self.session.run(
            sentences,
            state,
            boundaries=boundaries,
            layers=(config.num_layers,),
            directions=directions,
        )
        halves = layers[0].split(config.projection_size, 2)
        return dict(zip(directions, halves, strict=True)), after

    def run_rows(
        self, rows: Sequence[Sequence[str]], state: State | None, direction: Direction
    ) -> tuple[Tensor, State]:
        """The top of one LSTM after rows of equal length, (rows, dim), and the state."""
        hidden, after = self.run(rows, state, directions=[direction], boundaries=False)
        return hidden[direction][:, -1 if direction == "forward" else 0], after

    def log_probabilities(self, hidden: Tensor) -> Tensor:  # (rows, dim) -> (rows, words)
        """The logarithm of the probability of each word of the vocabulary."""
        with self.session.computing():
            log_probabilities: Tensor = self.softmax(hidden)
        return log_probabilities

    def log_likelihood(self, hidden: Tensor, targets: npt.NDArray[np.int64]) -> LogProbabilities:
        """The logarithm of the probability of one word each, of (tokens, dim) and (tokens,)."""
        with self.session.computing():
            ids = torch.from_numpy(targets).to(hidden.device)
            return self.softmax.log_likelihood(hidden, ids).double().cpu().numpy()

    def ids(self, words: Sequence[str]) -> npt.NDArray[np.int64]:
        """The rows of words in the softmax, that of `<UNK>` for words that have none."""
        ids = self.vocabulary.ids(words)
        if (ids < 0).any():
            word = words[int((ids < 0).argmax())]
            raise InputError(
                f"{word!r} is not in the vocabulary, which has no {UNKNOWN} to stand for it; "
                "it has no probability"
            )
        return ids

    def known_ids(self, words: Sequence[str]) -> list[int]:
        """The rows of those of the words that have one."""
        return [int(row) for row in self.vocabulary.ids([w for w in words if w in self.vocabulary])]


def _score_independent(
    scorer: Scorer,
    sentences: Iterable[list[str]],
    tokens_per_batch: int,
    show_progress_bar: bool | None,
) -> Iterator[Score]:
    progress = Progress(None, shown=show_progress_bar)
    with progress, scorer.session.reporting_truncated_words():
        for window in token_windows(sentences, tokens_per_batch, len):
            scores: dict[int, Score] = {}
            lengths = [len(sentence) + 2 for sentence in window]
            for indices in token_batches(lengths, tokens_per_batch):
                batch = [window[index] for index in indices]
                scores.update(zip(indices, _score_batch(scorer, batch), strict=True))
                progress.advance(len(batch), words=sum(map(len, batch)))
            yield from (scores.pop(index) for index in range(len(window)))


@using_threads(None)
def _score_batch(scorer: Scorer, sentences: list[list[str]]) -> Iterator[Score]:
    hidden, _ = scorer.run(sentences, None, directions=scorer.directions)
    lengths = [len(sentence) + 1 for sentence in sentences]  # with the boundary that is predicted
    is_context, ends = _is_word(lengths), np.cumsum(lengths)[:-1]
    scores: dict[Direction, list[LogProbabilities]] = {}
    for direction, vectors in hidden.items():
        if direction == "forward":
            contexts = vectors[:, :-1][is_context]
            targets = scorer.ids([w for s in sentences for w in (*s, SENTENCE_END)])
            scores[direction] = np.split(scorer.log_likelihood(contexts, targets), ends)
        else:
            contexts = vectors[:, 1:][is_context]
            targets = scorer.ids([w for s in sentences for w in (SENTENCE_BEGIN, *s)])
            from_begin = np.split(scorer.log_likelihood(contexts, targets), ends)
            scores[direction] = [np.roll(numbers, -1) for numbers in from_begin]  # that of <S> last
    return _scores(scorer, sentences, scores)


def _score_running_text(
    scorer: Scorer,
    sentences: list[list[str]],
    tokens_per_batch: int,
    streams: int | None,
    show_progress_bar: bool | None,
) -> Iterator[Score]:
    parts = _split_evenly(sentences, streams)
    progress = Progress(len(sentences) * len(scorer.directions), shown=show_progress_bar)
    with progress, scorer.session.reporting_truncated_words():
        scores = {
            direction: [
                numbers if direction == "forward" else np.append(numbers[-2::-1], numbers[-1])
                for part in _score_streams(scorer, parts, direction, tokens_per_batch, progress)
                for numbers in part
            ]  # in the order of the text, that of the boundary last
            for direction in scorer.directions
        }
    yield from _scores(scorer, sentences, scores)


def default_streams(predictions: int) -> int:
    """How many streams running text with so many predictions is cut into."""
    return min(_MAX_STREAMS, max(1, predictions // _PREDICTIONS_PER_STREAM))


def _split_evenly(sentences: list[list[str]], streams: int | None) -> list[list[list[str]]]:
    """Consecutive sentences in parts of about as many predictions each."""
    ends = np.cumsum([len(sentence) + 1 for sentence in sentences], dtype=np.int64)
    total = int(ends[-1]) if len(ends) else 0
    count = streams or default_streams(total)
    cuts = np.searchsorted(ends, [total * stream / count for stream in range(1, count)], "right")
    edges = [0, *(int(cut) for cut in cuts), len(sentences)]
    return [sentences[start:end] for start, end in pairwise(edges) if start < end]


@using_threads(None)
def _score_streams(
    scorer: Scorer,
    parts: list[list[list[str]]],
    direction: Direction,
    tokens_per_batch: int,
    progress: Progress,
) -> list[list[LogProbabilities]]:
    """For each part its sentences' scores, in the order in which the LSTM predicts."""
    step = 1 if direction == "forward" else -1
    ordered = [[sentence[::step] for sentence in part] for part in parts]
    inputs = [[w for s in part for w in (START_TOKEN[direction], *s)] for part in ordered]
    targets = [
        scorer.ids([w for s in part for w in (*s, END_TOKEN[direction])]) for part in ordered
    ]
    scores: list[list[LogProbabilities]] = [[] for _ in parts]
    state: State | None = scorer.session.fresh_state(len(parts))
    steps = max(1, tokens_per_batch // max(1, len(parts)))
    for start in range(0, max(map(len, inputs), default=0), steps):
        rows = [words[start : start + steps][::step] for words in inputs]
        hidden, state = scorer.run(rows, state, directions=[direction], boundaries=False)
        lengths = [len(row) for row in rows]
        target_ids = np.concatenate([ids[start : start + steps][::step] for ids in targets])
        numbers = scorer.log_likelihood(hidden[direction][_is_word(lengths)], target_ids)
        ends = np.cumsum(lengths)[:-1]
        for stream_scores, row_scores in zip(scores, np.split(numbers, ends), strict=True):
            stream_scores.append(row_scores[::step])
        begun = sum(row.count(START_TOKEN[direction]) for row in rows)
        progress.advance(begun, words=len(target_ids) - begun)
    return [
        np.split(np.concatenate(stream_scores), np.cumsum([len(s) + 1 for s in part])[:-1])
        for stream_scores, part in zip(scores, parts, strict=True)
    ]


def _is_word(lengths: Sequence[int]) -> npt.NDArray[np.bool_]:  # (rows, steps)
    """Where rows of these lengths, padded to the longest, have a word."""
    return np.arange(max(lengths)) < np.array(lengths)[:, None]


def _scores(
    scorer: Scorer,
    sentences: list[list[str]],
    scores: dict[Direction, list[LogProbabilities]],
) -> Iterator[Score]:
    unknown = {*scorer.known_ids([UNKNOWN])}
    for index, sentence in enumerate(sentences):
        yield Score(
            tuple(sentence),
            sum(int(row) in unknown for row in scorer.ids(sentence)),
            *(scores[d][index] if d in scores else None for d in ("forward", "backward")),
        )


@contextmanager
def _eval_mode(model: LanguageModel) -> Iterator[None]:
    """Switch dropout off; afterwards each part is in the mode in which it was."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training
