"""A small index of the sentences that ship with the package, for a service without its own."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from elmokit.embedder import Embedder
from elmokit.files import TextFile
from elmokit.pooling import Vectors
from elmokit.search.index import Index
from elmokit.search.index_build import fit_lexical_part
from elmokit.search.lexical import LexicalPart, TermStatistics, bm25, default_stemmer, get_stemmer
from elmokit.search.passage_vectors import IndexConfig, embed_passages, start_state
from elmokit.search.passages import Passage, VectorSource, read_passages
from elmokit.search.store import Counts, Files, Hit, PassageRef
from elmokit.whitening import Whitening

_SENTENCES = Path(__file__).with_name("sample.txt")


def sample_index(embedder: Embedder) -> Index:
    """An index in memory of 138 short sentences about many things."""
    config = IndexConfig(
        model=embedder.pretrained.fingerprint(),
        tokenizer=embedder.pretrained.tokenizer,
        unit="sentences",
        layers="top",
        pooling="mean" if embedder.pretrained.vocabulary is None else "idf",
        whitening="centre",  # too few sentences to estimate a covariance matrix
        kind="flat",
        state=start_state(embedder),
    )
    files = [TextFile(str(_SENTENCES))]
    passages = [
        replace(passage, file=_SENTENCES.name)  # a service does not show where it is installed
        for passage in read_passages(files, tokenizer=config.tokenizer, unit=config.unit)
    ]
    sources, vectors = embed_passages(config, embedder, passages)
    whitening = Whitening.fit_batches([vectors], dim=config.dim(embedder), method=config.whitening)
    stemmer, texts = default_stemmer(config.tokenizer), (passage.text for passage in passages)
    lexical_part = fit_lexical_part(embedder, config, texts, stemmer=stemmer)
    store = MemoryStore("the sample", config, whitening, lexical_part)
    store.add(passages, sources, whitening.transform(vectors))
    return Index(store, embedder)


class MemoryStore:
    """A store for some hundreds of passages that is gone when the process ends."""

    def __init__(
        self,
        name: str,
        config: IndexConfig,
        whitening: Whitening,
        lexical_part: LexicalPart | None = None,
    ) -> None:
        self.name, self.config, self.whitening = name, config, whitening
        self.lexical_part = lexical_part
        self.dim = len(whitening.mean)
        self._rows: list[tuple[PassageRef, Vectors]] = []
        self._passages: dict[int, tuple[PassageRef, list[str]]] = {}  # with their terms
        self._next_id = 1

    def counts(self) -> Counts:
        return Counts(len(self._passages), len(self._rows), len(self.files()))

    def size_bytes(self) -> int:
        return sum(vector.nbytes for _, vector in self._rows)

    def nearest(self, query: Vectors, k: int, files: Files = None) -> list[Hit]:
        return _best([row for row in self._rows if _is_of(row[0], files)], query, k)

    def nearest_occurrences(
        self, word: str, query: Vectors, k: int, files: Files = None
    ) -> list[Hit]:
        folded = word.casefold()
        rows = [row for row in self._rows if (row[0].word or "").casefold() == folded]
        return _best([row for row in rows if _is_of(row[0], files)], query, k)

    def cosines(self, query: Vectors, passages: Sequence[int]) -> dict[int, float]:
        wanted = set(passages)
        hits = _best([row for row in self._rows if row[0].id in wanted], query, len(self._rows))
        return {hit.passage.id: hit.score for hit in reversed(hits)}  # the best comes last

    def files(self) -> list[str]:
        return sorted({ref.file for ref, _ in self._passages.values()})

    def passages_of(self, file: str) -> list[int]:
        return [id_ for id_, (ref, _) in self._passages.items() if ref.file == file]

    def missing(self, ids: Sequence[int]) -> list[int]:
        return [id_ for id_ in ids if id_ not in self._passages]

    @contextmanager
    def changing(self) -> Iterator[None]:
        before = [*self._rows], {**self._passages}
        try:
            yield
        except BaseException:
            self._rows, self._passages = before
            raise

    def add(
        self, passages: Sequence[Passage], sources: Sequence[VectorSource], vectors: Vectors
    ) -> None:
        refs = [
            PassageRef(id_, p.file, p.line, p.start, p.end, p.text, None, None)
            for id_, p in enumerate(passages, self._next_id)
        ]
        for source, vector in zip(sources, vectors, strict=True):
            ref = replace(refs[source.passage], word=source.word, word_index=source.word_index)
            self._rows.append((ref, vector))
        for ref, passage in zip(refs, passages, strict=True):
            self._passages[ref.id] = ref, self._terms(passage.words)
        self._next_id += len(passages)

    def delete(self, ids: Sequence[int]) -> None:
        deleted = set(ids)
        self._rows = [row for row in self._rows if row[0].id not in deleted]
        self._passages = {id_: own for id_, own in self._passages.items() if id_ not in deleted}

    def term_statistics(self, terms: Iterable[str]) -> TermStatistics:
        all_terms = [terms for _, terms in self._passages.values()]
        frequencies = {term: sum(term in own for own in all_terms) for term in terms}
        length = sum(map(len, all_terms)) / max(len(all_terms), 1)
        stemmer = None if self.lexical_part is None else self.lexical_part.stemmer
        return TermStatistics(len(all_terms), length, frequencies, stemmer)

    def best_by_terms(
        self, weights: Mapping[str, float], k: int, files: Files = None
    ) -> list[PassageRef]:
        length = self.term_statistics(()).average_length
        scored = [
            (bm25(terms, weights, average_length=length), ref)
            for ref, terms in self._passages.values()
            if _is_of(ref, files)
        ]
        best = sorted((pair for pair in scored if pair[0]), key=lambda pair: -pair[0])
        return [ref for _, ref in best[:k]]

    def sample_texts(self, limit: int) -> list[str]:
        texts = [ref.text for ref, _ in self._passages.values()]
        return texts[:: max(1, len(texts) // limit)][:limit]

    def make_lexical_part(self, part: LexicalPart) -> None:
        self.lexical_part = part
        for id_, (ref, _) in self._passages.items():
            self._passages[id_] = ref, self._terms(self.config.words(ref.text))

    def close(self) -> None:
        pass

    def _terms(self, words: Sequence[str]) -> list[str]:
        if self.lexical_part is None:
            return []
        return get_stemmer(self.lexical_part.stemmer).terms(words)


def _is_of(ref: PassageRef, files: Files) -> bool:
    return files is None or ref.file in files


def _best(rows: Sequence[tuple[PassageRef, Vectors]], query: Vectors, k: int) -> list[Hit]:
    """The k rows nearest to a query, (dim,), best first."""
    if not rows:
        return []
    cosines = np.stack([vector for _, vector in rows]) @ query
    best = np.argsort(-cosines, kind="stable")[:k]
    return [Hit.by_cosine(cosines[n], rows[n][0]) for n in best]
