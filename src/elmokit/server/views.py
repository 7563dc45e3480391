"""What the page asks becomes answers: where uses stand, what is alike, learnt or found."""

from dataclasses import asdict
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter
from starlette.responses import JSONResponse, Response

from elmokit.embedder import Embedder
from elmokit.errors import InputError
from elmokit.occurrences import Occurrence, occurrences_in
from elmokit.plots import word_cosines
from elmokit.pooling import Vectors
from elmokit.projection import group_occurrences, project_pca
from elmokit.server import forms, replies
from elmokit.server.desk import Desk
from elmokit.server.jobs import Embedded, Job, embedding
from elmokit.server.limits import Limits
from elmokit.server.routes import Asking, ask_and_make, example, told
from elmokit.server.search import find_passages
from elmokit.server.sentences import Sentences, check_characters, too_much
from elmokit.server.shelf import Shelf

# What one request may make of its words, so that drawing never takes long.
_MOST_USES, _MOST_WORDS, _MOST_PAIRS = 500, 2**16, 2**14
_CLUSTERS = 2


def view_routes(desk: Desk, shelf: Shelf) -> APIRouter:
    """The routes that show what a model makes of words."""
    router = APIRouter()

    @router.post("/contexts", **told("/contexts", forms.ContextsReply))
    async def contexts(
        form: Annotated[forms.ContextsForm, example("/contexts")], exchange: Asking
    ) -> Response:
        """Every use of a word as a point of each layer's plane of most variance."""

        def prepare(embedder: Embedder) -> Job[Embedded]:
            return _using(embedder, form, desk.limits)

        return JSONResponse(
            await ask_and_make(desk, prepare, lambda found: _mapped(found, form), exchange)
        )

    @router.post("/similarity", **told("/similarity", forms.SimilarityReply))
    async def similarity(
        form: Annotated[forms.SimilarityForm, example("/similarity")], exchange: Asking
    ) -> Response:
        """The cosine of each word of a text with each of another, in each layer."""

        def prepare(embedder: Embedder) -> Job[Embedded]:
            return _comparing(embedder, form, desk.limits)

        return JSONResponse(await ask_and_make(desk, prepare, _compared, exchange))

    @router.get("/layer_weights", **told("/layer_weights", forms.LayerWeightsReply))
    async def layer_weights() -> Response:
        """The share of each layer in the mixes that trained tasks learnt."""
        _ = desk.embedder  # while it is loaded, so are they
        return JSONResponse({"layer_weights": [asdict(weights) for weights in shelf.layer_weights]})

    @router.post("/search", **told("/search", forms.SearchReply))
    async def search(
        form: Annotated[forms.SearchForm, example("/search")], exchange: Asking
    ) -> Response:
        """The passages of the service's index nearest to a text, or uses like that of a word."""
        _ = desk.embedder
        found = await find_passages(desk, shelf, form, exchange)
        return JSONResponse({"results": [asdict(passage) for passage in found]})

    return router


def _using(embedder: Embedder, form: forms.ContextsForm, limits: Limits) -> Job[Embedded]:
    """The vectors of the sentences that use a word."""
    if not form.word.strip():
        raise InputError("the word is empty; give one that the texts use")
    if form.labels is not None and len(form.labels) != len(form.texts):
        raise InputError(
            f"{len(form.labels)} labels were given for {len(form.texts)} texts; give one a text"
        )
    for place, label in enumerate(form.labels or ()):
        check_characters(label, f"label {place}")
    sentences = Sentences.of(embedder, form.texts, limits)
    found = _uses_of(sentences, form)
    if len(found) < 2:
        told_of = "is only one use" if found else "is no use"
        raise InputError(f"there {told_of} of {form.word.strip()!r} in the texts; a map needs two")
    if len(found) > _MOST_USES:
        raise too_much(f"{form.word.strip()!r} has {len(found):,} uses", _MOST_USES)
    words = sum(len(use.words) for _, use in found)
    if words > _MOST_WORDS:
        raise too_much(f"the sentences of the uses have {words:,} words", _MOST_WORDS)
    using = sorted({number for number, _ in found})
    picked = Sentences([sentences.words[n] for n in using], [sentences.texts[n] for n in using])
    return embedding(embedder, picked, "all", "both")


def _uses_of(sentences: Sentences, form: forms.ContextsForm) -> list[tuple[int, Occurrence]]:
    """The uses of a word, each with the number of its sentence."""
    labels = [None] * len(form.texts) if form.labels is None else form.labels
    return [
        (number, use)
        for number, (words, text) in enumerate(zip(sentences.words, sentences.texts, strict=True))
        for use in occurrences_in(words, form.word.strip(), label=labels[text], prefix=True)
    ]


def _mapped(found: Embedded, form: forms.ContextsForm) -> dict[str, Any]:
    """The uses, their groups and their places, as ContextsReply has them."""
    replies.check_finite(found.vectors)
    placed = _uses_of(found.sentences, form)
    uses = [use for _, use in placed]
    vectors = np.stack([found.vectors[n][:, use.index] for n, use in placed], 1)
    groups = group_occurrences(uses, vectors[-1], clusters=_CLUSTERS)
    return {
        "contexts": [
            {"words": use.words, "position": use.index, "group": group}
            for use, group in zip(uses, groups.numbers, strict=True)
        ],
        "groups": groups.names,
        "layers": _planes(vectors),
    }


def _planes(vectors: Vectors) -> list[dict[str, Any]]:  # (layers, uses, dim)
    """The plane of each layer, turned over where that brings points nearer to the layer below."""
    planes, below = list[dict[str, Any]](), np.zeros((vectors.shape[1], 2))
    for layer in vectors:
        plane = project_pca(layer)
        below = plane.points * np.where((plane.points * below).sum(0) < 0, -1, 1)
        planes.append({"points": below.tolist(), "explained_variance": plane.explained_variance})
    return planes


def _comparing(embedder: Embedder, form: forms.SimilarityForm, limits: Limits) -> Job[Embedded]:
    """The vectors of two texts."""
    sentences = Sentences.of(embedder, [form.first, form.second], limits)
    first, second = (len(_words_of(sentences, text)) for text in (0, 1))
    if not first or not second:
        raise InputError("a sentence has no word; give two sentences with words")
    if first * second > _MOST_PAIRS:
        raise too_much(f"{first:,} words and {second:,} make {first * second:,} pairs", _MOST_PAIRS)
    return embedding(embedder, sentences, "all", "both")


def _compared(found: Embedded) -> dict[str, Any]:
    """The cosines, as SimilarityReply has them."""
    replies.check_finite(found.vectors)
    texts = np.array(found.sentences.texts)
    one, other = (
        np.concatenate([found.vectors[n] for n in np.flatnonzero(texts == text)], 1)
        for text in (0, 1)
    )
    return {
        "first": _words_of(found.sentences, 0),
        "second": _words_of(found.sentences, 1),
        "layers": word_cosines(one, other).tolist(),
    }


def _words_of(sentences: Sentences, text: int) -> list[str]:
    pairs = zip(sentences.words, sentences.texts, strict=True)
    return [word for words, own in pairs if own == text for word in words]
