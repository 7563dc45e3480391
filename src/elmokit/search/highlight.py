"""The words of found passages that explain why they were found."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from elmokit.pooling import Vectors
from elmokit.search.index import Index
from elmokit.search.ranking import Query, Sentences
from elmokit.search.store import Hit

# Chosen by looking at good and poor results of the English model, in the sample's top layer and in
# layer 0 of Wikipedia. Verbs resemble any verb: what is near a word of the query must also be what
# the query as a whole is about, nearly as much as the passage is.
MIN_COSINE = 0.6  # with a word of the query
SHARE_OF_COSINE = 0.75  # the cosine with the query, of the passage's


@dataclass(frozen=True)
class Highlights:
    """The positions of a passage's content words that match the query."""

    same: list[int]  # words of the query, in any form that the stemmer knows
    near: list[int]  # others that are close to one of them, and to the query as a whole


def highlight(
    index: Index, query: Query, hits: Sequence[Hit], passages: Sequence[Sentences] | None = None
) -> list[Highlights]:
    """The words that explain each hit, by their positions among the words of its passage.

    `passages` are the sentences of words of each hit, if they are known. Words are compared as the
    index compares passages: their layers combined, then whitened. For a lexical search only the
    words of the query themselves are highlighted.

        query = index.query("a painter of landscapes")
        hits = index.search(query.text)
        for hit, words in zip(hits, highlight(index, query, hits)):
            print(hit.passage.text, words.same, words.near)
    """
    if passages is None:
        passages = [index.config.tokenize(hit.passage.text) for hit in hits]
    texts = [index.config.tokenize(query.text), *passages]
    words, *others = ([*chain(*sentences)] for sentences in texts)
    terms = {*index.terms(filter(index.is_content_word, words))}
    content = [_content_positions(index, own) for own in others]
    same = [
        [n for n in positions if not terms.isdisjoint(index.terms([own[n]]))]
        for own, positions in zip(others, content, strict=True)
    ]
    if query.vector is None:
        return [Highlights(own, []) for own in same]
    first, *vectors = _vectors(index, texts)
    query_vectors = first[_content_positions(index, words)]
    highlights = []
    for hit, own_same, positions, own in zip(hits, same, content, vectors, strict=True):
        near_a_word = (own[positions] @ query_vectors.T >= MIN_COSINE).any(1)
        near_all = own[positions] @ query.vector >= SHARE_OF_COSINE * (hit.cosine or 0.0)
        near = {n for n, is_near in zip(positions, near_a_word & near_all, strict=True) if is_near}
        highlights.append(Highlights(own_same, sorted(near.difference(own_same))))
    return highlights


def _content_positions(index: Index, words: Sequence[str]) -> list[int]:
    return [n for n, word in enumerate(words) if index.is_content_word(word)]


def _vectors(index: Index, passages: Sequence[Sentences]) -> Iterator[Vectors]:
    """The whitened vectors of the words of each passage, (words, dim)."""
    pool = index.config.text_pooling(index.embedder)
    stream = index.embedder.embed_stream(
        (words for passage in passages for words in passage),
        layers=pool.layers,
        show_progress_bar=False,
    )
    for passage in passages:
        arrays = np.concatenate([next(stream) for _ in passage], 1)
        vectors = pool.word_vectors(arrays, [*chain(*passage)])
        yield index.whitening.transform(vectors)
