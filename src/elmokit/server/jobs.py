"""What requests want becomes jobs, and jobs of one kind are answered together."""

import logging
import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from elmokit.embedder import Embedder, Text
from elmokit.errors import ElmokitError, InputError
from elmokit.generation import GAP, ROUNDS, TRIED
from elmokit.inference import Directions, Layers, LayerSelection
from elmokit.pooling import Vectors
from elmokit.results import Prediction, Score
from elmokit.server.limits import Limits
from elmokit.server.sentences import Sentences, too_much

Answer = TypeVar("Answer")
Item = TypeVar("Item")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Job(Generic[Answer]):
    """Work for the model: sentences, how much there is to read, and how it is answered.

    Jobs with equal keys are answered in one call, which gets the sentences of all and gives an
    answer a job; None is a job that goes with no other. One that `travels` may be answered by
    another process. `bytes` is what a big answer takes.
    """

    sentences: Sentences
    tokens: int
    answer: Callable[[Embedder, list[Sentences]], Sequence[Answer]]
    key: Hashable = None
    travels: bool = True
    bytes: int = 0


@dataclass(frozen=True, eq=False)
class Embedded:
    """Sentences with the vectors of some layers, (layers, words, dim) each."""

    sentences: Sentences
    layers: tuple[int, ...]
    vectors: list[Vectors]


@dataclass(frozen=True, eq=False)
class Scored:
    """Sentences with the log-probabilities of their words."""

    sentences: Sentences
    scores: list[Score]


def embedding(
    embedder: Embedder, sentences: Sentences, layers: Layers, directions: Directions
) -> Job[Embedded]:
    """The vectors of sentences; those of the same layers and directions are computed together."""
    asked = LayerSelection.of(embedder.bilm.config, layers, directions, False)
    if len(asked.layers) > embedder.num_layers:
        raise InputError(
            f"{len(asked.layers)} layers were asked for, but the model has {embedder.num_layers}"
        )

    dim = embedder.bilm.config.projection_size * len(asked.directions)
    return Job(
        sentences,
        sentences.tokens,
        partial(_embed, layers=asked.layers, directions=directions),
        key=("embedding", asked.layers, directions),
        bytes=4 * dim * len(asked.layers) * sentences.tokens,
    )


def _embed(
    embedder: Embedder, jobs: list[Sentences], *, layers: tuple[int, ...], directions: Directions
) -> list[Embedded]:
    vectors = embedder.embed(
        _together(jobs), layers=layers, directions=directions, show_progress_bar=False
    )
    shares = zip(jobs, _shared_out(vectors, jobs), strict=True)
    return [Embedded(job, layers, share) for job, share in shares]


def scoring(sentences: Sentences) -> Job[Scored]:
    """The scores of sentences, all together."""
    return Job(sentences, sentences.tokens, _score, "scoring")


def _score(embedder: Embedder, jobs: list[Sentences]) -> list[Scored]:
    scores = embedder.score(_together(jobs), show_progress_bar=False)
    shares = zip(jobs, _shared_out(scores, jobs), strict=True)
    return [Scored(job, share) for job, share in shares]


def guessing(
    sentences: Sentences, k: int, *, previous: bool, special_tokens: bool
) -> Job[list[Prediction]]:
    """The words after sentences, or before them, each job by itself."""
    return Job(
        sentences,
        sentences.tokens,
        partial(_guess, k=k, previous=previous, special_tokens=special_tokens),
    )


def _guess(
    embedder: Embedder, jobs: list[Sentences], *, k: int, previous: bool, special_tokens: bool
) -> list[list[Prediction]]:
    words = jobs[0].words or [[]]
    if previous:
        return [embedder.previous_words(words[0], k=k, special_tokens=special_tokens)]
    return [embedder.next_words(words[-1], k=k, special_tokens=special_tokens)]


def filling(embedder: Embedder, text: Text, k: int, limits: Limits) -> Job[list[list[Prediction]]]:
    """The words for each gap of a text, each job by itself."""
    sentences = Sentences.of(embedder, [text], limits)
    gaps = len(re.findall("_{3,}", text)) if isinstance(text, str) else [*text].count(GAP)
    tried = max(k, TRIED)
    tokens = sentences.tokens * tried * gaps * (ROUNDS if gaps > 1 else 1)
    if tokens > limits.fill_tokens:
        raise too_much(
            f"gaps that are filled with {tried} words on trial make {tokens:,} words to read",
            limits.fill_tokens,
        )

    return Job(sentences, tokens, partial(_fill, text=text, k=k))


def _fill(
    embedder: Embedder, _: list[Sentences], *, text: Text, k: int
) -> list[list[list[Prediction]]]:
    return [embedder.fill(text, k=k)]


def answer_all(embedder: Embedder, jobs: Sequence[Job[Any]]) -> list[object]:
    """An answer or an exception for each job; one that fails does not harm the others."""
    groups: dict[Hashable, list[int]] = {}
    for place, job in enumerate(jobs):
        groups.setdefault(place if job.key is None else job.key, []).append(place)
    answers: dict[int, object] = {}
    for places in groups.values():
        group = [jobs[place] for place in places]
        answers.update(zip(places, _answer_group(embedder, group), strict=True))
    return [answers[place] for place in range(len(jobs))]


def _answer_group(embedder: Embedder, group: list[Job[Any]]) -> Sequence[object]:
    try:
        with warnings.catch_warnings():
            # A word with spaces is worth a warning to a caller, but none can hear one from here.
            warnings.filterwarnings("ignore", ".* is one word with spaces in it")
            return group[0].answer(embedder, [job.sentences for job in group])
    except Exception as error:  # whatever it is, it is the answer, and the model's thread goes on
        if len(group) > 1:
            return [answer for job in group for answer in _answer_group(embedder, [job])]
        if not isinstance(error, ElmokitError):
            logger.exception("a request failed")
        return [error]


def _together(jobs: list[Sentences]) -> list[list[str]]:
    return [words for job in jobs for words in job.words]


def _shared_out(found: Sequence[Item], jobs: list[Sentences]) -> list[list[Item]]:
    """What was found for the sentences of all jobs, job by job."""
    left = iter(found)
    return [[next(left) for _ in job.words] for job in jobs]
