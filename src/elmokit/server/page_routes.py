"""Routes that show what a model knows: contexts, similarity, layer weights and search."""

from dataclasses import asdict
from functools import partial
from itertools import accumulate
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import Response

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError, ServiceError
from elmokit.pca_tsne import group_occurrences, project_pca
from elmokit.plots import word_cosines
from elmokit.pooling import Vectors
from elmokit.search.highlight import highlight
from elmokit.search.index import Index
from elmokit.search.store import Hit
from elmokit.server import schemas
from elmokit.server.app_resources import AppResources
from elmokit.server.limits import Limits, too_large
from elmokit.server.middleware import RequestContext
from elmokit.server.model_calls import (
    EmbeddedTexts,
    ModelCall,
    TokenizedTexts,
    check_unicode,
    embed_call,
)
from elmokit.server.responses import check_finite, json_response
from elmokit.server.routes import (
    Context,
    Resources,
    documented,
    example,
    run_embed_call,
    tokenize,
)
from elmokit.word_occurrences import Occurrence, occurrences_in

router = APIRouter()

# Limits of what is computed from the vectors of one request.
_MAX_OCCURRENCES, _MAX_WORDS, _MAX_PAIRS = 500, 2**16, 2**14
_CLUSTERS = 2


@router.post("/contexts", **documented("/contexts", schemas.ContextsResponse))
async def contexts(
    body: Annotated[schemas.ContextsRequest, example("/contexts")],
    resources: Resources,
    context: Context,
) -> Response:
    """Every occurrence of a word as a point: the first two principal components of each layer."""
    async with resources.batcher.admit() as embedder:
        make_call = partial(_occurrences_call, embedder, body, resources.limits)
        call = await resources.prepare(make_call, context)
        embedded = await run_embed_call(call, resources, context)
        content = await resources.run_in_text_thread(lambda: _project(embedded, body))
    return json_response(content)


def _occurrences_call(
    embedder: Embedder, body: schemas.ContextsRequest, limits: Limits
) -> ModelCall[EmbeddedTexts]:
    """The vectors of the sentences in which the word occurs."""
    if not body.word.strip():
        raise InputError("the word is empty; give one that occurs in the texts")
    if body.labels is not None and len(body.labels) != len(body.texts):
        raise InputError(
            f"{len(body.labels)} labels were given for {len(body.texts)} texts; give one per text"
        )
    for index, label in enumerate(body.labels or ()):
        check_unicode(label, f"label {index}")
    texts = TokenizedTexts.from_texts(embedder, body.texts, limits)
    matches = _find_occurrences(texts, body)
    word = repr(body.word.strip())
    if len(matches) < 2:
        count = "occurs only once" if matches else "does not occur"
        raise InputError(f"{word} {count} in the texts; two occurrences are needed for a map")
    if len(matches) > _MAX_OCCURRENCES:
        raise too_large(f"{word} occurs {len(matches):,} times", _MAX_OCCURRENCES)
    num_words = sum(len(occurrence.words) for _, occurrence in matches)
    if num_words > _MAX_WORDS:
        raise too_large(f"the sentences of the occurrences have {num_words:,} words", _MAX_WORDS)
    rows = sorted({row for row, _ in matches})
    chosen = TokenizedTexts(
        [texts.sentences[row] for row in rows], [texts.text_indices[row] for row in rows]
    )
    return embed_call(embedder, chosen, "all", "both")


def _find_occurrences(
    texts: TokenizedTexts, body: schemas.ContextsRequest
) -> list[tuple[int, Occurrence]]:
    """The occurrences of a word, each with the index of its sentence."""
    labels = [None] * len(body.texts) if body.labels is None else body.labels
    return [
        (row, occurrence)
        for row, (words, index) in enumerate(zip(texts.sentences, texts.text_indices, strict=True))
        for occurrence in occurrences_in(words, body.word.strip(), label=labels[index], prefix=True)
    ]


def _project(embedded: EmbeddedTexts, body: schemas.ContextsRequest) -> dict[str, Any]:
    """The occurrences, their groups and their points, as ContextsResponse has them."""
    check_finite(embedded.vectors)
    matches = _find_occurrences(embedded.texts, body)
    occurrences = [occurrence for _, occurrence in matches]
    vectors = np.stack([embedded.vectors[row][:, own.index] for row, own in matches], 1)
    groups = group_occurrences(occurrences, vectors[-1], clusters=_CLUSTERS)
    return {
        "contexts": [
            {"words": occurrence.words, "position": occurrence.index, "group": int(group)}
            for occurrence, group in zip(occurrences, groups.numbers, strict=True)
        ],
        "groups": groups.names,
        "layers": _planes(vectors),
    }


def _planes(vectors: Vectors) -> list[dict[str, Any]]:  # (layers, occurrences, dim)
    """The plane of each layer, its axes flipped where that keeps points near the layer below."""
    planes, below = list[dict[str, Any]](), np.zeros((vectors.shape[1], 2))
    for layer in vectors:
        plane = project_pca(layer)
        below = plane.points * np.where((plane.points * below).sum(0) < 0, -1, 1)
        planes.append({"points": below.tolist(), "explained_variance": plane.explained_variance})
    return planes


@router.post("/similarity", **documented("/similarity", schemas.SimilarityResponse))
async def similarity(
    body: Annotated[schemas.SimilarityRequest, example("/similarity")],
    resources: Resources,
    context: Context,
) -> Response:
    """The cosine similarity of each word of a text and each of another, in each layer."""
    async with resources.batcher.admit() as embedder:
        texts = await tokenize(embedder, [body.first, body.second], resources, context)
        first, second = len(texts.words_of(0)), len(texts.words_of(1))
        if not first or not second:
            raise InputError("a text has no word; give two texts with words")
        if first * second > _MAX_PAIRS:
            raise too_large(
                f"{first:,} words and {second:,} make {first * second:,} pairs", _MAX_PAIRS
            )
        call = embed_call(embedder, texts, "all", "both")
        embedded = await run_embed_call(call, resources, context)
        content = await resources.run_in_text_thread(lambda: _compare(embedded))
    return json_response(content)


