"""Layers of a frozen biLM for a task's texts, computed once; and how texts are prepared for it."""

import tempfile
from collections import ChainMap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from elmokit.embedder import Embedder
from elmokit.errors import OutputError
from elmokit.tasks.datasets.example_records import Words
from elmokit.tokenizers import respell

_SENTENCE_ENDS = frozenset(".!?。！？؟।॥")
_CLOSING = frozenset(["''", *"\"'”’»)]}」』）】》"])


class CachedLayers:
    """The layers of a frozen biLM; those of added texts stay in a temporary file, memory-mapped.

    A text is run sentence by sentence, as a biLM with a fresh state was trained, or as a whole.
    """

    def __init__(
        self, embedder: Embedder, layers: Sequence[int] = (), *, by_sentence: bool = True
    ) -> None:
        self._embedder = embedder
        self.preprocess = Preprocessor(by_sentence, embedder.pretrained.tokenizer)
        self.layers = tuple(layers) or tuple(range(embedder.num_layers))
        self.dim = embedder.dim
        self._cache: dict[Words, npt.NDArray[Any]] = {}  # float16, (layers, words, dim)

    def belong_to(self, embedder: Embedder) -> bool:
        """Whether these are layers of that biLM."""
        own = self._embedder
        return own is embedder or own.pretrained.fingerprint() == embedder.pretrained.fingerprint()

    def add(self, texts: Iterable[Words], *, show_progress_bar: bool | None = False) -> None:
        """Compute the layers of the texts that are not in the cache yet."""
        missing = self._missing(texts)
        if not missing:
            return
        try:
            with tempfile.TemporaryFile() as file:
                arrays = self._embedder.embed_stream(
                    missing, layers=self.layers, show_progress_bar=show_progress_bar
                )
                for array in arrays:
                    file.write(array.astype(np.float16).tobytes())
                file.flush()
                values = np.memmap(file, np.float16, "r")
        except OSError as error:
            needed = sum(map(len, missing)) * len(self.layers) * self.dim * 2
            raise OutputError(
                f"{tempfile.gettempdir()}: the layers of the texts need {needed:,} bytes there "
                f"({error.strerror}); make room, or set TMPDIR to another folder"
            ) from None
        sizes = [len(self.layers) * len(words) * self.dim for words in missing]
        for words, own in zip(missing, np.split(values, np.cumsum(sizes)[:-1]), strict=True):
            self._cache[words] = own.reshape(len(self.layers), len(words), self.dim)

    def __call__(self, texts: Sequence[Words]) -> Tensor:
        """The layers of texts, (layers, texts, steps, dim), 0 at padding.

        Layers that are not in the cache are computed and not kept.
        """
        missing = self._missing(texts)
        arrays = self._embedder.embed(missing, layers=self.layers)
        computed: dict[Words, npt.NDArray[Any]] = dict(zip(missing, arrays, strict=True))
        steps = max(map(len, texts))
        padded = np.zeros((len(self.layers), len(texts), steps, self.dim), np.float16)
        known = ChainMap(self._cache, computed)
        for number, text in enumerate(texts):
            own = [known[words] for words in self.preprocess(text)]
            padded[:, number, : len(text)] = np.concatenate(own, 1)
        return torch.from_numpy(padded).float()

    def _missing(self, texts: Iterable[Words]) -> list[Words]:
        """The sentences of texts that are not in the cache, each once."""
        sentences = self.preprocess.distinct_sentences(texts)
        return [words for words in sentences if words not in self._cache]


@dataclass(frozen=True)
class Preprocessor:
    """How texts are passed to a biLM: sentence by sentence or not, and in which spelling."""

    by_sentence: bool
    tokenizer: str  # that of the text that the biLM was trained on

    def __call__(self, text: Words) -> list[Words]:
        """The sentences of a text; together they have as many words."""
        sentences = split_into_sentences(text) if self.by_sentence else [text]
        return [respell(words, self.tokenizer) for words in sentences]

    def distinct_sentences(self, texts: Iterable[Words]) -> list[Words]:
        return list(dict.fromkeys(words for text in texts for words in self(text)))


def split_into_sentences(words: Words) -> list[Words]:
    """The sentences of a tokenized text: split after . ! ? and closing quotes and brackets.

    Every second straight quote is a closing one.
    """
    sentences, first, ended, in_quotes = [], 0, False, False
    for position, word in enumerate(words):
        ends, closes = word in _SENTENCE_ENDS, word in _CLOSING
        if word == '"':
            closes, in_quotes = in_quotes, not in_quotes
        if ended and not (ends or closes):
            sentences.append(words[first:position])
            first = position
        ended = ends or (ended and closes)
    rest = words[first:]
    if sentences and all(word in _CLOSING for word in rest):  # it was opened before this text
        return [*sentences[:-1], sentences[-1] + rest]
    return [*sentences, rest]
