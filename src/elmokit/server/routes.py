"""Routes of the model: embed, encode, score, next, fill, predict; and those of the service."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Body, Depends, Header, Request
from starlette.responses import Response

import elmokit
from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.inference_session import LayerSelection
from elmokit.language_model_results import Perplexity
from elmokit.pooling import Pooling, Vectors, get_pooling, pool_sentences
from elmokit.server import metrics, schemas
from elmokit.server.app_resources import AppResources
from elmokit.server.middleware import CONTEXT, RequestContext
from elmokit.server.model_calls import (
    EmbeddedTexts,
    ModelCall,
    ScoredTexts,
    TokenizedTexts,
    embed_call,
    fill_call,
    next_words_call,
    score_call,
)
from elmokit.server.responses import (
    choose_media_type,
    embeddings_response,
    encodings_response,
    json_response,
)
from elmokit.server.schemas import JSON, NPY, NPZ

router = APIRouter()


async def _get_resources(request: Request) -> AppResources:
    resources: AppResources = request.app.state.resources
    return resources


async def _get_context(request: Request) -> RequestContext:
    context: RequestContext = request.scope[CONTEXT]
    return context


Resources = Annotated[AppResources, Depends(_get_resources)]
Context = Annotated[RequestContext, Depends(_get_context)]
Accept = Annotated[str | None, Header(include_in_schema=False)]

_ERRORS = {
    400: "The body is not JSON.",
    401: "The token is missing or wrong.",
    406: "None of the accepted media types can be sent.",
    408: "The body did not arrive in time.",
    413: "The body is too large, or has too many texts or words.",
    422: "A field is missing or invalid, or the model does not have what is requested.",
    429: "Too many requests are waiting; Retry-After says when to try again.",
    503: "No answer in time, or the service is starting or shutting down.",
}


def example(path: str) -> Any:
    """The body of a route's request, with its example in the schema."""
    return Body(openapi_examples={"example": {"value": schemas.REQUEST_EXAMPLES[path]}})


def documented(path: str, model: type, *binary: str) -> dict[str, Any]:
    """Settings of a route that describe its responses in the schema."""
    content: dict[str, Any] = {JSON: {"example": schemas.RESPONSE_EXAMPLES[path]}}
    content |= {kind: {"schema": {"type": "string", "format": "binary"}} for kind in binary}
    responses: dict[int, Any] = {
        status: {"model": schemas.ErrorResponse, "description": description}
        for status, description in _ERRORS.items()
    }
    responses[200] = {"model": model, "content": content, "description": "The answer."}
    return {"responses": responses, "response_class": Response}


@router.post("/embed", **documented("/embed", schemas.EmbedResponse, NPZ))
async def embed(
    body: Annotated[schemas.EmbedRequest, example("/embed")],
    resources: Resources,
    context: Context,
    accept: Accept = None,
) -> Response:
    """The vectors of every word, (layers, words, dim) per sentence."""
    media_type = choose_media_type(accept, NPZ)
    async with resources.batcher.admit() as embedder:
        embedded = await embed_texts(
            embedder, body.texts, body.layers, body.directions, resources, context
        )
    return embeddings_response(embedded, media_type)


async def embed_texts(
    embedder: Embedder,
    texts: list[schemas.Text],
    layers: Any,
    directions: Any,
    resources: AppResources,
    context: RequestContext,
) -> EmbeddedTexts:
    """Texts with the vectors of their words, for any route of an admitted request."""

    def make_call() -> ModelCall[EmbeddedTexts]:
        tokenized = TokenizedTexts.from_texts(embedder, texts, resources.limits)
        return embed_call(embedder, tokenized, layers, directions)

    return await run_embed_call(await resources.prepare(make_call, context), resources, context)


async def run_embed_call(
    call: ModelCall[EmbeddedTexts], resources: AppResources, context: RequestContext
) -> EmbeddedTexts:
    """The result of a call; its vectors are freed when the request ends."""
    embedded = await resources.run(call, context)
    context.callback(embedded.vectors.clear)  # the response may live longer, in a traceback
    return embedded


@router.post("/encode", **documented("/encode", schemas.EncodeResponse, NPY))
async def encode(
    body: Annotated[schemas.EncodeRequest, example("/encode")],
    resources: Resources,
    context: Context,
    accept: Accept = None,
) -> Response:
    """One vector per text, (texts, dim): the pooled vectors of its words."""
    media_type = choose_media_type(accept, NPY)
    async with resources.batcher.admit() as embedder:
        pooling = get_pooling(body.pooling, embedder.pretrained.vocabulary)
        selection = LayerSelection.of(embedder.bilm.config, body.layers)
        shape = (selection.num_layers, selection.dim(embedder.bilm.config))
        embedded = await embed_texts(embedder, body.texts, body.layers, "both", resources, context)
        vectors = await resources.run_in_text_thread(
            lambda: _pool(embedded, pooling, embedder, (len(body.texts), *shape))
        )
    if selection.num_layers == 1:
        vectors = vectors[:, 0]
    if body.normalize_embeddings:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)
    return encodings_response(vectors, media_type)


def _pool(
    embedded: EmbeddedTexts, pooling: Pooling, embedder: Embedder, shape: tuple[int, int, int]
) -> Vectors:  # (texts, layers, dim)
    """The pooled vectors of each text, zero for a text without words."""
    vectors: list[list[Vectors]] = [[] for _ in range(shape[0])]
    words: list[list[str]] = [[] for _ in range(shape[0])]
    texts = embedded.texts
    for row, index in enumerate(texts.text_indices):
        vectors[index].append(embedded.vectors[row])
        words[index] += texts.sentences[row]
    pooled = np.zeros(shape, np.float32)
    vocabulary = embedder.pretrained.vocabulary
    for index in range(shape[0]):
        if words[index]:
            pooled[index] = pool_sentences(vectors[index], words[index], pooling, vocabulary)
    return pooled


