"""Calls of the model that requests make, and how calls of one kind are computed together."""

import logging
import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from elmokit.embedder import Embedder, Text
from elmokit.errors import ElmokitError, InputError
from elmokit.inference_session import Directions, Layers, LayerSelection
from elmokit.language_model_results import Prediction, Score
from elmokit.pooling import Vectors
from elmokit.server.limits import Limits, too_large
from elmokit.word_prediction import GAP, ROUNDS, TRIED

Result = TypeVar("Result")
Item = TypeVar("Item")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TokenizedTexts:
    """The sentences of texts, and for each sentence the index of its text."""

    sentences: list[list[str]]
    text_indices: list[int]

    @classmethod
    def from_texts(
        cls, embedder: Embedder, texts: Sequence[Text], limits: Limits
    ) -> "TokenizedTexts":
        """Tokenize texts, and refuse them as soon as a limit is exceeded."""
        if len(texts) > limits.max_texts:
            raise too_large(f"{len(texts):,} texts were given", limits.max_texts)
        sentences, text_indices, num_tokens = list[list[str]](), list[int](), 0
        for index, text in enumerate(texts):
            check_unicode(text, f"text {index}")
            for sentence in embedder.tokenize(text):
                num_tokens += len(sentence) + 2
                if num_tokens > limits.max_tokens:
                    raise too_large(
                        f"text {index} brings the request to {num_tokens:,} tokens",
                        limits.max_tokens,
                    )
                _check_word_lengths(sentence, index, limits)
                sentences.append(sentence)
                text_indices.append(index)
        return cls(sentences, text_indices)

    @property
    def num_tokens(self) -> int:
        """Words, and two special tokens per sentence."""
        return sum(len(sentence) + 2 for sentence in self.sentences)

    def words_of(self, text_index: int) -> list[str]:
        """All words of one text."""
        return [
            word
            for sentence, index in zip(self.sentences, self.text_indices, strict=True)
            if index == text_index
            for word in sentence
        ]


@dataclass(frozen=True, eq=False)
class ModelCall(Generic[Result]):
    """Texts for the model, and the function that computes their result.

    Calls with equal `batch_key`s are computed by one call of `run`, which gets the texts of each
    and returns one result for each; a call whose key is None is computed alone. `num_tokens` is
    how much the model has to read. A worker process computes the call unless `in_worker` is False;
    then `run` need not be picklable. `result_bytes` is the size of a large result.
    """

    texts: TokenizedTexts
    num_tokens: int
    run: Callable[[Embedder, list[TokenizedTexts]], Sequence[Result]]
    batch_key: Hashable = None
    in_worker: bool = True
    result_bytes: int = 0


@dataclass(frozen=True, eq=False)
class EmbeddedTexts:
    """Texts with the vectors of their sentences, (layers, words, dim) each."""

    texts: TokenizedTexts
    layers: tuple[int, ...]
    vectors: list[Vectors]


@dataclass(frozen=True, eq=False)
class ScoredTexts:
    """Texts with the scores of their sentences."""

    texts: TokenizedTexts
    scores: list[Score]


def run_calls(embedder: Embedder, calls: Sequence[ModelCall[Any]]) -> list[object]:
    """A result or an exception for each call; one that fails does not affect the others."""
    groups: dict[Hashable, list[int]] = {}
    for index, call in enumerate(calls):
        groups.setdefault(index if call.batch_key is None else call.batch_key, []).append(index)
    results: dict[int, object] = {}
    for indices in groups.values():
        group = [calls[index] for index in indices]
        results.update(zip(indices, _run_group(embedder, group), strict=True))
    return [results[index] for index in range(len(calls))]


def _run_group(embedder: Embedder, group: list[ModelCall[Any]]) -> Sequence[object]:
    try:
        with warnings.catch_warnings():
            # The warning is for callers in this process; a client would not see it.
            warnings.filterwarnings("ignore", ".* is one word with spaces in it")
            return group[0].run(embedder, [call.texts for call in group])
    except Exception as error:  # becomes the response of its request; the model's thread goes on
        if len(group) > 1:
            return [result for call in group for result in _run_group(embedder, [call])]
        if not isinstance(error, ElmokitError):
            logger.exception("a request failed")
        return [error]


