"""Client of a service: the calls of an Embedder, made over HTTP. It does not need torch."""

import io
import json
import time
import weakref
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeVar

import httpx
import numpy as np
import numpy.typing as npt

from elmokit.errors import InputError, ServiceError
from elmokit.language_model_results import Perplexity, Prediction, Score
from elmokit.model_config import make_record
from elmokit.search import Mode
from elmokit.server.schemas import (
    JSON,
    NPY,
    NPZ,
    ContextsResponse,
    InfoResponse,
    LayerWeightsResponse,
    LearnedLayerWeights,
    SearchResponse,
    SearchResult,
    SimilarityResponse,
)

if TYPE_CHECKING:  # these modules need torch
    from elmokit.embedder import Text
    from elmokit.inference_session import Directions, Layers

Vectors = npt.NDArray[np.float32]
Response = TypeVar("Response")

# Statuses of mistakes that the caller can correct, for which a local model raises InputError.
_CALLER_ERRORS = (400, 413, 422)


class Client:
    """A service that answers like an Embedder. May be used by several threads.

    When the service is busy (429, 503), a request is repeated after the time that it asks for,
    `max_retries` times at most, each time after `max_wait` seconds at most. `timeout` is for each
    step of a connection, in seconds.

    Example:
        with Client("http://localhost:8000") as client:
            client.encode(["I ate an apple."])
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        max_retries: int = 3,
        max_wait: float = 10.0,
        timeout: float = 120.0,
    ) -> None:
        try:
            parsed = httpx.URL(url)
        except (httpx.InvalidURL, TypeError):
            parsed = httpx.URL("")
        if parsed.scheme not in ("http", "https") or not parsed.host:
            raise InputError(f"{url!r} is not the URL of a service, expected http://HOST:PORT")
        self.url = url.rstrip("/")
        self._max_retries = max_retries
        self._max_wait = max_wait
        headers = {} if token is None else {b"Authorization": f"Bearer {token}".encode()}
        self._http = httpx.Client(headers=headers, timeout=timeout)
        self._close = weakref.finalize(self, self._http.close)  # for those who do not close it

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._close()

    def embed(
        self,
        sentences: Iterable[Sequence[str]],
        *,
        layers: "Layers" = "all",
        directions: "Directions" = "both",
    ) -> list[Vectors]:
        """For each sentence an array (layers, words, dim)."""
        texts = [
            _check_words(sentence, f"sentence {index}", "a list of words")
            for index, sentence in enumerate(_items(sentences, "sentences", "lists of words"))
        ]
        body = {"texts": texts, "layers": _layers(layers), "directions": directions}
        content = self._request("/embed", body, NPZ)
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return [arrays[str(index)] for index in range(len(texts))]

    def encode(
        self,
        texts: "Text | Iterable[Text]",
        *,
        layers: "Layers | None" = None,
        pooling: str | None = None,
        normalize_embeddings: bool = False,
    ) -> Vectors:
        """One vector per text, (texts, dim), or (texts, layers, dim) of several layers.

        A single string gives its vector alone.
        """
        single = isinstance(texts, str)
        body = {
            "texts": _check_texts([texts] if isinstance(texts, str) else texts),
            "layers": None if layers is None else _layers(layers),
            "pooling": pooling,
            "normalize_embeddings": normalize_embeddings,
        }
        content = self._request("/encode", body, NPY)
        vectors: Vectors = np.load(io.BytesIO(content), allow_pickle=False)
        return vectors[0] if single else vectors

    def score(self, texts: "Iterable[Text]") -> list[Score]:
        """For each sentence of the texts the log-probability of each of its words."""
        sentences = self._json("/score", {"texts": _check_texts(texts)})["sentences"]
        return [
            Score(tuple(s["words"]), s["unknown"], _array(s["forward"]), _array(s["backward"]))
            for s in sentences
        ]

    def perplexity(self, texts: "Iterable[Text]") -> Perplexity:
        """How well the model predicts texts."""
        return Perplexity.of(self.score(texts))

    def next_words(
        self, text: "Text", *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k most probable words after a text."""
        return self._predict_words(text, k=k, special_tokens=special_tokens, previous=False)

    def previous_words(
        self, text: "Text", *, k: int = 10, special_tokens: bool = False
    ) -> list[Prediction]:
        """The k most probable words before a text."""
        return self._predict_words(text, k=k, special_tokens=special_tokens, previous=True)

    def fill(self, text: "Text", *, k: int = 10) -> list[list[Prediction]]:
        """For each `___` of a text the k words that fit best."""
        gaps = self._json("/fill", {"text": _check_text(text), "k": k})["gaps"]
        return [_predictions(gap) for gap in gaps]

    def predict(self, task: str, texts: Iterable[str]) -> list[Any]:
        """What a trained head of the service predicts for each text."""
        content = self._json(f"/predict/{task}", {"texts": _check_texts(texts)})
        predictions: list[Any] = content["predictions"]
        return predictions

    def contexts(
        self, word: str, texts: "Iterable[Text]", *, labels: Sequence[str] | None = None
    ) -> ContextsResponse:
        """The occurrences of a word, and of words that begin with it, as points of each layer."""
        listed = None if labels is None else [*labels]
        body = {"word": word, "texts": _check_texts(texts), "labels": listed}
        return self._record(ContextsResponse, "/contexts", body)

    def word_similarity(self, first: "Text", second: "Text") -> SimilarityResponse:
        """The cosine similarity of each word of a text and each of another, in each layer."""
        body = {"first": _check_text(first), "second": _check_text(second)}
        return self._record(SimilarityResponse, "/similarity", body)

    def search(
        self,
        query: str,
        *,
        k: int = 10,
        mode: Mode | None = None,
        files: Iterable[str] = (),
        word: str | None = None,
        any_word: bool = False,
    ) -> list[SearchResult]:
        """The k passages of the service's index that match a text best, the best first.

        `mode` is "hybrid", "semantic" or "lexical"; `files` are names or globs of the files to
        search. With a `word` of the text, the k occurrences of that word, or of `any_word`, most
        similar to its occurrence there.
        """
        body = {
            "query": query,
            "k": k,
            "mode": mode,
            "files": [files] if isinstance(files, str) else [*files],
            "word": word,
            "any_word": any_word,
        }
        return self._record(SearchResponse, "/search", body).results

    def layer_weights(self) -> list[LearnedLayerWeights]:
        """The weight of each layer in the scalar mixes of the service's trained tasks."""
        return self._record(LayerWeightsResponse, "/layer_weights").layer_weights

    def info(self) -> InfoResponse:
        """The model of the service, and what else it has."""
        return self._record(InfoResponse, "/info")

    def is_alive(self) -> bool:
        """Whether there is a service."""
        return self._is_ok("/health")

    def is_ready(self) -> bool:
        """Whether the service takes requests."""
        return self._is_ok("/ready")

    def metrics(self) -> str:
        """The service's metrics in Prometheus' text format."""
        return self._request("/metrics", None, "text/plain").decode()

    def schema(self) -> dict[str, Any]:
        """The OpenAPI schema of the service."""
        schema: dict[str, Any] = self._json("/openapi.json")
        return schema

    def wait_until_ready(self, seconds: float = 60.0) -> None:
        """Return when the service takes requests; after `seconds`, raise what it last refused."""
        end = time.monotonic() + seconds
        while True:
            try:
                self._request_once("/ready", None, JSON)
                return
            except ServiceError:
                if time.monotonic() > end:
                    raise
            time.sleep(0.1)

    def _predict_words(self, text: "Text", **options: Any) -> list[Prediction]:
        content = self._json("/next", {"text": _check_text(text), **options})
        return _predictions(content["predictions"])

    def _is_ok(self, path: str) -> bool:
        try:
            self._request_once(path, None, JSON)
        except ServiceError:
            return False
        return True

    def _record(
        self, kind: type[Response], path: str, body: dict[str, Any] | None = None
    ) -> Response:
        return make_record(self._json(path, body), kind, path)

    def _json(self, path: str, body: dict[str, Any] | None = None) -> Any:
        return json.loads(self._request(path, body, JSON))

    def _request(self, path: str, body: dict[str, Any] | None, accept: str) -> bytes:
        """The content of a response; while the service is busy, the request is repeated."""
        retries = self._max_retries
        while True:
            try:
                return self._request_once(path, body, accept)
            except ServiceError as error:
                if error.retry_after is None or retries <= 0:
                    raise
                time.sleep(min(error.retry_after, self._max_wait))
            retries -= 1

    def _request_once(self, path: str, body: dict[str, Any] | None, accept: str) -> bytes:
        url, headers = self.url + path, {"Accept": accept, "Content-Type": JSON}
        try:
            if body is None:
                response = self._http.get(url, headers=headers)
            else:  # in ASCII: httpx's own JSON cannot have half of a surrogate pair
                response = self._http.post(url, content=json.dumps(body), headers=headers)
        except httpx.HTTPError as error:
            message = f"{self.url}: {str(error) or type(error).__name__}"
            raise ServiceError(message, status=0) from error
        if response.status_code == 200:
            return response.content
        message = _error_message(response)
        if response.status_code in _CALLER_ERRORS:
            raise InputError(message)
        wait = response.headers.get("Retry-After", "")
        retry_after = int(wait) if wait.isdigit() else None
        raise ServiceError(message, status=response.status_code, retry_after=retry_after)


