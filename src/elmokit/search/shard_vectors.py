"""Passages and vectors of an index from a folder of shards, which need not be computed again."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from elmokit.bulk import open_shards, row_vectors
from elmokit.errors import InputError
from elmokit.pooling import HEADS, is_word
from elmokit.search.index_build import IndexPart, check_progress
from elmokit.search.passage_vectors import IndexConfig, Kind, Layers, check_range
from elmokit.search.passages import Passage, VectorSource
from elmokit.search.store import BuildProgress
from elmokit.tokenizers import get_tokenizer
from elmokit.whitening import WhiteningMethod

_NAMES_OF_LAYERS: dict[str, Layers] = {"average": "mean", "top": "top", "concat": "concat"}


class ShardVectors:
    """The rows of a complete folder of shards: passages with a vector, or words with one each."""

    def __init__(self, location: str | Path) -> None:
        self.name = str(location)
        self._folder, manifest = open_shards(location)
        self._corpus, self._settings = manifest.corpus, manifest.settings
        self._of_words = self._settings["pooling"] is None
        self._ends = [*accumulate(file.rows for file in self._corpus.files)]
        self._layers: Layers | None = None  # a sentence head has layers of its own
        if self._settings["pooling"] in HEADS:
            return
        stored = str(self._settings["layers"])
        if stored not in _NAMES_OF_LAYERS and not stored.lstrip("-").isdigit():
            raise InputError(
                f"{location}: has the layers {stored!r}, expected those of an index: mean, top, "
                "concat or one number; embed the corpus with --layers mean"
            )
        self._layers = _NAMES_OF_LAYERS[stored] if stored in _NAMES_OF_LAYERS else int(stored)

    def index_config(self, whitening: WhiteningMethod, kind: Kind | Literal["auto"]) -> IndexConfig:
        """The settings of an index of these vectors, by which queries are encoded."""
        return IndexConfig(
            model=self._settings["model"],
            tokenizer=self._settings["tokenizer"],
            unit="words" if self._of_words else "paragraphs",
            layers=self._layers,
            pooling=self._settings["pooling"] or "mean",
            whitening=whitening,
            kind=kind,
            state=self._settings["state"],
        )

    def describe(self) -> dict[str, Any]:
        """The inputs of the shards, and the precision of the vectors."""
        files = [f"{file.name}, {file.sha256}" for file in self._corpus.files]
        return {"files": files, "precision": self._settings["precision"]}

    def parts_after(self, done: BuildProgress) -> Iterator[IndexPart]:
        """The parts that are not stored; InputError if the passages are not those of before."""
        first_row = passages = 0
        for shard in range(self._corpus.num_shards):
            for table in self._folder.read_tables(shard):
                if passages < done.passages:
                    rows = self._rows(table, first_row)
                    passages += len(rows)
                    if passages >= done.passages:
                        check_progress(done, [passage for _, passage in rows[-1:]])
                elif part := self._part(table, first_row):
                    yield part
                first_row += len(table)
        if passages < done.passages:
            check_progress(done, [])

    def _part(self, table: pa.Table, first_row: int) -> IndexPart | None:
        arrays = row_vectors(table)
        sources: list[VectorSource] = []
        vectors = []
        rows = self._rows(table, first_row)
        for number, (row, passage) in enumerate(rows):
            array = arrays[row].astype(np.float32)
            if self._of_words:
                words = passage.words
                indices = [index for index, word in enumerate(words) if is_word(word)]
                sources += (VectorSource(number, words[index], index) for index in indices)
                array = array[indices]
            else:
                sources.append(VectorSource(number))
                array = array[None]
            check_range(array, passage)
            vectors.append(array)
        if not rows:
            return None
        return IndexPart([passage for _, passage in rows], sources, np.concatenate(vectors))

    def _rows(self, table: pa.Table, first_row: int) -> list[tuple[int, Passage]]:
        """The rows of a table that have words, by their numbers in it."""
        texts = table[self._corpus.column].to_pylist()
        rows = []
        for row, text in enumerate(texts):
            sentences = self._sentences(text)
            if any(sentences):
                rows.append((row, self._passage(text, sentences, first_row + row)))
        return rows

    def _sentences(self, text: str | list[str]) -> Sequence[Sequence[str]]:
        if not isinstance(text, str):
            return [text]
        tokenizer = get_tokenizer(self._settings["tokenizer"])
        return [tokenizer.tokenize(sentence) for sentence in tokenizer.split_sentences(text)]

    def _passage(
        self, text: str | list[str], sentences: Sequence[Sequence[str]], row: int
    ) -> Passage:
        number = bisect_right(self._ends, row)
        file = self._corpus.files[number]
        line = row - (self._ends[number] - file.rows) + 1
        shown = text if isinstance(text, str) else " ".join(text)
        if self._of_words:  # an index of words has sentences, in which a word has its number
            sentences = [[word for sentence in sentences for word in sentence]]
        words = tuple(tuple(sentence) for sentence in sentences if sentence)
        return Passage(file.name, line, 0, len(shown), shown, words)
