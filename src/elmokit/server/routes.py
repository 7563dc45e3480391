"""Paths become answers of a model: what each route takes, asks for and gives back."""

from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, TypeVar

import numpy as np
from fastapi import APIRouter, Body, Depends, Header, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse

from elmokit.embedder import Embedder
from elmokit.pooling import Reduction, Vectors
from elmokit.server import forms, replies
from elmokit.server.desk import Desk
from elmokit.server.exchange import EXCHANGE, Exchange
from elmokit.server.jobs import Embedded, Job, embedding, filling, guessing, scoring
from elmokit.server.media import JSON, NPY, NPZ
from elmokit.server.sentences import Sentences

Made = TypeVar("Made")

# What is written within a few milliseconds, about when another thread would have its turn.
_FEW_NUMBERS, _FEW_ARRAYS = {JSON: 2**10, NPZ: 2**18}, 8


async def _exchange_of(request: Request) -> Exchange:
    exchange: Exchange = request.scope[EXCHANGE]
    return exchange


Accept = Annotated[str | None, Header(include_in_schema=False)]
Asking = Annotated[Exchange, Depends(_exchange_of)]

# Why there may be no answer, by status.
_REFUSALS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    406: "The form that is accepted cannot be sent.",
    408: "The body did not arrive in time.",
    413: "The body, its texts or its words are too many.",
    422: "The request has the wrong form, or asks for what the model does not have.",
    429: "Too many requests are waiting; Retry-After says when to ask again.",
    503: "No answer in time, a process that ended, or the service starts or shuts down.",
}


def model_routes(desk: Desk) -> APIRouter:
    """The routes that ask a model."""
    router = APIRouter()

    def cut(embedder: Embedder, texts: list[forms.Text]) -> Sentences:
        return Sentences.of(embedder, texts, desk.limits)

    @router.post("/embed", **told("/embed", forms.EmbedReply, NPZ))
    async def embed(
        form: Annotated[forms.EmbedForm, example("/embed")], exchange: Asking, accept: Accept = None
    ) -> Response:
        """The vectors of every word, (layers, words, dim) a sentence."""

        def prepare(embedder: Embedder) -> Job[Embedded]:
            return embedding(embedder, cut(embedder, form.texts), form.layers, form.directions)

        kind = replies.choose_form(accept, NPZ)
        found = await desk.ask(prepare, exchange)
        exchange.callback(found.vectors.clear)  # now, though a broken exchange may be held on to
        if kind == NPZ:
            return _sent(replies.embedded_npz(found), kind, found.vectors)
        replies.check_finite(found.vectors)
        return _sent(replies.embedded_json(found), kind, found.vectors)

    @router.post("/encode", **told("/encode", forms.EncodeReply, NPY))
    async def encode(
        form: Annotated[forms.EncodeForm, example("/encode")],
        exchange: Asking,
        accept: Accept = None,
    ) -> Response:
        """One vector a text, (texts, dim): its words' vectors, pooled."""

        def prepare(embedder: Embedder) -> Job[Embedded]:
            return embedding(embedder, cut(embedder, form.texts), reduction.layers, "both")

        def pool(found: Embedded) -> Vectors:
            return _pooled(found, reduction, len(form.texts), dim)

        kind = replies.choose_form(accept, NPY)
        reduction = Reduction.of(form.layers, form.pooling)
        embedder = desk.embedder
        dim = embedder.dim * (embedder.num_layers if form.layers == "concat" else 1)
        vectors = await ask_and_make(desk, prepare, pool, exchange)
        if kind == NPY:
            return Response(replies.npy(vectors), media_type=kind)
        replies.check_finite([vectors])
        return _sent(replies.encoded_json(vectors), kind, [vectors])

    @router.post("/score", **told("/score", forms.ScoreReply))
    async def score(
        form: Annotated[forms.ScoreForm, example("/score")], exchange: Asking
    ) -> Response:
        """The perplexity of texts, and the log-probability of each word."""
        found = await desk.ask(lambda embedder: scoring(cut(embedder, form.texts)), exchange)
        return JSONResponse(replies.scored(found))

    @router.post("/next", **told("/next", forms.NextReply))
    async def next_words(
        form: Annotated[forms.NextForm, example("/next")], exchange: Asking
    ) -> Response:
        """The likeliest words after a text, or before it."""
        found = await desk.ask(
            lambda embedder: guessing(
                cut(embedder, [form.text]),
                form.k,
                previous=form.previous,
                special_tokens=form.special_tokens,
            ),
            exchange,
        )
        return JSONResponse({"predictions": replies.guessed(found)})

    @router.post("/fill", **told("/fill", forms.FillReply))
    async def fill(form: Annotated[forms.FillForm, example("/fill")], exchange: Asking) -> Response:
        """For each ___ of a text the words that fit best from both sides."""
        found = await desk.ask(
            lambda embedder: filling(embedder, form.text, form.k, desk.limits), exchange
        )
        return JSONResponse({"gaps": [replies.guessed(gap) for gap in found]})

    return router


