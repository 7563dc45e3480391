"""How a query ranks passages: by BM25, by cosine, word by word, and by all of them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from heapq import nlargest
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from elmokit.embedder import Embedder
from elmokit.pooling import Vectors
from elmokit.search import Mode
from elmokit.search.lexical import Stemmer, TermStatistics, bm25
from elmokit.search.passage_vectors import FEWEST_VECTORS_TO_WHITEN
from elmokit.search.store import Hit, PassageRef
from elmokit.whitening import Whitening

# The weights of the parts of a hybrid score, chosen on SQuAD's train part; they add up to 1.
BM25_WEIGHT, WORD_MATCH_WEIGHT, COSINE_WEIGHT = 0.4, 0.4, 0.2

# So many passages are looked at, or twice as many as are asked for.
MIN_CANDIDATES = 50

_CACHE_BYTES = 2**26
_WORDS_TO_WHITEN = 20_000

_MAX_WORDS_TO_MATCH = 64  # of a query

Sentences = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Query:
    """A text to search for, as the mode needs it."""

    text: str
    mode: Mode
    vector: Vectors | None  # (dim,); not where the mode is lexical
    words: tuple[str, ...] = ()  # those to match; not where the mode is semantic
    terms: tuple[tuple[str, ...], ...] = ()  # of each word

    @property
    def distinct_terms(self) -> tuple[str, ...]:
        """Each term once."""
        return tuple(dict.fromkeys(term for terms in self.terms for term in terms))


@dataclass(frozen=True)
class Candidate:
    """A passage that may be among the best, with what is known of it before it is ranked."""

    passage: PassageRef
    cosine: float | None
    sentences: Sentences = ()  # not where the mode is semantic


@dataclass(frozen=True)
class Candidates:
    """What a store has found for a query, and its statistics of the query's terms."""

    query: Query
    passages: Sequence[Candidate]
    statistics: TermStatistics | None  # not where the mode is semantic

    @property
    def num_words(self) -> int:
        """How many different words a hybrid search compares."""
        if self.query.mode != "hybrid":
            return 0
        return len({word for own in self.passages for words in own.sentences for word in words})


def num_candidates(k: int) -> int:
    """How many passages to look at to find the best k."""
    return max(MIN_CANDIDATES, 2 * k)


def rank_by_cosine(candidates: Candidates, k: int) -> list[Hit]:
    """The best k passages of a semantic search."""
    hits = [Hit.by_cosine(c.cosine or 0.0, c.passage) for c in candidates.passages]
    return sorted(hits, key=lambda hit: -hit.score)[:k]


def rank_by_terms(candidates: Candidates, k: int, stemmer: Stemmer) -> list[Hit]:
    """The best k passages of a lexical search."""
    scores = _bm25_scores(candidates, stemmer)
    hits = [
        Hit(score, candidate.passage, bm25=score)
        for score, candidate in zip(scores, candidates.passages, strict=True)
    ]
    return sorted(hits, key=lambda hit: -hit.score)[:k]


def rank_by_all(
    candidates: Candidates,
    k: int,
    stemmer: Stemmer,
    word_vectors: "WordVectors",
    is_content_word: Callable[[str], bool],
) -> list[Hit]:
    """The best k passages of a hybrid search."""
    query, statistics = candidates.query, candidates.statistics
    assert statistics is not None
    cosines = np.array([candidate.cosine or 0.0 for candidate in candidates.passages])
    scores = np.array(_bm25_scores(candidates, stemmer))
    partial = BM25_WEIGHT * scores + COSINE_WEIGHT * cosines
    best = np.argsort(-partial, kind="stable")[: num_candidates(k)]
    weights = defaultdict[str, float](float)  # each different word once, the weightiest
    for word, terms in zip(query.words, query.terms, strict=True):
        weights[word] += sum(map(statistics.weight, terms))
    weighted_words = dict(nlargest(_MAX_WORDS_TO_MATCH, weights.items(), key=itemgetter(1)))
    has_content = any(map(is_content_word, query.words))
    sentences = [
        [
            [word for word in words if is_content_word(word) or not has_content]
            for words in candidates.passages[n].sentences
        ]
        for n in best
    ]
    matches = match_passages(word_vectors, [*weighted_words], [*weighted_words.values()], sentences)
    hits = [
        Hit(
            float(partial[n] + WORD_MATCH_WEIGHT * match),
            candidates.passages[n].passage,
            cosine=float(cosines[n]),
            bm25=float(scores[n]),
            word_match=float(match),
        )
        for n, match in zip(best, matches, strict=True)
    ]
    return sorted(hits, key=lambda hit: -hit.score)[:k]


