"""Routes that show what a model knows: contexts, similarity, layer weights and search."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import Response

from elmokit.errors import FormatError, InputError
from elmokit.pca_tsne import group_occurrences, project_pca
from elmokit.plots import word_cosines
from elmokit.pooling import Vectors
from elmokit.search.highlight import highlight
from elmokit.search.index import Index
from elmokit.search.store import Hit
from elmokit.server import schemas
from elmokit.server.app_resources import run_in
from elmokit.server.limits import busy, too_large
from elmokit.server.model_calls import ModelCall, TokenizedTexts, check_unicode, count_tokens
from elmokit.server.responses import check_finite, json_response
from elmokit.server.routes import ERROR_RESPONSES, Context
from elmokit.word_occurrences import Occurrence, occurrences_in

router = APIRouter(tags=["exploration"], responses=ERROR_RESPONSES)

# Limits of what is computed from the vectors of one request.
_MAX_OCCURRENCES, _MAX_WORDS, _MAX_PAIRS = 500, 2**16, 2**14
_CLUSTERS = 2


@router.post("/contexts", response_model=schemas.ContextsResponse)
async def contexts(body: schemas.ContextsRequest, context: Context) -> Response:
    """Every occurrence of a word as a point: the first two principal components of each layer."""
    async with context.admit() as embedder:
        texts = await context.tokenize(embedder, body.texts)
        by_sentence = _find_occurrences(body, texts)
        vectors = await context.embed(embedder, [[*own[0].words] for own in by_sentence])
        content = await run_in(context.resources.text_thread, _project, by_sentence, vectors)
    return json_response(content)


def _find_occurrences(
    body: schemas.ContextsRequest, texts: TokenizedTexts
) -> list[list[Occurrence]]:
    """The occurrences of the word, one list for each sentence that has any."""
    if not (word := body.word.strip()):
        raise InputError("the word is empty; give one that occurs in the texts")
    labels: Sequence[str | None] = body.labels or [None] * len(body.texts)
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
        found = "occurs only once" if count else "does not occur"
        raise InputError(f"{word!r} {found} in the texts; two occurrences are needed for a map")
    if count > _MAX_OCCURRENCES:
        raise too_large(f"{word!r} occurs {count:,} times", _MAX_OCCURRENCES)
    num_words = sum(len(own) * len(own[0].words) for own in by_sentence)  # as the response has them
    if num_words > _MAX_WORDS:
        raise too_large(f"the sentences of the occurrences have {num_words:,} words", _MAX_WORDS)
    return by_sentence


def _project(by_sentence: list[list[Occurrence]], vectors: list[Vectors]) -> dict[str, Any]:
    """The occurrences, their groups and their points, as ContextsResponse has them."""
    check_finite(vectors)
    occurrences = [occurrence for own in by_sentence for occurrence in own]
    columns = [
        array[:, occurrence.index]
        for array, own in zip(vectors, by_sentence, strict=True)
        for occurrence in own
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


@router.post("/similarity", response_model=schemas.SimilarityResponse)
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


@router.get("/layer_weights", response_model=schemas.LayerWeightsResponse)
async def layer_weights(context: Context) -> Response:
    """The weight of each layer in the scalar mixes of trained tasks."""
    _ = context.resources.batcher.embedder  # they are read after it
    return json_response({"layer_weights": context.resources.layer_weights})


@router.post("/search", response_model=schemas.SearchResponse)
async def search(body: schemas.SearchRequest, context: Context) -> Response:
    """The passages of the index most similar to a text, or to one of its words."""
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
            results = await _search(index, body, query, context)
        except FormatError:  # it was rebuilt: opened again, and searched once more
            opened = await run_in(context.resources.search_thread, resources.reopen_index, index)
            try:
                results = await _search(opened, body, query, context)
            except FormatError as error:
                raise busy(str(error), 503) from None
    return json_response({"results": results})


async def _search(
    index: Index, body: schemas.SearchRequest, query: TokenizedTexts, context: Context
) -> list[schemas.SearchResult]:
    limit = context.resources.limits.max_tokens

    def encode(_: object, text: str) -> Vectors:
        return index.encode(text) if body.word is None else index.encode_word(body.word, text)

    vector = await context.run(ModelCall(encode, body.query, query.num_tokens, in_worker=False))
    hits = await run_in(context.resources.search_thread, _find_nearest, index, body, vector)
    passages = await run_in(
        context.resources.text_thread,
        lambda: [index.config.tokenize(hit.passage.text) for hit in hits],
    )
    if body.word is not None:
        marked = [[n] for hit in hits if (n := hit.passage.word_index) is not None]
    else:  # passages beyond the limit are not embedded, and none of their words is highlighted
        totals = [*accumulate(map(count_tokens, passages), initial=query.num_tokens)]
        num_embedded = sum(total <= limit for total in totals) - 1

        def mark(_: object, text: str) -> list[list[int]]:
            scores = [hit.score for hit in hits[:num_embedded]]
            return highlight(index, text, vector, passages[:num_embedded], scores)

        call = ModelCall(mark, body.query, totals[num_embedded], in_worker=False)
        marked = [*await context.run(call), *([] for _ in passages[num_embedded:])]
    return [*map(_result, hits, passages, marked)]


def _find_nearest(index: Index, body: schemas.SearchRequest, vector: Vectors) -> list[Hit]:
    if body.word is None or body.any_word:
        return index.store.nearest(vector, body.k)
    hits = index.store.nearest_occurrences(body.word, vector, body.k)
    if not hits:
        raise InputError(f"{index.name}: {body.word!r} does not occur in the index")
    return hits


def _result(hit: Hit, sentences: list[list[str]], highlighted: list[int]) -> schemas.SearchResult:
    passage = hit.passage
    return schemas.SearchResult(
        id=passage.id,
        score=hit.score,
        text=passage.text,
        words=[word for words in sentences for word in words],
        highlighted=highlighted,
        file=passage.file,
        line=passage.line,
        start=passage.start,
        end=passage.end,
    )
