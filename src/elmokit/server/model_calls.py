"""Calls of the model that requests make, and how calls of one kind are computed together."""

import logging
import re
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Generic, TypeVar

from elmokit.embedder import Embedder, Text
from elmokit.errors import ElmokitError, InputError
from elmokit.inference_session import Directions, Layers, LayerSelection
from elmokit.language_model_results import Prediction, Score
from elmokit.pooling import Vectors
from elmokit.server.limits import Limits, too_large
from elmokit.word_prediction import GAP, ROUNDS, TRIED

Result = TypeVar("Result")

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
                longest = max(map(len, sentence), default=0)
                if longest > limits.max_word_characters:
                    raise too_large(
                        f"text {index} has a word of {longest:,} characters",
                        limits.max_word_characters,
                    )
                sentences.append(sentence)
                text_indices.append(index)
        return cls(sentences, text_indices)

    @property
    def num_tokens(self) -> int:
        return count_tokens(self.sentences)

    def words_of(self, text_index: int) -> list[str]:
        """All words of one text."""
        pairs = zip(self.sentences, self.text_indices, strict=True)
        return [word for sentence, index in pairs if index == text_index for word in sentence]


@dataclass(frozen=True, eq=False)
class ModelCall(Generic[Result]):
    """A function of the embedder and an argument, which has the model read `num_tokens`.

    Calls with equal `batch_key`s have lists of sentences as arguments and results: they are
    computed by one call of `run` with all their sentences. A call whose key is None is computed
    alone. A worker process computes a call unless `in_worker` is False; then `run` need not be
    picklable. `result_bytes` is the size of a large result.
    """

    run: Callable[[Embedder, Any], Result]
    argument: Any
    num_tokens: int
    batch_key: Hashable = None
    in_worker: bool = True
    result_bytes: int = 0


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
    first = group[0]
    try:
        with warnings.catch_warnings():
            # The warning is for callers in this process; a client would not see it.
            warnings.filterwarnings("ignore", ".* is one word with spaces in it")
            if first.batch_key is None:
                return [first.run(embedder, first.argument)]
            results = iter(first.run(embedder, [s for call in group for s in call.argument]))
            return [[*islice(results, len(call.argument))] for call in group]
    except Exception as error:  # becomes the response of its request; the model's thread goes on
        if len(group) > 1:
            return [result for call in group for result in _run_group(embedder, [call])]
        if not isinstance(error, ElmokitError):
            logger.exception("a request failed")
        return [error]


def embed_call(
    embedder: Embedder, sentences: list[list[str]], layers: Layers, directions: Directions
) -> ModelCall[list[Vectors]]:
    """The vectors of every word; calls with the same layers and directions are batched."""
    config = embedder.bilm.config
    selection = LayerSelection.of(config, layers, directions)
    if len(selection.layers) > embedder.num_layers:
        raise InputError(
            f"{len(selection.layers)} layers were requested, but the model has "
            f"{embedder.num_layers}"
        )
    num_tokens = count_tokens(sentences)
    chosen = selection.combination or selection.layers
    return ModelCall(
        partial(Embedder.embed, layers=chosen, directions=directions, show_progress_bar=False),
        sentences,
        num_tokens,
        batch_key=("embed", selection, directions),
        result_bytes=4 * selection.num_layers * selection.dim(config) * num_tokens,
    )


def score_call(sentences: list[list[str]]) -> ModelCall[list[Score]]:
    """The log-probability of every word."""
    run = partial(Embedder.score, show_progress_bar=False)
    return ModelCall(run, sentences, count_tokens(sentences), "score")


def fill_call(
    text: Text, num_tokens: int, k: int, limits: Limits
) -> ModelCall[list[list[Prediction]]]:
    """The words that fit each gap of a text of `num_tokens`."""
    gaps = len(re.findall("_{3,}", text)) if isinstance(text, str) else [*text].count(GAP)
    candidates = max(k, TRIED)
    num_tokens *= candidates * gaps * (ROUNDS if gaps > 1 else 1)
    if num_tokens > limits.max_fill_tokens:
        raise too_large(
            f"trying {candidates} words in each gap takes {num_tokens:,} tokens",
            limits.max_fill_tokens,
        )
    return ModelCall(partial(Embedder.fill, k=k), text, num_tokens)


def count_tokens(sentences: Sequence[Sequence[str]]) -> int:
    """Words, and two special tokens per sentence."""
    return sum(len(sentence) + 2 for sentence in sentences)


def check_unicode(text: Text, name: str) -> None:
    """Refuse lone surrogates, which JSON can express but no text contains."""
    try:
        (text if isinstance(text, str) else "".join(text)).encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"{name} has {error.object[error.start]!r}, half of a surrogate pair; "
            "expected valid Unicode"
        ) from None