def _bm25_scores(candidates: Candidates, stemmer: Stemmer) -> list[float]:
    query, statistics = candidates.query, candidates.statistics
    assert statistics is not None
    weights = {term: statistics.weight(term) for term in query.distinct_terms}
    return [
        bm25(
            stemmer.terms(word for words in candidate.sentences for word in words),
            weights,
            average_length=statistics.average_length,
        )
        for candidate in candidates.passages
    ]


class WordVectors:
    """The whitened context-free vectors of words, of length 1, kept for the next query."""

    def __init__(self, embedder: Embedder, whitening: Whitening) -> None:
        self._embedder, self._whitening = embedder, whitening
        self._rows: dict[str, int] = {}
        self._vectors = np.zeros((0, len(whitening.mean)), np.float32)

    def __call__(self, words: Sequence[str]) -> Vectors:  # -> (words, dim)
        """The vectors of words, in order."""
        new = [word for word in dict.fromkeys(words) if word not in self._rows]
        if new:
            used = len(self._rows)
            if (used + len(new)) * self._vectors.shape[1] * 4 > _CACHE_BYTES:
                self._rows, used, new = {}, 0, [*dict.fromkeys(words)]
            encoded = encode_words(self._embedder, new)
            if used + len(new) > len(self._vectors):
                grown = np.zeros((2 * (used + len(new)), self._vectors.shape[1]), np.float32)
                grown[:used] = self._vectors[:used]
                self._vectors = grown
            self._vectors[used : used + len(new)] = self._whitening.transform(encoded)
            self._rows |= {word: row for row, word in enumerate(new, used)}
        vectors: Vectors = self._vectors[[self._rows[word] for word in words]]
        return vectors


def encode_words(embedder: Embedder, words: Sequence[str]) -> Vectors:  # -> (words, dim)
    """The context-free vectors of words, as many at a time as the embedder takes."""
    step = embedder.tokens_per_batch
    batches = [words[start : start + step] for start in range(0, len(words), step)]
    return np.concatenate([embedder.session.encode(batch).cpu().numpy() for batch in batches])


def fit_word_whitening(embedder: Embedder, texts: Iterable[Iterable[str]]) -> Whitening:
    """The whitening of the different words of texts, some thousand of the first."""
    words = dict[str, None]()
    for text in texts:
        words |= dict.fromkeys(text)
        if len(words) >= _WORDS_TO_WHITEN:
            break
    if not words:
        dim = embedder.bilm.config.projection_size
        return Whitening.fit_batches([], dim=dim, method="none")
    few = len(words) < FEWEST_VECTORS_TO_WHITEN
    return Whitening.fit(encode_words(embedder, [*words]), method="none" if few else "zca")


def match_passages(
    vectors: WordVectors,
    query: Sequence[str],
    weights: Sequence[float],
    passages: Sequence[Sentences],
) -> Vectors:  # -> (passages,)
    """How well the best sentence of each passage matches the words of a query, from 0 to 1.

    For each word of the query, the squared cosine with the most similar word of the sentence; then
    the weighted mean of these. Squared, words that have nothing to do with each other hardly count.
    """
    matches = np.zeros(len(passages), np.float32)
    if not sum(weights):
        return matches
    # Each different word once, and from them the words of each sentence.
    words = {w: 0 for passage in passages for sentence in passage for w in sentence}
    words = {word: n for n, word in enumerate(words)}
    if not words:
        return matches
    similarities = np.maximum(vectors(query) @ vectors([*words]).T, 0) ** 2  # (query, words)
    shares = np.asarray(weights, np.float32) / np.float32(sum(weights))
    for number, passage in enumerate(passages):
        sentences = [sentence for sentence in passage if sentence]
        if sentences:
            columns = [words[word] for sentence in sentences for word in sentence]
            starts = _starts([len(sentence) for sentence in sentences])
            best = np.maximum.reduceat(similarities[:, columns], starts, axis=1)
            matches[number] = (shares @ best).max()  # of (query, sentences)
    return matches


def _starts(lengths: Sequence[int]) -> npt.NDArray[np.int64]:
    return np.cumsum([0, *lengths[:-1]])
