"""A store becomes an index: text that is searched by the vectors of a model."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from elmokit.batching import in_windows
from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError
from elmokit.files import TextFile, find_files
from elmokit.pooling import Vectors
from elmokit.search.passages import Passage, read_passages
from elmokit.search.place import open_store
from elmokit.search.recipe import read_vectors
from elmokit.search.store import Hit, Store

_WINDOWS_PER_PART = 4  # so much text is embedded between two steps that can be kept
_MOST_ID = 2**63 - 1  # that a store can have


class Index:
    """Passages of text and their vectors, which the model that made them searches."""

    def __init__(self, store: Store, embedder: Embedder) -> None:
        store.recipe.check_model(embedder, store.name)
        dims = {store.recipe.dim(embedder), store.dim, len(store.whitening.mean)}
        if len(dims) > 1:
            raise FormatError(
                f"{store.name}: vectors of {sorted(dims)} numbers in its files, expected one size; "
                "build the index again"
            )
        self.store, self.embedder = store, embedder
        self.name, self.recipe, self.whitening = store.name, store.recipe, store.whitening

    @classmethod
    def open(cls, place: str | Path, embedder: Embedder) -> "Index":
        """The index of a folder or at an address, refused where another model made it."""
        store = open_store(place)
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
        """Let go of what it is kept in."""
        self.store.close()

    def __len__(self) -> int:
        """How many passages there are."""
        return self.store.count()[0]

    def search(self, text: str, *, k: int = 10) -> list[Hit]:
        """The k passages nearest to a text, the nearest first."""
        return self.store.nearest(self.encode(text), k)

    def search_word(
        self, word: str, sentence: str, *, k: int = 10, any_word: bool = False
    ) -> list[Hit]:
        """The k uses of a word nearest to its use in a sentence; or of any word."""
        query = self.encode_word(word, sentence)
        if any_word:
            return self.store.nearest(query, k)
        hits = self.store.nearest_uses(word, query, k)
        if not hits:
            raise InputError(f"{self.name}: no use of {word!r} is in the index")
        return hits

    def add(self, names: Iterable[str]) -> int:
        """Take the passages of more files; how many there were. All of them are kept, or none."""
        files, added = find_files(names), 0
        with self.store.changing():
            for file in files:
                if self.store.passages_of(file.name):
                    raise InputError(
                        f"{file.name}: in the index already; delete it first (elmo index delete "
                        f"{self.name} --file {file.name})"
                    )
            passages = read_passages(files, split=self.recipe.split, unit=self.recipe.unit)
            for part in in_parts(passages, self.embedder):
                rows, vectors = read_vectors(self.recipe, self.embedder, part)
                self.store.add(part, rows, self.whitening.apply(vectors))
                added += len(part)
        return added

    def delete(self, ids: Sequence[int]) -> None:
        """Forget passages, by the ids that a search gives."""
        with self.store.changing():
            missing = [id_ for id_ in ids if not 0 < id_ <= _MOST_ID] or self.store.missing(ids)
            if missing:
                raise InputError(f"{self.name}: no passage has the id {missing[0]}")
            self.store.delete(ids)

    def passages_of(self, file: str) -> list[int]:
        """The ids of the passages of a file, as it was named when it was added."""
        name = TextFile(file).name
        ids = self.store.passages_of(name)
        if not ids:
            raise InputError(f"{self.name}: no passage of {name} is in the index")
        return ids

    def encode(self, text: str) -> Vectors:  # (dim,)
        """The vector of a text as the store has those of passages."""
        if self.recipe.unit == "words":
            raise InputError(f"{self.name}: an index of words; say which word of the text")
        sentences = tuple(map(tuple, self.recipe.split_text(text)))
        if not sentences:
            raise InputError(f"the query {text!r} has no word")
        passage = Passage("", 0, 0, len(text), text, sentences)
        _, vectors = read_vectors(self.recipe, self.embedder, [passage])
        (vector,) = self.whitening.apply(vectors)
        return cast(Vectors, vector)

    def encode_word(self, word: str, sentence: str) -> Vectors:  # (dim,)
        """The vector of the first use of a word in a sentence as the store has those of words."""
        if self.recipe.unit != "words":
            raise InputError(
                f"{self.name}: an index of {self.recipe.unit}; uses of words need one of words "
                "(elmo index build --words)"
            )
        sentences = self.recipe.split_text(sentence)
        passages = [Passage("", 0, 0, 0, sentence, (tuple(words),)) for words in sentences]
        rows, vectors = read_vectors(self.recipe, self.embedder, passages)
        places = [n for n, row in enumerate(rows) if (row.word or "").casefold() == word.casefold()]
        if not places:
            words = " ".join(row.word or "" for row in rows)
            raise InputError(f"{word!r} is not a word of the sentence, whose words are: {words}")
        (vector,) = self.whitening.apply(vectors[places[:1]])
        return cast(Vectors, vector)


def in_parts(passages: Iterable[Passage], embedder: Embedder) -> Iterator[list[Passage]]:
    """Passages that are embedded together; the same ones, wherever a killed build goes on."""
    tokens = _WINDOWS_PER_PART * embedder.tokens_per_batch
    return in_windows(passages, tokens, lambda passage: len(passage.words))
