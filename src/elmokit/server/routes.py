"""Routes of the model, those that show what it knows, and those of the service."""

from collections.abc import Sequence
from functools import partial
from itertools import accumulate, groupby
from operator import itemgetter
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Depends, Header, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.responses import Response

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError
from elmokit.inference_session import LayerSelection
from elmokit.language_model_results import Perplexity, Score
from elmokit.plots import project_pca, word_cosines
from elmokit.pooling import Vectors, unit_vectors
from elmokit.search.highlight import Highlights, highlight
from elmokit.search.index import Index
from elmokit.search.ranking import Candidates, Query
from elmokit.search.store import Hit
from elmokit.server import schemas
from elmokit.server.app_resources import RequestContext, run_in
from elmokit.server.limits import busy, too_large
from elmokit.server.middleware import CONTEXT
from elmokit.server.model_calls import (
    ModelCall,
    TokenizedTexts,
    check_unicode,
    count_tokens,
    fill_call,
    score_call,
)
from elmokit.server.responses import (
    check_finite,
    choose_media_type,
    embeddings_response,
    encodings_response,
    json_response,
)
from elmokit.server.schemas import NPY, NPZ
from elmokit.text_pooling import TextPooling
from elmokit.word_occurrences import Occurrence, group_occurrences, occurrences_in

_ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
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

# Limits of what is computed from the vectors of one request.
_MAX_OCCURRENCES, _MAX_WORDS, _MAX_PAIRS = 500, 2**16, 2**14
_CLUSTERS = 2

router = APIRouter(tags=["model"], responses=_ERROR_RESPONSES)
exploration_router = APIRouter(tags=["exploration"], responses=_ERROR_RESPONSES)
service_router = APIRouter(tags=["service"])


async def _get_context(request: Request) -> RequestContext:
    context: RequestContext = request.scope[CONTEXT]
    return context


Context = Annotated[RequestContext, Depends(_get_context)]
Accept = Annotated[str | None, Header(include_in_schema=False)]


def _binary_response(media_type: str) -> dict[int | str, dict[str, Any]]:
    """The response of a route in a media type of NumPy, beside JSON."""
    return {200: {"content": {media_type: {"schema": {"type": "string", "format": "binary"}}}}}


@router.post("/embed", response_model=schemas.EmbedResponse, responses=_binary_response(NPZ))
async def embed(body: schemas.EmbedRequest, context: Context, accept: Accept = None) -> Response:
    """The vectors of every word, (layers, words, dim) per sentence."""
    media_type = choose_media_type(accept, NPZ)
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, body.texts)
        vectors = await context.embed(embedder, texts.sentences, body.layers, body.directions)
    layers = LayerSelection.of(embedder.bilm.config, body.layers, body.directions).layers
    return embeddings_response(texts, layers, vectors, media_type)


@router.post("/encode", response_model=schemas.EncodeResponse, responses=_binary_response(NPY))
async def encode(body: schemas.EncodeRequest, context: Context, accept: Accept = None) -> Response:
    """One vector per text, (texts, dim): the pooled vectors of its words."""
    media_type = choose_media_type(accept, NPY)
    async with context.admit() as embedder:
        pool = TextPooling.of(embedder.pretrained, body.layers, body.pooling)
        texts = await context.tokenize(embedder, body.texts)
        vectors = await context.embed(embedder, texts.sentences, pool.layers)
        encodings = await run_in(context.resources.text_thread, _pool, pool, body, texts, vectors)
    return encodings_response(encodings, media_type)


def _pool(
    pool: TextPooling, body: schemas.EncodeRequest, texts: TokenizedTexts, vectors: list[Vectors]
) -> Vectors:  # (texts, dim), or (texts, layers, dim) of several layers
    """The pooled vectors of each text, zero for a text without words."""
    pooled = np.zeros((len(body.texts), pool.num_layers, pool.dim), np.float32)
    rows = zip(texts.text_indices, texts.sentences, vectors, strict=True)
    for index, group in groupby(rows, key=itemgetter(0)):
        _, sentences, arrays = zip(*group, strict=True)
        words = [word for sentence in sentences for word in sentence]
        pooled[index] = pool(arrays, words)
    encodings: Vectors = pooled[:, 0] if pool.num_layers == 1 else pooled
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


@exploration_router.post("/contexts", response_model=schemas.ContextsResponse)
async def contexts(body: schemas.ContextsRequest, context: Context) -> Response:
    """Every occurrence of a word as a point: the first two principal components of each layer."""
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, body.texts)
        by_sentence = _find_occurrences(body, texts)
        vectors = await context.embed(embedder, [[*first.words] for first, *_ in by_sentence])
        content = await run_in(context.resources.text_thread, _project, by_sentence, vectors)
    return json_response(content)


