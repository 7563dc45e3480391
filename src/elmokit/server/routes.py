"""Routes of the model: embed, encode, score, next, fill, predict; and those of the service."""

from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

import elmokit
from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.inference_session import LayerSelection
from elmokit.language_model_results import Perplexity, Score
from elmokit.pooling import Vectors, get_pooling, pool_sentences, unit_vectors
from elmokit.server import schemas
from elmokit.server.app_resources import RequestContext, run_in
from elmokit.server.middleware import CONTEXT
from elmokit.server.model_calls import ModelCall, TokenizedTexts, fill_call, score_call
from elmokit.server.responses import (
    choose_media_type,
    embeddings_response,
    encodings_response,
    json_response,
)
from elmokit.server.schemas import NPY, NPZ

ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.ErrorResponse, "description": description}
    for status, description in (
        (400, "The body is not JSON."),
        (401, "The token is missing or wrong."),
        (406, "None of the accepted media types can be sent."),
        (408, "The body did not arrive in time."),
        (413, "The body is too large, or has too many texts or words."),
        (422, "A field is missing or invalid, or the model does not have what is requested."),
        (429, "Too many requests are waiting; Retry-After says when to try again."),
        (503, "No answer in time, or the service is starting or shutting down."),
    )
}

router = APIRouter(tags=["model"], responses=ERROR_RESPONSES)
service_router = APIRouter(tags=["service"])


async def _get_context(request: Request) -> RequestContext:
    context: RequestContext = request.scope[CONTEXT]
    return context


Context = Annotated[RequestContext, Depends(_get_context)]
Accept = Annotated[str | None, Header(include_in_schema=False)]


def _or(binary: str) -> dict[int | str, dict[str, Any]]:
    """The response of a route as another media type beside JSON."""
    return {200: {"content": {binary: {"schema": {"type": "string", "format": "binary"}}}}}


@router.post("/embed", response_model=schemas.EmbedResponse, responses=_or(NPZ))
async def embed(body: schemas.EmbedRequest, context: Context, accept: Accept = None) -> Response:
    """The vectors of every word, (layers, words, dim) per sentence."""
    media_type = choose_media_type(accept, NPZ)
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, body.texts)
        vectors = await context.embed(embedder, texts.sentences, body.layers, body.directions)
    layers = LayerSelection.of(embedder.bilm.config, body.layers, body.directions).layers
    return embeddings_response(texts, layers, vectors, media_type)


@router.post("/encode", response_model=schemas.EncodeResponse, responses=_or(NPY))
async def encode(body: schemas.EncodeRequest, context: Context, accept: Accept = None) -> Response:
    """One vector per text, (texts, dim): the pooled vectors of its words."""
    media_type = choose_media_type(accept, NPY)
    async with context.admit() as embedder:
        get_pooling(body.pooling, embedder.pretrained.vocabulary)  # refuses unknown names
        texts = await context.tokenize(embedder, body.texts)
        vectors = await context.embed(embedder, texts.sentences, body.layers)
        encodings = await run_in(
            context.resources.text_thread, _pool, embedder, body, texts, vectors
        )
    return encodings_response(encodings, media_type)


def _pool(
    embedder: Embedder, body: schemas.EncodeRequest, texts: TokenizedTexts, vectors: list[Vectors]
) -> Vectors:  # (texts, dim), or (texts, layers, dim) of several layers
    """The pooled vectors of each text, zero for a text without words."""
    config, vocabulary = embedder.bilm.config, embedder.pretrained.vocabulary
    pooling = get_pooling(body.pooling, vocabulary)
    selection = LayerSelection.of(config, body.layers)
    pooled = np.zeros((len(body.texts), selection.num_layers, selection.dim(config)), np.float32)
    rows = zip(texts.text_indices, texts.sentences, vectors, strict=True)
    for index, group in groupby(rows, key=itemgetter(0)):
        _, sentences, arrays = zip(*group, strict=True)
        words = [word for sentence in sentences for word in sentence]
        pooled[index] = pool_sentences(arrays, words, pooling, vocabulary)
    encodings: Vectors = pooled[:, 0] if selection.num_layers == 1 else pooled
    return unit_vectors(encodings) if body.normalize_embeddings else encodings


