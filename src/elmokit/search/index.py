"""The search index: build, open, search, add to and delete from an index of embedded text."""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Literal, cast

import numpy as np

from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError
from elmokit.files import TextFile, find_files
from elmokit.inference_session import LayerSelection
from elmokit.pooling import Vectors
from elmokit.progress import Progress
from elmokit.search.passage_vectors import (
    IndexConfig,
    Kind,
    Layers,
    embed_passages,
    start_state,
)
from elmokit.search.passages import Passage, Unit, group_passages, read_passages
from elmokit.search.store import Hit, IndexBuilder, Store, open_builder, open_store
from elmokit.whitening import Whitening, WhiteningMethod

_LARGEST_ID = 2**63 - 1  # in SQLite and PostgreSQL

# Whitened, fewer vectors are about as far from each other as they can be, whatever they say.
_FEWEST_VECTORS_TO_WHITEN = 4


class Index:
    """Passages of text, or words in them, that are searched by the vectors of a model.

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
        show_progress_bar: bool | None = None,
    ) -> "Index":
        """Build an index in a new folder or at a PostgreSQL URL; repeat the call to resume it.

        `unit` is what gets a vector: sentences, paragraphs (lines) or words in context. By default
        a passage has the mean of its words' vectors in layer 0, weighted by IDF if the model has a
        vocabulary, which found more than anything else that was tried (docs/search.md); a word has
        the mean of all layers. `kind` is the FAISS index: exact, a graph, or cells. Fewer than
        four vectors are not whitened.

        Each part of the text is stored when it is embedded: a repeated call embeds only what is
        missing, and ends with the same numbers.

        Raises InputError for files without text, other options than those of the build that is
        resumed, or a missing package, and OutputError where there is something else already.
        """
        if layers is None:
            layers = "mean" if unit == "words" else 0
        if pooling is None:
            has_vocabulary = embedder.pretrained.vocabulary is not None
            pooling = "idf" if has_vocabulary and unit != "words" else "mean"
        config = IndexConfig(
            model=embedder.pretrained.fingerprint(),
            tokenizer=embedder.pretrained.tokenizer,
            unit=unit,
            layers=layers,
            pooling=pooling,
            whitening=whitening,
            kind=kind,
            state=start_state(embedder),
        )
        config.check_model(embedder, str(location))
        LayerSelection.of(embedder.bilm.config, config.layers)  # refuses missing layers
        text_files, dim = find_files(files), config.dim(embedder)
        manifest = {
            **asdict(config),
            "files": [*map(_describe, text_files)],
            "precision": embedder.precision,
        }
        with open_builder(location, manifest, dim=dim) as builder:
            _embed_files(builder, text_files, config, embedder, show_progress_bar)
            if not builder.progress().vectors:
                builder.remove()
                names = ", ".join(file.name for file in text_files)
                raise InputError(f"{names}: no words found, expected text to index")
            if builder.progress().vectors < _FEWEST_VECTORS_TO_WHITEN:
                config = replace(config, whitening="none")
            parts = builder.parts()
            builder.finish(config, Whitening.fit_batches(parts, dim=dim, method=config.whitening))
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

    def search(self, text: str, k: int = 10) -> list[Hit]:
        """The k passages nearest to a text, best first."""
        return self.store.nearest(self.encode(text), k)

    def search_word(
        self, word: str, sentence: str, k: int = 10, *, any_word: bool = False
    ) -> list[Hit]:
        """The k occurrences of a word used most like it is in a sentence; or of any word."""
        query = self.encode_word(word, sentence)
        if any_word:
            return self.store.nearest(query, k)
        hits = self.store.nearest_occurrences(word, query, k)
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

    def encode(self, text: str) -> Vectors:  # (dim,)
        """The whitened vector of a text, as passages have it."""
        if self.config.unit == "words":
            raise InputError(
                f"{self.name}: an index of words; give a word of the text to search for "
                "(search_word, elmo search --word)"
            )
        sentences = tuple(map(tuple, self.config.tokenize(text)))
        if not sentences:
            raise InputError(f"the query {text!r} has no word")
        passage = Passage("", 0, 0, len(text), text, sentences)
        _, vectors = embed_passages(self.config, self.embedder, [passage])
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


@dataclass(frozen=True)
class IndexInfo:
    """What an index is: its settings, how much it holds, and what it takes on disk."""

    name: str
    config: IndexConfig
    dim: int
    passages: int
    vectors: int
    files: int
    size_bytes: int


def read_index_info(location: str | Path) -> IndexInfo:
    """What the index in a folder or at a PostgreSQL URL is; its model is not needed."""
    store = open_store(location)
    try:
        counts = store.counts()
        return IndexInfo(
            store.name, store.config, store.dim, counts.passages, counts.vectors, counts.files,
            store.size_bytes(),
        )  # fmt: skip
    finally:
        store.close()


def _embed_files(
    builder: IndexBuilder,
    files: Sequence[TextFile],
    config: IndexConfig,
    embedder: Embedder,
    show_progress_bar: bool | None,
) -> None:
    """Embed and store the passages that are not stored yet."""
    done = builder.progress()
    passages = read_passages(files, tokenizer=config.tokenizer, unit=config.unit)
    last = deque(islice(passages, done.passages), maxlen=1)
    if done.passages and [passage.text for passage in last] != [done.last_text]:  # of stdin, too
        raise InputError(
            f"{builder.name}: passage {done.passages} of the text differs from what the "
            "interrupted build stored; give the same text, or remove what was built so far"
        )
    with Progress(None, unit="passages", shown=show_progress_bar, done=done.passages) as progress:
        for group in group_passages(passages, embedder.tokens_per_batch):
            sources, vectors = embed_passages(config, embedder, group)
            builder.add_part(group, sources, vectors.astype(np.float16))
            words = sum(len(passage.words) for passage in group)
            progress.advance(len(group), words=words)


def _describe(file: TextFile) -> str:
    # A build that 0.1 started is resumed only while this stays as it is.
    return f"{file.name}, {file.size} bytes, changed at {file.modified}"
