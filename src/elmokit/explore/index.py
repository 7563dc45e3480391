"""A folder becomes an index: text that is searched by the vectors of a model."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from elmokit.claim import Claim
from elmokit.embedder import Embedder
from elmokit.errors import FormatError, InputError
from elmokit.explore.catalog import Catalog, Found
from elmokit.explore.nearest import FaissStore, Store
from elmokit.explore.passages import Passage, read_passages
from elmokit.explore.recipe import Recipe, read_vectors
from elmokit.explore.whitening import Whitening
from elmokit.plan import in_windows
from elmokit.pooling import Vectors
from elmokit.text.files import find_files

RECIPE, CATALOG, STORE, WHITENING = (
    "index.json",
    "passages.sqlite",
    "vectors.faiss",
    "whitening.npy",
)

_VECTORS_AT_ONCE = 2**15  # of one word: there may be millions
_WINDOWS_PER_PART = 4  # so much text is embedded between two steps that can be kept


@dataclass(frozen=True)
class Hit:
    """A passage, or a word in it, and its cosine with the query after whitening."""

    score: float
    found: Found

    def record(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {"score": round(self.score, 6), **asdict(self.found)}


class Index:
    """Passages of text and their vectors, which the model that made them searches.

    What the catalog of passages does not know is not in the index, whatever the store holds: a
    process that is killed between the two leaves the index as it was.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder,
        *,
        recipe: Recipe,
        catalog: Catalog,
        store: Store,
        whitening: Whitening,
    ) -> None:
        self.folder, self.embedder, self.recipe = folder, embedder, recipe
        self.store, self.whitening, self._catalog = store, whitening, catalog
        _, vectors, after = catalog.count()
        if after > len(store):
            raise FormatError(
                f"{folder / CATALOG}: knows {after} vectors, but {STORE} has {len(store)}; build "
                "the index again"
            )
        if vectors < len(store):
            store.delete([*set(range(len(store))).difference(catalog.vectors())])

    @classmethod
    def open(cls, folder: str | Path, embedder: Embedder) -> "Index":
        """The index of a folder, refused where another model made it."""
        folder = Path(folder)
        if not (folder / RECIPE).exists():
            begun = (folder / CATALOG).exists()
            remedy = "its build did not end: start it again" if begun else "make one first"
            raise InputError(f"{folder}: no index there; {remedy} (elmo index build)")
        recipe = Recipe.read(folder / RECIPE)
        recipe.check_model(embedder, folder)
        if recipe.kind == "auto":
            raise FormatError(f"{folder / RECIPE}: kind is 'auto', expected the one chosen")
        store = FaissStore.open(folder / STORE, kind=recipe.kind)
        whitening = Whitening.read(folder / WHITENING)
        dims = {recipe.dim(embedder), store.dim, len(whitening.mean)}
        if len(dims) > 1:
            raise FormatError(
                f"{folder}: vectors of {sorted(dims)} numbers in its files, expected one size; "
                "build the index again"
            )
        catalog = Catalog.open(folder / CATALOG)
        try:
            return cls(
                folder, embedder, recipe=recipe, catalog=catalog, store=store, whitening=whitening
            )
        except BaseException:
            catalog.close()
            raise

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the files."""
        self._catalog.close()

    def __len__(self) -> int:
        """How many passages there are."""
        return self._catalog.count()[0]

    def search(self, text: str, *, k: int = 10) -> list[Hit]:
        """The k passages nearest to a text, the nearest first."""
        if self.recipe.unit == "words":
            raise InputError(f"{self.folder}: an index of words; say which word of the text")
        return self._hits(self.encode([text]), k)

    def search_word(
        self, word: str, sentence: str, *, k: int = 10, any_word: bool = False
    ) -> list[Hit]:
        """The k uses of a word nearest to its use in a sentence; or of any word."""
        if self.recipe.unit != "words":
            raise InputError(
                f"{self.folder}: an index of {self.recipe.unit}; uses of words need one of words "
                "(elmo index build --words)"
            )
        query = self._encode_word(word, sentence)
        if any_word:
            return self._hits(query, k)
        uses = self._catalog.uses_of(word)
        if not uses:
            raise InputError(f"{self.folder}: no use of {word!r} is in the index")
        cosines = np.concatenate([self.store.vectors(some) @ query[0] for some in _chunks(uses)])
        nearest = np.argsort(-cosines, kind="stable")[:k]
        return self._found([uses[place] for place in nearest], cosines[nearest])

    def add(self, names: Iterable[str]) -> int:
        """Take the passages of more files; how many there were. All of them are kept, or none."""
        files = find_files(names)
        with self._claimed():
            for file in files:
                if self._catalog.passages_of(file.name):
                    raise InputError(
                        f"{file.name}: in the index already; delete it first (elmo index delete "
                        f"{self.folder} --file {file.name})"
                    )
            passages = read_passages(files, split=self.recipe.split, unit=self.recipe.unit)
            before, added = len(self.store), 0
            try:
                for part in in_parts(passages, self.embedder):
                    rows, vectors = read_vectors(self.recipe, self.embedder, part)
                    self._catalog.add(part, rows, first=len(self.store))
                    self.store.add(self.whitening.apply(vectors))
                    added += len(part)
                self.store.save()
                self._catalog.commit()
            except BaseException:
                self._catalog.undo()
                self.store.delete(range(before, len(self.store)))
                raise
        return added

    def delete(self, ids: Sequence[int]) -> None:
        """Forget passages, by the ids that a search gives."""
        with self._claimed():
            if missing := self._catalog.missing(ids):
                raise InputError(f"{self.folder}: no passage has the id {missing[0]}")
            self.store.delete(self._catalog.delete(ids))
            self._catalog.commit()

    def passages_of(self, file: str) -> list[int]:
        """The ids of the passages of a file, as it was named when it was added."""
        ids = self._catalog.passages_of(file)
        if not ids:
            raise InputError(f"{self.folder}: no passage of {file} is in the index")
        return ids

    def encode(self, texts: Sequence[str]) -> Vectors:  # (texts, dim)
        """The vectors of texts as the store has them; refused where one has no word."""
        passages = []
        for text in texts:
            sentences = tuple(map(tuple, self.recipe.split_text(text)))
            if not sentences:
                raise InputError(f"the query {text!r} has no word")
            passages.append(Passage("", 0, 0, len(text), text, sentences))
        return self.whitening.apply(read_vectors(self.recipe, self.embedder, passages)[1])

    def _encode_word(self, word: str, sentence: str) -> Vectors:  # (1, dim)
        sentences = self.recipe.split_text(sentence)
        passages = [Passage("", 0, 0, 0, sentence, (tuple(words),)) for words in sentences]
        rows, vectors = read_vectors(self.recipe, self.embedder, passages)
        places = [n for n, row in enumerate(rows) if (row.word or "").casefold() == word.casefold()]
        if not places:
            words = " ".join(row.word or "" for row in rows)
            raise InputError(f"{word!r} is not a word of the sentence, whose words are: {words}")
        return self.whitening.apply(vectors[places[:1]])

    def _hits(self, query: Vectors, k: int) -> list[Hit]:
        scores, ids = self.store.search(query, k)
        there = ids[0] >= 0
        return self._found(ids[0][there].tolist(), scores[0][there])

    def _found(self, ids: Sequence[int], scores: Vectors) -> list[Hit]:
        known = self._catalog.found(ids)
        return [Hit(float(s), known[i]) for i, s in zip(ids, scores, strict=True)]

    def _claimed(self) -> Claim:
        return claim(self.folder)


def in_parts(passages: Iterable[Passage], embedder: Embedder) -> Iterator[list[Passage]]:
    """Passages that are embedded together; the same ones, wherever a killed build goes on."""
    tokens = _WINDOWS_PER_PART * embedder.tokens_per_batch
    return in_windows(passages, tokens, lambda passage: len(passage.words))


def _chunks(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), _VECTORS_AT_ONCE):
        yield ids[start : start + _VECTORS_AT_ONCE]


def claim(folder: Path) -> Claim:
    """The right to change an index."""
    return Claim(folder, f"{folder}: another process changes this index; wait for its end")