@router.post("/score", response_model=schemas.ScoreResponse)
async def score(body: schemas.ScoreRequest, context: Context) -> Response:
    """The perplexity of texts, and the log-probability of each word."""
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, body.texts)
        scores = await context.run(score_call(texts.sentences))
    sentences = [
        {"text_index": index, "perplexity": score.perplexity, **vars(score)}
        for index, score in zip(texts.text_indices, scores, strict=True)
    ]
    return json_response({"perplexity": _perplexity(scores), "sentences": sentences})


def _perplexity(scores: list[Score]) -> dict[str, Any] | None:
    if not scores:
        return None
    total = Perplexity.of(scores)
    return vars(total) | {"average": total.average, "geometric_mean": total.geometric_mean}


@router.post("/next", response_model=schemas.NextResponse)
async def next_words(body: schemas.NextRequest, context: Context) -> Response:
    """The most probable words after a text, or before it."""
    predict_words = Embedder.previous_words if body.previous else Embedder.next_words
    run = partial(predict_words, k=body.k, special_tokens=body.special_tokens)
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, [body.text])
        sentences = texts.sentences or [[]]
        sentence = sentences[0 if body.previous else -1]
        predictions = await context.run(ModelCall(run, sentence, texts.num_tokens))
    return json_response({"predictions": predictions})


@router.post("/fill", response_model=schemas.FillResponse)
async def fill(body: schemas.FillRequest, context: Context) -> Response:
    """For each ___ of a text the words that fit best from both sides."""
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, [body.text])
        call = fill_call(body.text, texts.num_tokens, body.k, context.resources.limits)
        gaps = await context.run(call)
    return json_response({"gaps": gaps})


@router.post("/predict/{task}", response_model=schemas.PredictResponse)
async def predict(task: str, body: schemas.PredictRequest, context: Context) -> Response:
    """What a trained head predicts for each text; /info lists the tasks of the service."""
    async with context.admit() as embedder:
        head, served = context.resources.tasks.get(task), ", ".join(context.resources.tasks)
        if head is None:
            raise InputError(
                f"task is {ascii(task)[:60]}, but this service has {served or 'none'}; "
                "start it with elmo serve --task DIR"
            )
        num_tokens = (await context.tokenize(embedder, body.texts)).num_tokens
        call = ModelCall(
            lambda _, texts: head.predict_json(texts),  # it has its own tokenizer and biLM
            body.texts,
            num_tokens,
            in_worker=False,
        )
        predictions = await context.run(call)
    return json_response({"task": task, "predictions": predictions})


@router.get("/info", response_model=schemas.InfoResponse)
async def info(context: Context) -> Response:
    """The model, its sizes, and what the service has besides it."""
    resources, embedder = context.resources, context.resources.batcher.embedder
    pretrained, source = embedder.pretrained, embedder.source
    softmax = pretrained.model.softmax
    return json_response(
        schemas.InfoResponse(
            version=elmokit.__version__,
            model="english" if source is None else Path(source).name,
            source="the package" if source is None else str(source),
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


@service_router.get("/health")
async def health() -> dict[str, str]:
    """The process is alive."""
    return {"status": "alive"}


@service_router.get(
    "/ready", responses={503: {"model": schemas.ErrorResponse, "description": "Not yet."}}
)
async def ready(context: Context) -> dict[str, str]:
    """The model is loaded, and the service is not shutting down."""
    _ = context.resources.batcher.embedder
    return {"status": "ready"}


@service_router.get(
    "/metrics", response_class=Response, responses={200: {"content": {"text/plain": {}}}}
)
async def prometheus_metrics(context: Context) -> Response:
    """Metrics in Prometheus' text format."""
    page = generate_latest(context.resources.metrics.registry)
    return Response(page, media_type=CONTENT_TYPE_LATEST)
