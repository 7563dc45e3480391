"""Passages that were found become their words, and those lit that are near a word of the query."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from elmokit.pooling import Vectors, is_word
from elmokit.search.index import Index
from elmokit.search.store import Hit

_SHARE = 0.7  # of the cosine that the nearest word of a passage has


@dataclass(frozen=True)
class Lit:
    """The words of a passage, and the places of those that are near the query."""

    words: list[str]
    places: list[int]


def light_up(index: Index, query: str, hits: Sequence[Hit], *, most_words: int) -> list[Lit]:
    """The words of each passage; none is lit in those beyond `most_words`, which are not read.

    Words are compared as the index compares passages: their layers reduced, then whitened.
    """
    texts = [index.recipe.split_text(text) for text in (query, *(hit.found.text for hit in hits))]
    sizes = np.cumsum([sum(map(len, sentences)) for sentences in texts])
    read = texts[: int((sizes <= most_words).sum())]
    reduction = index.recipe.reduction
    stream = index.embedder.embed_stream(
        (words for sentences in read for words in sentences),
        layers=reduction.layers,
        show_progress_bar=False,
    )
    vectors = [
        index.whitening.apply(np.concatenate([reduction.reduce(next(stream)) for _ in sentences]))
        for sentences in read
    ]
    words = [[word for sentence in sentences for word in sentence] for sentences in texts]
    return [
        Lit(own, _near(words[0], vectors[0], own, vectors[place]) if place < len(read) else [])
        for place, own in enumerate(words[1:], 1)
    ]


def _near(asked: list[str], query: Vectors, words: list[str], passage: Vectors) -> list[int]:
    """The places of the words nearest to a word that was asked for; marks are no words."""
    asking = [place for place, word in enumerate(asked) if is_word(word)]
    places = [place for place, word in enumerate(words) if is_word(word)]
    if not asking or not places:
        return []
    best = (passage[places] @ query[asking].T).max(1)  # (words,)
    least = _SHARE * max(float(best.max()), 0.0)
    return [place for place, cosine in zip(places, best, strict=True) if cosine >= least > 0]
