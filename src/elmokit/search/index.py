"""The search index: build, open, search, add to and delete from an index of embedded text."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, cast

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError
from elmokit.files import TextFile, find_files
from elmokit.pooling import HEADS, Vectors, is_word
from elmokit.search import MODES, Mode
from elmokit.search.index_build import EmbeddedFiles, build_index, sample_lexical_part
from elmokit.search.lexical import (
    NO_STEMMER,
    LexicalPart,
    get_stemmer,
    is_content_word,
    stop_words_of,
)
from elmokit.search.passage_vectors import (
    IndexConfig,
    Kind,
    Layers,
    VectorPer,
    choose_stemmer,
    embed_passages,
    start_state,
)
from elmokit.search.passages import Passage, Unit, group_passages, read_passages
from elmokit.search.ranking import (
    Candidate,
    Candidates,
    Query,
    WordVectors,
    num_candidates,
    rank_by_all,
    rank_by_cosine,
    rank_by_terms,
)
from elmokit.search.store import Files, Hit, Store, open_store
from elmokit.whitening import WhiteningMethod

_LARGEST_ID = 2**63 - 1  # in SQLite and PostgreSQL

# The rarest of the query's terms find candidates; all of them count in the scores.
_MAX_TERMS_TO_FIND = 64


class Index:
    """Passages of text that are searched by their words and by the vectors of a model.

    Example:
        with Index.build("wiki.index", ["wiki/*.txt"], model) as index:
            hits = index.search("When was the bridge built?", k=5)
    """

    def __init__(self, store: Store, embedder: Embedder) -> None:
        store.config.check_model(embedder, store.name)
        dims = {store.config.dim(embedder), store.dim, len(store.whitening.mean)}
        if len(dims) > 1:
            raise FormatError(
                f"{store.name}: its files have vectors of {sorted(dims)} numbers, expected one "
                "size; build the index again"
            )
        self.store, self.embedder = store, embedder
        self.name, self.config, self.whitening = store.name, store.config, store.whitening
        vocabulary = embedder.pretrained.vocabulary
        stop_words = stop_words_of(self.config.tokenizer)
        self.is_content_word = lru_cache(2**16)(
            partial(is_content_word, vocabulary=vocabulary, stop_words=stop_words)
        )
        self._use_lexical_part(store.lexical_part)

    @classmethod
    def build(
        cls,
        location: str | Path,
        files: Iterable[str],
        embedder: Embedder,
        *,
        unit: Unit = "sentences",
        layers: Layers | None = None,
        pooling: str | None = None,
        whitening: WhiteningMethod = "zca",
        kind: Kind | Literal["auto"] = "auto",
        vector_per: VectorPer = "sentence",
        stemmer: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> "Index":
        """Build an index in a new folder or at a PostgreSQL URL; repeat the call to resume it.

        `unit` is what is found: sentences, paragraphs (lines) or words in context. A vector is the
        mean of its words' vectors in layer 0, weighted by IDF if the model has a vocabulary, which
        found more than anything else that was tried (docs/search.md); a word has the mean of all
        layers. `pooling` may also be a sentence head of the model, which has layers of its own. A
        paragraph has a vector for each sentence (`vector_per`), or only one. `kind` is the FAISS
        index: exact, a graph, or cells. Fewer than four vectors are not whitened.

        `stemmer` is one of Snowball's, "english", or "none"; by default that of the language of
        the model's tokenizer.

        Each part of the text is stored when it is embedded: a repeated call embeds only what is
        missing, and ends with the same numbers.

        Raises InputError for files without text, other options than those of the build that is
        resumed, or a missing package, and OutputError where there is something else already.
        """
        if pooling in HEADS and unit == "words":
            raise InputError(f"pooling {pooling!r} is for texts, and an index of words has none")
        if layers is None and pooling not in HEADS:
            layers = "mean" if unit == "words" else 0
        if pooling is None:
            has_vocabulary = embedder.pretrained.vocabulary is not None
            pooling = "idf" if has_vocabulary and unit != "words" else "mean"
        config = IndexConfig(
            model=embedder.pretrained.fingerprint(pooling),
            tokenizer=embedder.pretrained.tokenizer,
            unit=unit,
            layers=layers,
            pooling=pooling,
            whitening=whitening,
            kind=kind,
            state=start_state(embedder),
            vector_per=vector_per if unit == "paragraphs" else "passage",
        )
        build_index(
            location,
            EmbeddedFiles(find_files(files), config, embedder),
            embedder,
            config,
            stemmer=stemmer,
            show_progress_bar=show_progress_bar,
        )
        return cls.open(location, embedder)

    @classmethod
    def build_from_shards(
        cls,
        location: str | Path,
        shards: str | Path,
        embedder: Embedder,
        *,
        whitening: WhiteningMethod = "zca",
        kind: Kind | Literal["auto"] = "auto",
        stemmer: str | None = None,
        show_progress_bar: bool | None = None,
    ) -> "Index":
        """Build an index of the vectors in a folder that `elmokit.bulk.embed_corpus` wrote.

        With a pooling, a row is a passage that has its vector; without one, each word of a row has
        its own, as in an index of words. The vectors must be of one layer, or of layers combined by
        "mean" or "concat". Queries are tokenized as the rows were; the stemmer is by default that
        of the language of the model's tokenizer. Repeat the call to go on with a build that was
        interrupted.
        """
        from elmokit.search.shard_vectors import ShardVectors  # noqa: PLC0415  an extra

        source = ShardVectors(shards)
        config = source.index_config(whitening, kind)
        if config.tokenizer == "spaces":  # which says nothing of the language
            tokenizer = embedder.pretrained.tokenizer
            stemmer = stemmer or choose_stemmer(tokenizer, config.unit)
        build_index(
            location,
            source,
            embedder,
            config,
            stemmer=stemmer,
            show_progress_bar=show_progress_bar,
        )
        return cls.open(location, embedder)

    @classmethod
    def open(cls, location: str | Path, embedder: Embedder) -> "Index":
        """Open the index in a folder or at a PostgreSQL URL with the model that built it."""
        store = open_store(location)
        try:
            return cls(store, embedder)
        except BaseException:
            store.close()
            raise

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close its files or its connection."""
        self.store.close()

    def __len__(self) -> int:
        """The number of passages."""
        return self.store.counts().passages

    def __repr__(self) -> str:
        return f"Index({self.name!r}, {len(self):,} passages, unit={self.config.unit!r})"

    @property
    def modes(self) -> tuple[Mode, ...]:
        """How it can be searched, by default first: by meaning only without a lexical part."""
        return ("semantic",) if self._word_vectors is None else ("hybrid", "semantic", "lexical")

    @property
    def mode(self) -> Mode:
        """How it is searched if nothing else is asked for: hybrid, if it has a lexical part."""
        return self.modes[0]

    def search(
        self, text: str, k: int = 10, *, mode: Mode | None = None, files: Iterable[str] = ()
    ) -> list[Hit]:
        """The k passages that match a text best, best first.

        `mode` is "hybrid", "semantic" or "lexical" (docs/search.md says what the scores mean).
        `files` are names or globs of the files whose passages to search.

            index.search("painters of the sea", k=5, files=["art/*.txt"])
        """
        return self.rank(self.find(self.query(text, mode), k, self.matching_files(files)), k)

    # The steps of `search`; the first and the last need the model, the others the store.

    def query(self, text: str, mode: Mode | None = None) -> Query:
        """What is to be searched for."""
        mode = self.mode if mode is None else mode
        if mode not in MODES:
            raise InputError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
        self._check_unit_for_text()
        if mode == "semantic":
            return Query(text, mode, self.encode(text))
        if self._word_vectors is None:
            raise InputError(
                f"{self.name}: no lexical part for mode {mode!r}, or one that lacks passages; "
                f"earlier versions build and change indexes without it: add it (elmo index upgrade "
                f"{self.name}), or search with mode 'semantic'"
            )
        all_words = self.config.words(text)
        if not all_words:
            raise _no_word_error(text)
        words = [word for word in all_words if is_word(word)]
        words = [word for word in words if self.is_content_word(word)] or words
        terms = tuple(tuple(self.terms([word])) for word in words)
        vector = self.encode(text) if mode == "hybrid" else None
        return Query(text, mode, vector, tuple(words), terms)

    def find(self, query: Query, k: int, files: Files = None) -> Candidates:
        """The passages among which the best k are; `files` are the names of those to search."""
        _check_k(k)
        if query.vector is not None and query.mode == "semantic":
            nearest = self._nearest(query.vector, k, files)
            passages = [Candidate(hit.passage, hit.score) for hit in nearest]
            return Candidates(query, passages, None)
        depth = num_candidates(k)
        statistics = self.store.term_statistics(query.distinct_terms)
        if statistics.stemmer != self._stemmer.name:  # the query's terms are those of another
            raise FormatError(
                f"{self.name}: its lexical part was made again since it was opened; open it again"
            )
        weights = {
            term: statistics.weight(term)
            for term in query.distinct_terms
            if statistics.frequencies.get(term)
        }
        rarest = sorted(weights.items(), key=lambda pair: -pair[1])[:_MAX_TERMS_TO_FIND]
        refs = self.store.best_by_terms(dict(rarest), depth, files)
        found, cosines = {ref.id: ref for ref in refs}, dict[int, float]()
        if query.vector is not None:
            near = self._nearest(query.vector, depth, files)
            cosines = self.store.cosines(query.vector, [*found])
            cosines |= {hit.passage.id: hit.score for hit in near}
            found |= {hit.passage.id: hit.passage for hit in near}
        passages = [
            Candidate(ref, cosines.get(id_), self.config.tokenize(ref.text))
            for id_, ref in found.items()
        ]
        return Candidates(query, passages, statistics)

    def rank(self, candidates: Candidates, k: int) -> list[Hit]:
        """The best k of them."""
        if candidates.query.mode == "semantic":
            return rank_by_cosine(candidates, k)
        assert self._stemmer is not None
        if candidates.query.mode == "lexical":
            return rank_by_terms(candidates, k, self._stemmer)
        assert self._word_vectors is not None
        return rank_by_all(candidates, k, self._stemmer, self._word_vectors, self.is_content_word)

    def terms(self, words: Iterable[str]) -> list[str]:
        """The terms of words in the lexical part; without it, the words in lower case."""
        return self._stemmer.terms(words)

    def matching_files(self, globs: Iterable[str]) -> Files:
        """The names of the files that match one of the globs; None, for all, if there are none."""
        globs = [globs] if isinstance(globs, str) else [*globs]
        if not globs:
            return None
        names = [TextFile(glob).name for glob in globs]
        files = [f for f in self.store.files() if any(f == n or fnmatchcase(f, n) for n in names)]
        if not files:
            raise InputError(f"{self.name}: no file of the index matches {', '.join(names)}")
        return files

    def search_word(
        self,
        word: str,
        sentence: str,
        k: int = 10,
        *,
        any_word: bool = False,
        files: Iterable[str] = (),
    ) -> list[Hit]:
        """The k occurrences of a word used most like it is in a sentence; or of any word."""
        _check_k(k)
        query = self.encode_word(word, sentence)
        names = self.matching_files(files)
        return self.nearest_occurrences(None if any_word else word, query, k, names)

    def nearest_occurrences(
        self, word: str | None, query: Vectors, k: int, files: Files = None
    ) -> list[Hit]:
        """The k occurrences of a word that are nearest to a vector; or of any word."""
        if word is None:
            return self.store.nearest(query, k, files)
        hits = self.store.nearest_occurrences(word, query, k, files)
        if not hits:
            raise InputError(f"{self.name}: {word!r} does not occur in the index")
        return hits

    def add(self, files: Iterable[str]) -> int:
        """Add the passages of more files, all or none; return how many there were."""
        text_files, added = find_files(files), 0
        with self.store.changing():
            for file in text_files:
                if self.store.passages_of(file.name):
                    raise InputError(
                        f"{file.name}: in the index already; delete it first (elmo index delete "
                        f"{self.name} --file {file.name})"
                    )
            passages = read_passages(
                text_files, tokenizer=self.config.tokenizer, unit=self.config.unit
            )
            for group in group_passages(passages, self.embedder.tokens_per_batch):
                sources, vectors = embed_passages(self.config, self.embedder, group)
                self.store.add(group, sources, self.whitening.transform(vectors))
                added += len(group)
        return added

    def delete(self, ids: Sequence[int]) -> None:
        """Delete passages by the ids that a search shows."""
        with self.store.changing():
            missing = [id_ for id_ in ids if not 0 < id_ <= _LARGEST_ID] or self.store.missing(ids)
            if missing:
                raise InputError(f"{self.name}: no passage has the id {missing[0]}")
            self.store.delete(ids)

    def passages_of(self, file: str) -> list[int]:
        """The ids of the passages of a file, named as it was when it was added."""
        name = TextFile(file).name
        ids = self.store.passages_of(name)
        if not ids:
            raise InputError(f"{self.name}: no passage of {name} is in the index")
        return ids

    def upgrade(self, *, stemmer: str | None = None) -> None:
        """Make the lexical part anew, which indexes of earlier versions do not have."""
        if self.config.unit == "words":
            raise InputError(f"{self.name}: an index of words, which has no lexical part")
        name = stemmer or choose_stemmer(self.config.tokenizer, self.config.unit)
        assert name is not None
        with self.store.changing():
            part = sample_lexical_part(self.store, self.embedder, self.config, name)
            self.store.make_lexical_part(part)
        self._use_lexical_part(part)

    def encode(self, text: str) -> Vectors:  # (dim,)
        """The whitened vector of a text, as passages or their sentences have it."""
        self._check_unit_for_text()
        sentences = tuple(map(tuple, self.config.tokenize(text)))
        if not sentences:
            raise _no_word_error(text)
        passage = Passage("", 0, 0, len(text), text, sentences)
        whole = replace(self.config, vector_per="passage")
        _, vectors = embed_passages(whole, self.embedder, [passage])
        (vector,) = self.whitening.transform(vectors)
        return cast(Vectors, vector)

    def encode_word(self, word: str, sentence: str) -> Vectors:  # (dim,)
        """The whitened vector of the first occurrence of a word in a sentence."""
        if self.config.unit != "words":
            raise InputError(
                f"{self.name}: an index of {self.config.unit}; searching for a word needs one of "
                "words (elmo index build --words)"
            )
        sentences = self.config.tokenize(sentence)
        passages = [Passage("", 0, 0, 0, sentence, (tuple(words),)) for words in sentences]
        sources, vectors = embed_passages(self.config, self.embedder, passages)
        folded = word.casefold()
        rows = [n for n, source in enumerate(sources) if (source.word or "").casefold() == folded]
        if not rows:
            words = " ".join(source.word or "" for source in sources)
            raise InputError(f"{word!r} is not a word of the sentence, whose words are: {words}")
        (vector,) = self.whitening.transform(vectors[rows[:1]])
        return cast(Vectors, vector)

    def _use_lexical_part(self, part: LexicalPart | None) -> None:
        self._stemmer, self._word_vectors = get_stemmer(NO_STEMMER), None
        if part is not None:
            dim = self.embedder.bilm.config.projection_size
            if len(part.word_whitening.mean) != dim:
                raise FormatError(
                    f"{self.name}: the lexical part has vectors of {len(part.word_whitening.mean)} "
                    f"numbers, expected {dim}; build the index again"
                )
            self._stemmer = get_stemmer(part.stemmer)
            self._word_vectors = WordVectors(self.embedder, part.word_whitening)

    def _check_unit_for_text(self) -> None:
        if self.config.unit == "words":
            raise InputError(
                f"{self.name}: an index of words; give a word of the text to search for "
                "(search_word, elmo search --word)"
            )

    def _nearest(self, vector: Vectors, k: int, files: Files) -> list[Hit]:
        """The k nearest passages, each with the cosine of its nearest vector."""
        width = k if self.config.vector_per == "passage" else 4 * k
        while True:
            hits, best = self.store.nearest(vector, width, files), dict[int, Hit]()
            for hit in hits:
                best.setdefault(hit.passage.id, hit)
            if len(best) >= k or len(hits) < width:
                return [*best.values()][:k]
            width *= 4


def _check_k(k: int) -> None:
    if k < 1:
        raise InputError(f"k is {k}, expected 1 passage or more")


def _no_word_error(text: str) -> InputError:
    return InputError(f"the query {text!r} has no word")