def _find_occurrences(
    body: schemas.ContextsRequest, texts: TokenizedTexts
) -> list[list[Occurrence]]:
    """The occurrences of the word, one list for each sentence that has any."""
    if not (word := body.word.strip()):
        raise InputError("the word is empty; give one that occurs in the texts")
    labels: Sequence[str | None] = [None] * len(body.texts) if body.labels is None else body.labels
    if len(labels) != len(body.texts):
        raise InputError(
            f"{len(labels)} labels were given for {len(body.texts)} texts; give one per text"
        )
    for index, label in enumerate(labels):
        check_unicode(label or "", f"label {index}")
    by_sentence = [
        occurrences
        for words, index in zip(texts.sentences, texts.text_indices, strict=True)
        if (occurrences := occurrences_in(words, word, label=labels[index], prefix=True))
    ]
    count = sum(map(len, by_sentence))
    if count < 2:
        frequency = "occurs only once" if count else "does not occur"
        raise InputError(f"{word!r} {frequency} in the texts; two occurrences are needed for a map")
    if count > _MAX_OCCURRENCES:
        raise too_large(f"{word!r} occurs {count:,} times", _MAX_OCCURRENCES)
    # The response repeats a sentence for each occurrence in it.
    num_words = sum(len(o.words) for occurrences in by_sentence for o in occurrences)
    if num_words > _MAX_WORDS:
        raise too_large(f"the sentences of the occurrences have {num_words:,} words", _MAX_WORDS)
    return by_sentence


def _project(by_sentence: list[list[Occurrence]], vectors: list[Vectors]) -> dict[str, Any]:
    """The occurrences, their groups and their points, as ContextsResponse has them."""
    check_finite(vectors)
    occurrences = [occurrence for sentence in by_sentence for occurrence in sentence]
    columns = [
        array[:, occurrence.index]
        for array, sentence in zip(vectors, by_sentence, strict=True)
        for occurrence in sentence
    ]
    layers = np.stack(columns, 1)  # (layers, occurrences, dim)
    groups = group_occurrences(occurrences, layers[-1], clusters=_CLUSTERS)
    return {
        "contexts": [
            {"words": occurrence.words, "position": occurrence.index, "group": group}
            for occurrence, group in zip(occurrences, groups.numbers, strict=True)
        ],
        "groups": groups.names,
        "layers": _planes(layers),
    }


def _planes(layers: Vectors) -> list[dict[str, Any]]:  # (layers, occurrences, dim)
    """The plane of each layer, its axes flipped where that keeps points near the layer below."""
    planes, below = list[dict[str, Any]](), np.zeros((layers.shape[1], 2))
    for vectors in layers:
        plane = project_pca(vectors)
        below = plane.points * np.where((plane.points * below).sum(0) < 0, -1, 1)
        planes.append({"points": below, "explained_variance": plane.explained_variance})
    return planes


@exploration_router.post("/similarity", response_model=schemas.SimilarityResponse)
async def similarity(body: schemas.SimilarityRequest, context: Context) -> Response:
    """The cosine similarity of each word of a text and each of another, in each layer."""
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, [body.first, body.second])
        first, second = texts.words_of(0), texts.words_of(1)
        if not first or not second:
            raise InputError("a text has no word; give two texts with words")
        if (pairs := len(first) * len(second)) > _MAX_PAIRS:
            raise too_large(
                f"{len(first):,} words and {len(second):,} make {pairs:,} pairs", _MAX_PAIRS
            )
        vectors = await context.embed(embedder, texts.sentences)
        cosines = await run_in(context.resources.text_thread, _compare, texts, vectors)
    return json_response({"first": first, "second": second, "layers": cosines})


def _compare(texts: TokenizedTexts, vectors: list[Vectors]) -> Vectors:
    """The cosines of the first text's words and the second's, (layers, words, words)."""
    check_finite(vectors)
    start = texts.text_indices.index(1)  # of the second text's sentences
    return word_cosines(np.concatenate(vectors[:start], 1), np.concatenate(vectors[start:], 1))


@exploration_router.get("/layer_weights", response_model=schemas.LayerWeightsResponse)
async def layer_weights(context: Context) -> Response:
    """The weight of each layer in the scalar mixes of trained tasks."""
    _ = context.resources.batcher.embedder  # they are read after it
    return json_response({"layer_weights": context.resources.layer_weights})