@router.post("/score", **documented("/score", schemas.ScoreResponse))
async def score(
    body: Annotated[schemas.ScoreRequest, example("/score")], resources: Resources, context: Context
) -> Response:
    """The perplexity of texts, and the log-probability of each word."""
    async with resources.batcher.admit() as embedder:
        texts = await tokenize(embedder, body.texts, resources, context)
        scored = await resources.run(score_call(texts), context)
    return json_response(_score_response(scored))


async def tokenize(
    embedder: Embedder,
    texts: Sequence[schemas.Text],
    resources: AppResources,
    context: RequestContext,
) -> TokenizedTexts:
    """Texts of an admitted request, tokenized and within the limits."""
    work = partial(TokenizedTexts.from_texts, embedder, texts, resources.limits)
    return await resources.prepare(work, context)


def _score_response(scored: ScoredTexts) -> dict[str, Any]:
    total = Perplexity.of(scored.scores) if scored.scores else None
    return {
        "perplexity": total
        and {
            "forward": total.forward,
            "backward": total.backward,
            "average": total.average,
            "geometric_mean": total.geometric_mean,
            "words": total.words,
            "unknown": total.unknown,
            "predictions": total.predictions,
        },
        "sentences": [
            {
                "text_index": index,
                "words": score.words,
                "unknown": score.unknown,
                "perplexity": score.perplexity,
                "forward": score.forward,
                "backward": score.backward,
            }
            for index, score in zip(scored.texts.text_indices, scored.scores, strict=True)
        ],
    }


@router.post("/next", **documented("/next", schemas.NextResponse))
async def next_words(
    body: Annotated[schemas.NextRequest, example("/next")], resources: Resources, context: Context
) -> Response:
    """The most probable words after a text, or before it."""
    async with resources.batcher.admit() as embedder:
        texts = await tokenize(embedder, [body.text], resources, context)
        call = next_words_call(
            texts, body.k, previous=body.previous, special_tokens=body.special_tokens
        )
        predictions = await resources.run(call, context)
    return json_response({"predictions": predictions})


@router.post("/fill", **documented("/fill", schemas.FillResponse))
async def fill(
    body: Annotated[schemas.FillRequest, example("/fill")], resources: Resources, context: Context
) -> Response:
    """For each ___ of a text the words that fit best from both sides."""
    async with resources.batcher.admit() as embedder:
        make_call = partial(fill_call, embedder, body.text, body.k, resources.limits)
        call = await resources.prepare(make_call, context)
        gaps = await resources.run(call, context)
    return json_response({"gaps": gaps})


@router.post("/predict/{task}", **documented("/predict/{task}", schemas.PredictResponse))
async def predict(
    task: str,
    body: Annotated[schemas.PredictRequest, example("/predict/{task}")],
    resources: Resources,
    context: Context,
) -> Response:
    """What a trained head predicts for each text; /info lists the tasks of the service."""
    async with resources.batcher.admit() as embedder:
        head = resources.tasks.get(task)
        if head is None:
            served = ", ".join(resources.tasks) or "none"
            raise InputError(
                f"task is {ascii(task)[:60]}, but this service has {served}; "
                "start it with elmo serve --task DIR"
            )
        texts = await tokenize(embedder, body.texts, resources, context)
        call = ModelCall(
            texts,
            texts.num_tokens,
            _ignoring_embedder(head.predict_json, body.texts),
            in_worker=False,
        )
        predictions = await resources.run(call, context)
    return json_response({"task": task, "predictions": predictions})


def _ignoring_embedder(
    predict_texts: Callable[[list[str]], list[Any]], texts: list[str]
) -> Callable[[Embedder, list[TokenizedTexts]], list[list[Any]]]:
    """A trained head has its own biLM."""
    return lambda _, __: [predict_texts(texts)]


@router.get("/info", **documented("/info", schemas.InfoResponse))
async def info(resources: Resources) -> Response:
    """The model, its sizes, and what the service has besides it."""
    embedder = resources.batcher.embedder
    pretrained = embedder.pretrained
    softmax = pretrained.model.softmax
    return json_response(
        schemas.InfoResponse(
            version=elmokit.__version__,
            model=resources.model_name,
            source=resources.model_source,
            fingerprint=pretrained.fingerprint(),
            layers=embedder.num_layers,
            dim=embedder.dim,
            parameters=sum(parameter.numel() for parameter in pretrained.model.parameters()),
            tokenizer=pretrained.tokenizer,
            precision=embedder.precision,
            softmax_words=None if softmax is None else softmax.num_words,
            tasks=[*resources.tasks],
            index=None if resources.index is None else resources.index.config.unit,
        )
    )


@router.get("/health")
async def health() -> dict[str, str]:
    """The process is alive."""
    return {"status": "alive"}


@router.get("/ready", responses={503: {"model": schemas.ErrorResponse, "description": "Not yet."}})
async def ready(resources: Resources) -> dict[str, str]:
    """The model is loaded, and the service is not shutting down."""
    _ = resources.batcher.embedder
    return {"status": "ready"}


@router.get("/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}})
async def prometheus_metrics(resources: Resources) -> Response:
    """Metrics in Prometheus' text format."""
    return Response(resources.metrics.render(), media_type=metrics.CONTENT_TYPE)