def _layers(layers: "Layers") -> str | int | list[int]:
    if isinstance(layers, str):
        return layers
    if isinstance(layers, Integral):
        return int(layers)
    listed = _items(layers, "layers", "a name, a number or a list")
    return [int(layer) for layer in listed]  # type: ignore[call-overload]


def _check_texts(texts: object) -> list[str | list[str]]:
    listed = _items(texts, "texts", "a list of texts: [text]")
    return [_check_text(text, f"text {index}") for index, text in enumerate(listed)]


def _check_text(text: object, name: str = "text") -> str | list[str]:
    if isinstance(text, str):
        return text
    return _check_words(text, name, "a string or a list of words")


def _check_words(words: object, name: str, expected: str) -> list[str]:
    checked = []
    for index, word in enumerate(_items(words, name, expected)):
        if not isinstance(word, str):
            raise InputError(f"{name}: word {index} is {_described(word)}, expected a string")
        checked.append(word)
    return checked


def _items(values: object, name: str, expected: str) -> Iterable[object]:
    """The values of a list, or of any other iterable that is not a string."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} is {_described(values)}, expected {expected}")
    return values


def _described(value: object) -> str:
    if isinstance(value, str):
        return f"one string ({value[:60]!r})"
    return repr(value) if value is None else f"{repr(value)[:60]} (type {type(value).__name__})"


def _array(numbers: list[float] | None) -> "npt.NDArray[np.float64] | None":
    return None if numbers is None else np.array(numbers, np.float64)


def _predictions(words: list[dict[str, Any]]) -> list[Prediction]:
    return [Prediction(word["word"], word["probability"]) for word in words]


def _error_message(response: httpx.Response) -> str:
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return f"the service answered {response.status_code}: {response.content[:200]!r}"