@exploration_router.post("/search", response_model=schemas.SearchResponse)
async def search(body: schemas.SearchRequest, context: Context) -> Response:
    """The passages of the index that match a text best, or occurrences of one of its words."""
    resources = context.resources
    _ = resources.batcher.embedder  # the index is opened after it
    index = resources.index
    if index is None:
        raise InputError(
            "this service has no index; make one (elmo index build) and start the service "
            "with it (elmo serve --index DIR)"
        )
    if body.word is None and body.any_word:
        raise InputError("any_word was given without a word")
    check_unicode(body.word or "", "word")
    async with context.admit() as embedder:
        query = await context.tokenize(embedder, [body.query])
        try:
            response = await _search(index, body, query, context)
        except FormatError:  # it was rebuilt: opened again, and searched once more
            opened = await run_in(context.resources.search_thread, resources.reopen_index, index)
            try:
                response = await _search(opened, body, query, context)
            except FormatError as error:
                raise busy(str(error), 503) from None
    return json_response(response)


async def _search(
    index: Index, body: schemas.SearchRequest, query: TokenizedTexts, context: Context
) -> schemas.SearchResponse:
    """The best passages for a text; the index is asked between two calls of the model."""
    if body.word is not None:
        return await _search_word(index, body, body.word, query, context)
    resources = context.resources

    def prepare(_: object, text: str) -> Query:
        return index.query(text, body.mode)

    prepared = await context.run(ModelCall(prepare, body.query, query.num_tokens, in_worker=False))
    candidates = await run_in(
        resources.search_thread,
        lambda: index.find(prepared, body.k, index.matching_files(body.files)),
    )

    def rank(_: object, found: Candidates) -> list[Hit]:
        return index.rank(found, body.k)

    hits = await context.run(ModelCall(rank, candidates, candidates.num_words, in_worker=False))
    passages = await run_in(
        resources.text_thread,
        lambda: [index.config.tokenize(hit.passage.text) for hit in hits],
    )
    # Passages beyond the limit are not embedded, and none of their words is highlighted.
    totals = [*accumulate(map(count_tokens, passages), initial=query.num_tokens)]
    num_embedded = sum(total <= resources.limits.max_tokens for total in totals) - 1

    def mark(_: object, of: Query) -> list[Highlights]:
        return highlight(index, of, hits[:num_embedded], passages[:num_embedded])

    tokens = totals[num_embedded] if prepared.vector is not None else 0
    marked = [
        *await context.run(ModelCall(mark, prepared, tokens, in_worker=False)),
        *(Highlights([], []) for _ in passages[num_embedded:]),
    ]
    return schemas.SearchResponse(
        mode=prepared.mode, results=[*map(_result, hits, passages, marked)]
    )


async def _search_word(
    index: Index, body: schemas.SearchRequest, word: str, query: TokenizedTexts, context: Context
) -> schemas.SearchResponse:
    """The nearest occurrences of a word of the query, or of any word."""
    if body.mode not in (None, "semantic"):
        raise InputError(f"mode is {body.mode!r} with a word, expected 'semantic' or none")

    def encode(_: object, text: str) -> Vectors:
        return index.encode_word(word, text)

    vector = await context.run(ModelCall(encode, body.query, query.num_tokens, in_worker=False))
    hits = await run_in(
        context.resources.search_thread,
        lambda: index.nearest_occurrences(
            None if body.any_word else word, vector, body.k, index.matching_files(body.files)
        ),
    )
    passages = await run_in(
        context.resources.text_thread,
        lambda: [index.config.tokenize(hit.passage.text) for hit in hits],
    )
    marked = [
        Highlights([n for n in [hit.passage.word_index] if n is not None], []) for hit in hits
    ]
    return schemas.SearchResponse(mode="semantic", results=[*map(_result, hits, passages, marked)])


def _result(hit: Hit, sentences: list[list[str]], highlights: Highlights) -> schemas.SearchResult:
    passage = hit.passage
    return schemas.SearchResult(
        id=passage.id,
        score=hit.score,
        cosine=hit.cosine,
        bm25=hit.bm25,
        word_match=hit.word_match,
        text=passage.text,
        words=[word for words in sentences for word in words],
        highlighted=sorted([*highlights.same, *highlights.near]),
        near=highlights.near,
        file=passage.file,
        line=passage.line,
        start=passage.start,
        end=passage.end,
    )


@router.get("/info", response_model=schemas.InfoResponse)
async def info(context: Context) -> Response:
    """The model, its sizes, and what the service has besides it."""
    resources, embedder = context.resources, context.resources.batcher.embedder
    return json_response(schemas.InfoResponse.of(embedder, [*resources.tasks], resources.index))


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