def _compare(embedded: EmbeddedTexts) -> dict[str, Any]:
    """The cosines, as SimilarityResponse has them."""
    check_finite(embedded.vectors)
    text_indices = np.array(embedded.texts.text_indices)
    first, second = (
        np.concatenate([embedded.vectors[row] for row in np.flatnonzero(text_indices == text)], 1)
        for text in (0, 1)
    )
    return {
        "first": embedded.texts.words_of(0),
        "second": embedded.texts.words_of(1),
        "layers": word_cosines(first, second).tolist(),
    }


@router.get("/layer_weights", **documented("/layer_weights", schemas.LayerWeightsResponse))
async def layer_weights(resources: Resources) -> Response:
    """The weight of each layer in the scalar mixes of trained tasks."""
    _ = resources.batcher.embedder  # they are read after it
    return json_response({"layer_weights": [asdict(own) for own in resources.layer_weights]})


@router.post("/search", **documented("/search", schemas.SearchResponse))
async def search(
    body: Annotated[schemas.SearchRequest, example("/search")],
    resources: Resources,
    context: Context,
) -> Response:
    """The passages of the index most similar to a text, or to one of its words."""
    _ = resources.batcher.embedder
    index = resources.index
    if index is None:
        raise InputError(
            "this service has no index; make one (elmo index build) and start the service "
            "with it (elmo serve --index DIR)"
        )
    if body.word is None and body.any_word:
        raise InputError("any_word was given without a word")
    check_unicode(body.word or "", "word")
    async with resources.batcher.admit() as embedder:
        try:
            results = await _search(embedder, index, body, resources, context)
        except FormatError:  # it was rebuilt: opened again, and searched once more
            opened = await resources.run_in_search_thread(partial(resources.reopen_index, index))
            try:
                results = await _search(embedder, opened, body, resources, context)
            except FormatError as error:
                raise ServiceError(str(error), status=503, retry_after=1) from None
    return json_response({"results": results})


async def _search(
    embedder: Embedder,
    index: Index,
    body: schemas.SearchRequest,
    resources: AppResources,
    context: RequestContext,
) -> list[schemas.SearchResult]:
    query_texts = await resources.run_in_text_thread(
        partial(TokenizedTexts.from_texts, embedder, [body.query], resources.limits)
    )
    query = await resources.run(_query_call(index, body, query_texts), context)
    hits = await resources.run_in_search_thread(partial(_nearest, index, body, query))
    if body.word is not None:
        return await resources.run_in_text_thread(lambda: [_word_result(index, h) for h in hits])
    call = await resources.run_in_text_thread(
        lambda: _highlight_call(index, body, query_texts, hits, resources.limits)
    )
    return await resources.run(call, context)


def _query_call(
    index: Index, body: schemas.SearchRequest, query_texts: TokenizedTexts
) -> ModelCall[Vectors]:
    """The vector of a query, or of a word in it."""

    def run(_: Embedder, __: list[TokenizedTexts]) -> list[Vectors]:
        if body.word is None:
            return [index.encode(body.query)]
        return [index.encode_word(body.word, body.query)]

    return ModelCall(query_texts, query_texts.num_tokens, run, in_worker=False)


def _nearest(index: Index, body: schemas.SearchRequest, query: Vectors) -> list[Hit]:
    if body.word is None or body.any_word:
        return index.store.nearest(query, body.k)
    hits = index.store.nearest_occurrences(body.word, query, body.k)
    if not hits:
        raise InputError(f"{index.name}: {body.word!r} does not occur in the index")
    return hits


def _word_result(index: Index, hit: Hit) -> schemas.SearchResult:
    """The sentence of an occurrence, with that word highlighted."""
    words = [word for sentence in index.config.tokenize(hit.passage.text) for word in sentence]
    return _result(hit, words, [index for index in [hit.passage.word_index] if index is not None])


def _highlight_call(
    index: Index,
    body: schemas.SearchRequest,
    query_texts: TokenizedTexts,
    hits: list[Hit],
    limits: Limits,
) -> ModelCall[list[schemas.SearchResult]]:
    """The results with the words that are similar to the query highlighted.

    Passages beyond the limit of tokens are not embedded, and none of their words is highlighted.
    """
    texts = [index.config.tokenize(hit.passage.text) for hit in hits]
    sizes = (sum(len(words) + 2 for words in sentences) for sentences in texts)
    totals = accumulate(sizes, initial=query_texts.num_tokens)
    within_limit = [total for total in totals if total <= limits.max_tokens]
    num_embedded = len(within_limit) - 1

    def run(_: Embedder, __: list[TokenizedTexts]) -> list[list[schemas.SearchResult]]:
        matches = highlight(index, body.query, hits[:num_embedded], max_words=limits.max_tokens)
        highlighted = [*(own.highlighted for own in matches), *([] for _ in hits[num_embedded:])]
        words = ([word for sentence in sentences for word in sentence] for sentences in texts)
        return [[*map(_result, hits, words, highlighted)]]

    return ModelCall(query_texts, within_limit[-1], run, in_worker=False)


def _result(hit: Hit, words: list[str], highlighted: list[int]) -> schemas.SearchResult:
    passage = hit.passage
    return schemas.SearchResult(
        id=passage.id,
        score=hit.score,
        text=passage.text,
        words=words,
        highlighted=highlighted,
        file=passage.file,
        line=passage.line,
        start=passage.start,
        end=passage.end,
    )
