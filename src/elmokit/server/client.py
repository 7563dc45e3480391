"""Calls become requests to a service, and its answers what a model itself would give."""

import io
import json
import time
from collections.abc import Iterable, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from elmokit.config import make_record
from elmokit.embedder import Text
from elmokit.errors import InputError, ServiceError
from elmokit.inference import Directions, Layers
from elmokit.pooling import Pooling, Vectors
from elmokit.results import Perplexity, Prediction, Score
from elmokit.server.forms import (
    ContextsReply,
    LayerWeightsReply,
    LearnedLayerWeights,
    SearchReply,
    SearchResult,
    SimilarityReply,
)
from elmokit.server.media import JSON, NPY, NPZ

# What the caller can mend, as a model in this process would have it.
_CALLERS_MISTAKES = (400, 413, 422)


class Client:
    """A service that answers as an Embedder does. May be used by several threads.

    A service that is busy (429, 503) is asked again when it says, `retries` times at most, each
    time after `most_wait` seconds at most. `timeout` is for each step of a connection, in seconds.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retries: int = 3,
        most_wait: float = 10.0,
        timeout: float = 120.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"{url!r} is no address of a service, expected http://HOST:PORT")
        self._parts = parts
        self._token = token
        self._retries = retries
        self._most_wait = most_wait
        self._timeout = timeout

    def embed(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: Layers = "all",
        directions: Directions = "both",
    ) -> list[Vectors]:
        """For each sentence an array (layers, words, dim)."""
        texts = [_listed(sentence) for sentence in sentences]
        asked = layers if isinstance(layers, str | int) else [int(layer) for layer in layers]
        form = {"texts": texts, "layers": asked, "directions": directions}
        with np.load(io.BytesIO(self._ask("/embed", form, NPZ)), allow_pickle=False) as arrays:
            return [arrays[str(place)] for place in range(len(texts))]

    def encode(
        self,
        texts: Iterable[Text],
        *,
        layers: str | int = "mean",
        pooling: Pooling = "mean",
    ) -> Vectors:
        """One vector a text, raw or a list of words, (texts, dim)."""
        form = {"texts": _texts(texts), "layers": layers, "pooling": pooling}
        found: Vectors = np.load(io.BytesIO(self._ask("/encode", form, NPY)), allow_pickle=False)
        return found

    def score(self, texts: Iterable[Text]) -> list[Score]:
        """For each sentence of the texts the log-probability of each of its words."""
        return [
            Score(
                tuple(sentence["words"]),
                sentence["unknown"],
                _numbers(sentence["forward"]),
                _numbers(sentence["backward"]),
            )
            for sentence in self._told("/score", {"texts": _texts(texts)})["sentences"]
        ]

    def perplexity(self, texts: Iterable[Text]) -> Perplexity:
        """How well the model predicts texts."""
        return Perplexity.of(self.score(texts))

    def next_words(
        self, text: Text, *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k likeliest words after a text."""
        return _guesses(
            self._told("/next", {"text": text, "k": k, "special_tokens": special_tokens})[
                "predictions"
            ]
        )

    def previous_words(
        self, text: Text, *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k likeliest words before a text."""
        form = {"text": text, "k": k, "special_tokens": special_tokens, "previous": True}
        return _guesses(self._told("/next", form)["predictions"])

    def fill(self, text: Text, *, k: int = 10) -> list[list[Prediction]]:
        """For each `___` of a text the k words that fit best."""
        return [_guesses(gap) for gap in self._told("/fill", {"text": text, "k": k})["gaps"]]

    def contexts(
        self, word: str, texts: Iterable[Text], *, labels: Sequence[str] | None = None
    ) -> ContextsReply:
        """Where each use of a word, and of words that begin so, stands in each layer's plane."""
        given = None if labels is None else [*labels]
        form = {"word": word, "texts": _texts(texts), "labels": given}
        return make_record(self._told("/contexts", form), ContextsReply, "/contexts")

    def word_similarity(self, first: Text, second: Text) -> SimilarityReply:
        """The cosine of each word of a text with each of another, in each layer."""
        form = {"first": first, "second": second}
        return make_record(self._told("/similarity", form), SimilarityReply, "/similarity")

    def search(
        self, query: str, *, k: int = 10, word: str | None = None, any_word: bool = False
    ) -> list[SearchResult]:
        """The k passages of the service's index nearest to a text, the nearest first.

        With a `word` of it, the k uses of that word nearest to its use there; or of any word.
        """
        told = self._told("/search", {"query": query, "k": k, "word": word, "any_word": any_word})
        return make_record(told, SearchReply, "/search").results

    def layer_weights(self) -> list[LearnedLayerWeights]:
        """The share of each layer in the mixes of the service's trained tasks."""
        return make_record(
            self._told("/layer_weights"), LayerWeightsReply, "/layer_weights"
        ).layer_weights

    def is_alive(self) -> bool:
        """Whether there is a service."""
        return self._answers("/health")

    def is_ready(self) -> bool:
        """Whether the service takes requests."""
        return self._answers("/ready")

    def metrics(self) -> str:
        """The counts of the service in Prometheus' text format."""
        return self._ask("/metrics", None, "text/plain").decode()

    def schema(self) -> dict[str, Any]:
        """What the service says of its routes, as OpenAPI."""
        schema: dict[str, Any] = self._told("/openapi.json")
        return schema

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        """Return when the service takes requests; its last refusal is raised after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._ask_once("/ready", None, JSON)
                return
            except ServiceError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _answers(self, path: str) -> bool:
        try:
            self._ask_once(path, None, JSON)
        except ServiceError:
            return False
        return True

    def _told(self, path: str, form: dict[str, Any] | None = None) -> Any:
        return json.loads(self._ask(path, form, JSON))

    def _ask(self, path: str, form: dict[str, Any] | None, accept: str) -> bytes:
        """The body of an answer to a form, or to none; a busy service is asked again."""
        body = None if form is None else json.dumps(form).encode()
        for retry in range(self._retries + 1):
            try:
                return self._ask_once(path, body, accept)
            except ServiceError as error:
                if error.retry_after is None or retry == self._retries:
                    raise
                time.sleep(min(error.retry_after, self._most_wait))
        raise AssertionError("the last try returns or raises")

    def _ask_once(self, path: str, body: bytes | None, accept: str) -> bytes:
        headers = {"Content-Type": JSON, "Accept": accept}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        assert self._parts.hostname is not None
        connection = kind(self._parts.hostname, self._parts.port, timeout=self._timeout)
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, self._parts.path.rstrip("/") + path, body, headers)
            response = connection.getresponse()
            answer = response.read()
        except (OSError, HTTPException) as error:
            where = f"{self._parts.scheme}://{self._parts.netloc}"
            raise ServiceError(f"{where}: {error or type(error).__name__}", status=0) from error
        finally:
            connection.close()
        if response.status == 200:
            return answer
        message = _message(answer, response.status)
        if response.status in _CALLERS_MISTAKES:
            raise InputError(message)
        wait = response.getheader("Retry-After", "")
        raise ServiceError(
            message, status=response.status, retry_after=int(wait) if wait.isdigit() else None
        )


def _texts(texts: Iterable[Text]) -> list[str | list[str]]:
    if isinstance(texts, str):
        raise TypeError("texts is one string, expected a list of texts: [text]")
    return [text if isinstance(text, str) else list(text) for text in texts]


def _listed(sentence: Sequence[str]) -> list[str]:
    if isinstance(sentence, str):
        raise TypeError(f"a sentence is one string ({sentence[:60]!r}), expected a list of words")
    return list(sentence)


def _numbers(numbers: list[float] | None) -> "np.ndarray[Any, np.dtype[np.float64]] | None":
    return None if numbers is None else np.array(numbers, np.float64)


def _guesses(words: list[dict[str, Any]]) -> list[Prediction]:
    return [Prediction(word["word"], word["probability"]) for word in words]


def _message(answer: bytes, status: int) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {status}: {answer[:200]!r}"