def state_routes(desk: Desk) -> APIRouter:
    """The routes that tell how the service is."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, str]:
        """The process is alive."""
        return {"status": "alive"}

    @router.get("/ready", responses={503: {"model": forms.ErrorReply, "description": "Not now."}})
    async def ready() -> dict[str, str]:
        """The model is loaded, and the service is not shutting down."""
        _ = desk.embedder
        return {"status": "ready"}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Counts in Prometheus' text format."""
        return PlainTextResponse(
            desk.metrics.page(desk.waiting), media_type="text/plain; version=0.0.4"
        )

    return router


def _pooled(embedded: Embedded, reduction: Reduction, texts: int, dim: int) -> Vectors:
    """One vector a text, (texts, dim)."""
    of_text: list[list[Vectors]] = [[] for _ in range(texts)]
    for text, vectors in zip(embedded.sentences.texts, embedded.vectors, strict=True):
        of_text[text].append(vectors)
    pooled = [reduction.of_text(sentences, dim) for sentences in of_text]
    return np.stack(pooled) if pooled else np.zeros((0, dim), np.float32)


async def ask_and_make(
    desk: Desk,
    prepare: Callable[[Embedder], Job[Embedded]],
    make: Callable[[Embedded], Made],
    exchange: Exchange,
) -> Made:
    """What `make` makes of the vectors of a job: both steps wait once, and in time."""

    async def answer(embedder: Embedder) -> Made:
        found = await desk.read(embedder, prepare, exchange)
        exchange.callback(found.vectors.clear)
        return await desk.aside(lambda: make(found))

    return await desk.during(answer)


def _sent(pieces: Iterable[bytes], kind: str, arrays: Sequence[Vectors]) -> Response:
    """An answer with some arrays; a big one is made in pieces, by another thread."""
    numbers = sum(array.size for array in arrays)
    if numbers <= _FEW_NUMBERS[kind] and len(arrays) <= _FEW_ARRAYS:
        return Response(b"".join(pieces), media_type=kind)
    return StreamingResponse(replies.in_parcels(pieces), media_type=kind)


def example(path: str) -> Any:
    """The body that a route takes, with the schema's example of it."""
    return Body(openapi_examples={"example": {"value": forms.EXAMPLES[path]}})


def told(path: str, reply: type, *binary: str) -> dict[str, Any]:
    """What the schema says of a route's answers."""
    content: dict[str, Any] = {JSON: {"example": forms.ANSWERS[path]}}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in binary}
    responses: dict[int, Any] = {
        status: {"model": forms.ErrorReply, "description": says}
        for status, says in _REFUSALS.items()
    }
    responses[200] = {"model": reply, "content": content, "description": "The answer."}
    return {"responses": responses, "response_class": Response}