def embed_call(
    embedder: Embedder, texts: TokenizedTexts, layers: Layers, directions: Directions
) -> ModelCall[EmbeddedTexts]:
    """The vectors of every word; calls with the same layers and directions are batched."""
    config = embedder.bilm.config
    selection = LayerSelection.of(config, layers, directions)
    if len(selection.layers) > embedder.num_layers:
        raise InputError(
            f"{len(selection.layers)} layers were requested, but the model has "
            f"{embedder.num_layers}"
        )
    return ModelCall(
        texts,
        texts.num_tokens,
        partial(_embed, selection=selection, directions=directions),
        batch_key=("embed", selection, directions),
        result_bytes=4 * selection.num_layers * selection.dim(config) * texts.num_tokens,
    )


def _embed(
    embedder: Embedder,
    batch: list[TokenizedTexts],
    *,
    selection: LayerSelection,
    directions: Directions,
) -> list[EmbeddedTexts]:
    vectors = embedder.embed(
        _all_sentences(batch),
        layers=selection.combination or selection.layers,
        directions=directions,
        show_progress_bar=False,
    )
    return [
        EmbeddedTexts(texts, selection.layers, own)
        for texts, own in zip(batch, _split_by_request(vectors, batch), strict=True)
    ]


def score_call(texts: TokenizedTexts) -> ModelCall[ScoredTexts]:
    """The log-probability of every word."""
    return ModelCall(texts, texts.num_tokens, _score, "score")


def _score(embedder: Embedder, batch: list[TokenizedTexts]) -> list[ScoredTexts]:
    scores = embedder.score(_all_sentences(batch), show_progress_bar=False)
    return [
        ScoredTexts(texts, own)
        for texts, own in zip(batch, _split_by_request(scores, batch), strict=True)
    ]


def next_words_call(
    texts: TokenizedTexts, k: int, *, previous: bool, special_tokens: bool
) -> ModelCall[list[Prediction]]:
    """The most probable words after a text, or before it."""
    run = partial(_predict_words, k=k, previous=previous, special_tokens=special_tokens)
    return ModelCall(texts, texts.num_tokens, run)


def _predict_words(
    embedder: Embedder,
    batch: list[TokenizedTexts],
    *,
    k: int,
    previous: bool,
    special_tokens: bool,
) -> list[list[Prediction]]:
    sentences = batch[0].sentences or [[]]
    if previous:
        return [embedder.previous_words(sentences[0], k=k, special_tokens=special_tokens)]
    return [embedder.next_words(sentences[-1], k=k, special_tokens=special_tokens)]


def fill_call(
    embedder: Embedder, text: Text, k: int, limits: Limits
) -> ModelCall[list[list[Prediction]]]:
    """The words that fit each gap of a text."""
    texts = TokenizedTexts.from_texts(embedder, [text], limits)
    gaps = len(re.findall("_{3,}", text)) if isinstance(text, str) else [*text].count(GAP)
    candidates = max(k, TRIED)
    num_tokens = texts.num_tokens * candidates * gaps * (ROUNDS if gaps > 1 else 1)
    if num_tokens > limits.max_fill_tokens:
        raise too_large(
            f"trying {candidates} words in each gap takes {num_tokens:,} tokens",
            limits.max_fill_tokens,
        )
    return ModelCall(texts, num_tokens, partial(_fill, text=text, k=k))


def _fill(
    embedder: Embedder, _: list[TokenizedTexts], *, text: Text, k: int
) -> list[list[list[Prediction]]]:
    return [embedder.fill(text, k=k)]


def _all_sentences(batch: list[TokenizedTexts]) -> list[list[str]]:
    return [sentence for texts in batch for sentence in texts.sentences]


def _split_by_request(results: Sequence[Item], batch: list[TokenizedTexts]) -> list[list[Item]]:
    remaining = iter(results)
    return [[next(remaining) for _ in texts.sentences] for texts in batch]


def check_unicode(text: Text, name: str) -> None:
    """Refuse lone surrogates, which JSON can express but no text contains."""
    try:
        (text if isinstance(text, str) else "".join(text)).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has {error.object[error.start]!r}, half of a surrogate pair; "
            "expected valid Unicode"
        ) from None


def _check_word_lengths(sentence: list[str], text_index: int, limits: Limits) -> None:
    longest = max(map(len, sentence), default=0)
    if longest > limits.max_word_characters:
        raise too_large(
            f"text {text_index} has a word of {longest:,} characters", limits.max_word_characters
        )
